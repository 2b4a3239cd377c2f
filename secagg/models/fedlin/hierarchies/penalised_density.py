"""Densities of a site's regression with a lasso or elastic net prior on its coefficients.

For HM2 of FedLin (Yue, Al Kontar and Estrada Gomez 2022, section 4.3). With s = sigma^2 and
theta = sigma v, at a site with n records and d coefficients,

    y ~ N(X theta, s I),  p(v_j | phi) = exp(-l1 |v_j| - l2 v_j^2 / 2) / Z(l1, l2)               (1)

and phi = (log l1, ..., log s) has a normal density, the cavity. A Laplace density is a scale
mixture of normal densities (Park and Casella 2008). With w_j ~ Exp(rate l1^2 / 2),

    l1 N(v_j | 0, w_j) exp(-l1^2 w_j / 2), integrated over w_j, is exp(-l1 |v_j|)                (2)

The sampler needs two low-dimensional densities, which follow from the joint density. (3) is the
density of z = (phi, log |theta|) given theta's direction, with w integrated out. (4) is the density
of phi given w, with theta integrated out:

    log p(z) = cavity - (n + d)/2 log s - (left + |R theta - t|^2) / 2s - d log Z
               - l1 |theta|_1 / sigma - l2 |theta|^2 / 2s + d log |theta|                        (3)
    log p(phi | w) = cavity - n/2 log s - q / 2s - d log Z + d log l1 - l1^2 SUM w / 2           (4)

with R, t, left of `secagg.models.fedlin.hierarchies.ridge_likelihood` and q = min |y - X theta|^2 +
SUM theta_j^2 (1 / w_j + l2) over theta. (4) omits terms that depend on l2, which is held fixed.

Arrays may have leading axes: chains, or draws and chains.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from secagg.core.arrays import Array
from secagg.models.fedlin.hierarchies.base import SufficientStatistics
from secagg.models.fedlin.hierarchies.ridge_likelihood import SpectralLeastSquares
from secagg.models.numerics.natural_gaussian import Natural

SAMPLED_COMPONENTS = (0, -1)  # the components of phi that (4) is a density of: log l1 and log s


class Penalty(Protocol):
    """l1, l2 and Z of (1), as functions of phi (..., p).

    phi[0] is log l1 and phi[-1] is log s. log l2 is between them; if it is absent, l2 = 0.
    """

    def rates(self, phi: Array) -> tuple[Array, Array]:
        """Return l1 and l2, shape (...)."""
        ...

    def log_constant(self, phi: Array) -> Array:
        """Return log Z, shape (...)."""
        ...

    def expected(self, phi: Array) -> Array:
        """Return the means of l1 |v| and, if phi has log l2, of l2 v^2 / 2: shape (..., p - 1)."""
        ...


@dataclass(frozen=True)
class Sizes:
    """The functions of theta that (3) depends on, all of one shape.

    first: |theta|_1; second: |theta|^2; error: left + |R theta - t|^2; slope: (R theta)'(R theta -
    t); fitted: |R theta|^2
    """

    first: Array
    second: Array
    error: Array
    slope: Array
    fitted: Array


@dataclass(frozen=True)
class Mixing:
    """The functions of w that (4) depends on: its sum, and q."""

    total: Array
    q: Array


class Density:
    """(3) and (4) of one site, under one cavity."""

    def __init__(self, penalty: Penalty, site: SufficientStatistics, cavity: Natural) -> None:
        self.penalty, self.cavity = penalty, cavity
        self.rotated = SpectralLeastSquares.of(site)
        self.n, self.d = site.records, len(site.cross)

    def sizes(self, theta: Array) -> Sizes:
        """Return the functions of theta (..., d) that (3) depends on."""
        fitted = theta @ self.rotated.R.T
        away = fitted - self.rotated.t
        return Sizes(
            np.sum(np.abs(theta), axis=-1),
            np.sum(theta**2, axis=-1),
            self.rotated.left + np.sum(away**2, axis=-1),
            np.sum(fitted * away, axis=-1),
            np.sum(fitted**2, axis=-1),
        )

    def joint(self, phi: Array, growth: Array, at: Sizes) -> Array:
        """Return (3) with theta times exp(growth), up to a constant."""
        l1, l2 = self.penalty.rates(phi)
        over, more = np.exp(-phi[..., -1]), np.expm1(growth)
        error = at.error + more * (2 * at.slope + more * at.fitted)
        size = np.sqrt(over) * (1 + more)
        penalty = l1 * size * at.first + l2 * size**2 * at.second / 2
        constant = self.d * (self.penalty.log_constant(phi) + phi[..., -1] / 2 - growth)
        likelihood = -(self.n * phi[..., -1] + over * error) / 2
        found: Array = self._cavity(phi) + likelihood - penalty - constant
        return found

    def joint_slope(self, phi: Array, at: Sizes) -> Array:
        """Return the gradient of (3) in z: shape (..., p + 1)."""
        l1, l2 = self.penalty.rates(phi)
        over = np.exp(-phi[..., -1])
        first, second = l1 * np.sqrt(over) * at.first, l2 * over * at.second / 2
        found = np.concatenate([self._cavity_slope(phi), np.zeros((*over.shape, 1))], axis=-1)
        found[..., :-2] += self.d * self.penalty.expected(phi)
        found[..., 0] -= first
        found[..., 1:-2] -= second[..., None]
        found[..., -2] += (over * at.error - self.n - self.d + first) / 2 + second
        found[..., -1] += self.d - over * at.slope - first - 2 * second
        return found

    def given_w(self, phi: Array, at: Mixing) -> Array:
        """Return (4), up to a constant."""
        l1, _ = self.penalty.rates(phi)
        found = self._cavity(phi) - (self.n * phi[..., -1] + np.exp(-phi[..., -1]) * at.q) / 2
        constant = self.d * (phi[..., 0] - self.penalty.log_constant(phi))
        return np.asarray(found + constant - l1**2 * at.total / 2, dtype=np.float64)

    def given_w_slope(self, phi: Array, at: Mixing) -> Array:
        """Return the gradient of (4) in log l1 and log s: shape (..., 2)."""
        l1, _ = self.penalty.rates(phi)
        found: Array = self._cavity_slope(phi)[..., SAMPLED_COMPONENTS]
        found[..., 0] += self.d * (1 + self.penalty.expected(phi)[..., 0]) - l1**2 * at.total
        found[..., 1] += (np.exp(-phi[..., -1]) * at.q - self.n) / 2
        return found

    def _cavity(self, phi: Array) -> Array:
        found: Array = phi @ self.cavity.r - np.sum((phi @ self.cavity.Q) * phi, axis=-1) / 2
        return found

    def _cavity_slope(self, phi: Array) -> Array:
        return self.cavity.r - phi @ self.cavity.Q
