"""Coverage of one-step regressions under noise, in simulations of the method's own functions."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.methods.one_step import job, planned_job, planned_regression, rows_of, shifted

from secagg.evidence.feasibility.simulated_run import run_on

_RUNS = 150
_LEAST = 0.95 - 4 * np.sqrt(0.95 * 0.05 / (2 * _RUNS))  # four standard errors, for ten cases
TRUTH = {
    "gaussian": {"a": 0.3, "b": -0.2},
    "binomial": {"a": 0.6, "b": -0.4},
    "poisson": {"a": 0.4, "b": -0.3},
}


def covers(result: Any, truth: dict[str, float]) -> list[bool]:
    terms = {term["term"]: term for term in result.summary["terms"]}
    return [terms[x]["ci_low"] <= value <= terms[x]["ci_high"] for x, value in truth.items()]


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("family", ["gaussian", "binomial", "poisson"])
def test_intervals_cover(family: str, epsilon: float) -> None:
    plan = planned_regression(family, epsilon=epsilon)
    found, alone = [], []
    for run in range(_RUNS):
        rng = np.random.default_rng([run, 5])
        result = run_on(plan, plan.public, [rows_of(plan, alike(1500, rng))], rng)
        found += covers(result, TRUTH[family])
        sampling = result.arrays["covariance"] - result.arrays["noise_covariance"]
        errors = np.sqrt(np.diagonal(sampling))[1:]
        estimates = result.arrays["coefficients"][1:]
        alone += (np.abs(estimates - [*TRUTH[family].values()]) < 1.96 * errors).tolist()
    assert np.mean(found) >= _LEAST
    if epsilon < 1:  # a control: without the part of the noise, intervals are too short
        assert np.mean(alone) < 0.9


def alike(count: int, rng: np.random.Generator) -> pd.DataFrame:
    """Return records with the same slopes, of sites that are alike."""
    a, b = rng.normal(size=(2, count))
    table = pd.DataFrame({"a": a, "b": b, "y": 0.3 * a - 0.2 * b + rng.normal(size=count)})
    p = 1 / (1 + np.exp(-(0.6 * a - 0.4 * b)))
    # counts vary more than Poisson's: by a factor of variance 1/4 (errors are from the sandwich)
    years = rng.uniform(0.5, 2.0, count)
    rate = years * np.exp(0.5 + 0.4 * a - 0.3 * b) * rng.gamma(4.0, 0.25, count)
    table = table.assign(visits=np.minimum(rng.poisson(rate), 200), years=years)
    table[[*"aby"]] = table[[*"aby"]].clip(-5, 5)
    return table.assign(case=(rng.random(count) < p).astype(int))


@pytest.mark.parametrize("sites", [3, 10])
@pytest.mark.parametrize("family", ["gaussian", "binomial"])
def test_slopes_within_sites(family: str, sites: int) -> None:
    """Positive control: with the pooled centre, intervals miss the slope."""
    found: dict[str, list[bool]] = {"site": [], "pooled": []}
    for centre, seen in found.items():
        plan = planned_regression(family, sites, centre=centre)
        for run in range(_RUNS if centre == "site" else 10):
            rng = np.random.default_rng([run, sites])
            rows = [rows_of(plan, table) for table in shifted(sites, 400, rng)]
            seen.extend(covers(run_on(plan, plan.public, rows, rng), TRUTH[family]))
    assert np.mean(found["site"]) >= _LEAST
    assert np.mean(found["pooled"][::2]) < 0.2


@pytest.mark.parametrize("family", ["binomial", "poisson"])
def test_outcomes_in_two_of_a_hundred_records(family: str) -> None:
    """Slopes were a third too small: weights hid the rare value from the mean of the outcome.

    100 runs: 200 intervals, four standard errors of which are .06
    """
    raw = job(family, epsilon=2.0, expected_records=12_000)
    guess = {"binomial": {"case": 0.02}, "poisson": {"visits": (0, 0.2)}}[family]
    columns = {n: c | {"typical": guess.get(n, c["typical"])} for n, c in raw["columns"].items()}
    plan, found, off = planned_job({**raw, "columns": columns}), [], []
    for run in range(100):
        rng = np.random.default_rng([run, 9])
        rows = rows_of(plan, rare(12_000, rng))
        result = run_on(plan, plan.public, [rows], rng)
        found += covers(result, TRUTH[family])
        off.append(result.arrays["coefficients"][1:] / [*TRUTH[family].values()] - 1)
    assert np.mean(found) >= 0.89
    error = np.std(off, axis=0) / 10
    assert np.all(np.abs(np.mean(off, axis=0)) < 0.05 + 3 * error)


def rare(count: int, rng: np.random.Generator) -> pd.DataFrame:
    a, b = rng.normal(size=(2, count)).clip(-5, 5)
    table = pd.DataFrame({"a": a, "b": b, "y": a, "years": np.ones(count)})
    case = rng.random(count) < 1 / (1 + np.exp(4.1 - (0.6 * a - 0.4 * b)))
    visits = np.minimum(rng.poisson(0.02 * np.exp(0.4 * a - 0.3 * b)), 200)
    return table.assign(case=case.astype(int), visits=visits)
