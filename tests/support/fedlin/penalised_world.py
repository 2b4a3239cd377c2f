"""Simulated sites for the tests of penalised regressions' hierarchies."""

import numpy as np
from numpy.typing import NDArray

from secagg.models.fedlin.hierarchies.base import SufficientStatistics
from secagg.models.numerics.natural_gaussian import Natural

Array = NDArray[np.float64]


def regression(n: int, d: int, seed: int) -> tuple[Array, Array]:
    """Return X, correlated columns, and y with Laplace coefficients and noise of sd 1."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    X[:, 1:] += 0.5 * X[:, :1]
    return X, X @ rng.laplace(0, 1, d) + rng.standard_normal(n)


def sums(X: Array, y: Array) -> SufficientStatistics:
    """Return a site's, all rows counted."""
    return SufficientStatistics(X.T @ X, X.T @ y, float(y @ y), len(y), 1.0)


def vague(sd: float, p: int = 2) -> Natural:
    """Return a cavity with mean 0."""
    return Natural.of(np.zeros(p), sd**2 * np.eye(p))
