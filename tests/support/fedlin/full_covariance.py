"""Sites with coefficients from N(mu, Sigma), and the exact restricted likelihood of Sigma."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from secagg.models.fedlin.full.equal_sites import EqualSites
from secagg.models.fedlin.full.site_sums import round_sums
from secagg.models.fedlin.hierarchies.base import SufficientStatistics
from secagg.models.numerics.natural_gaussian import symmetric

Array = NDArray[np.float64]


def statistics(X: Array, y: Array, variance: float) -> SufficientStatistics:
    return SufficientStatistics(X.T @ X, X.T @ y, float(y @ y), len(y), variance)


def records(
    sizes: Sequence[int], d: int, seed: int, spread: float = 0.7
) -> list[tuple[Array, Array]]:
    """Return X and y of each site; errors have variance 1."""
    rng = np.random.default_rng(seed)
    mu, root = rng.standard_normal(d), spread * rng.standard_normal((d, d))
    found = []
    for n in sizes:
        X = rng.standard_normal((n, d)) @ np.diag(rng.uniform(0.5, 1.5, d))
        theta = mu + root @ rng.standard_normal(d)
        found.append((X, X @ theta + rng.standard_normal(n)))
    return found


def restricted(sites: Sequence[tuple[Array, Array]], Sigma: Array, variance: float = 1.0) -> float:
    """Return the log restricted likelihood of Sigma from the records, by dense algebra."""
    d = len(Sigma)
    P, h, value = np.zeros((d, d)), np.zeros(d), 0.0
    for X, y in sites:
        W = X @ Sigma @ X.T + variance * np.eye(len(y))
        P += X.T @ np.linalg.solve(W, X)
        h += X.T @ np.linalg.solve(W, y)
        value -= (np.linalg.slogdet(W)[1] + y @ np.linalg.solve(W, y)) / 2
    return float(value - np.linalg.slogdet(P)[1] / 2 + h @ np.linalg.solve(P, h) / 2)


def at(
    sites: Sequence[SufficientStatistics], mu: Array, spread: Array, Sigma: Array
) -> tuple[EqualSites, Array]:
    """Return the likelihood of equal sites after a round, and the covariance of mu."""
    total: dict[str, Array] = {}
    for site in sites:
        for name, value in round_sums(site, mu, spread, Sigma).items():
            total[name] = total.get(name, np.zeros_like(value)) + value
    G = np.linalg.inv(symmetric(total["precision"], len(mu)))
    return EqualSites.of(total, mu, spread, Sigma, len(sites)), G


def converged(
    sites: Sequence[SufficientStatistics], d: int, scale: float | None, rounds: int = 60
) -> tuple[EqualSites, Array]:
    """Return the likelihood of equal sites and Sigma after so many rounds."""
    mu, spread, Sigma = np.zeros(d), np.zeros((d, d)), 0.3 * np.eye(d)
    for _ in range(rounds):
        fitted, spread = at(sites, mu, spread, Sigma)
        mu, Sigma = fitted.mean, fitted.mode(Sigma, scale)
    return fitted, Sigma
