"""The tables of settings on the site are made from the code, and every setting has its meaning."""

from __future__ import annotations

import importlib.util
import re
from types import ModuleType

import pytest
from support.checkout import ROOT

from secagg.jobs.job import (
    Binary,
    Categorical,
    Continuous,
    Engine,
    Job,
    Privacy,
    Release,
    Simulation,
    Sites,
)
from secagg.jobs.registry import METHODS, PROTOCOLS
from secagg.models.moments.analyses import KINDS
from secagg.privacy.policy.site_policy import Budget, Dominance, Keys, SitePolicy

PAGES = sorted((ROOT / "docs").rglob("*.md"))
JOB = [Job, Sites, Continuous, Binary, Categorical, Release, Privacy, Simulation, Engine]
POLICY = [SitePolicy, Dominance, Budget, Keys]
SETTINGS = {
    f"{kind.__module__}:{kind.__qualname__}" for kind in [*JOB, *POLICY, *KINDS.values()]
} | {f"{module}:{name}" for module, name in [*METHODS.values(), *PROTOCOLS.values()]}


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("place", sorted(SETTINGS))
def test_every_setting_has_a_type_and_a_meaning(place: str, hooks: ModuleType) -> None:
    rows = hooks.key_table(*place.split(":")).splitlines()[2:]
    for row in rows:
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
        assert len(cells) == 4 and all(cells), row
        assert cells[3].endswith("."), row


def test_every_class_of_settings_has_its_table_on_one_page(hooks: ModuleType) -> None:
    found = [
        f"{module}:{name}"
        for page in PAGES
        for module, name in hooks.MARK.findall(page.read_text(encoding="utf-8"))
    ]
    assert len(found) == len(set(found))
    without_settings = {"secagg.models.moments.analyses:Describe", "secagg.protocols.plain:Plain"}
    assert set(found) == SETTINGS - without_settings


def test_a_table(hooks: ModuleType) -> None:
    assert hooks.key_table("secagg.protocols.additive", "Additive").splitlines() == [
        "| key | type | default | meaning |",
        "|---|---|---|---|",
        "| `aggregators` | whole number | `2` | Number of aggregators, at least 2. |",
    ]
