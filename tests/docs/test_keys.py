"""The tables of settings on the site are made from the code, and every setting has its meaning."""

from __future__ import annotations

import importlib
import importlib.util
import re
from types import ModuleType

import pytest
from support.checkout import ROOT

from secagg.errors import JobError
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
from secagg.models.notears_admm.coordinator import Schedule
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


def test_the_table_of_settings_is_generated_correctly(hooks: ModuleType) -> None:
    assert hooks.key_table("secagg.protocols.additive", "Additive").splitlines() == [
        "| key | type | default | meaning |",
        "|---|---|---|---|",
        "| `aggregators` | whole number | `2` | Number of aggregators, at least 2. |",
    ]


@pytest.mark.parametrize("method", ["notears_admm", "notears_mlp_admm"])
@pytest.mark.parametrize("key", ["rho1", "rho2", "gamma1", "gamma2"])
def test_documented_penalty_ranges_agree_with_validation(
    method: str, key: str, hooks: ModuleType
) -> None:
    module, name = METHODS[method]
    meaning = hooks.meanings(getattr(importlib.import_module(module), name))[key]
    rho = re.search(r"from (\S+) to (\S+)\.$", meaning)
    gamma = re.search(r"above (\S+) and at most (\S+)\.$", meaning)
    low, high = map(float, (rho or gamma).groups())  # type: ignore[union-attr]  # one of the two
    for value in (low if rho else 1.01 * low, high):
        Schedule(**{key: value}).check()
    for value in (0.9 * low if rho else low, 1.1 * high):
        with pytest.raises(JobError, match=key):
            Schedule(**{key: value}).check()


@pytest.mark.parametrize("name", METHODS)
def test_each_method_page_states_its_disclosure(name: str, hooks: ModuleType) -> None:
    page = (ROOT / "docs" / "methods" / f"{name}.md").read_text(encoding="utf-8")
    assert hooks.SUMS.findall(page) == [METHODS[name]]
    assert "**All sums together determine:** " in hooks.on_page_markdown(page)
