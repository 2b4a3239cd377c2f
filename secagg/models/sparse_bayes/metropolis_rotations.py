"""Metropolis steps that turn two rows of a graph into one another: (7) of `laplace_graph`.

Entry by entry a chain does not get from a graph to one that explains the records nearly as well
with two rows exchanged, or with an arrow reversed: everything between is far less likely. With
W_j = (A_j, m_j) / b_j, a row j of A = I - Theta by the scale of its errors, e_ij / b_j is linear in
W_j. A turn of two rows,

    W_j' = cos(a) W_j - sin(a) W_h,  W_h' = sin(a) W_j + cos(a) W_h,  a uniform on +-pi/2        (1)

keeps det W and W'W: with normal errors it would keep all of the likelihood, and it connects all
graphs that are equal then. Rows divided by their diagonal entry are A' again, and b_j' is 1 over
that entry (its sign does not matter: Laplace errors are symmetric). The volume of (1) is 1, and
that of (theta_j, m_j, b_j) in terms of W_j is b_j^(p + 2): b_j is 1 / W_jj, the p - 1 effects and
m_j are ratios to W_jj. With |det A|^(n - 1) PROD b_j^-n = (det W)^(n - 1) PROD b_j^-1 and the prior
of b_j, what is compared is, summed over both rows,

    (p - a_s) log b_j - b_s / b_j - SUM_i |e_ij| / b_j + log of the Cauchy priors

where rho(Theta) < 1. Without records there is neither m_j nor its factor, and the same remains.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secagg.core.arrays import Array
from secagg.models.sparse_bayes.horseshoe import NoisePrior
from secagg.models.sparse_bayes.metropolis_entries import is_stable

Indices = NDArray[np.int64]


def rotate_rows(
    graph: Array,
    errors: Array,
    b: Array,
    mean: Array,
    square: Array,
    prior: NoisePrior,
    pairs: Indices,
    angles: Array,
    chances: Array,
) -> NDArray[np.bool_]:
    """Propose one turn after another; return which were taken, (chains, turns).

    graph: (chains, p, p), errors: (chains, p, n) and b: (chains, p) are changed
    mean, square: of the entries' Cauchy prior, and of its scale, (chains, p, p), square above 0 on
        the diagonal, too
    pairs: (turns, 2), the two rows of each; angles, chances: (chains, turns), log uniforms
    """
    p = graph.shape[-1]
    unit, taken = np.eye(p), np.zeros(angles.shape, dtype=bool)
    cosine, sine = np.cos(angles), np.sin(angles)

    def level(theta: Array, scale: Array, scaled: Array, two: Indices) -> Array:
        spread = np.abs(scaled).sum(axis=-1)
        away = np.log1p((theta - mean[:, two]) ** 2 / square[:, two]).sum(axis=-1)
        each = (p - prior.shape) * np.log(scale) - prior.scale / scale - spread - away
        return np.asarray(each.sum(axis=-1))

    for i, two in enumerate(pairs):
        theta, scale = graph[:, two], b[:, two]
        W = np.concatenate([unit[two] - theta, errors[:, two]], axis=-1) / scale[..., None]
        c, s = cosine[:, i, None], sine[:, i, None]
        turned = np.stack([c * W[:, 0] - s * W[:, 1], s * W[:, 0] + c * W[:, 1]], axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):  # of a diagonal entry of 0: refused
            made = turned / turned[:, [0, 1], two][..., None]
            new_scale = 1 / np.abs(turned[:, [0, 1], two])
            new_theta = unit[two] - made[..., :p]
            gain = level(new_theta, new_scale, turned[..., p:], two)
        k = np.flatnonzero(gain - level(theta, scale, W[..., p:], two) > chances[:, i])
        if not len(k):
            continue
        changed = graph[k]
        changed[:, two] = new_theta[k]
        good = is_stable(changed)
        k, rows = k[good], (k[good, None], two)
        graph[rows], b[rows] = new_theta[k], new_scale[k]
        errors[rows] = made[k, :, p:]
        taken[k, i] = True
    return taken
