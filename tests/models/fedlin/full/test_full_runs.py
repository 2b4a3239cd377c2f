"""`fedlin_full` as a method: its posterior against quadrature, its refusals, its results."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from support.fedlin.written_out import bounds, continuous, fedlin_job, linear_tables, simulated

from secagg.errors import JobError, UsageError
from secagg.jobs.job import parse_job
from secagg.sessions.planned_job import plan_job

FULL = {"name": "fedlin_full", "draws": 100}
SCALE, DRAWS = 0.8, 2000


def one_coefficient() -> tuple[dict[str, pd.DataFrame], np.ndarray, np.ndarray]:
    """Return four sites' records with one predictor, their least squares and variances of these."""
    rng, tables, b, C = np.random.default_rng(4), {}, [], []
    for k, (n, theta) in enumerate(zip((8, 40, 15, 5), (0.2, 1.4, 0.9, -0.3), strict=True)):
        x = rng.standard_normal(n)
        y = theta * x + rng.standard_normal(n)
        tables[f"s{k}"] = pd.DataFrame({"x": x, "y": y})
        b.append(x @ y / (x @ x))
        C.append(1 / (x @ x))
    return tables, np.array(b), np.array(C)


def quadrature(b: np.ndarray, C: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the quantiles 0.05, 0.5, 0.95 of mu, of the sd between sites, and each theta_k's mean.

    On a grid of the sd; given it, mu is normal, and the half-t density is written out.
    """
    sd = np.linspace(1e-4, 25, 40_000)
    V = sd[:, None] ** 2 + C
    P = np.sum(1 / V, axis=1)
    m = np.sum(b / V, axis=1) / P
    log = -(np.log(V).sum(axis=1) + np.log(P) + np.sum(b**2 / V, axis=1) - P * m**2) / 2
    weights = np.exp(log - log.max()) * (1 + (sd / SCALE) ** 2 / 2) ** -1.5
    weights /= weights.sum()
    shares = np.array([0.05, 0.5, 0.95])
    of_sd = np.interp(shares, np.cumsum(weights), sd)
    mu = np.linspace(-10, 10, 8001)
    inside = np.cumsum(weights[::20]) / np.sum(weights[::20])
    assert inside[-1] == pytest.approx(1)
    density = sum(
        w * norm.cdf(mu, mean, s)
        for w, mean, s in zip(weights[::20], m[::20], P[::20] ** -0.5, strict=True)
    )
    of_mu = np.interp(shares, density / density[-1], mu)
    shrink = sd[:, None] ** 2 / V
    return of_mu, of_sd, weights @ (shrink * b + (1 - shrink) * m[:, None])


@pytest.mark.oracle
@pytest.mark.parametrize("points", [0, 2000])
def test_the_posterior_of_one_coefficient_is_that_of_quadrature(points: int) -> None:
    """Four sites of 5 to 40 records. With points, errors are of draws only.

    The probability below an exact quantile has a standard error of root(p (1 - p) / n) with n
    independent draws; chains give a third as many. As if designs were equal, it was off by up to
    0.03, and a site's mean by a quarter of its sd (0.04): they are far from equal here.
    """
    tables, b, C = one_coefficient()
    method = {**FULL, "scale": "own", "intercept": "none", "noise_sd": 1.0, "points": points,
              "sd_scale": SCALE, "draws": DRAWS, "tolerance": 1e-6}  # fmt: skip
    result, own = simulated(method, {c: continuous(-8, 8) for c in ("x", "y")}, tables)
    of_mu, of_sd, theta = quadrature(b, C)
    drawn = {"mu": result.arrays["draws_mu"][:, 0],
             "sd": np.sqrt(result.arrays["draws_covariance"][:, 0, 0])}  # fmt: skip
    for name, exact in (("mu", of_mu), ("sd", of_sd)):
        for share, end in zip((0.05, 0.5, 0.95), exact, strict=True):
            error = np.sqrt(share * (1 - share) / (DRAWS / 3))
            off = abs(np.mean(drawn[name] < end) - share)
            assert off < 4.5 * error + (0 if points else 0.03), (name, share)
    for k, site in enumerate(sorted(own)):
        (_, row) = own[site].summary["coefficients"]
        assert row["full"] == pytest.approx(theta[k], abs=0.02 if points else 0.06)
        assert row["low"] < row["full"] < row["high"]
    assert result.summary["converged"]

    tables = linear_tables((12, 15, 9), 2)
    two = {name: tables[name] for name in ("s000", "s001")}
    with pytest.raises(JobError) as few:
        plan_job(parse_job(fedlin_job(FULL, bounds(two))), two)
    assert few.value.where == "sites"
    for table in tables.values():
        table["x1"] = 2 * table["x0"]
    with pytest.raises(UsageError) as collinear:
        simulated({**FULL, "noise_sd": 0.3}, bounds(tables), tables)
    assert collinear.value.where == "analysis"


def test_sites_without_records_do_not_count_and_have_the_distribution_of_all() -> None:
    tables = linear_tables((30, 25, 40, 20), 2)
    whole, _ = simulated(FULL, bounds(tables), tables)
    empty = {**tables, "s900": tables["s000"][:0]}
    found, own = simulated(FULL, bounds(tables), empty)
    for key in ("draws_mu", "draws_covariance"):
        np.testing.assert_allclose(found.arrays[key], whole.arrays[key], rtol=1e-6)
    mean = found.arrays["draws_mu"].mean(axis=0)
    row = own["s900"].summary["coefficients"][1]
    slope = found.summary["shared"][0]
    assert row["full"] == pytest.approx(
        mean[0] * slope["estimate"] / np.median(found.arrays["draws_mu"][:, 0]), rel=1e-9
    )


def test_results_name_components_tests_and_units() -> None:
    tables = linear_tables((30, 25, 40, 20), 2)
    result, _ = simulated({**FULL, "points": 100}, bounds(tables), tables)
    components = [row["component"] for row in result.summary["shared"]]
    assert components == ["mu[x0]", "mu[x1]", "log tau[x0]", "log tau[x1]", "log sigma^2",
                          "correlation[x0, x1]"]  # fmt: skip
    assert all(row["low"] < row["estimate"] < row["high"] for row in result.summary["shared"])
    tests = {row["name"]: row["p"] for row in result.summary["tests"]}
    assert tests["sites agree on all coefficients"] < 1e-6  # their sd is 1, of errors 0.05
    assert len(tests) == 6 and all(0 <= p <= 1 for p in tests.values())
    assert 1 < result.summary["points"]["effective"] <= 100
    site, _ = simulated({**FULL, "variance": "site"}, bounds(tables), tables)
    names = [row["name"] for row in site.summary["tests"]]
    assert not any(name.startswith("sites agree") for name in names)
    assert "log sigma^2" not in [row["component"] for row in site.summary["shared"]]


@pytest.mark.parametrize(
    "settings",
    [{"rounds": 1}, {"draws": 99}, {"points": 10}, {"level": 1.0}, {"sd_scale": 0.0},
     {"points": 1601}, {"points": 10**7}, {"seed": -1}],
)  # fmt: skip
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    tables = linear_tables((12, 15, 9), 2)
    (key,) = settings
    with pytest.raises(JobError) as refused:
        plan_job(parse_job(fedlin_job({**FULL, **settings}, bounds(tables))), tables)
    assert refused.value.where == f"method.{key}"


def test_what_is_shown_are_quantiles_of_the_draws_at_the_level() -> None:
    tables = linear_tables((30, 25, 40, 20), 2)
    method = {**FULL, "scale": "own", "intercept": "none", "noise_sd": 1.0, "level": 0.6}
    result, _ = simulated(method, bounds(tables), tables)
    mu, Sigma = result.arrays["draws_mu"], result.arrays["draws_covariance"]
    sd = np.sqrt(np.diagonal(Sigma, axis1=1, axis2=2))
    correlation = Sigma[:, 0, 1] / sd.prod(axis=1)
    drawn = [*mu.T, *sd.T, correlation]
    for row, values in zip(result.summary["shared"], drawn, strict=True):
        shown = [row["low"], row["estimate"], row["high"]]
        np.testing.assert_allclose(shown, np.quantile(values, [0.2, 0.5, 0.8]), rtol=1e-3)


def test_sites_whose_predictors_do_not_vary_do_not_count() -> None:
    tables = linear_tables((30, 25, 40, 20), 1)
    for site in ("s000", "s001"):
        tables[site]["x0"] = 1.0
    with pytest.raises(UsageError) as few:
        simulated(FULL, bounds(tables), tables)
    assert "only 2 of the sites" in few.value.what
