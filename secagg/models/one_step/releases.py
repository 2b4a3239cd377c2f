"""The three noisy sums of a one-step regression, and how far one record can move each.

Let z = (1, u) with the scaled predictors u of a record, and f = (1, u, y) with the scaled outcome.
The coordinator sends a matrix T and, from the second sum on, what else it has found; all of this
comes from earlier noisy sums or is public, so by adaptive composition (Dong, Roth & Su 2022,
theorem 9) it needs no further noise. No bound below depends on T: every site shortens what T makes
of a record, so the largest part of a record is 1 whatever the coordinator sends.

Centres: with v = T f, the sum of  v min(1, 1 / |v|).                                         (1)

Moments: with v = T f min(1, 1 / |T f|), the upper triangle of the sum of v v'. The squares of a
record's part above the diagonal plus half of those on it, where noise has twice the variance, are

    |v|^4 / 2 <= 1 / 2;  for two records  |vv' - xx'|_F^2 / 2 <= (|v|^4 + |x|^4) / 2 <= 1,     (2)

as tr vv'xx' = (v'x)^2 >= 0. The whole record is weighted, its constant included: the linear
equations among the columns of a record stay as they are.

Scores: with t = T z, w = min(1, 1 / |t|^2) and the residual r = y - z'b, e = clip(r / h, -1, 1),
the sums of

    g = w t e,   J = w t t' 1(|r| < h),   B = g g'.                                           (3)

|g| <= w |t| <= 1, and J is q q' with |q| = root(w) |t| <= 1. In units in which every number's noise
has a variance of 1, times its weight w_g, w_J or w_B, and twice that on the diagonals of J and B,
the squared change is at most

    add or remove  1 / w_g + 1 / (2 w_J) + 1 / (2 w_B)                                        (4)
    replace        4 / w_g + 1 / w_J + 1 / w_B

For 0/1 outcomes e = y - p with the probability p at b; there is no h, and J has w p (1 - p) in
place of w. With s = |e|, p (1 - p) = s (1 - s) for either outcome, so

    add or remove  max over s of  s^2 / w_g + s^2 (1 - s)^2 / (2 w_J) + s^4 / (2 w_B),        (5)
    replace        twice this maximum with 2 s^2 / w_g in place of s^2 / w_g,

as |a - b|^2 <= 2 |a|^2 + 2 |b|^2, and without the factor 2 for the positive semidefinite J and B.

On the grid. v and q are shortened in integers (`secagg.core.arrays.shortened_to_grid`), so that (2)
holds exactly for the products of multiples of 2^-g. The numbers of g and the centres are truncated
towards zero to multiples of 2^-2g, which lengthens no vector. Before, they are multiplied by
`NORM_SLACK`, which covers rounding of quotients and products; B is made from the truncated g,
truncated once more to multiples of 2^-g.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from scipy.special import expit

from secagg.contracts.noise import Sensitivity
from secagg.core.arrays import Array, row_norms, shortened, shortened_to_grid, truncated
from secagg.models.common.clipped_sums import NORM_SLACK

_WHOLE = 1024  # weights are whole numbers: an error below 1 %
_ROUND_UP = 1 + 2.0**-40
_OF_MOMENTS, _OF_SCORES, _OF_MEAT = 0.18, 0.72, 0.10
"""The shares of the cost of a scores release: of J, g and B."""


@cache
def scores_weights(*, binary: bool) -> tuple[int, int, int]:
    """Return w_g, w_J and w_B.

    For 0/1 outcomes J is large only where g is small (5), so w_J is the smallest at which the
    maximum is at s = 1, to 2 %.
    """
    w_g, w_J, w_B = 1 / _OF_SCORES, 1 / (2 * _OF_MOMENTS), 1 / (2 * _OF_MEAT)
    if binary:
        most, low = 1.02 * _largest(w_g, math.inf, w_B), 1e-3
        for _ in range(60):
            middle = math.sqrt(low * w_J)
            low, w_J = (low, middle) if _largest(w_g, middle, w_B) <= most else (middle, w_J)
    g, J, B = (math.ceil(_WHOLE * w) for w in (w_g, w_J, w_B))
    return g, J, B


def _largest(w_g: float, w_J: float, w_B: float, factor: int = 1) -> float:
    """Return the maximum of (5), with `factor` s^2 / w_g, rounded up."""
    of_J = 1 / (2 * w_J)
    value = np.polynomial.Polynomial([0, 0, factor / w_g + of_J, -2 * of_J, of_J + 1 / (2 * w_B)])
    roots = np.asarray(value.deriv().roots(), dtype=complex).real
    inside = roots[(roots > 0) & (roots < 1)].tolist()
    return max(float(value(s)) for s in (1.0, *inside)) * _ROUND_UP


def upper(matrix: Array) -> Array:
    found: Array = matrix[np.triu_indices(len(matrix))]
    return found


def square(triangle: Array, size: int) -> Array:
    """Return the symmetric matrix with this upper triangle."""
    matrix = np.zeros((size, size))
    matrix[np.triu_indices(size)] = triangle
    return np.asarray(matrix + np.triu(matrix, 1).T)


def centres_sensitivity() -> Sensitivity:
    """Return how far one record can move (1)."""
    return Sensitivity(1.0, 2.0)


def moments_sensitivity(size: int) -> Sensitivity:
    """Return how far one record can move (2); size: of v."""
    return Sensitivity(_ROUND_UP / math.sqrt(2), _ROUND_UP, tuple(_diagonal_twice(size)))


def scores_sensitivity(size: int, *, binary: bool) -> Sensitivity:
    """Return how far one record can move (3), in the order g, J, B; size: of t."""
    w_g, w_J, w_B = scores_weights(binary=binary)
    if binary:
        add, replace = _largest(w_g, w_J, w_B), 2 * _largest(w_g, w_J, w_B, 2)
    else:
        add = 1 / w_g + 1 / (2 * w_J) + 1 / (2 * w_B)
        replace = 4 / w_g + 1 / w_J + 1 / w_B
    twice = _diagonal_twice(size)
    weights = (*(w_g for _ in range(size)), *(w_J * t for t in twice), *(w_B * t for t in twice))
    return Sensitivity(math.sqrt(add) * _ROUND_UP, math.sqrt(replace) * _ROUND_UP, weights)


def _diagonal_twice(size: int) -> list[int]:
    rows, columns = np.triu_indices(size)
    return [2 if same else 1 for same in rows == columns]


def linear(T: Array, rows: Array) -> Array:
    """Return T (1, f) of each record, column by column: a matrix product's rounding may depend on
    other records.

    rows: f, shape (n, k); T: shape (m, k + 1). Returns shape (n, m)
    """
    found = np.repeat(T[None, :, 0], len(rows), axis=0)
    for j in range(rows.shape[1]):
        found += rows[:, j, None] * T[:, j + 1]
    return found


def centres(rows: Array, T: Array, bits: int) -> Array:
    """Return (1). rows: u and y of each record, shape (n, k)."""
    v = linear(T, rows)
    found: Array = truncated(shortened(v) * NORM_SLACK, bits).sum(axis=0)
    return found


def moments(rows: Array, T: Array, grid_bits: int) -> Array:
    """Return the upper triangle of (2). rows: u and y of each record, shape (n, k)."""
    v = shortened_to_grid(shortened(linear(T, rows)), 1.0, grid_bits)
    return upper(v.T @ v)


def scores(
    x: Array, y: Array, T: Array, b: Array, h: float | None, grid_bits: int
) -> dict[str, Array]:
    """Return (3). x: u of each record; y: the scaled outcome; h: None for outcomes of 0 and 1."""
    t, eta = linear(T, x), linear(b[None], x)[:, 0]
    lengths = np.maximum(row_norms(t), 1.0)
    if h is None:
        p = expit(eta)
        e, weight = y - p, p * expit(-eta)
    else:
        r = (y - eta) / h
        e, weight = np.clip(r, -1.0, 1.0), (np.abs(r) < 1).astype(np.float64)
    g = truncated(t / lengths**2 * (NORM_SLACK * e)[:, None], 2 * grid_bits)
    of_curvature = t / lengths * (NORM_SLACK * np.sqrt(weight))[:, None]
    q, coarse = shortened_to_grid(of_curvature, 1.0, grid_bits), truncated(g, grid_bits)
    return {"g": g.sum(axis=0), "J": upper(q.T @ q), "B": upper(coarse.T @ coarse)}
