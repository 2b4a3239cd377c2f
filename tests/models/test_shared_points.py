"""What HM2's sites share, by weighed points: beside the records' own density, and quadrature."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import multivariate_normal
from support.few_sites import exact

from secagg.models.hierarchy import Statistics
from secagg.models.hierarchy_normal import NormalHierarchy
from secagg.models.natural_normal import Natural
from secagg.models.shared_points import Mixture, points, points_fields, points_sums

Array = NDArray[np.float64]

MOST = 4.5
PRIOR = NormalHierarchy(mean=0.3, sd=2.0, log_mean=-1.0, log_sd=1.5)
Q2 = Natural.of(np.array([0.2, -0.1, -1.0, 0.5]), np.diag([0.3, 0.2, 0.7, 1.1]) + 0.05)


def site(X: Array, y: Array, noise: float) -> Statistics:
    return Statistics(X.T @ X, X.T @ y, float(y @ y), len(y), noise**2)


def shapes(rng: np.random.Generator) -> dict[str, Array]:
    X = rng.standard_normal((9, 2)) * [1.0, 5.0]
    return {
        "full": X,
        "fewer records than terms": X[:1],
        "collinear": X[:, [0, 0]],
        "a constant column": X * [1.0, 0.0],
    }


@pytest.mark.parametrize("shape", shapes(np.random.default_rng(0)))
def test_the_sums_are_the_records_density(shape: str) -> None:
    """log p(y | mu, tau) by its own covariance matrix, up to a constant of the site's."""
    rng = np.random.default_rng(1)
    X, noise = shapes(rng)[shape], 0.4
    y = X @ np.array([0.5, 0.2]) + noise * rng.standard_normal(len(X))
    log_tau = points(Q2, 64)
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
    apart = np.array(ours) - np.array(theirs)
    assert np.ptp(apart) < 1e-9 * np.max(np.abs(theirs))


def test_a_site_without_records_says_nothing() -> None:
    nothing = points_sums(site(np.zeros((0, 2)), np.zeros(0), 1.0), points(Q2, 64))
    for field in points_fields(2, 64):
        assert np.array_equal(nothing[field.name], np.zeros(field.shape))


def test_points_lie_as_students_t_about_q() -> None:
    """Whitened by q's own moments; the quantiles of a t with 4 degrees of freedom, each way."""
    mean, cov = Q2.moments()
    apart = np.linalg.solve(np.linalg.cholesky(cov[2:, 2:]), points(Q2, 4096) - mean[2:, None])
    # A sequence of n points is off by some log(n)^d / n: 0.02; t's quantiles have these slopes.
    for share, quantile in ((0.05, -2.132), (0.25, -0.741), (0.5, 0.0), (0.9, 1.533)):
        assert np.mean(apart < quantile, axis=1) == pytest.approx(share, abs=0.01)
    assert abs(np.mean(np.sign(apart[0]) * np.sign(apart[1]))) < 0.02


FEW = np.array([0.1, 0.9, -0.4, 1.6]), np.array([0.04, 0.3, 0.1, 0.2])
ALIKE = np.array([0.50, 0.52, 0.49]), np.array([0.01, 0.02, 0.01])


@pytest.mark.parametrize("prior", [PRIOR, NormalHierarchy(0.0, 1.0, -3.0, 2.0)], ids=str)
@pytest.mark.parametrize(("b", "s"), [FEW, ALIKE], ids=["apart", "alike"])
def test_few_sites_against_a_grid(b: Array, s: Array, prior: NormalHierarchy) -> None:
    """Where q is badly placed and too narrow, as it is with few sites; and within its own error.

    Of 1024 points half count, so that a share at an end, 0.05, is off by 0.01, which is
    0.1 sds there; moments of second order by 4.5 sqrt(2 / 500).
    """
    mean, cov, low, high = exact(b, s, prior)
    sd = np.sqrt(np.diagonal(cov))
    q = Natural.of(mean + [0.0, 0.4] * sd, np.diag((sd * [0.7, 0.6]) ** 2))
    sites = [
        Statistics(np.array([[1 / v]]), np.array([e / v]), e * e / v, 5, 1.0)
        for e, v in zip(b, s, strict=True)
    ]
    each = [points_sums(one, points(q, 1024)) for one in sites]
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


def test_the_posterior_does_not_depend_on_where_points_lie() -> None:
    """Two q give one posterior, but for errors that each states."""
    rng = np.random.default_rng(3)
    prior, found = replace(PRIOR, log_mean=-2.0), []
    sites = []
    for n in (5, 12, 8, 20, 3):
        X = rng.standard_normal((n, 2))
        theta = np.array([0.5, -1.0]) + [0.7, 0.1] * rng.standard_normal(2)
        sites.append(site(X, X @ theta + 0.5 * rng.standard_normal(n), 0.5))
    for centre, wide in (([-1.0, -3.0], 1.0), ([-2.0, -2.0], 1.6)):
        q = Natural.of(np.array([0.0, 0.0, *centre]), wide**2 * np.eye(4))
        each = [points_sums(one, points(q, 2048)) for one in sites]
        total = {name: np.sum([part[name] for part in each], axis=0) for name in each[0]}
        found.append(Mixture.of(prior, q, total))
    (one, cov), (other, _) = (each.moments() for each in found)
    error = np.hypot(*(each.error() for each in found))
    assert np.all(error < 0.1 * np.sqrt(np.diagonal(cov)))
    assert np.all(np.abs(one - other) < MOST * error)
