"""What a site learns of one column of its own."""

from typing import Any

import pandas as pd
import pytest

from secagg.jobs.cells import record_number
from secagg.jobs.column_check import ColumnCheck, check_column
from secagg.jobs.job import parse_job

PRESSURE = {"type": "continuous", "low": 80, "high": 230}
STAY = {"type": "continuous", "low": 1, "high": 100, "transform": "log"}


def checked(cells: list[Any], declared: dict[str, Any] | None = None) -> ColumnCheck:
    raw = {
        "title": "T", "columns": {"x": declared or PRESSURE}, "method": {"name": "moments"},
        "sites": {"folder": "data", "max_rows": 100}, "protocol": {"name": "plain"},
    }  # fmt: skip
    column = parse_job(raw).columns["x"]
    table = pd.DataFrame({"x": pd.Series(cells, dtype=object)})
    return check_column(table, "x", column, record_number)[0]


def test_a_single_value_outside_is_marked() -> None:
    inside, outside = checked([120] * 99 + [130]), checked([120] * 99 + [235])
    assert inside.note == "" and (inside.values_outside, inside.outside) == (0, 0)
    assert outside.note and (outside.values_outside, outside.outside) == (1, 0.01)
    assert outside.remarks == ()  # neither far nor a code


@pytest.mark.parametrize(
    ("cell", "declared", "far"),
    [
        (380, PRESSURE, False), (381, PRESSURE, True), (-70, PRESSURE, False),
        (-71, PRESSURE, True), (9_999, STAY, False), (10_001, STAY, True), (0.011, STAY, False),
        (0.009, STAY, True), (0, STAY, True),
    ],
)  # fmt: skip
def test_a_value_farther_out_than_the_bounds_are_apart_gets_a_remark(
    cell: float, declared: dict[str, Any], far: bool
) -> None:
    found = checked([90, 95, cell], declared)
    assert found.values_outside == 1 and len(found.remarks) == far
    assert all(f"({cell:g})" in remark for remark in found.remarks)


@pytest.mark.parametrize(
    ("outside", "code"),
    [
        ([999] * 3, "999"), ([999] * 2, None), ([240] * 3 + [250, 251, 252, 253], None),
        ([240] * 4 + [250, 251, 252, 253], "240"), ([0] * 5 + [240, 241], "0"),
    ],
)  # fmt: skip
def test_many_equal_values_outside_look_like_a_code(outside: list[int], code: str | None) -> None:
    codes = [r for r in checked([120, 130, *outside]).remarks if "code" in r]
    assert len(codes) == (code is not None)
    assert all(f"bounds are {code}." in remark for remark in codes)


def test_a_code_is_not_also_reported_as_far_outside() -> None:
    (remark,) = checked([120, 130, 999, 999, 999]).remarks
    assert "3 of 3" in remark


def test_values_in_another_unit_are_not_called_equal() -> None:
    """Set to the bound they all are: blood pressure in kPa."""
    low = checked([16.0, 17.3, 18.6])
    assert low.constant and "below" in low.note and "equal" not in low.note
    assert "above" in checked([1200, 1300, 1250]).note
    assert "below the bounds or equal to low" in checked([16.0, 80]).note
    assert checked([90, 90]).note == "all values are equal"


def test_unreadable_cells_are_named_and_counted() -> None:
    found = checked([120, "abc", "", 130])
    assert (found.unreadable, found.missing) == (1, 1)
    (remark,) = found.remarks
    assert "record 2" in remark
    (remark,) = checked(["abc"] * 8).remarks
    assert "record 5" in remark and "record 6" not in remark and "and 3 more" in remark


@pytest.mark.parametrize(
    ("cells", "declared", "quartiles"),
    [
        ([100, 110, 120, 130, 999], PRESSURE, (110, 120, 130)),
        ([10, 20, 30, 300, 400], PRESSURE, (20, 30, 300)),  # all but one outside the bounds
        (["1", "", "10", "100"], STAY, (5.5, 10, 55)),  # and not of the logarithms
        (["", ""], PRESSURE, ()),
    ],
)
def test_quartiles_are_of_the_values_as_they_are(
    cells: list[Any], declared: dict[str, Any], quartiles: tuple[float, ...]
) -> None:
    assert checked(cells, declared).quartiles == pytest.approx(quartiles)


def test_levels_are_counted_as_declared() -> None:
    found = checked(["0", "1.0", "1", "", "2"], {"type": "binary"})
    assert found.quartiles == () and found.levels == {"0": 1, "1": 2}
    assert (found.missing, found.unreadable) == (1, 1)
    drug = {"type": "categorical", "levels": ["none", "statin", "other"]}
    assert checked(["none", "other", "none"], drug).levels == {"none": 2, "statin": 0, "other": 1}
    assert checked([120]).levels == {}


@pytest.mark.parametrize(
    ("typical", "transform", "remarked"),
    [([110, 150], "none", False), ([11, 15], "none", True), ([11, 15], "log", True),
     ([90, 120], "log", False)],
)  # fmt: skip
def test_values_far_from_the_typical_range_are_remarked(
    typical: list[float], transform: str, remarked: bool
) -> None:
    """Such as g/l beside g/dl: a run would spend its budget on wrong slopes."""
    column = {"type": "continuous", "low": 1, "high": 300, "typical": typical}
    found = checked([131, 118, 140, 125, 150, 990], {**column, "transform": transform})
    assert any("typical" in remark for remark in found.remarks) is remarked
