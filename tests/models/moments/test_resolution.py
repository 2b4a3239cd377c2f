"""Generous public bounds: digits must not be lost silently, and what is constant stays constant.

Bounds are up to 10^6 times the spread of a column. float64's own error in a centred moment is about
n eps times (middle - mean)^2 / variance, below 1e-10 here, and the condition of each design is
below 100; so everything agrees with the pooled fit to 1e-7.
"""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import secagg
from secagg.contracts import PublicFacts, Variable
from secagg.errors import JobError, UsageError
from secagg.models.moments.release import pooled_moments

N = 300


def sites(constant=None, double=False):
    made = {}
    for i in range(3):
        rng = np.random.default_rng(i)
        x, z = rng.normal(0, 1, (2, N))
        y = 2 + 0.05 * x + 0.3 * z + rng.normal(0, 1, N)
        if constant is not None:
            x = np.full(N, constant)
        if double:
            z = 2 * x
        ill = (rng.random(N) < 1 / (1 + np.exp(-0.7 * z))).astype(int)
        made[f"s{i}"] = pd.DataFrame({"x": x, "z": z, "y": y, "ill": ill})
    return made


def job(bound, method, low=None):
    real = {"type": "continuous", "low": -bound if low is None else low, "high": bound}
    return {
        "title": "t",
        "sites": {"max_rows": 1000},
        "columns": {"x": real, "z": real, "y": real, "ill": {"type": "binary"}},
        "method": method,
        "protocol": {"name": "plain"},
        "release": {"min_sites": 2, "min_records": 1},
    }


OLS = {"name": "moments", "analyses": [{"kind": "ols", "outcome": "y", "predictors": ["x", "z"]}]}
LOGISTIC = {"name": "logistic", "outcome": "ill", "predictors": ["x", "z"]}


def terms(summary):
    return (summary["analyses"][0] if "analyses" in summary else summary)["terms"]


@pytest.mark.parametrize("bound", [10.0, 1e3, 1e6])
@pytest.mark.parametrize("method", [OLS, LOGISTIC], ids=["ols", "logistic"])
def test_wide_bounds_lose_no_digits(bound, method):
    table = sites()
    pooled = pd.concat(table.values())
    X = sm.add_constant(pooled[["x", "z"]].to_numpy())
    if method is OLS:
        oracle = sm.OLS(pooled.y.to_numpy(), X).fit()
    else:
        oracle = sm.Logit(pooled.ill.to_numpy(), X).fit(disp=0, tol=1e-14)
    found = terms(secagg.run(job(bound, method), table).result.summary)
    np.testing.assert_allclose([t["estimate"] for t in found], oracle.params, atol=1e-7)
    np.testing.assert_allclose([t["std_error"] for t in found], oracle.bse, rtol=1e-7)


@pytest.mark.parametrize(
    ("value", "fraction_bits"), [(0.0, 80), (37.3, 32), (99.99, 80), (1 / 3, 32)]
)
def test_a_constant_column_is_named(value, fraction_bits):
    method = {**OLS, "fraction_bits": fraction_bits}
    run = secagg.run(job(100.0, method, low=-18.0), sites(constant=value))
    assert "'x'" in run.result.summary["analyses"][0]["failed"]


@pytest.mark.parametrize("centre", ["pooled", "site"])
def test_too_wide_bounds_are_not_reported_as_a_constant_column(centre):
    """In the same words by each method, and only then."""
    (fine,) = secagg.run(job(100.0, {"name": "moments"}), sites()).result.summary["analyses"]
    assert "notes" not in fine
    kinds = [{"kind": kind} for kind in ("describe", "pc", "ols")]
    kinds[2] |= {"outcome": "y", "predictors": ["x"]}
    method = {"name": "moments", "centre": centre, "analyses": kinds}
    wide = {
        **job(100.0, method)["columns"],
        "x": {"type": "continuous", "low": -1e18, "high": 1e18},
    }
    run = secagg.run({**job(100.0, method), "columns": wide}, sites())
    described, *failed = run.result.summary["analyses"]
    (what,) = described["notes"]
    assert "'x'" in what
    assert ("within any site" in what) == (centre == "site")
    assert all(what in one["failed"] for one in failed)
    with pytest.raises(UsageError) as caught:
        secagg.run({**job(100.0, {"name": "notears_admm"}), "columns": wide}, sites())
    assert caught.value.what == what.replace(" within any site", "")


@pytest.mark.parametrize(("bound", "fraction_bits"), [(500.0, 40), (3000.0, 80)])
def test_perfect_collinearity_is_named(bound, fraction_bits):
    method = {**OLS, "fraction_bits": fraction_bits}
    run = secagg.run(job(bound, method), sites(double=True))
    assert "linear combination" in run.result.summary["analyses"][0]["failed"]


def test_too_coarse_a_resolution_is_reported():
    """At 1e4 times the spread and steps of 2^-32 a correlation keeps less than four digits."""
    run = secagg.run(job(1e5, {**OLS, "fraction_bits": 32}), sites())
    assert "failed" in run.result.summary["analyses"][0]


@pytest.mark.parametrize("step_error", [1e-9, 1e-6])
@pytest.mark.parametrize("signs", [(1, -1, -1), (-1, 1, 1), (1, 1, -1), (-1, -1, 1)])
def test_the_stated_error_bounds_the_worst_case_of_rounding(step_error, signs):
    """Sums near n: an error e of each sum and of M makes up to 3 e of one in a centred entry."""
    n = 200
    u = 0.97 + 0.02 * np.random.default_rng(4).standard_normal((n, 2))
    z = np.column_stack([np.ones(n), u])
    public = PublicFacts(
        (Variable("a", "a", -1.0, 1.0), Variable("b", "b", -1.0, 1.0)), ("a", "b"), n, ("s",)
    )
    M = z.T @ z
    exact = pooled_moments(M[np.triu_indices(3)], public, 0.0)
    of_products, *of_sums = signs
    M[1:, 1:] += of_products * step_error
    M[0, 1:] += np.array(of_sums) * step_error
    found = pooled_moments(M[np.triu_indices(3)], public, step_error)
    wrong = np.abs(found.scatter - exact.scatter)
    stated = np.sqrt(np.multiply.outer(*[found.errors * np.diagonal(found.scatter)] * 2))
    assert np.all(wrong <= stated)
    if of_sums == [-of_products] * 2:
        assert np.min(wrong) > 2 * step_error


@pytest.mark.parametrize(("method", "bits"), [(OLS, 19), (OLS, -4), (LOGISTIC, 39), (LOGISTIC, 0)])
def test_absurd_resolutions_are_refused(method, bits):
    with pytest.raises(JobError) as raised:
        secagg.run(job(10.0, {**method, "fraction_bits": bits}), sites())
    assert raised.value.where == "method.fraction_bits"
