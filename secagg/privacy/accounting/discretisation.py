"""The part of delta that covers the difference between discrete and Gaussian noise.

The noise of a number is a sum of discrete Gaussian variables, one for each site. Epsilon and delta
are computed as if this sum were a Gaussian variable, rounded to integers. `distance` bounds the
total variation distance between the two. docs/math/discrete-noise.md derives the bound. The
distances of independent numbers add up. If their sum is T, and Gaussian noise would be (epsilon,
delta)-private, then the release is (epsilon, delta + (1 + e^epsilon) T)-private. `calibration` and
`budget` add up the distances and reduce the usable delta accordingly.

Not protected: noise that is missing, that the adversary drew, or that is not an integer when it is
added.
"""

from __future__ import annotations

import math

from secagg.errors import UsageError

_MIN_SHARE = 0.5  # smallest standard deviation of a share, in steps


def distance(sigma: float, shares: int = 1, sampler_error: float = 0.0) -> float:
    """Bound the total variation distance between one number's noise and a rounded Gaussian.

    sigma: standard deviation of the sum of all shares, in integer steps
    shares: number of discrete Gaussian variables in the sum
    sampler_error: total variation distance between one draw and a discrete Gaussian variable
    Raises `UsageError` if a share's standard deviation is below 1/2 of a step.
    """
    share = sigma / math.sqrt(shares)
    if not share >= _MIN_SHARE:
        raise UsageError(
            "noise", f"a share of {share:.3g} steps is too narrow", "Use a finer grid."
        )
    return rounded_distance(sigma) + summed_distance(share, shares) + shares * sampler_error


def rounded_distance(sigma: float) -> float:
    """Bound the distance between a discrete and a rounded Gaussian: (1), (2) of the derivation."""
    density = [math.exp(-x * x / 2) / math.sqrt(2 * math.pi) for x in (0.0, 1.0, math.sqrt(3))]
    curvature = 4 * density[1] / sigma**2 + (2 * density[0] + 8 * density[2]) / sigma**3
    first = math.exp(-2 * math.pi**2 * sigma**2)  # the j-th term of Z is at most first^j
    return curvature / 48 + first / (1 - first)


def summed_distance(share: float, shares: int) -> float:
    """Bound the distance between a sum of discrete Gaussians and one discrete Gaussian: (3)."""
    exponents = (-2 * math.pi**2 * share**2 * k / (k + 1) for k in range(1, shares))
    tau = 10 * math.fsum(math.exp(exponent) for exponent in exponents)
    return math.expm1(tau) / 2 if tau < 1 else 1.0
