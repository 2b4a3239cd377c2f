"""Products and quotients of normal densities, in natural parameters.

Yue, Al Kontar and Estrada Gomez ("Federated data analytics: a study on linear models", 2022),
section 4.2.2. A normal density with mean m and covariance C is exp(r'x - x'Qx / 2) up to a factor,
with precision Q = C^-1 and shift r = Q m. Lemma 1: a product of densities adds r and Q, a quotient
subtracts them. The Q of a quotient may not be positive definite; it is then not a density.

Q is kept exactly symmetric, as its upper triangle, row by row. An antisymmetric part from rounding
would not affect any density, but every round of parallel updates would multiply it by
|1 - K delta|.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from secagg.core.arrays import Array

_MIN_EIGENVALUE_SHARE = 1e-10  # of the largest eigenvalue of Q, scaled to a unit diagonal


@dataclass(frozen=True)
class Natural:
    """exp(r'x - x'Qx / 2); r (p,), Q (p, p), symmetric bit for bit."""

    r: Array
    Q: Array

    @classmethod
    def of(cls, mean: Array, cov: Array) -> Natural:
        """Return the density with these moments. Raises `LinAlgError` for a singular cov."""
        Q = cho_solve(cho_factor(cov), np.eye(len(mean)))
        Q = (Q + Q.T) / 2
        return cls(Q @ mean, Q)

    @classmethod
    def read(cls, state: Mapping[str, Any]) -> Natural:
        """Return the density of `plain`; other entries of `state` are ignored."""
        return cls(state["r"], symmetric(state["Q"], len(state["r"])))

    def plain(self) -> dict[str, Array]:
        """Return r and Q's upper triangle as plain data."""
        return {"r": self.r, "Q": triangle(self.Q)}

    def __add__(self, other: Natural) -> Natural:
        return Natural(self.r + other.r, self.Q + other.Q)

    def __sub__(self, other: Natural) -> Natural:
        return Natural(self.r - other.r, self.Q - other.Q)

    def times(self, factor: float) -> Natural:
        return Natural(factor * self.r, factor * self.Q)

    @property
    def proper(self) -> bool:
        """Whether Q is positive definite, by more than rounding."""
        diagonal = np.diagonal(self.Q)
        if not (np.all(np.isfinite(self.Q)) and np.all(diagonal > 0)):
            return False
        scaled = self.Q / np.sqrt(np.outer(diagonal, diagonal))
        return bool(np.linalg.eigvalsh(scaled)[0] > _MIN_EIGENVALUE_SHARE)

    def moments(self) -> tuple[Array, Array]:
        """Return mean and covariance, of a proper density."""
        factor = cho_factor(self.Q)
        cov = cho_solve(factor, np.eye(len(self.r)))
        return cho_solve(factor, self.r), (cov + cov.T) / 2


def triangle(Q: Array) -> Array:
    """Return the upper triangle, row by row."""
    return Q[np.triu_indices(len(Q))]


def symmetric(values: Array, size: int) -> Array:
    """Return the symmetric matrix with that upper triangle."""
    Q = np.zeros((size, size))
    Q[np.triu_indices(size)] = values
    return Q + np.triu(Q, 1).T
