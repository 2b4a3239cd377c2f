"""Read a value off the low-order bits of the noise that was added to it.

Mironov, *On significance of the least significant bits for differential privacy* (CCS 2012). Noise
drawn in floating point and added in floating point leaves a trace. Floats are finer near zero than
away from it, so fl(value + noise) reaches only some of the floats around it, and which ones depends
on the value. An output that a value cannot reach proves that the value was another one, whatever
epsilon was claimed. The attack needs no statistics: one output is enough.

The attacker sees released numbers and guesses the value behind them. `impossible_outputs` also
assumes that the noise was added in one floating-point addition. `distinguished_share` assumes
nothing about how the outputs were made; it needs outputs of the other value to learn from.

What the result means. Any output that is impossible, or told apart, refutes the claim of privacy.
On one fixed grid every value reaches every output, so with sound noise nothing is found.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.core.arrays import Array

Floats = NDArray[np.floating[Any]]


def impossible_outputs(outputs: Floats, value: float) -> NDArray[np.bool_]:
    """Return for which outputs y no float w has fl(value + w) = y: they prove another value.

    If there is such a w, then fl(y - value) or one of its two neighbours is one. Where floats near
    y - value are as far apart as those near y, or further, w is within half their distance of
    y - value, so among the three. Where they are closer, fl(y - value) itself is off by too little
    for fl(value + w) to be another float than y.
    """
    nearest = outputs - value
    candidates = (nearest, np.nextafter(nearest, -np.inf), np.nextafter(nearest, np.inf))
    possible: NDArray[np.bool_] = np.any([value + w == outputs for w in candidates], axis=0)
    return ~possible


def lowest_set_bits(outputs: Array) -> NDArray[np.int64]:
    """Return the exponent of each output's lowest bit that is set; 0 for the number 0."""
    mantissa, exponent = np.frexp(outputs)
    whole = (mantissa * 2.0**53).astype(np.int64)
    lowest = np.frexp((whole & -whole).astype(np.float64))[1] - 1
    return np.where(whole == 0, 0, exponent + lowest - 53)


def distinguished_share(of_one: Array, of_other: Array) -> float:
    """Return the share of one value's outputs whose low-order bits exclude the other value.

    The rule is learned from the first half of the other value's outputs: an output is excluded if
    it has a lower bit than all of these. It counts only if the second half keeps to it.
    """
    half = len(of_other) // 2
    lowest = lowest_set_bits(of_other[:half]).min()
    if lowest_set_bits(of_other[half:]).min() < lowest:
        return 0.0
    return float(np.mean(lowest_set_bits(of_one) < lowest))
