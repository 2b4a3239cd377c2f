"""The plan's verdict states what it assumes, in the columns' own units."""

import math
from typing import Any

import numpy as np
import pytest

from secagg.evidence.planned_facts import feasibility_facts
from secagg.jobs.job import parse_job
from secagg.sessions.planned_job import plan_job

COLUMNS: dict[str, Any] = {
    "age": {"type": "continuous", "low": 18, "high": 110, "unit": "years"},
    "sex": {"type": "binary", "levels": ["female", "male"]},
    "smoking": {"type": "categorical", "levels": ["never", "former", "current"]},
    "sbp": {"type": "continuous", "low": 50, "high": 300, "unit": "mmHg"},
    "crp": {"type": "continuous", "low": 1, "high": 100, "transform": "log", "unit": "mg/l"},
    "stroke": {"type": "binary", "levels": ["no", "yes"]},
}


def judged(**method: Any) -> dict[str, Any]:
    """Return the verdict on 2000 records at four sites, with the bounds that the docs recommend."""
    predictors = [name for name in COLUMNS if name != method["outcome"]]
    raw = {
        "title": "t",
        "sites": {"max_rows": 1000},
        "columns": COLUMNS,
        "method": {"name": "gradient", "predictors": predictors} | method,
        "protocol": {"name": "masked"},
        "release": {"min_sites": 3, "min_records": 20},
        "privacy": {
            "placement": "round", "epsilon": 8, "delta": 1e-5, "expected_records": 2000,
        },
    }  # fmt: skip
    empty = {site: {name: np.array([]) for name in COLUMNS} for site in "abcd"}
    found = feasibility_facts(plan_job(parse_job(raw), empty))
    assert found is not None
    return found


def test_a_logistic_regression_with_wide_bounds_is_not_green() -> None:
    """Such records had an error of 14.2 +- 0.7 %, slopes one of 6 to 50 %; "5 %" was printed."""
    found = judged(family="binomial", outcome="stroke")
    assert found["verdict"] == "amber" and found["error"] == pytest.approx(0.13, abs=0.02)
    deviations = {"age": 9.2, "sbp": 25.0, "ln(crp)": math.log(100) / 10}
    assert found["assumed_deviations"] == pytest.approx(deviations)
    for words in ("age 9.2 years", "sbp 25 mmHg", "ln(crp) 0.46)", "20 % of the records"):
        assert words in found["assumes"]
    assert f"{100 * found['error_if_narrow']:.0f} %" in found["assumes"]


def test_only_the_columns_of_the_regression_are_stated() -> None:
    found = judged(family="gaussian", outcome="sbp", predictors=["age", "sex"])
    assert list(found["assumed_deviations"]) == ["age", "sbp"]
    assert "20 % of the outcome's variance" in found["assumes"]


def test_without_continuous_columns_no_deviation_is_stated() -> None:
    found = judged(family="binomial", outcome="stroke", predictors=["sex", "smoking"])
    assert found["assumed_deviations"] == {} and found["error_if_narrow"] is None
    assert "deviation" not in found["assumes"]
