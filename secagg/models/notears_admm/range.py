"""What the linear and the nonlinear NOTEARS-ADMM share of their rounds, at the sites above all."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import State, Update
from secagg.errors import DataError, JobError, PeerError, UsageError
from secagg.models.common.pooled_moments import VARY, unvarying
from secagg.models.graphs.inputs import require_number

Array = NDArray[np.float64]

RECORDS, CONSENSUS = "records", "consensus"
"""The names of the stages: the count, and the rounds."""

BOUND = 1024.0
"""Of an entry of V_k, in the units that it is carried in. Slopes of a loss are of the order of 1
there, unless the method diverges; then the site refuses, because a clipped V_k would leave a wrong
run going."""
BITS = 40
"""The least fraction bits of V_k: see `bits_for`."""
SQUARES_BITS = 80
"""Of sums of squares: bounds may be much wider than a column's spread."""

_NARROWEST = 1e-20  # bounds in own units: products of a few such numbers are still numbers


def check_numbers(settings: object, least: Mapping[str, float]) -> None:
    """Raise `JobError` for a setting below its least value, or not finite."""
    for name, low in least.items():
        try:
            require_number(name, getattr(settings, name), low=low)
        except UsageError as error:
            raise JobError(f"method.{name}", error.what) from None


def bits_for(units: float, rho2: float) -> int:
    """Return the fraction bits of V_k that lose nothing of the first rounds.

    units: the largest number that an entry of V_k is divided by to be carried
    rho2: the first one. V_k begins at its order, and one step moves W by 2^-20 / rho2 of it, hence
        by some 1e-6: coarser steps would move the first W, or round all of V_k to zero.
    """
    return max(BITS, 20 + math.ceil(math.log2(units) - math.log2(rho2)))


def check_halves(half: Array, names: Sequence[str]) -> None:
    """Raise `JobError` for public bounds that are absurdly narrow."""
    if np.any(half < _NARROWEST):
        narrow = names[int(np.argmin(half))]
        raise JobError(
            f"columns.{narrow}",
            f"bounds are narrower than {2 * _NARROWEST:g}",
            "Declare the column in other units.",
        )


def records_in(total: Update) -> int:
    """Return the number of records of all sites. Raises `UsageError` for fewer than 2."""
    records = round(float(total["records"][0]))
    if records < 2:
        raise UsageError("analysis", f"{records} record is too few for this")
    return records


def deviations(variance: Array, least: float, names: list[str]) -> Array:
    """Return standard deviations. Raises `UsageError` where a column is as good as constant.

    variance: pooled, in units of the public bounds; least: what is still told from rounding
    """
    if np.any(variance <= least):
        constant = names[int(np.argmin(variance))]
        raise UsageError("analysis", unvarying(constant), VARY)
    return np.sqrt(variance)


def check_own_units(facts: State, half: Array) -> None:
    """Blame the peer for units other than the columns' own, which everybody knows.

    Another scale would be another rho2: the sites' share of the schedule would not be theirs.
    """
    if not np.array_equal(facts["scale"], half) or np.any(facts.get("centre", 0.0) != 0):
        raise PeerError("consensus", "the coordinator's units are not the columns' own")


def within_bound(V: Array) -> Array:
    """Return V_k as it is carried. Raises `DataError` where it left its range."""
    if not np.all(np.abs(V) <= BOUND):
        raise DataError(
            "consensus",
            "this site's solution has left the range that can be sent: the method diverges",
            "Set method.standardise if it is not, or take a larger method.rho2.",
        )
    return V
