"""The distribution of a continuous column given its neighbours: normal, or with counted residuals.

Equation (2) of `secagg.models.neural.ngm.record_losses` assumes normal residuals with one standard
deviation. Real columns have skewed residuals, whose spread depends on the prediction. Once the
networks are fitted, one more secure sum counts residuals. With e = (z - o) / sd for output o,

    count[c, g, b] = number of records with o in group g and e in bin b, for continuous column c (4)

Groups are intervals of o, bins are intervals of e with public ends. The share of a bin in a group
is shrunk towards the share in all groups, and this towards the normal distribution (both as if
`PRIOR_RECORDS` further records were seen). Within a bin, the density is proportional to that of
the normal distribution. So normal residuals are represented exactly, whatever the bins.

Values are clipped to the public bounds, and not drawn from a distribution truncated there: a job
clips the records too, so the records that the networks have learned from have the same mass at the
bounds. Means, standard deviations and draws all include this clipping.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import ndtr, ndtri

from secagg.core.arrays import Array
from secagg.errors import UsageError

GROUP_ENDS = np.linspace(-2.5, 2.5, 5)
"""Inner ends of the groups of outputs, in units of z: the column's pooled standard deviations."""
BIN_ENDS = np.linspace(-4.0, 4.0, 17)
"""Inner ends of the bins of residuals, in residual sds; the outer bins are unbounded."""
GROUPS = len(GROUP_ENDS) + 1
SHAPE = (GROUPS, len(BIN_ENDS) + 1)
ENDS = np.concatenate([[-np.inf], BIN_ENDS, [np.inf]])
"""All ends of the bins."""
NORMAL_SHARES = np.diff(ndtr(ENDS))
NORMAL_SHARES = (NORMAL_SHARES + NORMAL_SHARES[::-1]) / 2  # the upper ones are inexact
"""The shares of the bins in the normal distribution."""
_BELOW = ndtr(ENDS[:-1])
_MEANS = np.diff(-np.exp(-(ENDS**2) / 2)) / np.sqrt(2 * np.pi) / np.diff(ndtr(ENDS))
_MEANS = (_MEANS - _MEANS[::-1]) / 2
"""The means of the bins in the normal distribution."""
_MEAN_ERROR = 0.02
"""How far the mean of counted residuals may be from 0 because densities in bins are normal."""
_MOST_TILT = 2.0  # moves the mean of a normal distribution by two standard deviations
PRIOR_RECORDS = 10.0


def group_of(outputs: Array) -> NDArray[np.intp]:
    return np.asarray(np.searchsorted(GROUP_ENDS, outputs))


def count_residuals(z: Array, outputs: Array, sd: Array) -> Array:
    """Return the counts of equation (4), shape (continuous columns, groups, bins).

    z, outputs: of the continuous columns, shape (columns, records); sd: shape (columns,)
    """
    counts = np.zeros((len(sd), *SHAPE))
    group = group_of(outputs)
    bins = np.searchsorted(BIN_ENDS, (z - outputs) / sd[:, None])
    column = np.broadcast_to(np.arange(len(sd))[:, None], z.shape)
    np.add.at(counts, (column, group, bins), 1)
    return counts


def merged(counts: Array, smallest: int) -> Array:
    """Return counts that can be shown: no cell of them has 1 to smallest - 1 records.

    Neighbouring groups, and then in each group neighbouring bins, are merged until they have
    `smallest` records or more. The records of merged bins are spread over them in proportion
    to the normal distribution times exp(lambda e), those of merged groups equally. (Setting small
    counts to 0 instead would cut the tails, and make residual standard deviations too small.)

    lambda is one number for a column. At the optimum of the networks, the mean residual of a column
    over all records is 0, because the penalty leaves biases free. With lambda = 0, records at a
    hard end, or in a long tail, would be drawn to the wrong side of it. This is maximum entropy,
    given the counts and a mean that is known up to `_MEAN_ERROR` (Dudik, Phillips and Schapire
    2004, COLT): lambda minimises (mean / `_MEAN_ERROR`)^2 + lambda^2.
    """
    found = np.zeros_like(counts)
    for column, of_column in enumerate(counts):
        cells = [
            (groups, bins, float(of_column[groups, bins].sum()))
            for groups in _cells(of_column.sum(axis=1), smallest)
            for bins in _cells(of_column[groups].sum(axis=0), smallest)
        ]
        for (groups, bins, records), share in zip(cells, _spread(cells), strict=True):
            found[column, groups, bins] = records * share / (groups.stop - groups.start)
    return found


def _spread(cells: Sequence[tuple[slice, slice, float]]) -> list[Array]:
    """Return how the records of each cell are spread over its bins.

    cells: groups, bins, and the number of records
    """
    total = sum(records for *_, records in cells)

    def spread(by: float, bins: slice) -> Array:
        share = NORMAL_SHARES[bins] * np.exp(by * _MEANS[bins])
        return np.asarray(share / share.sum())

    def misfit(by: float) -> float:
        means = [records * float(spread(by, bins) @ _MEANS[bins]) for _, bins, records in cells]
        return (sum(means) / total / _MEAN_ERROR) ** 2 + by**2

    best = minimize_scalar(misfit, bounds=(-_MOST_TILT, _MOST_TILT)).x if cells else 0.0
    return [spread(best, bins) for _, bins, _ in cells]


def _cells(counts: Array, smallest: int) -> list[slice]:
    """Return cells that tile the whole axis, each with at least `smallest` records.

    A cell reaches to the next one, so that its end does not show where single records are. There
    are no cells if all records together are too few.
    """
    ends: list[int] = []
    inside = 0.0
    for i, count in enumerate(counts):
        inside += count
        if inside >= smallest:
            ends.append(i + 1)
            inside = 0.0
    return [slice(a, b) for a, b in pairwise([0, *ends[:-1], len(counts)])] if ends else []


@dataclass(frozen=True, eq=False)
class Residuals:
    """The shares of bins, shape (continuous columns, groups, bins), and their sums before a bin."""

    shares: Array
    below: Array

    @classmethod
    def of(cls, counts: NDArray[Any], columns: int) -> Self:
        """Return the distributions of these counts. Raises `UsageError` for other shapes."""
        if counts.shape != (columns, *SHAPE) or not np.all(np.isfinite(counts) & (counts >= 0)):
            raise UsageError("the model", "'residuals' are not counts of residuals")
        pooled = counts.sum(axis=1, keepdims=True) + PRIOR_RECORDS * NORMAL_SHARES
        pooled /= pooled.sum(axis=2, keepdims=True)
        shares = counts + PRIOR_RECORDS * pooled
        shares /= shares.sum(axis=2, keepdims=True)
        return cls(shares, np.cumsum(shares, axis=2) - shares)

    def draws(self, column: int, o: Array, sd: Array, uniform: Array) -> Array:
        """Return o plus residuals; uniform: in [0, 1)."""
        group = group_of(o)
        below = self.below[column][group]
        bins = np.sum(below <= uniform[:, None], axis=1) - 1
        each = np.arange(len(o))
        within = (uniform - below[each, bins]) / self.shares[column][group, bins]
        p = _BELOW[bins] + np.clip(within, 0, 1) * NORMAL_SHARES[bins]
        return np.asarray(o + sd * ndtri(p))

    def log_density(self, column: int, o: Array, sd: Array, z: Array) -> Array:
        """Return the logarithm of the density of z, per unit of z."""
        e = (z - o) / sd
        bins = np.searchsorted(BIN_ENDS, e)
        ratio = self.shares[column][group_of(o), bins] / NORMAL_SHARES[bins]
        return np.asarray(np.log(ratio / sd) - e * e / 2 - np.log(2 * np.pi) / 2)
