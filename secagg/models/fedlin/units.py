"""Means and standard deviations of all sites' records, from one sum: FedLin's pooled units.

If each site subtracts its own means, squared deviations from these means are summed, and the pooled
mean stays unknown. Otherwise sums and squares are of deviations from the middle of the public
bounds. Then the variance is a difference, which loses digits if a column's mean is far from that
middle. If a variance may be only rounding, it is treated as 0, and an error names the column.

The coordinator sends the units and the number of records to the sites, and a site cannot compute
them: it does not see the sum. But its own squares are part of the sum, and no scaled value is
beyond the bounds: at most a = 1, or `Variable.farthest`. So honest units satisfy, for each column
with centre m and scale r (1 over the standard deviation) and N records,

    |m| <= a,    a r >= 1,    N (1 / r^2 + m^2) >= the site's own sum of squares.            (1)

A site refuses others. So a lie cannot make a column so large that the sums are cut at their bounds,
which would be another function of the records than the one declared. Within (1), a lie about units
changes the prior and one about N the length of steps. These are chosen messages, and the methods'
`Disclosure.if_malicious` says what such messages tell.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import Field, Kind, Spec, State, Update
from secagg.core.arrays import Array
from secagg.errors import PeerError, UsageError
from secagg.models.common.units import SQUARES_BITS, deviations
from secagg.models.fedlin.design import Layout

_MIN_VARIANCE = 2.0 ** (4 - SQUARES_BITS)  # 16 steps of the sum of squares
_SLACK = 2.0**-20
"""Relative: each site's sum of squares is rounded to a multiple of 2^-SQUARES_BITS."""
_ROUNDING = 2.0**-46  # a variance below this times the mean square may be rounding


def units_fields(layout: Layout, max_rows: int) -> tuple[Spec, str]:
    """Return the fields of the sum, and what it reveals, in words."""
    rows, shape = float(max_rows), (layout.scaled,)
    squares = Field("squares", shape, rows, SQUARES_BITS, Kind.WEIGHT)
    if layout.intercept != "modelled":
        return (squares,), "each column's sum of squares about the sites' own means"
    sums = Field("sums", shape, rows, SQUARES_BITS, Kind.BOUNDED)
    return (squares, sums), "each column's sum, and sum of squares"


def unit_sums(layout: Layout, values: Array) -> Update:
    """Return a site's contribution; values: its training records, as stored."""
    u = np.ascontiguousarray(values[:, : layout.scaled].T)  # a row is summed in pairs
    if layout.intercept == "modelled":
        return {"sums": u.sum(axis=1), "squares": np.sum(u * u, axis=1)}
    if len(values):
        u = u - u.mean(axis=1, keepdims=True)
    return {"squares": np.sum(u * u, axis=1)}


def pooled_units(total: Update, records: int, names: Sequence[str]) -> tuple[Array, Array]:
    """Return centre and scale of the scaled columns. Raises `UsageError` if one is constant."""
    mean = total["sums"] / records if "sums" in total else np.zeros(len(total["squares"]))
    variance = total["squares"] / records - mean**2
    variance[variance <= _ROUNDING * mean**2] = 0
    return mean, 1 / deviations(variance, _MIN_VARIANCE, list(names))


def check_units(
    layout: Layout, facts: State, training: Array, pooled: NDArray[np.bool_], most: int
) -> None:
    """Raise `PeerError` unless the coordinator's units can be honest, by (1).

    facts: with "records", "centre" and "scale"; training: a site's training records, as stored
    pooled: for each column, whether its unit is from a sum; else it is that of the public bounds
    most: largest number of records of all sites
    """
    own_centre, own_scale = layout.own_units
    centre, scale = facts["centre"], facts["scale"]
    largest = layout.largest
    fits = np.where(pooled, np.abs(centre) <= largest, centre == own_centre)
    fits &= np.where(pooled, scale * largest >= 1 - _SLACK, scale == own_scale)
    if layout.intercept != "modelled":
        fits &= ~pooled | (centre == 0)
    p = layout.scaled
    own = unit_sums(layout, training)["squares"]
    total = facts["records"] * (scale[:p] ** -2.0 + centre[:p] ** 2)
    fits[:p] &= ~pooled[:p] | (total >= own - _SLACK * (1 + own))
    if not fits.all() or facts["records"] > most:
        raise PeerError("message", "the coordinator's units or number of records are not possible")


def training_units(
    total: Update, records: int, names: Sequence[str], holdout: float, *, own_means: bool
) -> tuple[Array, Array]:
    """Return `pooled_units`. An error also says that records are held out.

    holdout: their share; own_means: whether each site subtracts its own means
    """
    try:
        return pooled_units(total, records, names)
    except UsageError as error:
        if not holdout:
            raise
        own = " about their sites' own means" if own_means else ""
        left = f"method.holdout = {holdout:g} leaves {records} records to learn from"
        what = f"{left}, and in these{own} {error.what}"
        raise UsageError(error.where, what, f"Hold fewer out. Or: {error.advice}") from error
