"""Metropolis steps that rotate two rows of a graph into each other: (7) of `laplace_graph`.

With moves of single entries a chain cannot reach a graph that explains the records nearly as well
with two rows exchanged, or with an arrow reversed: every graph between them is far less likely.
With W_j = (A_j, m_j) / b_j, a row j of A = I - Theta divided by the scale of its errors, e_ij / b_j
is linear in W_j. A rotation of two rows,

    W_j' = cos(a) W_j - sin(a) W_h,  W_h' = sin(a) W_j + cos(a) W_h,  a uniform on +-pi/2        (1)

keeps det W and W'W. With normal errors it would keep the whole likelihood, and it connects all
graphs with equal likelihood in that case. Rows divided by their diagonal entry are A' again, and
b_j' is 1 over that entry (its sign does not matter: Laplace errors are symmetric). The volume of
(1) is 1, and that of (theta_j, m_j, b_j) in terms of W_j is b_j^(p + 2): b_j is 1 / W_jj, the p - 1
effects and m_j are ratios to W_jj. With |det A|^(n - 1) PROD b_j^-n = (det W)^(n - 1) PROD b_j^-1
and the prior of b_j, the step compares, summed over both rows,

    (p - a_s) log b_j - b_s / b_j - SUM_i |e_ij| / b_j + log of the Cauchy priors

where rho(Theta) < 1. In every second step the angle is the one that exchanges the scaled effects
x = theta_jh b_h / b_j and y = theta_hj b_j / b_h, a = arctan y - arctan x, which reverses an arrow.
For W with given W'W, this reflects a on a circle about a point of it: so it is its own inverse, and
volumes are the same. With the likelihood to the power beta, a_s, b_s and |e_ij| are multiplied by
beta; a row of power 1 (`ErrorLaw.full`) has these, and b_j to the power (beta - 1) (n - 1), from
(det W)^(beta (n - 1)). If rows have q effects only, q + 1 takes the place of p. Without records
there is no m_j and no factor of it; the expression is the same. With normal errors, whose constants
are integrated out, the volume is b_j^(p + 1), b_j^2 has the prior, and the step compares
(p - 2 a_s) log b_j - b_s / b_j^2 + log of the Cauchy priors.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secagg.core.arrays import Array
from secagg.models.sparse_bayes.horseshoe import NoisePrior
from secagg.models.sparse_bayes.metropolis.entries import ErrorLaw, is_stable

Indices = NDArray[np.int64]


def rotate_rows(
    graph: Array,
    errors: Array,
    b: Array,
    mean: Array,
    square: Array,
    prior: NoisePrior,
    law: ErrorLaw,
    pairs: Indices,
    angles: Array,
    chances: Array,
    effects: NDArray[np.int64] | None = None,
) -> NDArray[np.bool_]:
    """Propose one rotation after another; return which were accepted, (chains, turns).

    graph: (chains, p, p), errors: (chains, p, n) and b: (chains, p), changed in place
    mean, square: mean and squared scale of the entries' Cauchy prior, (chains, p, p); square must
        be above 0, on the diagonal too
    pairs: (turns, 2), the two rows of each; angles, chances: (chains, turns), log uniforms; turns
        1, 3, ... are reversals and read no angle
    effects: the number of entries of each row, (p,); None: p - 1. Two rows have the same ones
    """
    p = graph.shape[-1]
    unit, accepted = np.eye(p), np.zeros(angles.shape, dtype=bool)  # some angles may have no pair
    cosine, sine = np.cos(angles), np.sin(angles)
    beta, volume = law.powers[:, None], np.full(p, p) if effects is None else effects + 1
    powers = np.broadcast_to(law.row_powers, (len(law.powers), p))

    def log_density(theta: Array, scale: Array, scaled: Array, two: Indices) -> Array:
        size, r, heat = law.size(scaled), law.degree, powers[:, two]
        prior_loss = np.log1p((theta - mean[:, two]) ** 2 / square[:, two]).sum(axis=-1)
        powers_of_b = volume[two] - heat * r * prior.shape - (heat - beta) * law.contrasts
        terms = powers_of_b * np.log(scale)
        terms -= heat * (prior.scale / scale**r + size) + prior_loss
        return np.asarray(terms.sum(axis=-1))

    for i, two in enumerate(pairs):
        theta, scale = graph[:, two], b[:, two]
        W = np.concatenate([unit[two] - theta, errors[:, two]], axis=-1) / scale[..., None]
        c, s = cosine[:, i, None], sine[:, i, None]
        if i % 2:
            x = np.arctan(theta[:, 0, two[1]] * scale[:, 1] / scale[:, 0])
            y = np.arctan(theta[:, 1, two[0]] * scale[:, 0] / scale[:, 1])
            c, s = np.cos(y - x)[:, None], np.sin(y - x)[:, None]
        turned = np.stack([c * W[:, 0] - s * W[:, 1], s * W[:, 0] + c * W[:, 1]], axis=1)
        # A diagonal entry of 0 is rejected below.
        with np.errstate(divide="ignore", invalid="ignore"):
            scaled_rows = turned / turned[:, [0, 1], two][..., None]
            new_scale = 1 / np.abs(turned[:, [0, 1], two])
            new_theta = unit[two] - scaled_rows[..., :p]
            gain = log_density(new_theta, new_scale, turned[..., p:], two)
        k = np.flatnonzero(gain - log_density(theta, scale, W[..., p:], two) > chances[:, i])
        if not len(k):
            continue
        changed = graph[k]
        changed[:, two] = new_theta[k]
        stable = is_stable(changed)
        k, rows = k[stable], (k[stable, None], two)
        graph[rows], b[rows] = new_theta[k], new_scale[k]
        errors[rows] = scaled_rows[k, :, p:]
        accepted[k, i] = True
    return accepted
