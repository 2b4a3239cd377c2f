"""What the linear and the nonlinear NOTEARS-ADMM share of their rounds, at the sites above all."""

from __future__ import annotations

import math

import numpy as np

from secagg.contracts import State
from secagg.core.arrays import Array
from secagg.errors import DataError, PeerError

RECORDS, CONSENSUS = "records", "consensus"
"""The names of the stages: the count, and the rounds."""

FIELD_BOUND = 1024.0
"""Of an entry of V_k, in the units that it is carried in. Slopes of a loss are of the order of 1
there, unless the method diverges; then the site refuses, because a clipped V_k would leave a wrong
run going."""
FRACTION_BITS = 40
"""The least fraction bits of V_k: see `bits_for`."""


def bits_for(units: float, rho2: float) -> int:
    """Return the fraction bits of V_k that lose nothing of the first rounds.

    units: the largest number that an entry of V_k is divided by to be carried
    rho2: the first one. V_k begins at its order, and one step moves W by 2^-20 / rho2 of it, hence
        by some 1e-6: coarser steps would move the first W, or round all of V_k to zero.
    """
    return max(FRACTION_BITS, 20 + math.ceil(math.log2(units) - math.log2(rho2)))


def check_own_units(facts: State, half: Array) -> None:
    """Blame the peer for units other than the columns' own, which everybody knows.

    Another scale would be another rho2: the sites' share of the schedule would not be theirs.
    """
    if not np.array_equal(facts["scale"], half) or np.any(facts.get("centre", 0.0) != 0):
        raise PeerError("consensus", "the coordinator's units are not the columns' own")


def within_bound(V: Array) -> Array:
    """Return V_k as it is carried. Raises `DataError` where it left its range."""
    if not np.all(np.abs(V) <= FIELD_BOUND):
        raise DataError(
            "consensus",
            "this site's solution has left the range that can be sent: the method diverges",
            "Set method.standardise if it is not, or take a larger method.rho2.",
        )
    return V
