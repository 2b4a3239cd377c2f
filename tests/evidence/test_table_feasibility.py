"""The plan's verdict on tables of counts, and how tables are shown."""

import numpy as np
import pytest

from secagg.contracts.facts import CellError
from secagg.evidence.feasibility.tables import table_feasibility
from secagg.jobs.privacy import Privacy
from secagg.privacy.accounting.gaussian_dp import gaussian_mu
from secagg.reports.count_tables import count_tables

PRIVACY = Privacy.model_validate(
    {"placement": "sum", "epsilon": 1.0, "delta": 1e-5, "expected_records": 1000}
)


@pytest.mark.parametrize(
    ("error", "verdict"), [(9.9, "green"), (10.1, "amber"), (29.9, "amber"), (30.1, "red")]
)
def test_the_table_with_the_largest_relative_error_decides(error: float, verdict: str) -> None:
    """Ten cells have 100 records on average; two cells with the same noise have 500."""
    found = table_feasibility(PRIVACY, [CellError("a", 2, error), CellError("a x b", 10, error)])
    assert found["verdict"] == verdict and found["error"] == pytest.approx(error / 100)
    assert found["least_records"] == pytest.approx(1000 * error / 30, abs=1)
    ratio = gaussian_mu(1.0, 1e-5) * error / 30
    assert gaussian_mu(found["least_epsilon"], 1e-5) == pytest.approx(ratio, rel=1e-6)


def test_no_epsilon_is_enough_for_far_too_few_records() -> None:
    found = table_feasibility(PRIVACY, [CellError("a", 1000, 1000.0)])
    assert found["least_epsilon"] is None and found["verdict"] == "red"
    assert "more records" in found["words"]


def test_tables_are_shown_with_the_last_column_across() -> None:
    counts = np.arange(12.0).reshape(2, 3, 2)
    levels = [["f", "m"], ["x", "y", "z"], ["0", "1"]]
    table = {"columns": ["sex", "ward", "ill"], "levels": levels, "counts": counts.tolist()}
    (shown,) = count_tables({"level": 0.95, "tables": [table]})
    assert shown.labels == ["sex", "ward"] and shown.heads == ["ill = 0", "ill = 1"]
    assert shown.rows[4] == (["m", "y"], ["8", "9"]) and shown.caption == ""


def test_a_wide_or_long_table_has_a_row_for_each_cell_and_is_cut() -> None:
    levels = [[str(i) for i in range(n)] for n in (20, 9)]
    counts = np.arange(180.0).reshape(20, 9) - 0.25
    table = {"columns": ["a", "b"], "levels": levels, "counts": counts.tolist(), "std_error": 2.0}
    (shown,) = count_tables({"level": 0.95, "tables": [table]})
    assert shown.heads == ["count"] and len(shown.rows) == 100
    assert shown.rows[0] == (["0", "0"], ["−0.2"]) and shown.rows[10][0] == ["1", "1"]
    assert "± 3.9" in shown.caption and "180 rows" in shown.caption
