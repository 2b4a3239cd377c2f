"""From a site's table to scaled rows: every row of the schema's table, and what cells may hold."""

import datetime
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.runs.jobs import raw_job

from secagg.contracts import PublicFacts, SiteRecords
from secagg.errors import DataError, JobError
from secagg.jobs import design_matrix
from secagg.jobs.design_matrix import public_facts, read_rows
from secagg.jobs.job import Job, parse_job

REAL = {"type": "continuous", "low": 10, "high": 30}
LOG = {"type": "continuous", "low": 1, "high": 100, "transform": "log"}
YES = {"type": "binary"}
SEX = {"type": "binary", "levels": ["female", "male"]}
GRADE = {"type": "categorical", "levels": ["0", "1", "2"]}


def job_of(columns: dict[str, Any], max_rows: int = 1000) -> Job:
    return parse_job(raw_job(columns=columns, sites={"max_rows": max_rows}))


def facts(columns: dict[str, Any]) -> PublicFacts:
    return public_facts(job_of(columns), ("a", "b"))


def rows(column: dict[str, Any], cells: Any) -> SiteRecords:
    """Read one column `x`, with an object column so that cells stay what they are."""
    job = job_of({"x": column})
    table = pd.DataFrame({"x": pd.Series(cells, dtype=object)})
    return read_rows(job.columns, table, public_facts(job, ("a", "b")), "north")


def scaled(column: dict[str, Any], cells: Any) -> list[Any]:
    return rows(column, cells).values.squeeze(axis=1).tolist()


# --- variables -----------------------------------------------------------------------------------


def test_columns_become_scaled_variables() -> None:
    public = facts({"x": REAL, "l": LOG, "y": YES, "sex": SEX, "g": GRADE})
    assert public.columns == ("x", "l", "y", "sex", "g")
    assert [(v.name, v.column, v.midpoint, v.half_range) for v in public.variables] == [
        ("x", "x", 20.0, 10.0),
        ("l", "l", math.log(100) / 2, math.log(100) / 2),
        ("y", "y", 0.5, 0.5),
        ("sex=male", "sex", 0.5, 0.5),
        ("g=1", "g", 0.5, 0.5),
        ("g=2", "g", 0.5, 0.5),
    ]


@pytest.mark.parametrize(
    "columns",
    [
        {"g": GRADE, "g=1": REAL},
        {"sex=male": YES, "sex": SEX},
        {"g": GRADE, "g=1": SEX},  # a column, not a variable, has the name
        {"a": {"type": "categorical", "levels": ["x", "b=c"]},
         "a=b": {"type": "categorical", "levels": ["x", "c"]}},
    ],
)  # fmt: skip
def test_variables_with_equal_names_are_refused(columns: dict[str, Any]) -> None:
    with pytest.raises(JobError, match="two variables"):
        facts(columns)


@pytest.mark.parametrize("column", [REAL, YES, SEX])
def test_a_variable_cannot_have_the_name_of_the_intercept(column: dict[str, Any]) -> None:
    """Else a result would have two terms of that name."""
    with pytest.raises(JobError, match="reserved"):
        facts({"(intercept)": column})


@pytest.mark.parametrize(
    ("low", "high", "transform"),
    [
        (0, 5e-324, "none"),
        (-1e-310, 1e-310, "none"),
        (1.0, float(np.nextafter(1, 2)), "none"),
        (1e16, 1e16 + 2, "none"),
        (1e99, float(np.nextafter(1e99, 1e100)), "log"),
    ],
)
def test_bounds_without_a_usable_scale_are_refused(low: float, high: float, transform: str) -> None:
    """Else (x - middle) / half would be nan, always 0, or a few different numbers."""
    column = {"type": "continuous", "low": low, "high": high, "transform": transform}
    with pytest.raises(JobError, match="double precision"):
        facts({"x": column})


@pytest.mark.parametrize(("low", "high"), [(1.6e9, 1.7e9), (-1e100, 1e100), (0, 1e-290), (-5, 1e9)])
def test_unusual_but_valid_bounds_are_accepted(low: float, high: float) -> None:
    column = {"type": "continuous", "low": low, "high": high}
    assert scaled(column, [low, high, low / 2 + high / 2]) == [
        -1.0,
        1.0,
        pytest.approx(0, abs=1e-15),
    ]


# --- the table, row by row -----------------------------------------------------------------------

NONE = ["", " ", "NA", "N/A", "na", "NaN", "nan", "null", "NULL", "None", "none", "?", " ? ",
        None, math.nan, pd.NA, pd.NaT, np.float32("nan"), np.float64("nan"),
        Decimal("NaN")]  # fmt: skip


@pytest.mark.parametrize(("column", "good"), [(REAL, 20), (YES, 1), (GRADE, 2), (LOG, 10)])
def test_records_with_missing_cells_are_omitted_and_counted(column: Any, good: Any) -> None:
    for cell in NONE:
        got = rows(column, [good, cell, good])
        assert len(got.values) == 2 and got.incomplete == 1, cell
        assert np.isfinite(got.values).all() and got.outside.tolist() == [0]


def test_a_missing_cell_removes_its_whole_record() -> None:
    """But what was clipped in it counts."""
    got = read({"x": REAL, "y": YES}, pd.DataFrame({"x": [12, "", 30, 99], "y": list("10?0")}))
    assert got.values.tolist() == [[-0.8, 1.0], [1.0, -1.0]]
    assert got.incomplete == 2 and got.outside.tolist() == [1, 0]
    got = read({"x": REAL, "y": YES}, pd.DataFrame({"x": ["99"], "y": [""]}))
    assert got.outside.tolist() == [1, 0] and got.incomplete == 1


TEXTS = ["abc", "1,5", "12 mm", "1_000", "0x10", "--1", "1e", "١a", "12;13"]
INFINITE = ["inf", "-inf", "Infinity", "1e400", math.inf, -np.inf]


@pytest.mark.parametrize("cell", TEXTS + INFINITE)
def test_cells_that_are_not_finite_numbers_are_errors(cell: Any) -> None:
    with pytest.raises(DataError) as caught:
        rows(REAL, ["12", "", cell])
    assert caught.value.where == "north, column 'x', record 3"


@pytest.mark.parametrize(
    ("cells", "advice"),
    [
        (["1,5", "2,25", "3"], "decimal points"),
        (["1,234", "12.5", "3"], "thousands separators"),
        (["1,234", "2,345"], "thousands separators"),
        (["1.234,50", "99,5"], "thousands separators"),
        (["50%", "20%"], "signs such as %"),
        (["red", "blue", "7"], "declare it with levels"),
        (["2024-01-05", "2024-02-01", "NA"], "Export dates as numbers"),
        (["12", "13", "14", "l5"], "only a missing value may be left empty"),
    ],
)
def test_advice_never_empties_a_column(cells: list[str], advice: str) -> None:
    with pytest.raises(DataError) as caught:
        rows(REAL, cells)
    assert advice in caught.value.advice


@pytest.mark.parametrize("column", [YES, SEX, GRADE])
def test_undeclared_levels_are_errors(column: Any) -> None:
    for cell in ("3", "yes", "Male", "-1", "0.5", "1.0.0", 0.5, 7, "-0"):
        with pytest.raises(DataError) as caught:
            rows(column, [cell])
        assert caught.value.where == "north, column 'x', record 1"
        levels = getattr(job_of({"x": column}).columns["x"], "levels", ())
        assert ", ".join(levels) in caught.value.advice


def test_values_outside_bounds_are_clipped_and_counted() -> None:
    got = rows(REAL, [9.999, 10, 20, 30, 30.001, -1e300, "1e308", "  15 "])
    assert got.values[:, 0].tolist() == [-1, -1, 0, 1, 1, -1, 1, -0.5]
    assert got.outside.tolist() == [4] and got.incomplete == 0


@pytest.mark.parametrize(
    ("beyond", "of", "told"), [(10, 100, False), (11, 100, True), (1, 1, True)]
)
def test_a_site_gets_a_remark_on_frequent_clipping(beyond: int, of: int, told: bool) -> None:
    """Of the values that are there: with the missing ones there are twice as many cells."""
    cells = [31] * beyond + [20] * (of - beyond) + [""] * of
    *many, each = rows(REAL, cells).remarks
    assert len(many) == told
    if told:
        assert many[0].startswith("north, column 'x': more than 10% of the values lie outside")
    assert f"x {beyond} ({beyond / of:.1%})" in each


def test_a_site_is_told_of_a_single_value_outside_in_one_line() -> None:
    job = job_of({"x": REAL, "y": REAL, "z": REAL})
    table = pd.DataFrame({"x": [31, *[20] * 99], "y": [20] * 100, "z": [9, 9, *[20] * 98]})
    (remark,) = read_rows(job.columns, table, public_facts(job, ("a", "b")), "north").remarks
    assert "north" in remark and remark.endswith(": x 1 (1.0%), z 2 (2.0%)")


def test_no_remark_is_made_without_a_reason() -> None:
    assert rows(REAL, ["", ""]).remarks == () == rows(YES, ["0", "1"]).remarks


# --- logarithms ----------------------------------------------------------------------------------


def test_values_are_clipped_before_taking_logarithms() -> None:
    got = rows(LOG, [1, 10, 100, 0, -5, 1e-300, 101])
    np.testing.assert_allclose(got.values[:, 0], [-1, 0, 1, -1, -1, -1, 1], atol=1e-15)
    assert got.outside.tolist() == [4]


@settings(deadline=None, max_examples=50)
@given(
    st.floats(1e-300, 1e60),
    st.floats(1.001, 1e40),
    st.lists(st.floats(allow_nan=False, allow_infinity=False)),
)
def test_logarithms_stay_within_their_bounds(low: float, ratio: float, cells: list[float]) -> None:
    column = LOG | {"low": low, "high": low * ratio}
    got = rows(column, [*cells, low, low * ratio])
    assert np.all(np.abs(got.values) <= 1)
    np.testing.assert_allclose(got.values[-2:, 0], [-1, 1], rtol=1e-9)
    assert got.outside[0] == sum(not low <= c <= low * ratio for c in cells)


# --- levels --------------------------------------------------------------------------------------


def test_whole_numbers_with_decimals_match_their_level() -> None:
    for one in (
        1,
        1.0,
        "1",
        "1.0",
        "1.00",
        " 1 ",
        np.int64(1),
        np.float64(1),
        np.float32(1),
        True,
        np.True_,
    ):
        assert scaled(YES, [one, "0"]) == [1.0, -1.0]
        assert rows(GRADE, [one]).values.tolist() == [[1.0, -1.0]]
    for zero in (0, 0.0, "0", "0.0", False, np.False_):
        assert scaled(YES, [zero]) == [-1.0]


@pytest.mark.parametrize("dtype", [object, "bool", "boolean"])
def test_booleans_match_levels_of_that_name(dtype: str) -> None:
    cells = pd.Series([True, False], dtype=dtype)
    assert scaled({"type": "binary", "levels": ["False", "True"]}, cells) == [1.0, -1.0]
    assert scaled(YES, cells) == [1.0, -1.0]
    with pytest.raises(DataError):
        rows(SEX, cells)


def test_only_numbers_lose_a_trailing_decimal_zero() -> None:
    versions = {"type": "categorical", "levels": ["v1", "v2"]}
    assert scaled(versions, ["v1", "v2"]) == [-1.0, 1.0]
    for cell in ("v2.0", "2.0", ".0"):
        with pytest.raises(DataError):
            rows(versions, [cell])


def test_levels_become_indicators() -> None:
    assert rows(GRADE, ["0", "1", "2"]).values.tolist() == [[-1, -1], [1, -1], [-1, 1]]
    assert scaled(SEX, ["male", " female"]) == [1.0, -1.0]


def test_a_declared_level_overrides_a_missing_value_text() -> None:
    column = {"type": "categorical", "levels": ["none", "some", "NA"]}
    got = rows(column, ["none", "NA", "nan"])
    assert got.values.tolist() == [[-1, -1], [-1, 1]] and got.incomplete == 1


def test_levels_with_decimals_are_matched() -> None:
    column = {"type": "categorical", "levels": ["1.0", "1.5"]}
    assert scaled(column, [1.0, "1.5"]) == [-1.0, 1.0]
    assert scaled(column, [1, "1"]) == [-1.0, -1.0]


@pytest.mark.parametrize("levels", [("0", "0.0"), ("a", "1.0", "1"), ("+2", "2", "+2.00")])
def test_two_levels_cannot_be_the_same_number(levels: tuple[str, ...]) -> None:
    with pytest.raises(JobError) as caught:
        job_of({"x": {"type": "categorical", "levels": levels}})
    assert caught.value.what.startswith("columns.x.levels")


# --- tables --------------------------------------------------------------------------------------


def read(columns: dict[str, Any], table: pd.DataFrame, max_rows: int = 1000) -> SiteRecords:
    job = job_of(columns, max_rows)
    return read_rows(job.columns, table, public_facts(job, ("a", "b")), "north")


def test_a_declared_column_must_occur_exactly_once() -> None:
    with pytest.raises(DataError, match="'y'") as caught:
        read({"x": REAL, "y": YES}, pd.DataFrame({"x": [1], "Z": [1]}))
    assert "x, Z" in caught.value.advice
    twice = pd.DataFrame([[12, 13, 1]], columns=["x", "x", "z"])
    with pytest.raises(DataError, match="'x'"):
        read({"x": REAL}, twice)
    assert read({"z": YES}, twice).values.tolist() == [[1.0]]  # undeclared columns do not matter


@pytest.mark.parametrize("count", [10, 11])
def test_more_records_than_max_rows_are_refused(count: int) -> None:
    table = pd.DataFrame({"x": [12.0] * count})
    if count <= 10:
        assert len(read({"x": REAL}, table, 10).values) == count
        return
    with pytest.raises(DataError) as caught:
        read({"x": REAL}, table, 10)
    assert "11" not in caught.value.line()


def test_a_table_without_records_is_read() -> None:
    got = read({"x": REAL, "g": GRADE}, pd.DataFrame({"x": [], "g": []}))
    assert got.values.shape == (0, 3) and got.incomplete == 0


def test_other_columns_are_not_read() -> None:
    table = pd.DataFrame({"x": [12], "name": ["Smith"], "born": [datetime.date(1950, 1, 1)]})
    assert read({"x": REAL}, table).values.tolist() == [[-0.8]]


# --- differential privacy: no content of a table is an error --------------------------------------


def noised(columns: dict[str, Any], table: pd.DataFrame, max_rows: int = 1000) -> SiteRecords:
    privacy = {"placement": "sum", "epsilon": 1.0, "delta": 1e-6}
    job = parse_job(raw_job(columns=columns, sites={"max_rows": max_rows}, privacy=privacy))
    return read_rows(job.columns, table, public_facts(job, ("a", "b")), "north")


@pytest.mark.parametrize(
    ("column", "cell"),
    [(REAL, "abc"), (REAL, "inf"), (REAL, "1,5"), (YES, "yes"), (YES, "2"), (REAL, "1_000")],
)
def test_with_noise_an_unreadable_cell_counts_as_missing(column: dict[str, Any], cell: str) -> None:
    readable = "20" if column is REAL else "1"
    table = pd.DataFrame({"x": [readable, cell, readable]})
    got = noised({"x": column}, table)
    assert len(got.values) == 2 and got.incomplete == 1
    (remark,) = got.remarks
    assert remark.startswith("north, column 'x': 1 cell") and cell not in remark
    with pytest.raises(DataError):
        read({"x": column}, table)


def test_with_noise_rows_beyond_the_limit_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A remark appears above the larger of both limits; no row is dropped."""
    table = pd.DataFrame({"x": ["20"] * 5})
    assert noised({"x": REAL}, table, max_rows=2).remarks == ()
    monkeypatch.setattr(design_matrix, "MIN_ROWS_UNDER_NOISE", 3)
    got = noised({"x": REAL}, table, max_rows=2)
    assert len(got.values) == 5 and len(got.remarks) == 1
    assert noised({"x": REAL}, table, max_rows=5).remarks == ()
    with pytest.raises(DataError):
        read({"x": REAL}, table, max_rows=4)


@pytest.mark.parametrize(("long", "told"), [(1, False), (2, True)])
def test_a_site_gets_a_remark_on_records_that_are_shrunk(long: int, told: bool) -> None:
    """Of ten records; more than a tenth of them is told, at the site only."""
    columns = dict.fromkeys("xy", REAL)
    values = [20.0] * (10 - long) + [30.0] * long  # the middle of the bounds, and a corner
    table = pd.DataFrame(dict.fromkeys("xy", values))
    privacy = {"placement": "sum", "epsilon": 1.0, "delta": 1e-6, "record_norm": 1.2}
    job = parse_job(raw_job(columns=columns, sites={"max_rows": 1000}, privacy=privacy))
    read = read_rows(job.columns, table, public_facts(job, ("a", "b")), "a")
    assert any("record_norm" in remark for remark in read.remarks) is told
    assert np.all(np.linalg.norm(read.values, axis=1) <= 1.2)
