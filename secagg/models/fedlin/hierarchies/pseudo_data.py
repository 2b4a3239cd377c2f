"""A site's records as one normal pseudo-observation, and Cholesky factors of many small matrices.

With X'X / sigma_k^2 = R'R and R'z = X'y / sigma_k^2, the records have the same likelihood of
theta_k as one observation z ~ N(R theta_k, I). The number of rows of R is the rank of X'X. So few
records and collinear columns need no special case. If theta_k ~ N(a, C),

    z ~ N(R a, W),   W = I + R C R'.                                                             (1)

W is needed for hundreds of matrices C at once. The Cholesky factors of all matrices are computed
together, along the last axis, which is faster than one LAPACK call for each. C is positive
semidefinite, so in exact arithmetic every pivot of W is at least 1. If C is huge, rounding can make
a computed pivot smaller. If the eigenvalues of R C R' differ by a factor of more than about 1e12,
rounding also loses the information on the smaller ones.
"""

from __future__ import annotations

import numpy as np

from secagg.core.arrays import Array
from secagg.models.fedlin.hierarchies.base import SufficientStatistics

_MIN_EIGENVALUE_SHARE = (
    1e-13  # eigenvalues of X'X below this times d times the largest one are rounding
)
_MAX_LOG_TAU = 300.0  # a larger log tau is replaced by this, so that tau^2 does not overflow


def pseudo_observation(site: SufficientStatistics) -> tuple[Array, Array]:
    """Return R and z. X'X is scaled to a unit diagonal first, so the terms' units do not matter."""
    d = len(site.cross)
    scale = np.sqrt(np.diagonal(site.gram))
    inverse = np.divide(1.0, scale, out=np.zeros(d), where=scale > 0)
    values, vectors = np.linalg.eigh(site.gram * np.outer(inverse, inverse))
    seen = values > _MIN_EIGENVALUE_SHARE * d * max(values[-1], 0.0)
    values, vectors, sigma = values[seen], vectors[:, seen], np.sqrt(site.variance)
    R = np.sqrt(values)[:, None] * vectors.T * scale / sigma
    return R, vectors.T @ (inverse * site.cross) / np.sqrt(values) / sigma


def variances(log_tau: Array) -> Array:
    """Return tau, limited so that its square does not overflow."""
    return np.exp(np.minimum(log_tau, _MAX_LOG_TAU))


def spread_covariances(R: Array, tau: Array) -> Array:
    """Return R diag(tau) R' for each column of tau (d, n), shape (i, i, n).

    R: one for all (i, d), or one for each column (i, d, n)
    """
    i = len(R)
    with np.errstate(over="ignore", invalid="ignore"):  # as in `cholesky_factors`
        if R.ndim > 2:
            each: Array = np.einsum("ian,an,jan->ijn", R, tau, R, optimize=True)
            return each
        products = (R[:, None, :] * R[None, :, :]).reshape(i * i, len(tau)) @ tau
    return products.reshape(i, i, tau.shape[1])


def cholesky_factors(W: Array) -> Array:
    """Return the Cholesky factors of W (i, i, n). Each matrix is I plus a covariance, or larger."""
    L = np.zeros_like(W)
    with np.errstate(invalid="ignore"):  # results that are not finite are refused later
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
