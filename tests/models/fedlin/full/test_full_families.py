"""`fedlin_full` with binary outcomes and counts, against quadrature on a grid of coefficients."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logsumexp
from scipy.stats import binom, multivariate_normal, poisson
from support.fedlin.written_out import continuous, fedlin_job, simulated

import secagg
from secagg.contracts import ChosenWeights, EqualWeights
from secagg.core.randomness import seeded_random
from secagg.errors import JobError, PeerError
from secagg.jobs.job import parse_job
from secagg.jobs.registry import Named, make_method
from secagg.models.fedlin.full import method as full_method
from secagg.models.fedlin.full.equal_sites import EqualSites
from secagg.models.fedlin.full.families import (
    FAMILIES,
    Records,
    candidates,
    correction,
    observation,
    resampled,
)
from secagg.models.fedlin.full.site_sums import log_likelihoods, round_sums
from secagg.models.numerics.natural_gaussian import symmetric
from secagg.sessions.planned_job import plan_job

Array = np.ndarray[Any, np.dtype[np.float64]]
MU, SIGMA = np.array([-0.5, 0.8]), np.array([[0.9, 0.3], [0.3, 0.5]])
GRID = np.stack(np.meshgrid(np.linspace(-8, 7, 301), np.linspace(-5, 7, 241)), axis=-1).reshape(
    -1, 2
)


def site(family: str, n: int, seed: int) -> Records:
    """Return n records of a site with coefficients near the mean."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.standard_normal(n)])
    eta = X @ rng.multivariate_normal(MU, SIGMA)
    y = rng.random(n) < expit(eta) if family == "binomial" else rng.poisson(np.exp(eta))
    return Records(FAMILIES[family], X, y.astype(float))


SITES = [("binomial", 12, 1), ("binomial", 40, 2), ("binomial", 3, 3), ("poisson", 15, 4)]
"""In the third, outcomes are separated: least deviance has no estimate."""


def log_likelihood(records: Records) -> Array:
    """Return log L on the grid, by scipy's probabilities."""
    eta = records.X @ GRID.T
    if records.family.name == "binomial":
        return np.asarray(binom.logpmf(records.y[:, None], 1, expit(eta)).sum(axis=0))
    return np.asarray(poisson.logpmf(records.y[:, None], np.exp(eta)).sum(axis=0))


def marginal(level: Array, mu: Array, Sigma: Array) -> float:
    """Return log INTEGRAL L N(theta; mu, Sigma), up to the logarithm of a cell's area."""
    return float(logsumexp(level + multivariate_normal(mu, Sigma).logpdf(GRID)))


def moments(level: Array, mu: Array, Sigma: Array) -> tuple[Array, Array]:
    log = level + multivariate_normal(mu, Sigma).logpdf(GRID)
    weights = np.exp(log - logsumexp(log))
    mean = weights @ GRID
    return mean, ((GRID - mean).T * weights) @ (GRID - mean)


@pytest.mark.parametrize(("family", "n", "seed"), SITES)
def test_the_normal_likelihood_has_the_posterior_moments_of_the_exact_one(
    family: str, n: int, seed: int
) -> None:
    """2048 quasi-random points: errors of about a thousandth of a standard deviation."""
    records = site(family, n, seed)
    known, P = observation(records, MU, SIGMA), np.linalg.inv(SIGMA)
    V = np.linalg.inv(known.gram + P)
    mean, exact = moments(log_likelihood(records), MU, SIGMA)
    sd = np.sqrt(np.diagonal(exact))
    np.testing.assert_allclose((V @ (known.cross + P @ MU) - mean) / sd, 0, atol=0.01)
    np.testing.assert_allclose((V - exact) / np.outer(sd, sd), 0, atol=0.02)
    assert np.linalg.eigvalsh(known.gram)[0] > -1e-12


def test_the_mode_is_found_from_afar() -> None:
    """Counts of 150 where a mean of exp(-6) was expected, and outcomes that contradict log odds."""
    X = np.column_stack([np.ones(20), np.linspace(-1, 1, 20)])
    far = (("poisson", np.full(20, 150.0), -6.0), ("binomial", np.arange(20) % 2.0, 30.0))
    for family, y, start in far:
        records, P, mu = Records(FAMILIES[family], X, y), np.eye(2) / 25, np.array([start, 20.0])
        mode, H = records.mode(mu, P)
        eta = X @ mode
        score = X.T @ records.family.score(y, eta) - P @ (mode - mu)
        np.testing.assert_allclose(np.linalg.solve(H, score), 0, atol=1e-8)


@pytest.mark.parametrize(("family", "n", "seed"), SITES)
def test_sums_have_the_score_of_the_exact_marginal_likelihood(
    family: str, n: int, seed: int
) -> None:
    """By central differences of the quadrature: (2) of the module."""
    records = site(family, n, seed)
    level, step = log_likelihood(records), 1e-4
    sums = round_sums(observation(records, MU, SIGMA), MU, np.zeros((2, 2)), SIGMA)
    A, off = symmetric(sums["precision"], 2), sums["slope"] - symmetric(sums["precision"], 2) @ MU
    for e in np.eye(2):
        ends = [marginal(level, MU + t * e, SIGMA) for t in (step, -step)]
        assert off @ e == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=0.02)
    by_sigma = (symmetric(sums["scatter"], 2) - A) / 2
    for i, j in ((0, 0), (0, 1), (1, 1)):
        E = np.zeros((2, 2))
        E[i, j] = E[j, i] = 1
        ends = [marginal(level, MU, SIGMA + t * E) for t in (step, -step)]
        assert np.sum(by_sigma * E) == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=0.03)


@pytest.mark.oracle
@pytest.mark.parametrize(("family", "n", "seed"), SITES)
def test_candidates_give_the_exact_marginal_likelihood_and_posterior(
    family: str, n: int, seed: int
) -> None:
    """At values far from those at which the normal likelihood was matched.

    Over 400 draws of equal mu and Sigma, errors are those of independent candidates: 4.5 standard
    errors.
    """
    records, rng = site(family, n, seed), np.random.default_rng(0)
    level, known = log_likelihood(records), observation(records, MU, SIGMA)
    values = [(MU, SIGMA), (MU + 0.5, 0.6 * SIGMA), (MU - 0.3, 1.8 * SIGMA)]
    exact = np.array([marginal(level, *at) for at in values])
    found, errors = [], []
    for mu, Sigma in values:
        many = np.broadcast_to(mu, (400, 2)), np.broadcast_to(Sigma, (400, 2, 2))
        theta, log = candidates(records, known, *many, rng)
        normal = log_likelihoods(known, mu[None], Sigma[None], np.ones(1))[0]
        ratios = np.exp(correction(log))
        found.append(normal + np.log(ratios.mean()))
        errors.append(ratios.std() / ratios.mean() / 20)
        chosen, middle = resampled(theta, log, rng)
        mean, V = moments(level, mu, Sigma)
        sd = np.sqrt(np.diagonal(V))
        np.testing.assert_allclose((chosen.mean(axis=0) - mean) / sd, 0, atol=4.5 / 20 + 0.03)
        np.testing.assert_allclose((middle - mean) / sd, 0, atol=0.06)
        np.testing.assert_allclose(chosen.std(axis=0) / sd, 1, atol=4.5 / np.sqrt(800) + 0.03)
    tolerance = 4.5 * np.hypot(errors[1:], errors[0]) + 1e-3
    assert np.all(np.abs(np.diff(found)[[0]] - np.diff(exact)[[0]]) < tolerance[0])
    assert abs(found[2] - found[0] - exact[2] + exact[0]) < tolerance[1]


def test_candidates_are_kept_in_proportion_to_their_weights() -> None:
    """4.5 standard errors of 10,000 choices among three."""
    shares, count = np.array([0.15, 0.8, 0.05]), 10_000
    theta = np.tile(np.arange(3.0)[:, None, None], (1, count, 1))
    log = np.tile(np.log(shares)[:, None] + 700.0, (1, count))
    chosen, mean = resampled(theta, log, np.random.default_rng(6))
    found = np.bincount(chosen[:, 0].astype(int), minlength=3) / count
    assert np.all(np.abs(found - shares) < 4.5 * np.sqrt(shares * (1 - shares) / count))
    assert mean[0] == pytest.approx(shares @ np.arange(3))


def tables(family: str, K: int, n: int) -> dict[str, pd.DataFrame]:
    rng, found = np.random.default_rng(5), {}
    for k in range(K):
        x = rng.standard_normal(n)
        eta = np.column_stack([np.ones(n), x]) @ rng.multivariate_normal(MU, 0.5 * SIGMA)
        y = rng.random(n) < expit(eta) if family == "binomial" else rng.poisson(np.exp(eta))
        found[f"s{k}"] = pd.DataFrame({"x": 10 + 2 * x, "y": y.astype(int)})
    return found


def columns(family: str) -> dict[str, Any]:
    binary = {"type": "binary"}
    return {"x": continuous(-10, 30),
            "y": binary if family == "binomial" else {"type": "count", "high": 200}}  # fmt: skip


BINARY = {"family": "binomial", "intercept": "modelled"}
FULL = {"name": "fedlin_full", "draws": 100, "intercept": "modelled"}


@pytest.mark.oracle
@pytest.mark.parametrize("family", ["binomial", "poisson"])
def test_results_are_in_the_columns_own_units_and_converge(family: str) -> None:
    """Posteriors hold the truth within 4.5 standard deviations; sites differ from each other."""
    data = tables(family, 8, 60)
    result, own = simulated({**FULL, "family": family}, columns(family), data)
    summary = result.summary
    assert summary["coefficient_unit"] == f"log {'odds' if family == 'binomial' else 'rate'}"
    assert summary["family"] == family and summary["rounds"] < 30
    slope, intercept = MU[1] / 2, MU[0] - MU[1] / 2 * 10
    shared = {row["component"]: row for row in summary["shared"]}
    assert "log sigma^2" not in shared
    row = shared["mu[x]"]
    assert abs(row["estimate"] - slope) < 4.5 * (row["high"] - row["low"]) / 3.92
    models = {row["model"]: row["training_rmse"] for row in summary["errors"]}
    assert set(models) == {"full", "common"} and models["full"] < models["common"]
    every = pd.concat(data.values())["y"]
    assert models["full"] < every.std()
    effect = "odds" if family == "binomial" else "rate"
    parts = zip(("ratio", "low", "high"), ("estimate", "low", "high"), strict=True)
    for name, key in parts:
        assert row[f"{effect}_{name}"] == pytest.approx(np.exp(row[key]), rel=1e-12)
    assert f"{effect}_ratio" not in shared["mu[intercept]"]
    for each in own.values():
        rows = {row["term"]: row for row in each.summary["coefficients"]}
        assert rows["x"]["low"] < rows["x"]["full"] < rows["x"]["high"]
        assert rows["x"][f"{effect}_ratio"] == pytest.approx(np.exp(rows["x"]["full"]), rel=1e-12)
        assert "mean" not in rows["x"]
        assert abs(rows["intercept"]["full"] - intercept) < 6
    names = [row["name"] for row in summary["tests"]]
    assert names == ["the mean of x is 0"]
    weighed, _ = simulated({**FULL, "family": family, "points": 200}, columns(family), data)
    again = {row["component"]: row for row in weighed.summary["shared"]}["mu[x]"]
    assert again["estimate"] == pytest.approx(row["estimate"], abs=0.3 * (row["high"] - row["low"]))
    assert weighed.summary["points"]["effective"] > 20


@pytest.mark.oracle
def test_rounds_end_where_the_exact_likelihood_has_its_maximum_over_the_means() -> None:
    """Six sites; the gradient by mu, in standard errors of mu, of likelihoods by quadrature."""
    sites = [site(family, n, 20 + n) for family, n in
             (("binomial", 12), ("binomial", 40), ("binomial", 5), ("poisson", 15),
              ("binomial", 25), ("poisson", 6))]  # fmt: skip
    mu, spread, Sigma = np.zeros(2), np.zeros((2, 2)), 0.3 * np.eye(2)
    for _ in range(25):
        each = [round_sums(observation(one, mu, Sigma), mu, spread, Sigma) for one in sites]
        total = {name: np.sum([one[name] for one in each], axis=0) for name in each[0]}
        fitted = EqualSites.of(total, mu, spread, Sigma, len(sites))
        spread = np.linalg.inv(symmetric(total["precision"], 2))
        before, mu, Sigma = Sigma, fitted.mean, fitted.mode(Sigma, 1.0)
    assert np.max(np.abs(Sigma - before)) < 1e-4
    levels, step = [log_likelihood(one) for one in sites], 1e-3
    for e in np.eye(2):
        ends = [sum(marginal(level, mu + t * e, Sigma) for level in levels) for t in (step, -step)]
        slope = (ends[0] - ends[1]) / (2 * step)
        assert abs(slope) * np.sqrt(e @ spread @ e) < 0.03


@pytest.mark.oracle
def test_without_a_prior_rounds_end_at_the_restricted_maximum_of_exact_likelihoods() -> None:
    """Binary outcomes: the score of Sigma, by quadrature of each site's exact likelihood.

    Restricted: the term -1/2 log|SUM A_k| accounts for the estimated mean. Scores are compared with
    the expected standard deviation of Sigma_ij, root(2 / K) T_ij, of which 0.03 are allowed: errors
    of importance sampling at the sites.
    """
    sites = [site("binomial", n, 100 + n) for n in range(20, 32)]
    mu, spread, Sigma = np.zeros(2), np.zeros((2, 2)), 0.5 * np.eye(2)
    for _ in range(40):
        each = [round_sums(observation(one, mu, Sigma), mu, spread, Sigma) for one in sites]
        total = {name: np.sum([one[name] for one in each], axis=0) for name in each[0]}
        fitted = EqualSites.of(total, mu, spread, Sigma, len(sites))
        spread = np.linalg.inv(symmetric(total["precision"], 2))
        before, mu, Sigma = Sigma, fitted.mean, fitted.mode(Sigma, None)
    assert np.max(np.abs(Sigma - before)) < 1e-4
    assert np.linalg.eigvalsh(Sigma)[0] > 0.01  # an interior maximum, where the score is 0
    levels, T = [log_likelihood(one) for one in sites], Sigma + fitted.C
    A = [symmetric(one["precision"], 2) for one in each]
    for i, j in ((0, 0), (0, 1), (1, 1)):
        E = np.zeros((2, 2))
        E[i, j] = E[j, i] = 1.0
        ends = [sum(marginal(v, mu, Sigma + t * E) for v in levels) for t in (1e-3, -1e-3)]
        slope = (ends[0] - ends[1]) / 2e-3 + sum(np.trace(spread @ a @ E @ a) for a in A) / 2
        assert abs(slope) * (2 / len(sites)) ** 0.5 * np.sqrt(T[i, i] * T[j, j]) < 0.03


@pytest.mark.oracle
def test_sites_correct_their_likelihoods_at_the_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """A correction that prefers the first draw to all others leaves only this draw."""
    prefer = np.where(np.arange(64) == 0, 60.0, 0.0)
    monkeypatch.setattr(full_method, "correction", lambda _: prefer)
    data = tables("binomial", 4, 30)
    result, _ = simulated({**FULL, **BINARY, "points": 64}, columns("binomial"), data)
    assert len(np.unique(result.arrays["draws_mu"], axis=0)) == 1


@pytest.mark.parametrize(
    ("settings", "where"),
    [({"intercept": "site"}, "method.intercept"), ({"degree": 2}, "method.degree"),
     ({"family": "poisson"}, "method.outcome"), ({"noise_sd": 1.0}, "method.noise_sd"),
     ({"variance": "site"}, "method.variance")],
)  # fmt: skip
def test_settings_that_a_family_does_not_have_are_refused(
    settings: dict[str, Any], where: str
) -> None:
    data = tables("binomial", 4, 20)
    job = fedlin_job({**FULL, "family": "binomial", **settings}, columns("binomial"))
    with pytest.raises(JobError) as refused:
        plan_job(parse_job(job), data)
    assert refused.value.where == where


def test_a_small_covariance_matrix_asks_for_score_and_information() -> None:
    """What the disclosure says of a dishonest coordinator; with the fitted one it is not so."""
    records = site("binomial", 40, 2)
    p = expit(records.X @ MU)
    score = records.X.T @ (records.y - p)
    information = (records.X.T * (p * (1 - p))) @ records.X
    distances = []
    for Sigma in (1e-6 * np.eye(2), SIGMA):
        sums = round_sums(observation(records, MU, Sigma), MU, np.zeros((2, 2)), Sigma)
        A = symmetric(sums["precision"], 2)
        distances.append(np.max(np.abs(A - information)) / np.max(information))
        distances.append(np.max(np.abs(sums["slope"] - A @ MU - score)) / np.max(np.abs(score)))
    assert max(distances[:2]) < 0.03 and min(distances[2:]) > 0.5
    facts = make_method(Named(name="fedlin_full", outcome="y", **BINARY)).facts
    assert isinstance(facts.weights, ChosenWeights) and not facts.moments_only
    normal = make_method(Named(name="fedlin_full", outcome="y")).facts
    assert isinstance(normal.weights, EqualWeights) and normal.moments_only


@pytest.mark.oracle
def test_protocols_give_the_same_bits() -> None:
    data = tables("binomial", 4, 30)
    job = fedlin_job({**FULL, **BINARY, "points": 64}, columns("binomial"))
    found = []
    for protocol in ("plain", "masked"):
        run = {
            **job,
            "protocol": {"name": protocol},
            "release": {"min_sites": 3, "min_records": 10},
        }
        found.append(secagg.run(run, data, random=seeded_random(bytes(32))).result.arrays)
    for name, values in found[0].items():
        np.testing.assert_array_equal(values, found[1][name])


def test_more_coefficients_than_importance_sampling_bears_are_refused() -> None:
    wide = {f"x{j}": continuous(-1, 1) for j in range(10)} | columns("binomial")
    del wide["x"]
    rng = np.random.default_rng(0)
    data = {
        f"s{k}": pd.DataFrame({name: rng.integers(0, 2, 20) for name in wide}) for k in range(3)
    }
    with pytest.raises(JobError) as refused:
        plan_job(parse_job(fedlin_job({**FULL, **BINARY}, wide)), data)
    assert refused.value.where == "method.predictors"


def test_messages_that_no_fit_has_are_refused() -> None:
    records = site("binomial", 12, 1)
    for mu, Sigma in ((np.array([0.0, 1e3]), SIGMA), (MU, np.ones((2, 2)))):
        with pytest.raises(PeerError):
            observation(records, mu, Sigma)
