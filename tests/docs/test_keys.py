"""The tables of settings on the site are made from the code; each class has its table on a page."""

from __future__ import annotations

import importlib
import importlib.util
import re
from types import ModuleType

import pytest
from support.checkout import ROOT

from secagg.errors import JobError
from secagg.jobs.registry import METHODS
from secagg.jobs.settings import GROUPS, meanings
from secagg.models.notears_admm.coordinator import Schedule

PAGES = sorted((ROOT / "docs").rglob("*.md"))
SETTINGS = {f"{module}:{name}" for group in GROUPS.values() for module, name in group.values()}


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
        "| `aggregators` | whole number | `2` | Number of aggregators, from 2 to 100. |",
    ]


@pytest.mark.parametrize("method", ["notears_admm", "notears_mlp_admm"])
@pytest.mark.parametrize("key", ["rho1", "rho2", "gamma1", "gamma2"])
def test_documented_penalty_ranges_agree_with_validation(method: str, key: str) -> None:
    module, name = METHODS[method]
    meaning = meanings(getattr(importlib.import_module(module), name))[key]
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
