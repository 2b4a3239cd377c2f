"""Simulated records of several sites, for which NUTS's posteriors are stored as gold."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

NOISE = 0.1
MU, TAU = np.array([1.0, 3.0, 0.5, 2.0]), np.array([1.17, 2.35, 2.52, 0.67])


def four_sites() -> list[Array]:
    """Return each site's outcome and five predictors; the last site deviates in one coefficient."""
    rng, parts = np.random.default_rng(5), []
    for k, n in enumerate((22, 14, 18, 10)):
        X = rng.standard_normal((n, 5))
        X[:, 1] += 0.5 * X[:, 0]
        effects = np.array([0.8, 0.25, 1.0 if k == 3 else 0.0, 0.0, -0.3])
        y = X @ effects + (0.7 + 0.2 * k) * rng.standard_normal(n)
        parts.append(np.column_stack([y, X]) + 3 * rng.standard_normal(6))
    return parts


def hundred_sites() -> tuple[Array, Array]:
    """Return X (sites, n, d) and y (sites, n) of FedLin's example 4.1: n = 100, d = 4.

    MU and TAU are the mean and the variance of the sites' coefficients, NOISE the sd of y.
    """
    rng = np.random.default_rng(1)
    X = rng.standard_normal((100, 100, 4))
    theta = MU + np.sqrt(TAU) * rng.standard_normal((100, 4))
    y = np.einsum("knd,kd->kn", X, theta) + NOISE * rng.standard_normal((100, 100))
    return X, y
