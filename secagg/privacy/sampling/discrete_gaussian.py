"""The discrete Gaussian, drawn exactly: P(x) proportional to exp(-x^2 / (2 variance)) on integers.

Source: Canonne, Kamath and Steinke 2020, "The discrete Gaussian for differential privacy" (NeurIPS;
arXiv:2004.00010), algorithm 3: a discrete Laplace proposal and a rejection step. All computations
use integers. So if the random bytes are uniform, draws have exactly this distribution.

The argument `variance` is sigma^2 in the paper. The variance of the draws is never larger. It is
smaller by about 4 pi^2 sigma^4 exp(-2 pi^2 sigma^2), which is negligible for sigma >= 2.

=======================  =====================================================
case                     result
=======================  =====================================================
variance 0 or negative   `InternalError`: the caller has a bug
variance 1/4             allowed, as is any positive `Fraction`
variance 2^200           allowed: Python's integers have no limit
=======================  =====================================================

Not protected: timing, as in `bernoulli`. `fast_gaussian` is much faster.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

from secagg.core.randomness import RandomBytes, random_below
from secagg.errors import InternalError
from secagg.privacy.sampling.bernoulli import bernoulli_exp


def discrete_gaussian(variance: int | Fraction, random: RandomBytes) -> int:
    """Return one integer x, with probability proportional to exp(-x^2 / (2 variance)).

    variance: sigma^2 > 0, exact, so not a float. Raises `InternalError` if it is not positive.
    """
    if variance <= 0:
        raise InternalError("noise", f"a variance must be positive: {variance}")
    p, q = variance.numerator, variance.denominator
    t = isqrt(p // q) + 1  # floor(sigma) + 1; any t > 0 is correct, this t rejects few proposals
    while True:
        y = discrete_laplace(t, random)
        # Up to a factor without y, exp(-|y|/t) exp(-(|y| - sigma^2/t)^2 / (2 sigma^2)) is
        # exp(-y^2 / (2 sigma^2)); and (|y| - p/(q t))^2 q / (2 p), over one denominator, is
        if bernoulli_exp((abs(y) * t * q - p) ** 2, 2 * p * q * t * t, random):
            return y


def discrete_laplace(scale: int, random: RandomBytes) -> int:
    """Return one integer x, with probability proportional to exp(-|x| / scale).

    Algorithm 2 of the source with s = 1.

    scale: t of the algorithm. Raises `InternalError` if it is not positive.
    """
    if scale <= 0:
        raise InternalError("noise", f"a scale must be positive: {scale}")
    while True:
        u = random_below(scale, random)
        if not bernoulli_exp(u, scale, random):
            continue
        v = 0
        while bernoulli_exp(1, 1, random):
            v += 1
        size = u + scale * v  # geometric: P(size) is proportional to exp(-size / scale)
        negative = random(1)[0] & 1
        if negative and size == 0:
            continue  # minus zero would count zero twice
        return -size if negative else size
