"""The noisy sums of a one-step regression, and how far one record can move each.

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

Scores: with t = T z, w = min(1, 1 / |t|^2), v = w t, the residual r = y - z'b and
e = clip(r / h, -1 / |v|, 1 / |v|), the sums of

    g = v e,   J = w t t' 1(|r| < h / |v|),   B = g g'.                                       (3)

|g| <= 1, and J is q q' with |q| = root(w) |t| <= 1. The limit of a residual is the longer, the less
its record can move the estimate (Hampel et al. 1986, section 6.3: Schweppe's form, which has least
variance among the estimates of this bound, Krasker 1980). In units in which every number's noise
has a variance of 1, times its weight w_g, w_J or w_B, and twice that on the diagonals of J and B,
the squared change is at most

    add or remove  1 / w_g + 1 / (2 w_J) + 1 / (2 w_B)                                        (4)
    replace        4 / w_g + 1 / w_J + 1 / w_B

Lengths: the number of records by |t r / h|, in classes whose ends are powers of 2. A record is in
one class, so it changes the counts by 1 at most, and by root(2) if it is replaced.           (6)

For a family with other residuals, t = root(V) T z with the Fisher weight V, r is the Pearson
residual, and with the limit L = h / |v|, c = clip(r, -L, L) and its mean and that of c r under the
family, m and k (Cantoni & Ronchetti 2001; at each x the score has the mean 0, Kuensch, Stefanski &
Carroll 1989),

    e = (c - m) / (h (1 + |m| / L)),   J = w t t' min(k / (1 + |m| / L), 1).                  (5)

|c - m| <= L + |m|, so |e| <= 1 / |v| as in (3), and k <= E r^2 = 1.

On the grid. v and q are shortened in integers (`secagg.core.arrays.shortened_to_grid`), so that (2)
holds exactly for the products of multiples of 2^-g. The numbers of g and the centres are truncated
towards zero to multiples of 2^-2g, which lengthens no vector. Before, they are multiplied by
`NORM_SLACK`, which covers rounding of quotients and products; B is made from the truncated g,
truncated once more to multiples of 2^-g.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from secagg.contracts import Family
from secagg.contracts.noise import Sensitivity
from secagg.core.arrays import Array, row_norms, shortened, shortened_to_grid, truncated
from secagg.models.common.clipped_sums import NORM_SLACK

_WHOLE = 1024  # weights are whole numbers: an error below 1 %
_SHORTEST = 1e-9  # of t
_LARGEST_ETA = 60.0
_ROUND_UP = 1 + 2.0**-40
_OF_MOMENTS, _OF_SCORES, _OF_MEAT = 0.12, 0.74, 0.14
"""The shares of the cost of a scores release: of J, g and B."""


LENGTHS_END = 4
"""The classes of lengths end at 2^-4, ..., 2^4: the first and the last have no other end."""


def scores_weights() -> tuple[int, int, int]:
    """Return w_g, w_J and w_B."""
    w_g, w_J, w_B = 1 / _OF_SCORES, 1 / (2 * _OF_MOMENTS), 1 / (2 * _OF_MEAT)
    g, J, B = (math.ceil(_WHOLE * w) for w in (w_g, w_J, w_B))
    return g, J, B


def upper(matrix: Array) -> Array:
    found: Array = matrix[np.triu_indices(len(matrix))]
    return found


def centres_sensitivity() -> Sensitivity:
    """Return how far one record can move (1)."""
    return Sensitivity(1.0, 2.0)


def moments_sensitivity(size: int) -> Sensitivity:
    """Return how far one record can move (2); size: of v."""
    return Sensitivity(_ROUND_UP / math.sqrt(2), _ROUND_UP, tuple(_diagonal_twice(size)))


def scores_sensitivity(size: int) -> Sensitivity:
    """Return how far one record can move (3), in the order g, J, B; size: of t."""
    w_g, w_J, w_B = scores_weights()
    add = 1 / w_g + 1 / (2 * w_J) + 1 / (2 * w_B)
    replace = 4 / w_g + 1 / w_J + 1 / w_B
    twice = _diagonal_twice(size)
    weights = (*(w_g for _ in range(size)), *(w_J * t for t in twice), *(w_B * t for t in twice))
    return Sensitivity(math.sqrt(add) * _ROUND_UP, math.sqrt(replace) * _ROUND_UP, weights)


def lengths_sensitivity() -> Sensitivity:
    """Return how far one record can move (6)."""
    return Sensitivity(1.0, math.sqrt(2) * _ROUND_UP)


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


def exact_sum(values: Array) -> Array:
    """Return the sums of columns of multiples of 2^-32, of at most 1, exactly but for one rounding.

    A site's own release is not split into parts that float64 sums exactly.
    """
    most = 2**20
    parts = [values[i : i + most].sum(axis=0) for i in range(0, max(len(values), 1), most)]
    return np.array([math.fsum(column) for column in zip(*parts, strict=True)])


def centres(rows: Array, T: Array, bits: int) -> Array:
    """Return (1). rows: u and y of each record, shape (n, k)."""
    v = linear(T, rows)
    return exact_sum(truncated(shortened(v) * NORM_SLACK, bits))


def moments(rows: Array, T: Array, grid_bits: int) -> Array:
    """Return the upper triangle of (2). rows: u and y of each record, shape (n, k)."""
    v = shortened_to_grid(shortened(linear(T, rows)), 1.0, grid_bits)
    return upper(v.T @ v)


@dataclass(frozen=True)
class Records:
    """x: u of each record; y: the outcome, scaled if the family is linear; offset: of eta"""

    family: Family
    x: Array
    y: Array
    offset: Array | float = 0.0

    def at(self, T: Array, b: Array) -> tuple[Array, Array, Array]:
        """Return t, r and eta of each record."""
        eta = linear(b[None], self.x)[:, 0] + self.offset
        t, family = linear(T, self.x), self.family
        if family.linear:
            return t, family.score(self.y, eta), eta
        eta = np.clip(eta, -_LARGEST_ETA, _LARGEST_ETA)
        root = np.sqrt(family.weight(eta))
        return t * root[:, None], family.score(self.y, eta) / root, eta


def lengths(records: Records, T: Array, b: Array, h: float) -> Array:
    """Return (6), shape (2 LENGTHS_END + 2,)."""
    t, r, _ = records.at(T, b)
    ends = 2.0 ** np.arange(-LENGTHS_END, LENGTHS_END + 1)
    found = np.searchsorted(ends, row_norms(t)[:, 0] * np.abs(r) / h)
    return np.bincount(found, minlength=len(ends) + 1).astype(np.float64)


def scores(records: Records, T: Array, b: Array, h: float, grid_bits: int) -> dict[str, Array]:
    """Return (3), or (5) if the family is not linear."""
    t, r, eta = records.at(T, b)
    family, size = records.family, row_norms(t)
    lengths = np.maximum(size, 1.0)
    limit = (lengths**2 / np.maximum(size, _SHORTEST))[:, 0]
    if family.linear:
        e, weight = np.clip(r / h, -limit, limit), (np.abs(r / h) < limit).astype(np.float64)
    else:
        assert family.clipped is not None  # `columns.FAMILIES`
        mean, product = family.clipped(eta, h * limit)
        usual = 1 + np.abs(mean) / (h * limit)
        e = np.nan_to_num((np.clip(r / h, -limit, limit) - mean / h) / usual)
        e = np.clip(e, -limit, limit)  # whatever the family's means are
        weight = np.clip(np.nan_to_num(product / usual), 0.0, 1.0)
    g = truncated(t / lengths**2 * (NORM_SLACK * e)[:, None], 2 * grid_bits)
    of_curvature = t / lengths * (NORM_SLACK * np.sqrt(weight))[:, None]
    q, coarse = shortened_to_grid(of_curvature, 1.0, grid_bits), truncated(g, grid_bits)
    return {"g": g.sum(axis=0), "J": upper(q.T @ q), "B": upper(coarse.T @ coarse)}
