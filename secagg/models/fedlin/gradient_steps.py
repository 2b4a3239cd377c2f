"""Gradient steps of least squares at a site, in closed form or by minibatches.

Yue, Al Kontar and Estrada Gomez (2022), Algorithm 1: theta is replaced by theta + 2 eta X'(y - X
theta), T times. X and y are all records of the site, or a random batch. With all records, T steps
need no more time than one step. In the coordinates of the eigenvectors of X'X = U diag(w) U', each
coordinate changes independently. With z = U'X'y,

    theta_i <- (1 - 2 eta w_i)^T theta_i + (1 - (1 - 2 eta w_i)^T) z_i / w_i                     (1)

If w_i = 0, z_i is 0 up to rounding and theta_i does not change. Steps are stable for
eta < 1 / max w. The gradient of a batch of b of n records is unbiased if it is multiplied by n / b.
The paper does not multiply it. In the hierarchical model the likelihood then counts b / n as much
as with all records, and the prior by comparison n / b times as much.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from secagg.core.arrays import Array

_RANK = 1e-12  # times the largest eigenvalue; below it, records do not vary in that direction


@dataclass(frozen=True)
class Quadratic:
    """A site's sum of squares |y - X theta|^2, without the part that theta does not change.

    w (d,), U (d, d): eigenvalues and eigenvectors of X'X; z (d,): U'X'y
    """

    w: Array
    U: Array
    z: Array

    @classmethod
    def of(cls, gram: Array, cross: Array) -> Quadratic:
        """gram: X'X (d, d); cross: X'y (d,)"""
        w, U = np.linalg.eigh(gram)
        w = np.where(w > _RANK * max(w[-1], 0.0), w, 0.0)
        return cls(w, U, np.where(w > 0, U.T @ cross, 0.0))

    @property
    def steepest(self) -> float:
        """The largest eigenvalue: steps are stable below its inverse."""
        return float(self.w[-1])

    def answer(self, eta: float, steps: int) -> float:
        """Return the mean over directions of (1 - (1 - 2 eta w_i)^T) / w_i.

        It is the length of the path of T steps, for a unit gradient: about 2 eta T for few steps,
        and 1 / w_i once the steps have converged.
        """
        shrunk = 1 - (1 - 2 * eta * self.w) ** steps
        first = np.full_like(self.w, 2 * eta * steps)
        return float(np.mean(np.divide(shrunk, self.w, out=first, where=self.w > 0)))

    def stepped(self, theta: Array, eta: float, steps: int) -> Array:
        """Return theta after this number of steps, by (1)."""
        power = (1 - 2 * eta * self.w) ** steps
        gain = np.divide(1 - power, self.w, out=np.zeros_like(self.w), where=self.w > 0)
        return self.U @ (power * (self.U.T @ theta) + gain * self.z)


def batch_steps(
    X: Array,
    y: Array,
    theta: Array,
    eta: float,
    steps: int,
    batch: int,
    share: float,
    rng: np.random.Generator,
) -> Array:
    """Return theta after steps from batches of records, drawn without replacement.

    X: (n, d); batch: records in a batch, from 1 to n; share: factor of each gradient
    """
    for _ in range(steps):
        chosen = rng.choice(len(X), batch, replace=False)
        residual = y[chosen] - X[chosen] @ theta
        theta = theta + 2 * eta * share * (X[chosen].T @ residual)
    return theta
