"""A site's least squares in uncorrelated directions, and ridge regression's marginal likelihood.

For HM2 of FedLin (Yue, Al Kontar and Estrada Gomez 2022, section 4.3). With X'X = R'R, R of full
row rank and orthogonal rows of squared lengths e_i, and R't = X'y,

    |y - X theta|^2 = |R theta - t|^2 + left,  left = y'y - |t|^2                                (1)

By rounding, y'y - 2 theta'X'y + theta'X'X theta can be negative; the right side of (1) cannot. left
is at least the rounding error of y'y, because after a perfect fit nothing smaller is known. Which
eigenvalues are rounding errors is decided with columns scaled to length 1, so that units do not
matter. theta ~ N(0, (s / kappa) I) gives y ~ N(0, s (I + XX' / kappa)), and with
c_i = kappa / (kappa + e_i)

    log p(y) = -n/2 log s + 1/2 SUM log c_i - (left + SUM c_i t_i^2) / (2 s)                     (2)

minus n/2 log(2 pi). (2) is the likelihood for ridge regression. For other penalties it gives
starting points of the chains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from secagg.core.arrays import Array
from secagg.models.fedlin.hierarchies.base import SufficientStatistics
from secagg.models.numerics.natural_gaussian import Natural

_ROUNDING = float(np.finfo(np.float64).eps)
_MIN_EIGENVALUE_SHARE = (
    1e-12  # smaller eigenvalues (their sum is at most d) are rounding errors of collinear columns
)


@dataclass(frozen=True)
class SpectralLeastSquares:
    """R (r, d), t (r,), left, n, and e (r,)."""

    R: Array
    t: Array
    left: float
    records: int
    values: Array

    @classmethod
    def of(cls, site: SufficientStatistics) -> SpectralLeastSquares:
        norms = np.sqrt(np.diagonal(site.gram))
        norms = np.where(norms > 0, norms, 1.0)
        values, vectors = np.linalg.eigh(site.gram / np.outer(norms, norms))
        kept = values > _MIN_EIGENVALUE_SHARE
        roots, vectors = np.sqrt(values[kept]), vectors[:, kept]
        t = vectors.T @ (site.cross / norms) / roots
        turns, lengths, rows = np.linalg.svd(
            roots[:, None] * vectors.T * norms, full_matrices=False
        )
        left = max(site.square - float(t @ t), _ROUNDING * site.square)
        return cls(lengths[:, None] * rows, turns.T @ t, left, site.records, lengths**2)

    def evidence(self, log_kappa: Array, log_s: Array) -> Array:
        """Return (2). Both arguments have the same shape, and so has the result."""
        log_share = -np.logaddexp(0.0, np.log(self.values) - log_kappa[..., None])
        fitted = self.left + np.exp(log_share) @ self.t**2
        with np.errstate(divide="ignore"):  # all y are 0
            errors = np.exp(np.log(fitted) - log_s)
        found: Array = (np.sum(log_share, axis=-1) - self.records * log_s - errors) / 2
        return found

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
        """Return the smallest log s at which a search may start: below it (2) is too steep."""
        total = self.left + float(np.sum(self.t**2))
        return float(np.log(max(total, 1e-300) / max(self.records, 1))) - 10


Chart = Callable[[Array], tuple[Array, Array, Array]]


def normal_start(site: SpectralLeastSquares, cavity: Natural, chart: Chart) -> tuple[Array, Array]:
    """Return the mode of (2) times the cavity over phi, and the inverse of the curvature there.

    chart: a function of phi (p,) that returns (log kappa, log s), the Jacobian (2, p) of these, and
        the Hessian (p, p) of log kappa
    If the density has less than a quarter of the cavity's curvature, this quarter is used.
    Raises `LinAlgError` if a number exceeds the range of float64.
    """

    def value(phi: Array) -> float:
        where = chart(phi)[0]
        density = cavity.r @ phi - phi @ cavity.Q @ phi / 2
        return -float(density + site.evidence(where[0], where[1]))

    def gradient(phi: Array) -> Array:
        where, jacobian, _ = chart(phi)
        slope = jacobian.T @ site.slopes(where[0], where[1])[0]
        return np.asarray(cavity.Q @ phi - cavity.r - slope, dtype=np.float64)

    def hessian(phi: Array) -> Array:
        where, jacobian, bent = chart(phi)
        slope, curve = site.slopes(where[0], where[1])
        found = cavity.Q - jacobian.T @ curve @ jacobian - slope[0] * bent
        return np.asarray(found, dtype=np.float64)

    begin = cavity.moments()[0]
    begin[-1] = max(begin[-1], site.least_start())
    try:
        with np.errstate(over="raise", invalid="raise"):
            found = minimize(value, begin, jac=gradient, hess=hessian, method="trust-exact").x
    except FloatingPointError:  # occurs with thousands of records that do not vary
        raise np.linalg.LinAlgError("sigma^2 is below the range of floating point") from None
    floor = np.linalg.cholesky(cavity.Q)  # eigenvalues relative to the cavity's precision
    inverse = np.linalg.inv(floor)
    values, vectors = np.linalg.eigh(inverse @ hessian(found) @ inverse.T)
    root = inverse.T @ vectors / np.sqrt(np.maximum(values, 0.25))
    return found, root @ root.T
