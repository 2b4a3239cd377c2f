"""What the pages say of settings and sums is what the code says; each class has one table."""

import importlib
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from support.runs.checkout import ROOT

from secagg.errors import JobError
from secagg.jobs.registry import METHODS
from secagg.jobs.settings import GROUPS, meanings
from secagg.models.notears_admm.coordinator import Schedule

PAGES = sorted((ROOT / "docs").rglob("*.md"))
SETTINGS = {f"{module}:{name}" for group in GROUPS.values() for module, name in group.values()}


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tables", ROOT / "docs" / "tables.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def marked(generator: ModuleType, page: str, kind: str) -> list[str]:
    return [of for each, of in generator.PART.findall(page) if each == kind]


def test_every_class_of_settings_has_its_table_on_one_page(generator: ModuleType) -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    found = marked(generator, pages, "keys")
    assert len(found) == len(set(found))
    without_settings = {"secagg.models.moments.analyses:Describe", "secagg.protocols.plain:Plain"}
    assert set(found) == SETTINGS - without_settings


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_generated_parts_agree_with_the_code(page: Path, generator: ModuleType) -> None:
    """If not: `make tables`."""
    text = page.read_text(encoding="utf-8")
    assert generator.filled(text) == text


def test_only_the_text_between_the_marks_is_replaced(generator: ModuleType) -> None:
    mark = "<!-- keys: secagg.protocols.additive:Additive -->\n"
    table = (
        "| key | type | default | meaning |\n|---|---|---|---|\n"
        "| `aggregators` | whole number | `2` | Number of aggregators, from 2 to 100. |\n"
    )
    whole = f"a\n{mark}\n{table}\n<!-- end -->\nb\n"
    for before in (f"a\n{mark}b\n", f"a\n{mark}old\n<!-- end -->\nb\n"):
        assert generator.filled(before) == whole
        assert generator.filled(2 * before) == 2 * whole


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
def test_each_method_page_states_its_disclosure(name: str, generator: ModuleType) -> None:
    page = (ROOT / "docs" / "methods" / f"{name}.md").read_text(encoding="utf-8")
    assert marked(generator, page, "sums") == [":".join(METHODS[name])]
    assert "**All sums together determine:** " in page
