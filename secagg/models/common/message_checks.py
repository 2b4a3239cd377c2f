"""How a site checks the coordinator's messages, for methods of many rounds.

Threat model: the site does not trust the coordinator. A value that is not a finite number in range,
or that changes what must stay the same in a run, is a `PeerError`, and the site sends nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from secagg.contracts import Body, State
from secagg.core.arrays import Array
from secagg.errors import PeerError

_MAX_RECORDS = 2**53  # float64 represents every whole number up to this exactly
_MAX_MESSAGE_VALUE = 1e50  # limit of numbers in a message: their products do not overflow


def read_message(
    message: Body,
    round_shapes: Mapping[str, tuple[int, ...]],
    fact_shapes: Mapping[str, tuple[int, ...]],
) -> tuple[dict[str, Array], State]:
    """Return the arrays of this round, and the facts that hold in the whole run.

    round_shapes, fact_shapes: name and shape of the arrays that the message must contain. "records"
    is always one of the facts, and "scale" must be above 0. Raises `PeerError`.
    """
    for name, shape in {**round_shapes, **fact_shapes}.items():
        if not _is_usable(message.get(name), shape):
            raise PeerError("message", f"the coordinator's {name} is not a finite {shape} array")
    if np.any(message["scale"] < 1 / _MAX_MESSAGE_VALUE):
        raise PeerError("message", "the coordinator's scale is out of range")
    records = message.get("records")
    if not (isinstance(records, int) and 2 <= records <= _MAX_RECORDS):
        raise PeerError("message", "the coordinator's number of records is out of range")
    facts = {name: message[name] for name in fact_shapes}
    return {name: message[name] for name in round_shapes}, {"records": records, **facts}


def check_facts(memory: State, facts: State, site_records: int) -> None:
    """Raise `PeerError` for facts that are impossible, or that differ from those of earlier rounds.

    memory: the facts that the site stored, empty in the first round
    """
    if facts["records"] < site_records:
        raise PeerError("message", "the announced total is below this site's number of records")
    if memory and any(not np.array_equal(memory[name], value) for name, value in facts.items()):
        raise PeerError("message", "the coordinator changed the number of records or the units")


def _is_usable(array: Any, shape: tuple[int, ...]) -> bool:
    """Return whether a message's entry is a finite float64 array of this shape and in range."""
    return (
        isinstance(array, np.ndarray)
        and array.dtype == np.float64
        and array.shape == shape
        and bool(np.all(np.abs(array) <= _MAX_MESSAGE_VALUE))
    )
