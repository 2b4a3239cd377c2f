"""How cells are read does not depend on the other cells of their column."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.runs.jobs import raw_job

from secagg.jobs.cells import read_column
from secagg.jobs.columns import Continuous, Count
from secagg.jobs.design_matrix import public_facts, read_rows
from secagg.jobs.job import parse_job
from secagg.jobs.site_tables import GivenTable, read_file

NOISED = {"placement": "sum", "epsilon": 1.0, "delta": 1e-6}
NUMBERS = [0, 1, 2, 17, 10**15, 10**16, 2**53 - 1]


@pytest.mark.parametrize("one_more", [None, 2.5, float("nan")])
@pytest.mark.parametrize("suffix", ["", ".0"])
@pytest.mark.parametrize("store", ["parquet", "frame", "array", "list", "nullable"])
def test_one_more_record_does_not_change_how_others_are_read(
    tmp_path: Path, store: str, suffix: str, one_more: float | None
) -> None:
    """A missing cell, or one with decimals, changes the type of the whole column.

    If that changed how the other cells are read, no noise for one record would be enough.
    """
    column = {"type": "categorical", "levels": ["-1", *(f"{n}{suffix}" for n in NUMBERS)]}

    def read(cells: list[Any]) -> list[list[float]]:
        match store:
            case "parquet":
                pytest.importorskip("pyarrow")
                pd.DataFrame({"x": cells}).to_parquet(tmp_path / "x.parquet")
                table = read_file(tmp_path / "x.parquet")
            case "frame":
                table = pd.DataFrame({"x": cells})
            case "nullable":
                whole = pd.array(cells, dtype="Float64" if one_more == 2.5 else "Int64")
                table = pd.DataFrame({"x": whole})
            case "array":
                table = GivenTable("north", {"x": np.array(cells)}).read()
            case _:
                table = GivenTable("north", {"x": cells}).read()
        job = parse_job(raw_job(columns={"x": column}, privacy=NOISED))
        facts = public_facts(job, ("north",))
        return read_rows(job.columns, table, facts, "north").values.tolist()

    assert read([*NUMBERS, one_more]) == read(NUMBERS)
    assert len(read(NUMBERS)) == len(NUMBERS)


@pytest.mark.parametrize("column", [
    Continuous(type="continuous", low=-1e4, high=1e4), Count(type="count", high=50),
])  # fmt: skip
def test_a_column_of_floats_is_read_as_its_cells(column: Continuous | Count) -> None:
    """Bit for bit, also beside cells that cannot be read, and -0 as 0."""
    rng = np.random.default_rng(1)
    numbers = np.concatenate([
        rng.normal(size=50) * 10.0 ** rng.integers(-300, 300, 50), rng.integers(-3, 60, 50),
        [0.0, -0.0, np.nan, np.inf, -np.inf, 0.5, 2.0**53 + 2, 1e300],
    ])  # fmt: skip
    quick = read_column(column, pd.Series(numbers), "x", unreadable_is_missing=True)
    cells = pd.Series(numbers, dtype=object)
    slow = read_column(column, cells, "x", unreadable_is_missing=True)
    assert quick.values.tobytes() == slow.values.tobytes()
    assert quick.unreadable_rows == slow.unreadable_rows and quick.unreadable
