"""The pooled means and standard deviations by which networks' inputs are standardised.

The coordinator computes them from one secure sum and sends them to all sites. A variable that is
constant at all sites gets the scale 0, so it has no influence.
"""

from __future__ import annotations

import numpy as np

from secagg.contracts import Body, Field, Kind, State, Update
from secagg.core.arrays import Array
from secagg.errors import PeerError
from secagg.models.common.units import SQUARES_BITS
from secagg.models.neural.rounds import FRACTION_BITS

_MAX_SCALE = 1e6
MIN_VARIANCE = 1e-12  # a smaller pooled variance, in units of the bounds, counts as 0


def standardisation_fields(variables: int, rows: float) -> list[Field]:
    """Declare the sums. rows: the largest number of records at a site."""
    return [
        Field("sums", (variables,), rows, FRACTION_BITS, Kind.BOUNDED),
        Field("squares", (variables,), rows, SQUARES_BITS, Kind.WEIGHT),
    ]


def standardisation_sums(u: Array) -> Update:
    """Return a site's sums. u: variables scaled by the public bounds."""
    return {"sums": u.sum(axis=0), "squares": np.sum(u * u, axis=0)}


def centre_and_scale(total: Update, records: int) -> tuple[Array, Array]:
    """Return the means, and 1 over the standard deviations."""
    centre = total["sums"] / records
    variance = total["squares"] / records - centre**2
    constant = variance <= MIN_VARIANCE
    return centre, np.where(constant, 0.0, 1 / np.sqrt(np.where(constant, 1.0, variance)))


def checked_units(message: Body, variables: int, memory: State) -> State:
    """Return centre and scale of a message. Raises `PeerError`, also if they change in a run."""
    for name in ("centre", "scale"):
        array = message.get(name)
        if not (
            isinstance(array, np.ndarray)
            and array.dtype == np.float64
            and array.shape == (variables,)
        ):
            raise PeerError("message", f"the coordinator's {name} has the wrong shape or type")
        if memory and not np.array_equal(array, memory[name]):
            raise PeerError("message", f"the coordinator changed the {name}")
    centre, scale = message["centre"], message["scale"]
    if not (np.all(np.abs(centre) <= 1) and np.all((scale >= 0) & (scale <= _MAX_SCALE))):
        raise PeerError("message", "the coordinator's units are out of range")
    return {"centre": centre, "scale": scale}
