"""Noise for a vector of integers: which sampler draws it, and what that adds to delta.

Both draw the discrete Gaussian of Canonne, Kamath and Steinke 2020. Short vectors, such as the
moments of a few variables, get the sampler that is exact (`discrete_gaussian`); long ones the one
that is a thousand times as fast, and off by 2^-179 (`fast_gaussian`). Who accounts for a release of
`size` numbers adds size * sample_error(size), times 1 + e^epsilon, to its delta.

Not protected: noise is as secret as the bytes it is drawn from; and timing, as in `coins`.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from secagg.core.randomness import RandomBytes
from secagg.errors import InternalError
from secagg.privacy.sampling.batched_gaussian import ERROR, MAX_VARIANCE, fast_gaussian
from secagg.privacy.sampling.discrete_gaussian import discrete_gaussian

EXACT_UP_TO = 1024
"""Longest vector that is drawn exactly: some 20 ms."""


def sample(variance: int | Fraction, size: int, random: RandomBytes) -> NDArray[np.int64]:
    """Return `size` independent integers x, P(x) proportional to exp(-x^2 / (2 variance)).

    variance: sigma^2 in squared units of the integers, exact, 0 < variance <= `MAX_VARIANCE`, so
        that 16 standard deviations fit 64 bits; else raises `InternalError`
    The same bytes of `random` give the same integers on every machine.
    """
    if not 0 < variance <= MAX_VARIANCE:
        raise InternalError("noise", f"no noise of variance {variance} fits 64 bits")
    if size > EXACT_UP_TO:
        return fast_gaussian(variance, size, random)
    # One beyond 64 bits, of probability 2^-184, would raise OverflowError here, not wrap around.
    return np.array([discrete_gaussian(variance, random) for _ in range(size)], dtype=np.int64)


def sample_weighted(
    variance: int, weights: Sequence[int], size: int, random: RandomBytes
) -> NDArray[np.int64]:
    """Return as `sample` does, but the i-th number's variance is weights[i] times as large.

    weights: as many as `size`, or none, which means all 1
    """
    if not weights:
        return sample(variance, size, random)
    if len(weights) != size:
        raise InternalError("noise", f"{len(weights)} weights for {size} numbers")
    each = np.asarray(weights)
    drawn = np.empty(size, dtype=np.int64)
    for weight in sorted(set(weights)):
        chosen = each == weight
        drawn[chosen] = sample(variance * weight, int(chosen.sum()), random)
    return drawn


def sample_error(size: int) -> float:
    """Return how far one of `size` draws is from its law at most, in total variation."""
    return ERROR if size > EXACT_UP_TO else 0.0
