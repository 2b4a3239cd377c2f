"""Reading a value off the low-order bits of its noise: Mironov 2012, "On significance of the least
significant bits for differential privacy" (CCS).

Noise drawn in floating point and added in floating point leaves a trace. Floats are finer near zero
than away from it, so fl(value + noise) reaches only some of the floats around it, and which ones
depends on the value. An output that one value cannot reach proves that it was not that value, at
whatever epsilon was claimed. It takes no statistics: one output is enough.

Sound noise has one grid, fixed beforehand, on which all values reach all outputs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]


def disproved(outputs: Floats, value: float) -> NDArray[np.bool_]:
    """Return for which outputs y no float w has fl(value + w) = y: they prove another value.

    If there is such a w, then fl(y - value) or one of its two neighbours is one. Where floats near
    y - value are as far apart as those near y, or further, w is within half their distance of
    y - value, so among the three. Where they are closer, fl(y - value) itself is off by too little
    for fl(value + w) to be another float than y.
    """
    nearest = outputs - value
    candidates = (nearest, np.nextafter(nearest, -np.inf), np.nextafter(nearest, np.inf))
    return ~np.any([value + w == outputs for w in candidates], axis=0)


def finest(outputs: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the exponent of each output's lowest bit that is set; 0 for the number 0."""
    mantissa, exponent = np.frexp(outputs)
    whole = (mantissa * 2.0**53).astype(np.int64)
    lowest = np.frexp((whole & -whole).astype(np.float64))[1] - 1
    return np.where(whole == 0, 0, exponent + lowest - 53)


def told_apart(of_one: NDArray[np.float64], of_other: NDArray[np.float64]) -> float:
    """Return the share of one value's outputs whose low-order bits show that it is not the other.

    Learnt from outputs alone, however they were made: a bit is set below all those of the other
    value's outputs, by a first half of them. If a second half has lower bits, nothing was learnt.
    """
    half = len(of_other) // 2
    lowest = finest(of_other[:half]).min()
    if finest(of_other[half:]).min() < lowest:
        return 0.0
    return float(np.mean(finest(of_one) < lowest))
