"""The discrete Laplace law, drawn exactly: P(x) proportional to exp(-|x| / scale) on the integers.

Source: Canonne, Kamath and Steinke 2020 (arXiv:2004.00010), algorithm 2. It is the proposal of
`discrete_gaussian` (and the noise of the geometric mechanism, Ghosh, Roughgarden and Sundararajan
2009). All arithmetic is on integers, with the limits of `bernoulli`.
"""

from __future__ import annotations

from secagg.core.randomness import RandomBytes, random_below
from secagg.errors import InternalError
from secagg.privacy.sampling.bernoulli import bernoulli_exp


def discrete_laplace(scale: int, random: RandomBytes) -> int:
    """Return one integer x, with probability proportional to exp(-|x| / scale).

    scale: t in the paper (with s = 1), > 0. Raises `InternalError` if it is not.
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
