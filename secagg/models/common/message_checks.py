"""What a site reads in the messages of methods of many rounds.

A message comes from the coordinator, whom a site does not trust: whatever is not a finite number in
range, or changes what must not change in a run, is a `PeerError`, and nothing is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from secagg.contracts import Body, State
from secagg.core.arrays import Array
from secagg.errors import PeerError

_MAX_RECORDS = 2**53  # a float holds every number up to it
_MAX_MESSAGE_VALUE = 1e50  # of numbers that a coordinator sends: no product here of such overflows


def read_message(
    message: Body, news: Mapping[str, tuple[int, ...]], facts: Mapping[str, tuple[int, ...]]
) -> tuple[dict[str, Array], State]:
    """Return the round's own arrays, and the run's facts, "records" among them, or blame the peer.

    news, facts: the shapes of the arrays that the message has to hold; "scale" is above 0
    """
    for name, shape in {**news, **facts}.items():
        if not _is_usable(message.get(name), shape):
            raise PeerError("message", f"the coordinator's {name} is no finite {shape} array")
    if np.any(message["scale"] < 1 / _MAX_MESSAGE_VALUE):
        raise PeerError("message", "the coordinator's scale is out of range")
    records = message.get("records")
    if not (isinstance(records, int) and 2 <= records <= _MAX_RECORDS):
        raise PeerError("message", "the coordinator's number of records is out of range")
    known = {name: message[name] for name in facts}
    return {name: message[name] for name in news}, {"records": records, **known}


def check_facts(memory: State, facts: State, here: int) -> None:
    """Blame the peer for facts that cannot be, or are not those of the rounds before.

    memory: of the site, empty in the first round; here: its records
    """
    if facts["records"] < here:
        raise PeerError("message", "the coordinator says fewer records than are here")
    if memory and any(not np.array_equal(memory[name], value) for name, value in facts.items()):
        raise PeerError("message", "the coordinator changed the number of records, or units")


def _is_usable(array: Any, shape: tuple[int, ...]) -> bool:
    """Tell whether a message's entry is a float64 array of that shape, finite and not absurd."""
    return (
        isinstance(array, np.ndarray)
        and array.dtype == np.float64
        and array.shape == shape
        and bool(np.all(np.abs(array) <= _MAX_MESSAGE_VALUE))
    )
