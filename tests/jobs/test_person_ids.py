"""Which names of persons are equal: the rows of the table in `secagg.jobs.person_ids`."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from secagg.jobs.design_matrix import read_rows
from secagg.jobs.job import parse_job
from secagg.jobs.person_ids import NOBODY, person_id, person_numbers, persons_of
from secagg.jobs.site_tables import read_file
from secagg.sessions.planned_job import plan_job

ONE: dict[str, list[Any]] = {
    "7": [7, "7", "007", "7.0", "7.", " 7 ", "+7", 7.0, np.float32(7), np.int64(7), Decimal("7.0"),
          "٧", "\N{FULLWIDTH DIGIT SEVEN}", "\N{NO-BREAK SPACE}7", "7\N{ZERO WIDTH SPACE}"],
    "0": [0, "000", "0.0", " 0 ", "-0", -0.0, False],
    "-7": [-7, "-07", "-7.00"],
    "7.5": [7.5, "7.50", "07.5"],
    "10000000000000001": ["10000000000000001", 10**16 + 1],  # more digits than a float has
    "é1": ["e\N{COMBINING ACUTE ACCENT}1", "\N{LATIN SMALL LETTER E WITH ACUTE}1", " é1 "],
    "A7": ["A7", " A7", "A\N{SOFT HYPHEN}7"],
    "A 7": ["A 7", "A  7", "A\t7"],
    "": ["", " ", "NA", "nan", "None", "?", None, pd.NA, pd.NaT, float("nan"),
         "\N{ZERO WIDTH SPACE}"],
}  # fmt: skip
OTHERS = ["7", "70", "77", "7.5", "-7", "A7", "a7", "A07", "A 7", "A-7", "7a", "07a", "7-1", "7/1",
          "1e5", "100000", "1E5", "1,000", "1000",
          "1_000", "é", "e", "7²", "72", "", "Ⅶ"]  # fmt: skip


@pytest.mark.parametrize("name", ONE)
def test_a_change_of_format_makes_no_other_person(name: str) -> None:
    assert {person_id(cell) for cell in ONE[name]} == {name}


def test_no_two_of_these_are_one_person() -> None:
    assert len({person_id(cell) for cell in OTHERS}) == len(OTHERS)


def test_an_id_is_unchanged_if_it_is_read_again() -> None:
    """So a table that was written with the ids as text names the same persons."""
    for cell in [*OTHERS, *(each for cells in ONE.values() for each in cells)]:
        assert person_id(person_id(cell)) == person_id(cell)


def test_numbers_stand_for_persons_in_the_order_of_the_table() -> None:
    numbers = person_numbers(["b", "a", "", "b", 7, "007", None])
    assert numbers.tolist() == [0, 1, NOBODY, 0, 2, 2, NOBODY]
    assert persons_of(numbers, np.array([True, False, False, True, True, True, False])) == 2
    assert persons_of(numbers, np.array([False, False, True, False, False, False, True])) == 1


COLUMNS = {"age": {"type": "continuous", "low": 0, "high": 100}}
PIDS = "age,pid\n" + "\n".join(
    f"{20 + i},{pid}"
    for i, pid in enumerate(["000", "0", "0.0", " 0 ", "A7", "a7", "A7 ", "", "NA"])
)


@pytest.mark.attack
@pytest.mark.parametrize("noised", [True, False])
@pytest.mark.parametrize("kind", ["csv", "frame", "parquet"])
def test_a_patient_written_in_several_ways_is_one(tmp_path: Path, kind: str, noised: bool) -> None:
    """In a file an export wrote, and in a column of Python objects with mixed types."""
    path = tmp_path / "a.csv"
    path.write_text(PIDS, encoding="utf-8")
    table = read_file(path)
    if kind == "frame":
        cells = [0, "0", 0.0, np.int64(0), "A7", "a7", "A7", None, float("nan")]
        table["pid"] = pd.Series(cells, dtype=object)
    if kind == "parquet":
        pytest.importorskip("pyarrow")
        table = pd.DataFrame({"age": range(20, 29), "pid": [0, 0, 0, 0, 5, 6, 5, None, None]})
        table["pid"] = table["pid"].astype("Float64")
        table.to_parquet(tmp_path / "a.parquet")
        table = read_file(tmp_path / "a.parquet")
    privacy: dict[str, Any] = {"person": "pid"}
    if noised:
        privacy |= {"placement": "sum", "epsilon": 1.0, "delta": 1e-6, "records_per_person": 2}
    job = parse_job({
        "title": "t", "sites": {"max_rows": 100}, "columns": COLUMNS, "privacy": privacy,
        "method": {"name": "moments", "analyses": [{"kind": "describe"}]},
        "release": {"min_sites": 3, "min_records": 1},
    })  # fmt: skip
    planned = plan_job(job, dict.fromkeys("abc", table))
    rows = read_rows(job.columns, table, planned.public, "a", "pid", job.privacy.records_used)
    assert rows.persons_count == 3 and rows.incomplete == 2
    assert len(rows.values) == (5 if noised else 7)  # two of the patient with four records
    assert rows.person_codes.tolist() == ([0, 0, 1, 2, 1] if noised else [0, 0, 0, 0, 1, 2, 1])
