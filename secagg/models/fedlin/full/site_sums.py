"""What a site of `fedlin_full` computes: its terms of the sums, and draws of its coefficients.

Site k's records say of theta_k what one observation z_k ~ N(R_k theta_k, I) says, with R_k'R_k =
X'X / sigma_k^2 (`secagg.models.fedlin.hierarchies.pseudo_data`). Its least squares b_k = theta_k +
error have the covariance C_k = (R_k'R_k)^-1. With theta_k ~ N(mu, Sigma),

    A_k = R_k' (I + R_k Sigma R_k')^-1 R_k,  which is (Sigma + C_k)^-1 if C_k exists,            (1)
    a_k = R_k' (I + R_k Sigma R_k')^-1 (z_k - R_k mu) = A_k (b_k - mu).                          (2)

A_k exists for a site with fewer records than coefficients, too, and is 0 without records. If the
residual variance is r sigma_k^2, R_k and z_k are divided by root r.
"""

from __future__ import annotations

import numpy as np

from secagg.contracts import Update
from secagg.core.arrays import Array
from secagg.models.fedlin.hierarchies.base import SufficientStatistics
from secagg.models.fedlin.hierarchies.pseudo_data import pseudo_observation
from secagg.models.numerics.natural_gaussian import triangle


def round_sums(known: SufficientStatistics, mu: Array, spread: Array, Sigma: Array) -> Update:
    """Return a site's terms: A_k, A_k b_k, and the expectation of a_k a_k' over mu ~ N(., spread).

    mu (d,), spread (d, d), Sigma (d, d): the coordinator's current estimates
    """
    A, slope = precision(known, Sigma)
    off = slope - A @ mu
    scatter = np.outer(off, off) + A @ spread @ A
    return {"precision": triangle(A), "slope": slope, "scatter": triangle(scatter)}


def precision(known: SufficientStatistics, Sigma: Array) -> tuple[Array, Array]:
    """Return A_k of (1), symmetric, and A_k b_k."""
    d = len(known.cross)
    if known.records == 0:
        return np.zeros((d, d)), np.zeros(d)
    R, z = pseudo_observation(known)
    values, vectors = _spectrum(R, Sigma[None], np.ones(1))
    rotated = vectors[0].T @ np.column_stack([R, z])
    A = (rotated[:, :d].T / values[0]) @ rotated
    return (A[:, :d] + A[:, :d].T) / 2, A[:, d]


def log_likelihoods(known: SufficientStatistics, mu: Array, Sigma: Array, ratio: Array) -> Array:
    """Return log N(b_k; mu, Sigma + r C_k) at draws, up to a constant (draws,).

    mu (draws, d); Sigma (draws, d, d); ratio (draws,): r
    """
    if known.records == 0:
        return np.zeros(len(mu))
    R, z = pseudo_observation(known)
    values, vectors = _spectrum(R, Sigma, ratio)
    off = ((z - mu @ R.T)[:, None] @ vectors)[:, 0]
    level = np.sum(np.log(values) + off**2 / values, axis=1)
    return np.asarray(-level / 2, dtype=np.float64)


def coefficient_draws(
    known: SufficientStatistics, mu: Array, Sigma: Array, ratio: Array, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return a draw of theta_k for each draw of (mu, Sigma, r), (draws, d), and its mean (d,).

    theta and z are drawn without the records, and theta is corrected by the difference between the
    true z and the drawn z, times a regression coefficient. So Sigma may be singular. The mean is
    that of the conditional means, which has the smaller Monte Carlo error.
    """
    count, d = mu.shape
    values, vectors = np.linalg.eigh(Sigma)
    root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    theta = mu + (root @ rng.standard_normal((count, d, 1)))[:, :, 0]
    if known.records == 0:
        return theta, mu.mean(axis=0)
    R, z = pseudo_observation(known)
    error = np.sqrt(ratio)[:, None] * rng.standard_normal((count, len(R)))
    each, vectors = _spectrum(R, Sigma, ratio)
    off = np.stack([z - (theta @ R.T + error), z - mu @ R.T], axis=2)
    off = np.swapaxes(vectors, 1, 2) @ off / each[:, :, None]
    moved = Sigma @ R.T @ (vectors @ off)
    return theta + moved[:, :, 0], (mu + moved[:, :, 1]).mean(axis=0)


def _spectrum(R: Array, Sigma: Array, ratio: Array) -> tuple[Array, Array]:
    """Return eigenvalues (draws, i) and eigenvectors (draws, i, i) of R Sigma R' + r I.

    No eigenvalue is below r, whatever Sigma is. Sigma may have negative eigenvalues as large as
    rounding. If one were kept, it could cancel r at one site, and that site's terms would exceed
    all others.
    """
    values, vectors = np.linalg.eigh(R @ Sigma @ R.T)
    return np.maximum(values, 0.0) + ratio[:, None], vectors
