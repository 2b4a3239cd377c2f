"""What a site's records say of theta_k, as one draw of a normal; and many small normal equations.

With X'X / sigma_k^2 = R'R and R'z = X'y / sigma_k^2, records say of theta_k what one draw
z ~ N(R theta_k, I) would. R has as many rows as X'X has directions that records tell of, so that
neither few records nor collinear columns need a case of their own. Where theta_k ~ N(a, C),

    z ~ N(R a, W),   W = I + R C R'.                                                             (1)

W is wanted for hundreds of C at once: Cholesky factors are taken along the last axis, of all
matrices together, where LAPACK takes them one by one. A pivot of W is 1 at least, as C has no
negative direction; one that comes out less is rounding beside a huge C. (What tells of directions
in which R C R' differs by more than some 1e12 is lost in rounding, too.)
"""

from __future__ import annotations

import numpy as np

from secagg.core.arrays import Array
from secagg.models.fedlin.hierarchies.base import SufficientStatistics

_MIN_EIGENVALUE_SHARE = (
    1e-13  # times d, of the largest eigenvalue of X'X: what is below is rounding
)
_MAX_LOG_TAU = 300.0  # log tau, as if it were that; squares of tau must not overflow


def pseudo_observation(site: SufficientStatistics) -> tuple[Array, Array]:
    """Return R and z. X'X is brought to a unit diagonal first: terms' units may be anything."""
    d = len(site.cross)
    scale = np.sqrt(np.diagonal(site.gram))
    inverse = np.divide(1.0, scale, out=np.zeros(d), where=scale > 0)
    values, vectors = np.linalg.eigh(site.gram * np.outer(inverse, inverse))
    seen = values > _MIN_EIGENVALUE_SHARE * d * max(values[-1], 0.0)
    values, vectors, sigma = values[seen], vectors[:, seen], np.sqrt(site.variance)
    R = np.sqrt(values)[:, None] * vectors.T * scale / sigma
    return R, vectors.T @ (inverse * site.cross) / np.sqrt(values) / sigma


def variances(log_tau: Array) -> Array:
    """Return tau, within what float64 can square."""
    tau: Array = np.exp(np.minimum(log_tau, _MAX_LOG_TAU))
    return tau


def spread_covariances(R: Array, tau: Array) -> Array:
    """Return R diag(tau) R' (i, i, n) of each column of tau (d, n)."""
    i = len(R)
    with np.errstate(over="ignore", invalid="ignore"):  # as in `cholesky_factors`
        products = (R[:, None, :] * R[None, :, :]).reshape(i * i, len(tau)) @ tau
    squares: Array = products.reshape(i, i, tau.shape[1])
    return squares


def cholesky_factors(W: Array) -> Array:
    """Return the factors of W (i, i, n), each I, or more, and a covariance."""
    L = np.zeros_like(W)
    with np.errstate(invalid="ignore"):  # beyond float64: what is not finite is refused later
        for j in range(len(W)):
            column = W[j:, j] - np.einsum("kn,akn->an", L[j, :j], L[j:, :j])
            column[0] = np.maximum(column[0], 1.0)
            L[j:, j] = column / np.sqrt(column[0])
    return L


def solved(L: Array, B: Array) -> Array:
    """Return each L^-1 B; B (i, m, n)."""
    X = np.empty_like(B)
    for j in range(len(L)):
        X[j] = (B[j] - np.einsum("kn,kmn->mn", L[j, :j], X[:j])) / L[j, j]
    return X


def log_diagonals(L: Array) -> Array:
    """Return the logarithms of the factors' determinants (n,)."""
    log: Array = np.sum(np.log(L[np.arange(len(L)), np.arange(len(L))]), axis=0)
    return log
