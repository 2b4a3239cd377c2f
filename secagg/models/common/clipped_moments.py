"""Moments of clipped records, and how far one record can move them.

Let u be a record's variables, scaled to [-1, 1] by their public bounds. Under differential privacy
records are clipped to |u| <= R on a grid of 2^-g (`secagg.contracts.noise.Clip`). Let z = (c, u)
with c = 1/2, and M = sum z z' over a site's records. M's entries are multiples of 2^-2g, which
float64 adds exactly. The noise has twice the variance on the diagonal. The change that a record
makes (`secagg.contracts.noise.Sensitivity`) is measured relative to the noise: its square is the
sum of the squares above the diagonal plus half of the squares on it. This is half the squared
Frobenius norm of the whole matrix, for which Analyze Gauss (Dwork et al. 2014) gives

    add or remove  |zz'|_F^2 = |z|^4,
                   so the change is at most  (c^2 + R^2) / root(2)                         (1)
    replace        |zz' - ww'|_F^2 = |z|^4 + |w|^4 - 2 (z'w)^2,
                   so it is at most  root((c^2 + R^2)^2 - max(0, c^2 - R^2)^2)             (2)

docs/math/clipped-moments.md proves (1) to (6). Both bounds include the outcome, because u contains
all variables. If a record is replaced by an incomplete one, which is left out of the sum, (1)
applies.

The number of records n is also released by itself, with less noise than M's first entry. Where both
are one release, let the noise of n have the variance w_n, and that of M w_M times the above. Adding
a record moves n by 1, replacing one by another does not. So the squares of the changes are

    add or remove  1 / w_n + (1)^2 / w_M
    replace        the larger of this and (2)^2 / w_M                                      (3)

A share s of the budget of mu^2 is the count's if (1 / w_n) / (1 / w_n + (1)^2 / w_M) = s.

Persons. A person with at most m records changes M and n by at most m times (1), (2) and (3), by the
triangle inequality. This is attained by m equal records of norm R. If also the squared norms |u|^2
of a person's records add up to at most P^2 (`secagg.privacy.clipping.clip_persons`), let Q = P^2 /
m, at most R^2. A person's records add a matrix A = sum zz' to M. It is positive semidefinite, so
|A|_F <= tr A <= m (c^2 + Q). So the changes by one person, divided by m, are at most

    add or remove  (1) with Q instead of R^2                                               (4)
    replace, M     c^2 + Q, or (2), whichever is smaller                                   (5)
    replace, both  the root of the largest of 1 / w_n + (c^2 + Q)^2 / (2 w_M),
                   (1 - q)^2 / w_n + ((c^2 + Q)^2 + (q c^2 + Q)^2) / (2 w_M), q = Q / R^2,
                   and (c^2 + Q)^2 / w_M; or (3), if that is smaller                       (6)

Whole records (`Clip.whole`). R and P are then limits of |z| itself, with its constant, and c^2 is 0
in (1) to (6): of a record's part zz', only |z|^2 <= R^2 is used.

docs/math/persons-and-windows.md has the same for windows of series.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import SiteRecords, Variable
from secagg.contracts.noise import Clip, Noise, Sensitivity
from secagg.core.arrays import Array

CONSTANT = Clip.constant
"""c, if it is not part of the record."""

LEAST_WEIGHT = 0.6
"""Below this mean weight, most whole records are far from where they were expected."""
FAR_AWAY = (
    "most records lie far outside the typical ranges, so results may be wrong: correct `typical`"
)

_ROUND_UP = 1 + 2.0**-48
_FINE = 16  # the weights are whole numbers: the smaller one is at least this


def records_moments(rows: SiteRecords, clip: Clip | None) -> Array:
    """Return M's upper triangle of a site's records."""
    if clip is not None and clip.whole:
        return upper_moments(rows.values, rows.constants)
    return upper_moments(rows.values, 1.0 if clip is None else clip.constant)


def upper_moments(values: Array, constant: float | Array) -> Array:
    """Return M's upper triangle, row by row.

    values: u, shape (records, variables); constant: c, of all records or of each
    """
    z = np.column_stack([np.broadcast_to(constant, len(values)), values])
    found: Array = (z.T @ z)[np.triu_indices(z.shape[1])]
    return found


def moments_sensitivity(clip: Clip, variables: int) -> Sensitivity:
    """Return how far one record can move M's upper triangle, rounded up: (1) and (2).

    With a limit for a person's records: (4) and (5), one m-th of how far a person can move it.
    """
    added, replaced = _changes(clip)
    weights = tuple(_diagonal_twice(variables).tolist())
    return Sensitivity(added * _ROUND_UP, max(added, replaced) * _ROUND_UP, weights)


def counted_moments_sensitivity(clip: Clip, variables: int, count_share: float) -> Sensitivity:
    """Return how far one record can move n and M's upper triangle together, rounded up: (3).

    With a limit for a person's records: (6), one m-th of how far a person can move them.

    count_share: s, above 0 and below 1, which the whole weights meet to a few per cent
    """
    added, replaced = _changes(clip)
    ratio = (1 - count_share) / (count_share * added**2)  # w_n / w_M
    of_moments = math.ceil(_FINE * max(1.0, 1 / ratio))
    of_count = round(of_moments * ratio)
    add = math.sqrt(1 / of_count + added**2 / of_moments)
    largest = max(add, replaced / math.sqrt(of_moments))
    if clip.mean_square < clip.squared_norm:
        one, other = _changes(replace(clip, person_square=None))
        of_records = max(1 / of_count + one**2 / of_moments, other**2 / of_moments)  # (3), squared
        largest = math.sqrt(min(of_records, _person_replaced(clip, of_count, of_moments)))
    weights = (of_count, *(of_moments * _diagonal_twice(variables)).tolist())
    return Sensitivity(add * _ROUND_UP, largest * _ROUND_UP, weights)


def largest_sum(max_rows: int, clip: Clip | None) -> float:
    """Return the largest entry of M over so many records."""
    return max_rows * (max(1.0, clip.squared_norm) if clip is not None and clip.whole else 1.0)


def far_away(weights: float, records: float, error: float) -> bool:
    """Return whether `FAR_AWAY` holds of the sum of whole records' weights, beyond its noise.

    error: standard deviation of the noise in `weights`
    """
    n = max(records, 1.0)
    return (weights + 2 * error) / n < LEAST_WEIGHT


def largest_values(variables: Sequence[Variable], clip: Clip, weights: float, n: float) -> Array:
    """Return the largest root mean square of each variable that n records can have.

    Of whole records, mean squares are weighted: at most those of the public bounds, and, as
    sum w (|u|^2 + c^2) <= n R^2 with the weights w, at most R^2 n / sum w - c^2. Noise may make
    this smaller than it is, so values up to 1 are always possible.
    """
    largest = np.array([variable.max_abs for variable in variables])
    if not clip.whole:
        return largest
    w = max(weights, 1.0)
    reach = clip.squared_norm * max(n, w) / w - clip.constant**2
    return np.asarray(np.minimum(largest, math.sqrt(max(reach, 1.0))))


def counted_moments_variances(noise: Noise) -> tuple[float, float]:
    """Return the variances of the noise in n, and of that in M off the diagonal, of one site.

    noise: that of one release of n and M, with the weights of `counted_moments_sensitivity`
    """
    step = 4.0**-noise.fraction_bits
    count, first, *_ = noise.weights  # the first entry of M is on the diagonal
    return noise.variance * count * step, noise.variance * (first // 2) * step


def _changes(clip: Clip) -> tuple[float, float]:
    """Return (4) and (5), which are (1) and (2) without a limit for a person's records."""
    constant, square = _beside(clip), clip.squared_norm
    replaced = math.sqrt((constant + square) ** 2 - max(0.0, constant - square) ** 2)
    total = constant + clip.mean_square
    return total / math.sqrt(2), min(total, replaced)


def _beside(clip: Clip) -> float:
    """Return c^2 if R is the limit of |u|, and 0 if it is that of |(c, u)|."""
    return 0.0 if clip.whole else clip.constant**2


def _person_replaced(clip: Clip, of_count: int, of_moments: int) -> float:
    """Return the square of the largest of the three cases of (6)."""
    constant, mean = _beside(clip), clip.mean_square
    q, total = mean / clip.squared_norm, constant + mean
    return max(
        1 / of_count + total**2 / (2 * of_moments),
        (1 - q) ** 2 / of_count + (total**2 + (q * constant + mean) ** 2) / (2 * of_moments),
        total**2 / of_moments,
    )


def _diagonal_twice(variables: int) -> NDArray[np.int64]:
    """Return 2 for each entry of M's upper triangle on the diagonal, and 1 for the others."""
    rows, columns = np.triu_indices(variables + 1)
    return np.where(rows == columns, 2, 1)
