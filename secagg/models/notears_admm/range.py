"""Stages and ranges that the linear and the nonlinear NOTEARS-ADMM share."""

from __future__ import annotations

import math

import numpy as np

from secagg.contracts import State
from secagg.core.arrays import Array
from secagg.errors import DataError, PeerError

RECORDS, CONSENSUS = "records", "consensus"
"""The names of the stages: the count, and the rounds."""

FIELD_BOUND = 1024.0
"""Bound of an entry of V_k, in the units in which it is sent. Slopes of a loss are near 1 in them,
unless the method diverges. The site then refuses, because a run with a clipped V_k would go wrong
unnoticed."""
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


def within_bound(V: Array) -> Array:
    """Return V_k unchanged. Raises `DataError` if it is beyond its bound."""
    if not np.all(np.abs(V) <= FIELD_BOUND):
        raise DataError(
            "consensus",
            "this site's solution has left the range that can be sent: the method diverges",
            "Set method.standardise = true, or use a larger method.rho2.",
        )
    return V
