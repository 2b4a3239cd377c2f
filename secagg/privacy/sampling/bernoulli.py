"""Bernoulli variables (coins) that are true with probability exactly n/d, or exactly exp(-n/d).

Source: Canonne, Kamath and Steinke 2020, "The discrete Gaussian for differential privacy" (NeurIPS;
arXiv:2004.00010), algorithm 1, after Forsythe 1972 (and von Neumann). All computations use
integers, and no logarithm, exponential function or floating point. So nothing is rounded, and the
low-order bits of an output reveal nothing about its input (Mironov 2012).

Not protected: the running time depends on the outcome (timing channel). An adversary who can
measure the time of single draws on the site's computer learns something about the noise (Jin et al.
2022, "Are we there yet?", section 4).
"""

from __future__ import annotations

from secagg.core.randomness import RandomBytes

WORD_BYTES = 8
WORD_BITS = 64


def bernoulli(n: int, d: int, random: RandomBytes) -> bool:
    """Return True with probability n/d exactly, for 0 <= n <= d and d > 0.

    A uniform real number U in [0, 1) is compared with n/d in base 2^64, digit by digit, until they
    differ. A second digit of U is needed with probability 2^-64.
    """
    while True:
        digit, n = divmod(n << WORD_BITS, d)
        uniform = int.from_bytes(random(WORD_BYTES), "little")
        if uniform != digit:
            return uniform < digit


def bernoulli_exp(n: int, d: int, random: RandomBytes) -> bool:
    """Return True with probability exp(-n/d) exactly, for n >= 0 and d > 0 (algorithm 1).

    exp(-gamma) is the product of floor(gamma) factors exp(-1) and of exp(-(gamma - floor(gamma))).
    """
    ones, rest = divmod(n, d)
    return all(_at_most_one(1, 1, random) for _ in range(ones)) and _at_most_one(rest, d, random)


def _at_most_one(n: int, d: int, random: RandomBytes) -> bool:
    """Return True with probability exp(-gamma), where gamma = n/d <= 1.

    Coins with probabilities gamma/1, gamma/2, ... are thrown until one is false. The probability of
    more than k throws is gamma^k / k!. So the number of throws is odd with probability
    1 - gamma + gamma^2/2! - ... = exp(-gamma).
    """
    k = 1
    while bernoulli(n, d * k, random):
        k += 1
    return k % 2 == 1
