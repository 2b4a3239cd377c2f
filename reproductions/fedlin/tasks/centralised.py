"""Computations with all records in one place: Algorithm 1 by round, and the exact posterior.

Yue, Al Kontar and Estrada Gomez (2022), section 3. `rounds` is Algorithm 1 with the implicit step
(see `secagg.models.fedlin.site_covariance`), on all devices' coefficients at once:

    theta_k <- T gradient steps of |y_k - X_k theta_k|^2 by eta_k
    Theta   <- Theta (Omega + D)^-1 Omega,  D = diag(a_1 .. a_K)
    Omega   <- (1 - alpha) Omega + (alpha / d) Theta'Theta

The method `fedlin_hm1` gives the same from secure sums, up to rounding. Here every round's
coefficients are available, and so are step sizes that the method does not offer.

`posterior_mean` uses the true Omega = L L' and the true noise: Theta = Z L' with Z (d, r) standard
normal, so vec(Z) has the precision I + SUM_k (l_k l_k') x X_k'X_k / sigma^2, and its mean follows
by linear algebra. No method has a smaller expected squared error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from secagg.contracts import Array
from secagg.models.fedlin.gradient_steps import Quadratic


def quadratics(X: Sequence[Array], y: Sequence[Array]) -> list[Quadratic]:
    """Return each device's sum of squares."""
    return [Quadratic.of(x.T @ x, x.T @ v) for x, v in zip(X, y, strict=True)]


def least_squares(X: Sequence[Array], y: Sequence[Array]) -> Array:
    """Return each device's own least squares (d, K)."""
    fits = [np.linalg.lstsq(x, v)[0] for x, v in zip(X, y, strict=True)]
    return np.asarray(np.column_stack(fits), dtype=np.float64)


def noise_variance(X: Sequence[Array], y: Sequence[Array]) -> float:
    """Return the pooled residual variance of the devices' own least squares."""
    theta = least_squares(X, y)
    squares = sum(float(np.sum((v - x @ t) ** 2)) for x, v, t in zip(X, y, theta.T, strict=True))
    return squares / (sum(map(len, X)) - theta.size)


def separate(devices: Sequence[Quadratic], eta: Array, steps: int) -> Array:
    """Return each device's coefficients (d, K) after `steps` steps of its own from 0."""
    zero = np.zeros(len(devices[0].w))
    return np.column_stack(
        [each.stepped(zero, rate, steps) for each, rate in zip(devices, eta.tolist(), strict=True)]
    )


def rounds(
    devices: Sequence[Quadratic], eta: Array, a: Array, steps: int, alpha: float
) -> Iterator[Array]:
    """Yield the coefficients (d, K) after each round, endlessly. eta, a: (K,)"""
    d, K = len(devices[0].w), len(devices)
    start = separate(devices, eta, steps)
    maps = np.stack(
        [each.U @ _shrunk(each, rate, steps) for each, rate in zip(devices, eta, strict=True)]
    )  # T steps are an affine map of a device's coefficients
    theta, omega = np.zeros((d, K)), np.eye(K)
    while True:
        theta = start + np.einsum("kij,jk->ik", maps, theta)
        theta = theta @ np.linalg.solve(omega + np.diag(a), omega)
        omega = (1 - alpha) * omega + alpha / d * (theta.T @ theta)
        yield theta


def _shrunk(device: Quadratic, eta: float, steps: int) -> Array:
    power: Array = (1 - 2 * eta * device.w) ** steps
    return power[:, None] * device.U.T


def posterior_mean(X: Sequence[Array], y: Sequence[Array], root: Array, noise: float) -> Array:
    """Return the posterior mean of Theta (d, K), given Omega = root root' and the noise's sd."""
    d, r = X[0].shape[1], root.shape[1]
    grams = np.stack([x.T @ x for x in X]) / noise**2
    crosses = np.stack([x.T @ v for x, v in zip(X, y, strict=True)]) / noise**2
    pairs = (root[:, :, None] * root[:, None, :]).reshape(len(X), r * r)
    blocks = (pairs.T @ grams.reshape(len(X), d * d)).reshape(r, r, d, d)
    precision = blocks.transpose(0, 2, 1, 3).reshape(r * d, r * d) + np.eye(r * d)
    Z = np.linalg.solve(precision, (root.T @ crosses).reshape(r * d)).reshape(r, d)
    return np.asarray((root @ Z).T)
