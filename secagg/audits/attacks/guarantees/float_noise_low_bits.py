"""Read a value off the low-order bits of the noise that was added to it.

Mironov, *On significance of the least significant bits for differential privacy* (CCS 2012). Noise
drawn and added in floating point leaves a trace. Floats are denser near zero than away from it, so
fl(value + noise) reaches only some of the floats around it, and the value determines which ones. An
output that a value cannot reach proves that the true value was another one, for any claimed
epsilon. The attack needs no statistics: one output is enough.

The attacker sees released numbers and guesses the value behind them. `impossible_outputs` also
assumes that the noise was added in one floating-point addition. `distinguished_share` assumes
nothing about how the outputs were made; it needs outputs of the other value to learn from.

What the result means. One impossible or distinguished output refutes the claim of privacy. If the
noise is sound, every value reaches every output on one fixed grid, and the attack finds nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.core.arrays import Array

Floats = NDArray[np.floating[Any]]


def impossible_outputs(outputs: Floats, value: float) -> NDArray[np.bool_]:
    """Return, for each output y, whether no float w has fl(value + w) = y: y proves another value.

    It suffices to try w = fl(y - value) and its two neighbours. If floats near y - value are at
    least as far apart as floats near y, a solution w lies within half their distance of y - value,
    so it is one of the three. If they are closer together, the rounding error of fl(y - value) is
    too small for fl(value + w) to be another float than y.
    """
    nearest = outputs - value
    candidates = (nearest, np.nextafter(nearest, -np.inf), np.nextafter(nearest, np.inf))
    possible: NDArray[np.bool_] = np.any([value + w == outputs for w in candidates], axis=0)
    return ~possible


def lowest_set_bits(outputs: Array) -> NDArray[np.int64]:
    """Return the exponent of each output's lowest bit that is set; 0 for the number 0."""
    mantissa, exponent = np.frexp(outputs)
    integer = (mantissa * 2.0**53).astype(np.int64)
    lowest = np.frexp((integer & -integer).astype(np.float64))[1] - 1
    return np.where(integer == 0, 0, exponent + lowest - 53)


def distinguished_share(of_one: Array, of_other: Array) -> float:
    """Return the share of one value's outputs whose low-order bits exclude the other value.

    The rule is learned from the first half of the other value's outputs: it excludes an output with
    a lower bit than all of these. The rule counts only if it excludes no output of the second half.
    """
    half = len(of_other) // 2
    lowest = lowest_set_bits(of_other[:half]).min()
    if lowest_set_bits(of_other[half:]).min() < lowest:
        return 0.0
    return float(np.mean(lowest_set_bits(of_one) < lowest))
