"""The plan's verdict states what it assumes, in the columns' own units."""

import math
from typing import Any

import numpy as np
import pytest

from secagg.errors import JobError
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


def judged(
    privacy: dict[str, Any] | None = None, columns: dict[str, Any] = COLUMNS, **method: Any
) -> dict[str, Any]:
    """Return the verdict on 2000 records at four sites, with the bounds that the docs recommend."""
    predictors = [name for name in COLUMNS if name != method["outcome"]]
    raw = {
        "title": "t",
        "sites": {"max_rows": 1000},
        "columns": columns,
        "method": {"name": "gradient", "predictors": predictors} | method,
        "protocol": {"name": "masked"},
        "release": {"min_sites": 3, "min_records": 20},
        "privacy": {
            "placement": "round", "epsilon": 8, "delta": 1e-5, "expected_records": 2000,
            **(privacy or {}),
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


LINEAR: dict[str, Any] = {
    "name": "fedlin_hm2", "outcome": "sbp", "predictors": ["age", "sex"]
}  # fmt: skip
AT_SITES: dict[str, Any] = {"placement": "site"}
GUESSES = {
    "age": {"mean": 64, "sd": 9.2}, "sbp": {"mean": 175, "sd": 12.5}, "crp": {"mean": 2, "sd": 1}
}  # fmt: skip
STATED = {"expected_columns": GUESSES}


def test_stated_columns_replace_the_assumed_standard_deviations() -> None:
    """The outcome's range then matters: only its standard deviation is known, not its share."""
    usual, found = judged(AT_SITES, **LINEAR), judged(AT_SITES | STATED, **LINEAR)
    assert found["assumed_deviations"] == {} and found["error_if_narrow"] is None
    assert found["error"] > 1.5 * usual["error"]  # sd 1/20 of the range, and not 1/10
    narrow = COLUMNS | {"sbp": COLUMNS["sbp"] | {"low": 112.5, "high": 237.5}}
    less = judged(AT_SITES | STATED, columns=narrow, **LINEAR)
    assert less["error"] < 0.7 * found["error"]
    assert judged(AT_SITES, columns=narrow, **LINEAR)["error"] == usual["error"]
    some = judged(AT_SITES | {"expected_columns": {"age": GUESSES["age"]}}, **LINEAR)
    assert list(some["assumed_deviations"]) == ["sbp"]


@pytest.mark.parametrize(
    ("name", "guess"),
    [
        ("weight", {"mean": 1, "sd": 1}),
        ("sex", {"mean": 0.5, "sd": 0.5}),
        ("age", {"mean": 17, "sd": 1}),
        ("age", {"mean": 64, "sd": 47}),
        ("crp", {"mean": 50, "sd": 20}),  # of the values; of their logarithms it would be 3.9
    ],
)
def test_a_guess_that_no_records_can_have_is_refused(name: str, guess: dict[str, float]) -> None:
    with pytest.raises(JobError) as refused:
        judged(AT_SITES | {"expected_columns": {name: guess}}, **LINEAR)
    assert refused.value.where == f"privacy.expected_columns.{name}"


def test_a_job_without_guesses_is_agreed_in_the_same_bytes_as_before_they_existed() -> None:
    raw = {"title": "t", "columns": COLUMNS, "method": {"name": "moments"}}
    job = parse_job(raw | {"sites": {"max_rows": 9}})
    assert "expected_columns" not in job.agreed["privacy"]


@pytest.mark.parametrize(
    ("method", "epsilon", "known"),
    [("fedlin_hm1", 8, False), ("fedlin_hm2", 8, True), ("fedlin_hm1", 20, True)],
)
def test_the_error_is_not_known_if_noise_at_a_site_is_large_and_ignored(
    method: str, epsilon: float, known: bool
) -> None:
    """Sites of 500 records; such jobs had errors of 100 % where 10 % was expected.

    `python -m benchmarks.noise.predicted_error` measures what is known.
    """
    found = judged(AT_SITES | STATED | {"epsilon": epsilon}, **LINEAR | {"name": method})
    assert found["known"] is known
    assert (found["verdict"] == "red") or known
    assert ("not known" in found["words"]) is not known
