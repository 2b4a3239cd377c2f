"""The caution for predictors that vary less than the job says: only where the job is wrong."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.methods.one_step import job, rows_of

from secagg.evidence.feasibility.simulated_run import run_on
from secagg.jobs.job import parse_job
from secagg.sessions.planned_job import plan_job

LEVELS = {"type": "categorical", "levels": ["p", "q", "r"]}


def binary(share: float | None) -> dict[str, Any]:
    stated = {} if share is None else {"typical": share}
    return {"type": "binary", "levels": ["q", "r"], **stated}


def a(half: float) -> dict[str, Any]:
    return {"type": "continuous", "low": -20, "high": 20, "typical": [-half, half]}


@pytest.mark.parametrize(
    ("columns", "share", "named"),
    [
        ({"x": binary(0.01)}, 0.01, None),
        ({"x": binary(None)}, 0.01, None),
        ({"x": LEVELS}, 0.015, None),
        ({"x": binary(0.3)}, 0.01, "x=r"),
        ({"x": binary(0.01)}, 0.0005, "x=r"),
        ({"x": binary(0.3), "a": a(10)}, 0.3, "a"),
        ({"x": LEVELS, "a": a(3)}, 0.015, "a"),
    ],
    ids=["rare as stated", "not stated", "rare level", "rarer than stated", "even rarer",
         "ten times too wide", "three times too wide"],
)  # fmt: skip
def test_a_column_is_named_if_it_varies_less_than_the_job_says(
    columns: dict[str, Any], share: float, named: str | None
) -> None:
    """20,000 records at epsilon 4: in 20 of 20 runs of each case."""
    raw = job("gaussian", epsilon=4.0, expected_records=20_000)
    raw["sites"]["max_rows"] = 20_000
    raw["columns"] = raw["columns"] | columns
    raw["method"]["predictors"] = ["a", "x"]
    empty = pd.DataFrame(columns=list(raw["columns"]), dtype=object)
    plan = plan_job(parse_job(raw), dict.fromkeys(("s0", "s1", "s2"), empty))
    rng = np.random.default_rng(5)
    z, b, has = rng.normal(size=20_000), rng.normal(size=20_000), rng.random(20_000) < share
    others = ["q"] if columns["x"]["type"] == "binary" else ["p", "q"]
    x = np.where(has, "r", rng.choice(others, 20_000))
    y = 0.4 * z + 0.5 * has + 0.9 * rng.normal(size=20_000)
    table = pd.DataFrame({"a": z, "b": b, "x": x, "y": y.clip(-5, 5)})
    found = run_on(plan, plan.public, [rows_of(plan, table)], rng).summary
    if named is None:
        assert "caution" not in found
    else:
        assert found["caution"].startswith(f"{named} varies less than half of what")
