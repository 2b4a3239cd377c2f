"""Coins whose odds are exact: heads with probability n/d, and with probability exp(-n/d).

Source: Canonne, Kamath and Steinke 2020, "The discrete Gaussian for differential privacy" (NeurIPS;
arXiv:2004.00010), algorithm 1, after Forsythe 1972 (and von Neumann). Only integers are computed
with: no logarithm, no exponential, no floating point, so nothing is rounded and no low-order bit of
an output can tell what it was computed from (Mironov 2012).

Not protected: how long a coin takes depends on how it falls. Whoever can time single draws on the
site's machine learns something about the noise (Jin et al. 2022, "Are we there yet?", section 4).
"""

from __future__ import annotations

from secagg.core.randomness import RandomBytes

WORD_BYTES = 8
WORD_BITS = 64


def bernoulli(n: int, d: int, random: RandomBytes) -> bool:
    """Return True with probability n/d exactly, for 0 <= n <= d and d > 0.

    A uniform real number U in [0, 1) is compared with n/d, both written in base 2^64, digit by
    digit until they differ: a second digit of U is needed with probability 2^-64.
    """
    while True:
        digit, n = divmod(n << WORD_BITS, d)
        drawn = int.from_bytes(random(WORD_BYTES), "little")
        if drawn != digit:
            return drawn < digit


def bernoulli_exp(n: int, d: int, random: RandomBytes) -> bool:
    """Return True with probability exp(-n/d) exactly, for n >= 0 and d > 0 (algorithm 1).

    exp(-gamma) is the product of exp(-1), floor(gamma) times, and of exp of what is left.
    """
    whole, rest = divmod(n, d)
    return all(_at_most_one(1, 1, random) for _ in range(whole)) and _at_most_one(rest, d, random)


def _at_most_one(n: int, d: int, random: RandomBytes) -> bool:
    """Return True with probability exp(-gamma), gamma = n/d <= 1.

    Coins of odds gamma/1, gamma/2, ... are thrown up to the first that fails. More than k of them
    are thrown with probability gamma^k / k!, so an odd number of them with probability
    1 - gamma + gamma^2/2! - ... = exp(-gamma).
    """
    k = 1
    while bernoulli(n, d * k, random):
        k += 1
    return k % 2 == 1
