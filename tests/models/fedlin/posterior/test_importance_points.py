"""What HM2's sites share, by weighed points: beside the records' own density, and quadrature."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import multivariate_normal
from support.fedlin.few_sites import exact

from secagg.models.fedlin.hierarchies.base import SufficientStatistics
from secagg.models.fedlin.hierarchies.normal import NormalHierarchy
from secagg.models.fedlin.posterior.importance_points import (
    Mixture,
    points_fields,
    points_sums,
    quasi_random_points,
)
from secagg.models.numerics.natural_gaussian import Natural

Array = NDArray[np.float64]

MOST = 4.5
PRIOR = NormalHierarchy(mean=0.3, sd=2.0, log_mean=-1.0, log_sd=1.5)
Q2 = Natural.of(np.array([0.2, -0.1, -1.0, 0.5]), np.diag([0.3, 0.2, 0.7, 1.1]) + 0.05)


def site(X: Array, y: Array, noise: float) -> SufficientStatistics:
    return SufficientStatistics(X.T @ X, X.T @ y, float(y @ y), len(y), noise**2)


def shapes(rng: np.random.Generator) -> dict[str, Array]:
    X = rng.standard_normal((9, 2)) * [1.0, 5.0]
    return {
        "full": X,
        "fewer records than terms": X[:1],
        "collinear": X[:, [0, 0]],
        "a constant column": X * [1.0, 0.0],
    }


@pytest.mark.parametrize("shape", shapes(np.random.default_rng(0)))
def test_summed_log_densities_equal_the_density_of_the_records(shape: str) -> None:
    """log p(y | mu, tau) by its own covariance matrix, up to a constant of the site's."""
    rng = np.random.default_rng(1)
    X, noise = shapes(rng)[shape], 0.4
    y = X @ np.array([0.5, 0.2]) + noise * rng.standard_normal(len(X))
    log_tau = quasi_random_points(Q2, 64)
    sums = points_sums(site(X, y, noise), log_tau)
    mu = np.array([0.7, -0.3])
    ours, theirs = [], []
    for j, (b, c) in enumerate(zip(sums["shift"].reshape(64, 2), sums["level"], strict=True)):
        A = np.zeros((2, 2))
        A[np.triu_indices(2)] = sums["precision"].reshape(64, 3)[j]
        A[1, 0] = A[0, 1]
        ours += [c, c + b @ mu - mu @ A @ mu / 2]
        cov = X @ np.diag(np.exp(log_tau[:, j])) @ X.T + noise**2 * np.eye(len(X))
        theirs += [multivariate_normal(X @ m, cov).logpdf(y) for m in (np.zeros(2), mu)]
    assert abs(np.mean(sums["level"])) < 1e-12 * np.max(np.abs(sums["level"]))  # not sent
    apart = np.array(ours) - np.array(theirs)
    assert np.ptp(apart) < 1e-9 * np.max(np.abs(theirs))


def test_three_terms_agree_with_the_density_of_the_records() -> None:
    """Two sites; mu is integrated out of the stacked records, log tau weighed by draws of N.

    Errors: 30,000 draws of which a third count, as 4096 points.
    """
    rng, d, noise = np.random.default_rng(3), 3, 0.4
    prior = NormalHierarchy(mean=0.3, sd=1.5, log_mean=-2.0, log_sd=1.2)
    Xs = [rng.standard_normal((n, d)) @ np.triu(np.ones((d, d)) * 0.6) for n in (6, 4)]
    ys = [X @ [0.5, -1, 0.3] + noise * rng.standard_normal(len(X)) for X in Xs]
    q = Natural.of(np.array([0.3, -0.5, 0.2, -2, -2, -2]), np.diag([1.0] * d + [1.4] * d) + 0.1)
    each = [
        points_sums(site(X, y, noise), quasi_random_points(q, 4096))
        for X, y in zip(Xs, ys, strict=True)
    ]
    found = Mixture.of(prior, q, {n: each[0][n] + each[1][n] for n in each[0]})

    wide, many = 1.3, 30_000
    standard = rng.standard_normal((many, d))
    log_tau = prior.log_mean + wide * prior.log_sd * standard
    X, left = np.vstack(Xs), np.concatenate(ys) - np.vstack(Xs) @ np.full(d, prior.mean)
    cov = np.zeros((many, len(X), len(X))) + prior.sd**2 * X @ X.T + noise**2 * np.eye(len(X))
    for rows in (slice(0, 6), slice(6, 10)):
        cov[:, rows, rows] += np.einsum("ia,na,ja->nij", X[rows], np.exp(log_tau), X[rows])
    solved = np.linalg.solve(cov, left[None, :, None])[:, :, 0]
    log = -(np.linalg.slogdet(cov)[1] + solved @ left) / 2
    weights = np.exp(log - log.max() + np.sum(standard**2, axis=1) * (1 - wide**2) / 2)
    weights /= weights.sum()
    gain = prior.sd**2 * np.linalg.solve(cov, X[None].repeat(many, axis=0))
    at = np.hstack([prior.mean + np.einsum("nij,i->nj", gain, left), log_tau])
    mean = weights @ at
    want = (at - mean).T * weights @ (at - mean)
    given = prior.sd**2 * (np.eye(d) - np.einsum("nij,ik->njk", gain, X))
    want[:d, :d] += np.einsum("n,nab->ab", weights, given)

    sd, (ours, spread) = np.sqrt(np.diagonal(want)), found.moments()
    effective = min(found.effective, 1 / float(weights @ weights))
    assert effective > 1500
    assert np.max(np.abs(ours - mean) / sd) < MOST / np.sqrt(effective)
    assert np.max(np.abs(spread - want) / np.outer(sd, sd)) < MOST * np.sqrt(2 / effective)


def test_a_site_without_records_contributes_zero() -> None:
    nothing = points_sums(site(np.zeros((0, 2)), np.zeros(0), 1.0), quasi_random_points(Q2, 64))
    for field in points_fields(2, 64):
        assert np.array_equal(nothing[field.name], np.zeros(field.shape))


def test_points_follow_students_t_around_q() -> None:
    """Whitened by q's own moments; the quantiles of a t with 4 degrees of freedom, each way."""
    mean, cov = Q2.moments()
    apart = np.linalg.solve(
        np.linalg.cholesky(cov[2:, 2:]), quasi_random_points(Q2, 4096) - mean[2:, None]
    )
    # A sequence of n points is off by some log(n)^d / n: 0.02; t's quantiles have these slopes.
    for share, quantile in ((0.05, -2.132), (0.25, -0.741), (0.5, 0.0), (0.9, 1.533)):
        assert np.mean(apart < quantile, axis=1) == pytest.approx(share, abs=0.01)
    assert abs(np.mean(np.sign(apart[0]) * np.sign(apart[1]))) < 0.02


FEW = np.array([0.1, 0.9, -0.4, 1.6]), np.array([0.04, 0.3, 0.1, 0.2])
ALIKE = np.array([0.50, 0.52, 0.49]), np.array([0.01, 0.02, 0.01])


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("b", "s", "prior"),
    [(*FEW, PRIOR), (*ALIKE, PRIOR), (*ALIKE, NormalHierarchy(0.0, 1.0, -3.0, 2.0))],
    ids=["apart", "alike", "alike, vague"],
)
def test_posteriors_of_few_sites_agree_with_a_grid(
    b: Array, s: Array, prior: NormalHierarchy
) -> None:
    """Where q is badly placed and too narrow, as it is with few sites; and within its own error.

    Of 1024 points half count, so that a share at an end, 0.05, is off by 0.01, which is
    0.1 sds there; moments of second order by 4.5 sqrt(2 / 500).
    """
    mean, cov, low, high = exact(b, s, prior)
    sd = np.sqrt(np.diagonal(cov))
    q = Natural.of(mean + [0.0, 0.4] * sd, np.diag((sd * [0.7, 0.6]) ** 2))
    sites = [
        SufficientStatistics(np.array([[1 / v]]), np.array([e / v]), e * e / v, 5, 1.0)
        for e, v in zip(b, s, strict=True)
    ]
    each = [points_sums(one, quasi_random_points(q, 1024)) for one in sites]
    total = {name: np.sum([part[name] for part in each], axis=0) for name in each[0]}
    found = Mixture.of(prior, q, total)
    assert found.effective > 400
    ours, spread = found.moments()
    error = found.error()
    assert np.all(error < 0.05 * sd)
    assert np.all(np.abs(ours - mean) < MOST * error)
    relative = (spread - cov) / np.outer(sd, sd)
    assert np.max(np.abs(relative)) < MOST * np.sqrt(2 / 400)
    for j in range(2):
        assert abs(found.quantile(j, 0.05) - low[j]) < 0.1 * sd[j]
        assert abs(found.quantile(j, 0.95) - high[j]) < 0.1 * sd[j]
        ends = [found.quantile(j, p) for p in (0.01, 0.05, 0.5, 0.95, 0.99)]
        assert all(one < other for one, other in pairwise(ends))
