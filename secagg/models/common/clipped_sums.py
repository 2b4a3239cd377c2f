"""The grid and the sensitivity of sums of clipped gradients, for methods with noise in every round.

A record contributes a gradient of L2 norm at most C and a size in [0, C / 4], both truncated
towards zero to a multiple of 2^-f. Truncation never lengthens a vector. So adding or removing a
record moves (gradient, size) by at most root(C^2 + C^2 / 16) = C root(17) / 4; replacing one by
another, or by an incomplete one, by at most root((2C)^2 + C^2 / 16) = C root(65) / 4.
"""

from __future__ import annotations

import math

from secagg.contracts.noise import Sensitivity

NORM_SLACK = 1 - 2.0**-30
"""Gradients are clipped to C times this, which covers rounding of norm, quotient and product."""

_MAX_GRID_BITS = 32  # fine enough to treat the noise as continuous, and still within 64 bits


def gradient_sensitivity(clip: float) -> Sensitivity:
    """Return how far one record can move a site's sums of gradients clipped to this norm."""
    return Sensitivity(add=clip * math.sqrt(17) / 4, replace=clip * math.sqrt(65) / 4)


def exact_bits(max_rows: int, clip: float) -> int:
    """Return the largest f <= 32 with max_rows x clip x 2^f <= 2^53. It may be negative."""
    mantissa, exponent = math.frexp(max_rows * clip)  # mantissa in [1/2, 1)
    return min(_MAX_GRID_BITS, 53 - (exponent if mantissa > 0.5 else exponent - 1))
