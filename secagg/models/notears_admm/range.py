"""Stages and ranges that the linear and the nonlinear NOTEARS-ADMM share."""

from __future__ import annotations

import math

import numpy as np

from secagg.contracts import State
from secagg.core.arrays import Array
from secagg.errors import DataError, PeerError, UsageError

RECORDS, CONSENSUS = "records", "consensus"
"""The names of the stages: the count, and the rounds."""

FIELD_BOUND = 1024.0
"""Bound of an entry of V_k, in the units in which it is sent. Slopes of a loss are near 1 in them,
unless the method diverges. The site then refuses, because a run with a clipped V_k would go wrong
unnoticed."""
MAX_COMMON_RATIO = 30.0
"""Largest ratio of two standard deviations on one scale: its square is within FIELD_BOUND."""
FRACTION_BITS = 40
"""Smallest number of fraction bits of V_k: see `bits_for`."""


def bits_for(units: float, rho2: float) -> int:
    """Return the fraction bits of V_k that keep the accuracy of the first rounds.

    units: the largest divisor of an entry of V_k when it is sent
    rho2: the first one. V_k starts at its order. One step of the fixed point moves W by 2^-20 /
        rho2 of that, so by about 1e-6; coarser steps would change the first W, or round all of V_k
        to zero.
    """
    return max(FRACTION_BITS, 20 + math.ceil(math.log2(units) - math.log2(rho2)))


def check_own_units(facts: State, half: Array) -> None:
    """Raise `PeerError` unless the units are the columns' own, which all parties know.

    Another scale would act as another rho2, and the coordinator would control the sites' schedule.
    """
    if not np.array_equal(facts["scale"], half) or np.any(facts.get("centre", 0.0) != 0):
        raise PeerError("consensus", "the coordinator's units are not the columns' own")


def common_scale(half: Array, deviations: Array) -> Array:
    """Return half / c: columns keep their ratios, and the smallest deviation is 1.

    half: half widths of the public bounds, in the columns' own units
    deviations: pooled, in these half widths; c is the smallest one in own units
    The penalties then have the same effect in any common unit. They suit errors of variance 1. A
    variable varies at least as much as its error, so the smallest deviation is the best guess at
    the errors' deviation.
    Raises `UsageError` if deviations differ so much that one scale cannot suit all columns.
    """
    own = half * deviations
    ratio = float(np.max(own) / np.min(own))
    if ratio > MAX_COMMON_RATIO:
        raise UsageError(
            "analysis",
            f"standard deviations of columns differ by a factor of {ratio:.3g}: one scale does not "
            "suit them",
            "Set method.standardise = true, or leave out the columns with the smallest deviations.",
        )
    return half / np.min(own)


def within_bound(V: Array, other_advice: str = "use a larger method.rho2") -> Array:
    """Return V_k unchanged. Raises `DataError` if it is beyond its bound.

    other_advice: what helps if columns are standardised
    """
    if not np.all(np.abs(V) <= FIELD_BOUND):
        raise DataError(
            "this site",
            "its slopes have left the range that can be sent: the method diverges",
            f"Set method.standardise = true, or {other_advice}.",
        )
    return V
