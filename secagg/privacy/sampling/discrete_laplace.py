"""The discrete Laplace law, drawn exactly: P(x) proportional to exp(-|x| / scale) on the integers.

Source: Canonne, Kamath and Steinke 2020 (arXiv:2004.00010), algorithm 2. It is the noise of the
geometric mechanism (Ghosh, Roughgarden and Sundararajan 2009), and what `discrete_gaussian` makes
its proposals from. Integers only, as `coins`, whose limits it shares.

=====================  =====================================================
case                   outcome
=====================  =====================================================
scale 0 or negative    `InternalError`: whoever sizes noise has a bug
scale an int           variance close to 2 scale^2 - 1/6
scale 1/2              allowed: any positive `Fraction` is
=====================  =====================================================
"""

from __future__ import annotations

from fractions import Fraction

from secagg.core.randomness import RandomBytes, random_below
from secagg.errors import InternalError
from secagg.privacy.sampling.bernoulli import bernoulli_exp


def discrete_laplace(scale: int | Fraction, random: RandomBytes) -> int:
    """Return one integer x, with probability proportional to exp(-|x| / scale).

    scale: t/s in the paper, > 0; exact, hence no float. Raises `InternalError` if it is not.
    """
    if scale <= 0:
        raise InternalError("noise", f"a scale must be positive: {scale}")
    t, s = scale.numerator, scale.denominator
    while True:
        u = random_below(t, random)
        if not bernoulli_exp(u, t, random):
            continue
        v = 0
        while bernoulli_exp(1, 1, random):
            v += 1
        # u + t v is geometric: it has x with probability proportional to exp(-x / t).
        size = (u + t * v) // s
        negative = random(1)[0] & 1
        if negative and size == 0:
            continue  # zero has one sign, or it would come twice as often as it should
        return -size if negative else size
