"""What the linear and the nonlinear NOTEARS-ADMM share of their rounds, at the sites above all.

A round's message comes from the coordinator, whom a site does not trust: whatever is not a finite
number in range, or changes what must not change in a run, is a `PeerError`, and nothing is sent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import Body, State, Update
from secagg.errors import DataError, JobError, PeerError, UsageError
from secagg.models.graph_input import require_number
from secagg.models.pooled import VARY, unvarying

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

_MOST_RECORDS = 2**53  # a float holds every number up to it
_EXTREME = 1e50  # of numbers that a coordinator sends: no product here of such overflows


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
        raise UsageError("analysis", f"{records} record is too few for a graph")
    return records


def deviations(variance: Array, least: float, names: list[str]) -> Array:
    """Return standard deviations. Raises `UsageError` where a column is as good as constant.

    variance: pooled, in units of the public bounds; least: what is still told from rounding
    """
    if np.any(variance <= least):
        constant = names[int(np.argmin(variance))]
        raise UsageError("analysis", unvarying(constant), VARY)
    return np.sqrt(variance)


def read_message(message: Body, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Array, State]:
    """Return W and the run's own facts ("records", "scale" and so on), or blame the peer.

    shapes: of the arrays that the message has to hold, W and scale among them
    """
    for name, shape in shapes.items():
        if not _is_usable(message.get(name), shape):
            raise PeerError("consensus", f"the coordinator's {name} is no finite {shape} array")
    if np.any(message["scale"] < 1 / _EXTREME):
        raise PeerError("consensus", "the coordinator's scale is out of range")
    records = message.get("records")
    if not (isinstance(records, int) and 2 <= records <= _MOST_RECORDS):
        raise PeerError("consensus", "the coordinator's number of records is out of range")
    facts = {name: message[name] for name in shapes if name != "W"}
    return message["W"], {"records": records, **facts}


def check_facts(memory: State, facts: State, here: int) -> None:
    """Blame the peer for facts that cannot be, or are not those of the rounds before.

    memory: of the site, empty in the first round; here: its records
    """
    if facts["records"] < here:
        raise PeerError("consensus", "the coordinator says fewer records than are here")
    if memory and any(not np.array_equal(memory[name], value) for name, value in facts.items()):
        raise PeerError("consensus", "the coordinator changed the number of records, or units")


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


def _is_usable(array: Any, shape: tuple[int, ...]) -> bool:
    """Tell whether a message's entry is a float64 array of that shape, finite and not absurd."""
    return (
        isinstance(array, np.ndarray)
        and array.dtype == np.float64
        and array.shape == shape
        and bool(np.all(np.abs(array) <= _EXTREME))
    )
