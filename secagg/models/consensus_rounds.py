"""What the linear and the nonlinear NOTEARS-ADMM share of their rounds, at the sites above all.

A round's message comes from the coordinator, whom a site does not trust: whatever is not a finite
number in range, or changes what must not change in a run, is a `PeerError`, and nothing is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import Body, State, Update
from secagg.errors import DataError, JobError, PeerError, UsageError
from secagg.models.consensus import RHO_MAX
from secagg.models.graph_input import require_number

Array = NDArray[np.float64]

RECORDS, CONSENSUS = "records", "consensus"
"""The names of the stages: the count, and the rounds."""

BOUND = 1024.0
"""Of an entry of V_k, in units of the public bounds. Slopes of a loss are below 1 there, unless the
method diverges; then the site refuses, because a clipped V_k would leave a wrong run going."""
BITS = 40

_MOST_RECORDS = 2**53  # a float holds every number up to it
_EXTREME = 1e50  # of numbers that a coordinator sends: no product here of such overflows


def check_numbers(settings: object, least: Mapping[str, float]) -> None:
    """Raise `JobError` for a setting below its least value, or not finite."""
    for name, low in least.items():
        try:
            require_number(name, getattr(settings, name), low=low)
        except UsageError as error:
            raise JobError(f"method.{name}", error.what) from None


def records_in(total: Update) -> int:
    """Return the number of records of all sites. Raises `UsageError` for fewer than 2."""
    records = round(float(total["records"][0]))
    if records < 2:
        raise UsageError("analysis", f"{records} record is too few for a graph")
    return records


def varying(spread: Array, least: float, names: list[str]) -> Array:
    """Return columns' sums of squares, or variances. Raises `UsageError` where one is constant."""
    if np.any(spread <= least):
        constant = names[int(np.argmin(spread))]
        raise UsageError(
            "analysis", f"column {constant!r} is constant at every site", "Leave it out."
        )
    return spread


def read_message(
    message: Body, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[Array, float, State]:
    """Return W, rho2 and the run's own facts ("records", "scale" and so on), or blame the peer.

    shapes: of the arrays that the message has to hold, W and scale among them
    """
    for name, shape in shapes.items():
        if not _is_usable(message.get(name), shape):
            raise PeerError("consensus", f"the coordinator's {name} is no finite {shape} array")
    rho2, records = message.get("rho2"), message.get("records")
    tiny = np.any(message["scale"] < 1 / _EXTREME)
    if tiny or not (isinstance(rho2, float) and 0 < rho2 <= RHO_MAX):
        raise PeerError("consensus", "the coordinator's rho2 or scale is out of range")
    if not (isinstance(records, int) and 2 <= records <= _MOST_RECORDS):
        raise PeerError("consensus", "the coordinator's number of records is out of range")
    facts = {name: message[name] for name in shapes if name != "W"}
    return message["W"], rho2, {"records": records, **facts}


def check_facts(memory: State, facts: State, here: int) -> None:
    """Blame the peer for facts that cannot be, or are not those of the rounds before.

    memory: of the site, empty in the first round; here: its records
    """
    if facts["records"] < here:
        raise PeerError("consensus", "the coordinator says fewer records than are here")
    if memory and any(not np.array_equal(memory[name], value) for name, value in facts.items()):
        raise PeerError("consensus", "the coordinator changed the number of records, or units")


def within_bound(V: Array) -> Array:
    """Return V_k in units of the public bounds. Raises `DataError` where it left its range."""
    if not np.all(np.abs(V) <= BOUND):
        raise DataError(
            "consensus",
            "this site's solution has left the range that can be sent: the method diverges",
            "Set method.standardise, or narrow the columns' bounds.",
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
