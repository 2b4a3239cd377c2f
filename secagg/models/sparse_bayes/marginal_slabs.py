"""Draws spike or slab of each coefficient with all common coefficients integrated out.

This is for a spike of fixed variance, which is much narrower than the slab. If g_j were drawn given
theta_j, and theta_j given g_j, a coefficient could not leave the spike: theta_j would first have to
be drawn at a value that the spike does not have. Given the sites' draws, the likelihood of theta is
normal, with precision P and linear term r, sums over sites. With e_i the variance of theta_i given
its g_i, theta has covariance S = (P + diag(1 / e))^-1 and mean m = S r. Without the prior of
theta_j its likelihood, with the other coefficients integrated out, has

    a = 1 / S_jj - 1 / e_j,   b = m_j / S_jj                        (precision and linear term)  (1)
    p(sums | g_j) ~ (1 + e_j a)^(-1/2) exp(e_j b^2 / (2 (1 + e_j a)))                            (2)

(2) for the slab, divided by (2) for the spike, times rho / (1 - rho), is the odds of g_j = 1
(George and McCulloch 1997, "Approaches for Bayesian variable selection"). After each draw S and m
change by a matrix of rank 1.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from secagg.core.arrays import Array


def draw_slabs(
    g: Array,
    rho: Array,
    P: Array,
    r: Array,
    slab: Array,
    spike: Array,
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """Return new g, and the probabilities of the slab from which it was drawn.

    g, r, slab and spike (variances): (..., q); P (..., q, q); rho (...)
    """
    e, g, inclusion = np.where(g > 0, slab, spike), g.copy(), np.empty_like(r)
    root = np.sqrt(e)
    K = np.eye(r.shape[-1]) + root[..., :, None] * P * root[..., None, :]
    S = root[..., :, None] * np.linalg.inv(K) * root[..., None, :]
    m = (S @ r[..., None])[..., 0]
    odds = np.log(rho) - np.log1p(-rho)
    uniform = rng.random(r.shape)
    for j in range(r.shape[-1]):
        size = S[..., j, j]
        a = np.maximum(1 / size - 1 / e[..., j], 0.0)  # below 0 by rounding only
        b = m[..., j] / size
        chance = expit(odds + _evidence(slab[..., j], a, b) - _evidence(spike[..., j], a, b))
        new = uniform[..., j] < chance
        inclusion[..., j], g[..., j] = chance, new
        variance = np.where(new, slab[..., j], spike[..., j])
        more = 1 / variance - 1 / e[..., j]
        share = more / (1 + more * size)
        column = S[..., :, j].copy()
        S -= share[..., None, None] * column[..., :, None] * column[..., None, :]
        m -= (share * m[..., j])[..., None] * column
        e[..., j] = variance
    return g, inclusion


def _evidence(variance: Array, a: Array, b: Array) -> Array:
    """Return the logarithm of (2)."""
    return variance * b * b / (2 * (1 + variance * a)) - np.log1p(variance * a) / 2
