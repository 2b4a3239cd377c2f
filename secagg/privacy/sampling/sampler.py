"""Noise for a vector of integers, drawn from a discrete Gaussian distribution.

The distribution is that of Canonne, Kamath and Steinke 2020. For short vectors, such as the moments
of a few variables, the exact generator `discrete_gaussian` is used. For long vectors, the generator
`fast_gaussian` is used. It is a thousand times as fast, and its total variation distance from the
distribution is at most 2^-179. To allow for this distance, which is at most
`sample_error(size)` for each number, the accounting adds size * sample_error(size) *
(1 + e^epsilon) to the delta of a release of `size` numbers.

Not protected: a person who knows the random bytes can compute the noise. How long a draw takes
depends on its outcome (see `bernoulli`).
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
"""Length of the longest vector that is drawn exactly, which takes about 20 ms."""


def sample(variance: int | Fraction, size: int, random: RandomBytes) -> NDArray[np.int64]:
    """Return `size` independent integers x, P(x) proportional to exp(-x^2 / (2 variance)).

    variance: sigma^2 in squared steps of the integers, exact; raises `InternalError` unless
        0 < variance <= `MAX_VARIANCE`, so that 16 standard deviations fit 64 bits
    The same bytes of `random` give the same integers on every machine.
    """
    if not 0 < variance <= MAX_VARIANCE:
        raise InternalError("noise", f"variance {variance} is out of range for 64-bit noise")
    if size > EXACT_UP_TO:
        return fast_gaussian(variance, size, random)
    # A draw beyond 64 bits (probability 2^-184) raises OverflowError here and does not wrap around.
    return np.array([discrete_gaussian(variance, random) for _ in range(size)], dtype=np.int64)


def sample_weighted(
    variance: int, weights: Sequence[int], size: int, random: RandomBytes
) -> NDArray[np.int64]:
    """Return draws as `sample` does, but the variance of the i-th draw is weights[i] * variance.

    weights: one positive integer for each draw, or an empty sequence if all are 1
    """
    if not weights:
        return sample(variance, size, random)
    if len(weights) != size:
        raise InternalError("noise", f"{len(weights)} weights for {size} numbers")
    weight_of = np.asarray(weights)
    draws = np.empty(size, dtype=np.int64)
    for weight in sorted(set(weights)):
        chosen = weight_of == weight
        draws[chosen] = sample(variance * weight, int(chosen.sum()), random)
    return draws


def sample_error(size: int) -> float:
    """Bound the total variation distance between one of `size` draws and the discrete Gaussian."""
    return ERROR if size > EXACT_UP_TO else 0.0
