"""Moments of weighted records under noise: estimates, counts and notes."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy.stats import truncnorm
from support.runs.jobs import raw_job

import secagg
from secagg.contracts import RecordCount
from secagg.core.randomness import seeded_random
from secagg.evidence.feasibility.simulated_run import run_on
from secagg.jobs.design_matrix import read_rows
from secagg.jobs.job import parse_job
from secagg.jobs.typical_ranges import reach
from secagg.models.common.noisy_moments import _at_most
from secagg.sessions.planned_job import Planned, plan_job

SITES = ("a", "b", "c", "d")
OLS = {"kind": "ols", "outcome": "y", "predictors": ["x", "case"]}
COLUMNS: dict[str, Any] = {
    "x": {"type": "continuous", "low": -50, "high": 50, "typical": [1, 5]},
    "case": {"type": "binary", "typical": 0.3},
    "y": {"type": "continuous", "low": -100, "high": 100, "typical": [-4, 4]},
}


def table(seed: int, rows: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x, case = rng.normal(3, 2, rows), (rng.random(rows) < 0.3).astype(int)
    return pd.DataFrame({"x": x, "case": case, "y": x - 3 + 2 * case + rng.normal(0, 2, rows)})


def raw(placement: str = "sum", analyses: Any = (OLS,), **privacy: Any) -> dict[str, Any]:
    terms = {"placement": placement, "epsilon": 4.0, "delta": 1e-5, "expected_records": 4000}
    return raw_job(
        columns=COLUMNS, method={"name": "moments", "analyses": list(analyses)},
        privacy=terms | privacy, sites={"max_rows": 10_000}, protocol={"name": "masked"},
    )  # fmt: skip


def planned(**more: Any) -> Planned:
    return plan_job(parse_job(raw(**more)), {site: table(0, 1) for site in SITES})


def test_without_noise_the_estimates_are_weighted_least_squares() -> None:
    """Weights min(1, R^2 / |z|^2); statsmodels gives the estimates in own units."""
    plan = planned(epsilon=0.1)
    k = reach(plan.job)
    assert k is not None
    records = table(1, 2000)
    rows = read_rows(plan.job.columns, records, plan.public, "a")
    little = {name: replace(n, variance=1) for name, n in plan.public.noise.items()}
    public = replace(plan.public, noise=little)
    found = run_on(plan, public, [rows], np.random.default_rng(0)).summary
    f = [np.full(2000, 0.75), (records.x - 3) / 2, (records.case - 0.3) / 0.21**0.5, records.y / 4]
    weights = np.minimum(1, k**2 * (3 + 0.75**2) / np.square(f).sum(axis=0))
    oracle = sm.WLS(records.y, sm.add_constant(records[["x", "case"]]), weights=weights).fit()
    estimates = [term["estimate"] for term in found["analyses"][0]["terms"]]
    assert np.mean(weights < 1) > 0.03
    # records are on a grid of 2^-15 of a spread, whose error is a hundredth of this
    assert estimates == pytest.approx(oracle.params.tolist(), abs=5e-3)
    assert found["n"] == 2000 and found["weights"] == pytest.approx(weights.mean(), abs=1e-3)
    assert found["analyses"][0]["n"] == pytest.approx(weights.sum(), abs=2)


@pytest.mark.parametrize(("placement", "protocol"), [("sum", "additive"), ("site", "masked")])
def test_a_whole_run_finds_the_truth(placement: str, protocol: str) -> None:
    tables = {site: table(i, 1000) for i, site in enumerate(SITES)}
    job = raw(placement, [OLS, {"kind": "describe"}]) | {"protocol": {"name": protocol}}
    summary = secagg.run(job, tables, random=seeded_random(bytes(32))).result.summary
    fit, described = summary["analyses"]
    for term, truth in zip(fit["terms"], (-3.0, 1.0, 2.0), strict=True):
        half = (term["ci_high"] - term["ci_low"]) / 2
        assert abs(term["estimate"] - truth) < 2 * half  # four standard errors
    assert "caution" not in summary and abs(summary["n"] - 4000) < 10 * summary["n_error"]
    for column, mean, sd in zip(
        described["columns"], (3.0, 0.3, 0.6), (2.0, 0.46, 3.0), strict=True
    ):
        errors = 5 * np.hypot([sd / 63, sd / 89], [column["mean_error"], column["sd_error"]])
        assert abs(column["mean"] - mean) < errors[0]
        assert abs(column["sd"] - sd) < errors[1] + 0.1 * sd  # weights make spreads smaller


def test_records_far_from_the_typical_ranges_give_a_caution() -> None:
    tables = {site: table(i, 1000) + 20 for i, site in enumerate(SITES)}
    tables = {site: each.assign(case=each.case - 20) for site, each in tables.items()}
    summary = secagg.run(raw(), tables, random=seeded_random(bytes(32))).result.summary
    assert summary["weights"] < 0.5 and "typical" in summary["caution"]


@pytest.mark.parametrize(("a", "b"), [(90.0, 100.0), (100.0, 90.0), (130.0, 100.0), (20.0, 100.0)])
def test_the_sum_of_weights_is_known_to_be_at_most_the_count(a: float, b: float) -> None:
    """(3) against the truncated normal law of the difference."""
    of_a, of_b = 80.0, 20.0
    scale = math.sqrt(of_a + of_b)
    law = truncnorm(-np.inf, (b - a) / scale, loc=a - b, scale=scale)  # a - b <= 0
    share = of_a / (of_a + of_b)
    mean, variance = _at_most(a, of_a, b, of_b)
    assert mean == pytest.approx(a + share * (law.mean() - (a - b)), rel=1e-6)
    assert variance == pytest.approx(of_a * (1 - share) + share**2 * law.var(), rel=1e-6)
    assert RecordCount(b, of_b).records == b
