"""A site's least squares in uncorrelated directions, and ridge regression's marginal likelihood.

For HM2 of FedLin (Yue, Al Kontar and Estrada Gomez 2022, section 4.3). With X'X = R'R, R of full
row rank and orthogonal rows of squared lengths e_i, and R't = X'y,

    |y - X theta|^2 = |R theta - t|^2 + left,  left = y'y - |t|^2                                (1)

which is never negative by rounding, as y'y - 2 theta'X'y + theta'X'X theta can be. What is rounding
in X'X, of columns that are collinear, is told in columns of length 1, whatever their units.
theta ~ N(0, (s / kappa) I) gives y ~ N(0, s (I + XX' / kappa)), and with c_i = kappa / (kappa + e_i)

    log p(y) = -n/2 log s + 1/2 SUM log c_i - (left + SUM c_i t_i^2) / (2 s)                     (2)

less n/2 log(2 pi). Ridge regression needs (2); for other penalties it is where chains start.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from secagg.models.hierarchy import Statistics
from secagg.models.natural_normal import Natural

Array = NDArray[np.float64]

_LEAST = 1e-12  # of the eigenvalues, d at most: less is rounding of columns that are collinear


@dataclass(frozen=True)
class Rotated:
    """R (r, d), t (r,), left, n, and e (r,)."""

    R: Array
    t: Array
    left: float
    records: int
    values: Array

    @classmethod
    def of(cls, site: Statistics) -> Rotated:
        """Return a site's, from its sums."""
        norms = np.sqrt(np.diagonal(site.gram))
        norms = np.where(norms > 0, norms, 1.0)
        values, vectors = np.linalg.eigh(site.gram / np.outer(norms, norms))
        kept = values > _LEAST
        roots, vectors = np.sqrt(values[kept]), vectors[:, kept]
        t = vectors.T @ (site.cross / norms) / roots
        turns, lengths, rows = np.linalg.svd(roots[:, None] * vectors.T * norms, full_matrices=False)
        left = max(site.square - float(t @ t), 0.0)
        return cls(lengths[:, None] * rows, turns.T @ t, left, site.records, lengths**2)

    def evidence(self, log_kappa: Array, log_s: Array) -> Array:
        """Return (2) for arguments of any one shape."""
        log_share = -np.logaddexp(0.0, np.log(self.values) - log_kappa[..., None])
        fitted = self.left + np.exp(log_share) @ self.t**2
        found: Array = (np.sum(log_share, axis=-1) - self.records * log_s) / 2
        return found - np.exp(-log_s) * fitted / 2

    def slopes(self, log_kappa: float, log_s: float) -> tuple[Array, Array]:
        """Return the gradient (2,) and Hessian (2, 2) of (2)."""
        share = np.exp(-np.logaddexp(0.0, np.log(self.values) - log_kappa))
        bent = share * (1 - share)
        over = np.exp(-log_s) / 2
        fitted, bend = over * (self.left + share @ self.t**2), over * (bent @ self.t**2)
        twice = over * (bent * (1 - 2 * share)) @ self.t**2
        gradient = np.array([np.sum(1 - share) / 2 - bend, fitted - self.records / 2])
        return gradient, np.array([[-np.sum(bent) / 2 - twice, bend], [bend, -fitted]])

    def least_start(self) -> float:
        """Return the least log s to begin a search with: below it (2) is steep enough to overflow."""
        total = self.left + float(np.sum(self.t**2))
        return float(np.log(max(total, 1e-300) / max(self.records, 1))) - 10


Chart = Callable[[Array], tuple[Array, Array, Array]]


def normal_start(site: Rotated, cavity: Natural, chart: Chart) -> tuple[Array, Array]:
    """Return the mode of (2) times the cavity over phi, and the inverse of its curvature there.

    chart: of phi (p,): (log kappa, log s), its Jacobian (2, p), and log kappa's Hessian (p, p)
    Where the density is not curved enough, the cavity is: a vague direction has the cavity's width.
    """

    def value(phi: Array) -> float:
        with np.errstate(over="ignore"):
            where = chart(phi)[0]
            density = cavity.r @ phi - phi @ cavity.Q @ phi / 2
            return -float(density + site.evidence(where[0], where[1]))

    def gradient(phi: Array) -> Array:
        with np.errstate(over="ignore"):
            where, jacobian, _ = chart(phi)
            return cavity.Q @ phi - cavity.r - jacobian.T @ site.slopes(where[0], where[1])[0]

    def hessian(phi: Array) -> Array:
        with np.errstate(over="ignore"):
            where, jacobian, bent = chart(phi)
            slope, curve = site.slopes(where[0], where[1])
            return cavity.Q - jacobian.T @ curve @ jacobian - slope[0] * bent

    begin = cavity.moments()[0]
    begin[-1] = max(begin[-1], site.least_start())
    found = minimize(value, begin, jac=gradient, hess=hessian, method="trust-exact").x
    floor = np.linalg.cholesky(cavity.Q)  # eigenvalues relative to the cavity's precision
    inverse = np.linalg.inv(floor)
    values, vectors = np.linalg.eigh(inverse @ hessian(found) @ inverse.T)
    root = inverse.T @ vectors / np.sqrt(np.maximum(values, 0.25))
    return found, root @ root.T
