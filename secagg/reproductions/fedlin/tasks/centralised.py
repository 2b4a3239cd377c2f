"""What whoever holds all records can compute: Algorithm 1 round by round, and the exact posterior.

Yue, Al Kontar and Estrada Gomez (2022), section 3. `rounds` is Algorithm 1 with the implicit step,
as `secagg.models.fedlin.site_covariance` has it, on all devices' coefficients at once:

    theta_k <- T gradient steps of |y_k - X_k theta_k|^2 by eta_k
    Theta   <- Theta (Omega + D)^-1 Omega,  D = diag(a_1 .. a_K)
    Omega   <- (1 - alpha) Omega + (alpha / d) Theta'Theta

The method `fedlin_hm1` gives the same from secure sums, to rounding; here every round's
coefficients are at hand, and step sizes that it does not offer.

`posterior_mean` has the true Omega = L L' and the true noise: Theta = Z L' with Z (d, r) standard
normal, so that vec(Z) has the precision I + SUM_k (l_k l_k') x X_k'X_k / sigma^2 and its mean is
linear algebra. No method that does not know Omega has a smaller expected square of its errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from secagg.core.arrays import Array
from secagg.models.fedlin.gradient_steps import Quadratic


def quadratics(X: Sequence[Array], y: Sequence[Array]) -> list[Quadratic]:
    """Return each device's sum of squares."""
    return [Quadratic.of(x.T @ x, x.T @ v) for x, v in zip(X, y, strict=True)]


def least_squares(X: Sequence[Array], y: Sequence[Array]) -> Array:
    """Return each device's own least squares (d, K)."""
    fits = [np.linalg.lstsq(x, v)[0] for x, v in zip(X, y, strict=True)]
    return np.asarray(np.column_stack(fits), dtype=np.float64)


def noise_variance(X: Sequence[Array], y: Sequence[Array]) -> float:
    """Return the pooled variance of the residuals of the devices' own least squares."""
    theta = least_squares(X, y)
    squares = sum(float(np.sum((v - x @ t) ** 2)) for x, v, t in zip(X, y, theta.T, strict=True))
    return squares / (sum(map(len, X)) - theta.size)


def separate(devices: Sequence[Quadratic], eta: Array, steps: int) -> Array:
    """Return each device's coefficients (d, K) after so many steps of its own from 0."""
    zero = np.zeros(len(devices[0].w))
    return np.column_stack(
        [each.stepped(zero, rate, steps) for each, rate in zip(devices, eta.tolist(), strict=True)]
    )


def rounds(
    devices: Sequence[Quadratic], eta: Array, a: Array, steps: int, alpha: float
) -> Iterator[Array]:
    """Yield the coefficients (d, K) after each round, without end. eta, a: (K,)"""
    d, many = len(devices[0].w), len(devices)
    start = separate(devices, eta, steps)
    maps = np.stack(
        [each.U @ _shrunk(each, rate, steps) for each, rate in zip(devices, eta, strict=True)]
    )  # T steps are an affine map of a device's coefficients
    theta, omega = np.zeros((d, many)), np.eye(many)
    while True:
        theta = start + np.einsum("kij,jk->ik", maps, theta)
        theta = theta @ np.linalg.solve(omega + np.diag(a), omega)
        omega = (1 - alpha) * omega + alpha / d * (theta.T @ theta)
        yield theta


def _shrunk(device: Quadratic, eta: float, steps: int) -> Array:
    power: Array = (1 - 2 * eta * device.w) ** steps
    return power[:, None] * device.U.T


def posterior_mean(X: Sequence[Array], y: Sequence[Array], root: Array, noise: float) -> Array:
    """Return the posterior mean of Theta (d, K), Omega = root root' and the noise's sd known."""
    d, r = X[0].shape[1], root.shape[1]
    grams = np.stack([x.T @ x for x in X]) / noise**2
    crosses = np.stack([x.T @ v for x, v in zip(X, y, strict=True)]) / noise**2
    pairs = (root[:, :, None] * root[:, None, :]).reshape(len(X), r * r)
    blocks = (pairs.T @ grams.reshape(len(X), d * d)).reshape(r, r, d, d)
    precision = blocks.transpose(0, 2, 1, 3).reshape(r * d, r * d) + np.eye(r * d)
    Z = np.linalg.solve(precision, (root.T @ crosses).reshape(r * d)).reshape(r, d)
    return np.asarray((root @ Z).T)
