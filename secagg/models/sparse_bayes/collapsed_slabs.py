"""Draws spike or slab of each coefficient with the coefficient itself integrated out.

This precedes the draws of step `paper` in `secagg.models.sparse_bayes.spike_slab`. There g_j is
drawn given theta_j, and theta_j given g_j. If the sites' theta_kj agree on an effect but theta_j is
in the spike, g_j and theta_j keep each other there for hundreds of rounds. Given the sites' w, with
S = SUM_k 1 / w_kj and m_j the mean of theta_kj weighted by 1 / w_kj,

    m_j | g_j ~ N(0, e_j + 1 / S)                          theta_j integrated out                (1)
    theta_j | g_j, m_j ~ N(S m_j / (S + 1 / e_j), 1 / (S + 1 / e_j))                             (2)

e_j = eta_j in the slab and c0 eta_j in the spike. (1) and rho give the draw of g_j, then (2) that
of theta_j: a joint draw of both. The sums over sites are those of `paper`. They are sums of
d_k = theta_kj - theta_j, so they are adjusted to the new theta_j.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import expit

from secagg.core.arrays import Array
from secagg.models.sparse_bayes.spike_slab import Common, SpikeSlab


def choose_slabs(
    now: Common, one: Array, d: Array, dd: Array, prior: SpikeSlab, rng: np.random.Generator
) -> tuple[Common, Array, Array]:
    """Return new g and theta, and the sums d and dd from the new theta.

    one, d, dd: sums over sites of 1/l, d/l and d^2/l, l = w / t, of the shape of theta; one above 0
    """
    total = one / now.t
    mean = now.theta + d / one
    slab, spike = (size + 1 / total for size in (now.eta, prior.narrow(now.eta)))
    odds = np.log(now.rho / (1 - now.rho))[..., None] + np.log(spike / slab) / 2
    chance = expit(odds + mean**2 * (1 / spike - 1 / slab) / 2)
    g = (rng.random(chance.shape) < chance).astype(np.float64)
    precision = total + 1 / np.where(g > 0, now.eta, prior.narrow(now.eta))
    theta = total * mean / precision + rng.standard_normal(mean.shape) / np.sqrt(precision)
    by = theta - now.theta
    squares = np.maximum(dd - 2 * by * d + by * by * one, 0.0)  # below 0 by rounding only
    return replace(now, g=g, theta=theta, inclusion=chance), d - by * one, squares
