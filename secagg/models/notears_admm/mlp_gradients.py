"""One site's sum of clipped gradients of its records' losses, for the networks of NOTEARS-MLP.

Each record is clipped as in Abadi et al. (CCS 2016, algorithm 1, line 4). With the networks of
`secagg.models.graphs.mlp`, a record x has the loss 1/2 |x - f(x)|^2. With the residuals
r_j = f_j(x) - x_j and s_jh the output of hidden unit h of network j, its gradient is

    by A_ijh:  r_j C_jh s_jh (1 - s_jh) x_i      by b_jh:  r_j C_jh s_jh (1 - s_jh)
    by C_jh:   r_j s_jh                          by c_j:   r_j                                (1)

so its squared norm needs no more than sums over h and over i:

    sum_j r_j^2 (sum_h (C_jh s_jh (1 - s_jh))^2 (1 + sum_i x_i^2) + sum_h s_jh^2 + 1),        (2)

where i leaves out j if A_jjh is not a parameter. (1) is scaled to norm C, if it is longer, and
every entry is truncated towards zero to a multiple of 2^-f.

Guarantees, for entries of theta up to `MAX_PARAMETER` and of x up to `MAX_INPUT`
    * Adding or removing a record moves the sum by at most C in L2 norm, and replacing one by at
      most 2C.
    * Every other record's term stays the same in every bit.
    * The sum is exact, if there are at most max_rows records and f = `exact_bits(max_rows, C)`.

docs/math/clipped-gradients.md has the proof, which includes all rounding.

Not protected: this file adds no noise. One record here is one row.

=======================================  ===========================================================
case                                     result
=======================================  ===========================================================
no record                                zeros
a gradient of length 0                   zeros, no division by zero
a gradient below a step of the grid      zeros
saturated units (s_jh = 0 or 1)          slopes by A and b are 0, never NaN
parameters or inputs at their limits     clipped like any other; sums stay exact
=======================================  ===========================================================
"""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy.special import expit

from secagg.core.arrays import Array
from secagg.models.common.clipped_sums import NORM_SLACK
from secagg.models.graphs.mlp import Networks

MAX_PARAMETER: Final = 1e6
MAX_INPUT: Final = 1e7
MIN_CLIP: Final = 1e-6

_BLOCK = 2**16  # activations in memory at once


def clipped_gradient_sum(
    networks: Networks, X: Array, theta: Array, clip: float, bits: int
) -> Array:
    """Return the sum over records of their clipped and truncated gradients, shape (size,).

    X: shape (records, d); theta: shape (size,); both within the limits of this module
    clip: C, at least `MIN_CLIP`; bits: f
    """
    d, m = networks.d, networks.m
    A, b, C, c = networks.split(theta)
    inputs = np.zeros((d, d, m))
    networks.free_entries(inputs)[:] = A
    total = np.zeros(networks.size)
    dA, db, dC, dc = networks.split(total)
    by_input, step = np.zeros((d, d, m)), 2.0**bits
    height = max(1, _BLOCK // (d * m))
    for start in range(0, len(X), height):
        x = np.ascontiguousarray(X[start : start + height].T)  # (d, records)
        units = np.repeat(b[:, :, None], x.shape[1], axis=2)  # (d, m, records)
        for i in range(d):
            units += inputs[i][:, :, None] * x[i]
        s = np.asarray(expit(units))
        r = c[:, None] - x
        for h in range(m):
            r += C[:, h, None] * s[:, h]
        slopes = C[:, :, None] * (s * (1 - s))
        shrink = _factors(x, r, slopes, s, clip, with_own=not networks.zero_diagonal)
        r *= shrink
        slopes *= r[:, None]
        for i in range(d):
            by_input[i] += _truncated_sum(slopes * x[i], step)
        db += _truncated_sum(slopes, step)
        dC += _truncated_sum(r[:, None] * s, step)
        dc += _truncated_sum(r, step)
    dA[:] = networks.free_entries(by_input)
    return total * 2.0**-bits


def _factors(x: Array, r: Array, slopes: Array, s: Array, clip: float, *, with_own: bool) -> Array:
    """Return min(1, C / norm) for each record, the norm by (2), shape (records,).

    with_own: whether A_jjh is a parameter
    """
    d, m = slopes.shape[:2]
    reach = np.ones_like(x)  # 1 + sum_i x_i^2, for each network
    for i in range(d):
        square = x[i] * x[i]
        for j in range(d):
            if with_own or i != j:
                reach[j] += square
    inner, outer = np.zeros_like(x), np.ones_like(x)
    for h in range(m):
        inner += slopes[:, h] * slopes[:, h]
        outer += s[:, h] * s[:, h]
    squares = np.zeros(x.shape[1])
    for j in range(d):
        squares += r[j] * r[j] * (inner[j] * reach[j] + outer[j])
    with np.errstate(divide="ignore"):  # a gradient of length 0 stays 0
        return np.asarray(np.minimum(1.0, clip * NORM_SLACK / np.sqrt(squares)))


def _truncated_sum(terms: Array, step: float) -> Array:
    """Return the sum over records, the last axis, of the terms in whole steps."""
    return np.asarray(np.trunc(terms * step).sum(axis=-1))
