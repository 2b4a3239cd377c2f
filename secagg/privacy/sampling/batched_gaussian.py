"""Many draws from the discrete Gaussian distribution at once, fast, and exact up to 2^-179.

Sources:

* A high and a low part, joined by a rejection step: Ducas, Durmus, Lepoint and Lyubashevsky 2013
  ("Lattice signatures and bimodal Gaussians", CRYPTO), section 6.
* The table for the high part: Walker 1977, filled as by Vose 1991.
* The coin of the rejection step: Canonne, Kamath and Steinke 2020, algorithm 1 (see `bernoulli`).

(Micciancio and Walter 2017 use weighted sums of table draws instead. This needs several draws for
each number and has its own error.)

Algorithm. Let K = 2^shift be such that s0 = sigma / K is in [64, 128), or K = 1 if sigma is below
64. For x >= 0 write x = K y + u, 0 <= u < K. Then

    exp(-x^2 / 2 sigma^2) = exp(-y^2 / 2 s0^2) exp(-gamma),    gamma = u (u + 2 K y) / 2 sigma^2.

So y is drawn from a table of exp(-y^2 / 2 s0^2), and u is drawn uniformly. The pair is accepted
with probability exp(-gamma). As gamma <= (1 + 2 y) / 2 s0^2, nearly all pairs are accepted (at
s0 = 64 one in 160 is rejected, and fewer for a larger s0). A random sign makes the distribution
two-sided, and minus zero is rejected.

The integers u, the sign and the coin have exact distributions, and the same random bytes give the
same draws on every computer. A repeated release relies on this, because it must get the same noise.

The table is not exact. Its error is less than `ERROR` (docs/math/discrete-noise.md).

Not protected: timing, as in `bernoulli`.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from secagg.core.randomness import RandomBytes
from secagg.errors import InternalError
from secagg.privacy.sampling.bernoulli import WORD_BITS, WORD_BYTES, bernoulli

MAX_VARIANCE = 2**118 - 1
"""Largest allowed variance: 2^63, the limit for draws, is then at least 16 standard deviations."""

ERROR = 2.0**-179
"""Upper bound of the total variation distance between one draw and the discrete Gaussian."""

_COLUMN_BITS = 11
_HIGH_BITS = WORD_BITS - _COLUMN_BITS  # remaining bits of a random word that chose a column
_LOW_BYTES = 16  # further random bytes, used if the high bits are equal
_PART_BITS = _HIGH_BITS + 8 * _LOW_BYTES
_WEIGHT_BITS = 224
_DIGITS = 100  # decimal digits: far more than the weights need
_NEAR = 2.0**-48  # gamma / k < 1/2 is rounded five times, a word once: less than 2^-51 together
_BLOCK = 2**14  # draws at once, so that a block fits the processor's cache

Words = NDArray[np.uint64]


@dataclass(frozen=True)
class _Table:
    """Walker's table: choose a column uniformly, then return its number or its entry in `other`.

    high, low: the probability of returning the column's number, in units of 2^-_PART_BITS, as high
        and low bits; high is 2^_HIGH_BITS if there is no other entry
    """

    variance: Fraction
    shift: int
    high: Words
    low: tuple[int, ...]
    other: NDArray[np.int64]


def fast_gaussian(variance: int | Fraction, size: int, random: RandomBytes) -> NDArray[np.int64]:
    """Return `size` independent draws x, P(x) proportional to exp(-x^2 / (2 variance)).

    variance: sigma^2, exact, above 0 and at most `MAX_VARIANCE`
    The total variation distance of each draw from that distribution is at most `ERROR`. Raises
    `InternalError` for another variance.
    """
    if not 0 < variance <= MAX_VARIANCE:
        raise InternalError("noise", f"variance {variance} is out of range for 64-bit noise")
    table = _table(Fraction(variance))
    draws = np.empty(size, dtype=np.int64)
    done = 0
    while done < size:
        accepted = _draw(table, min(size - done, _BLOCK), random)
        draws[done : done + len(accepted)] = accepted
        done += len(accepted)
    return draws


def _draw(table: _Table, count: int, random: RandomBytes) -> NDArray[np.int64]:
    """Draw `count` proposals and return those that are accepted."""
    first, second = _words(2 * count, random).reshape(2, count)
    y = _look_up(table, first, random)
    negative = (second & np.uint64(1)).astype(np.int64)
    if table.shift:
        u = (second >> np.uint64(WORD_BITS - table.shift)).astype(np.int64)
        keep = _coin_exp(table, y, u, random)
        x = (y << table.shift) + u
    else:
        keep, x = np.ones(count, dtype=np.bool_), y
    keep &= (x != 0) | (negative == 0)  # zero has one sign
    return ((x ^ -negative) + negative)[keep]


def _look_up(table: _Table, words: Words, random: RandomBytes) -> NDArray[np.int64]:
    """Return y >= 0 for each random word.

    The top bits of a word choose a column. The other bits choose the column's number or its other.
    """
    column = (words >> np.uint64(_HIGH_BITS)).astype(np.int64)
    rest = words & np.uint64(2**_HIGH_BITS - 1)
    high = table.high[column]
    y = np.where(rest < high, column, table.other[column])
    for i in np.flatnonzero(rest == high):  # one in 2^53
        if int.from_bytes(random(_LOW_BYTES), "little") < table.low[column[i]]:
            y[i] = column[i]
    return y


def _coin_exp(
    table: _Table, y: NDArray[np.int64], u: NDArray[np.int64], random: RandomBytes
) -> NDArray[np.bool_]:
    """Return True with probability exp(-gamma) for each (y, u): `bernoulli_exp`, vectorised.

    Coins with probabilities gamma, gamma/2, gamma/3, ... are thrown until one is false. The result
    is True if the number of throws is odd. gamma < 1/2, because y < 2^11 and s0 >= 64.
    """
    low = u * 2.0**-table.shift  # exact, as u has at most 52 bits
    gamma = low * (low + 2.0 * y) * float(Fraction(4**table.shift) / (2 * table.variance))
    keep = np.ones(len(y), dtype=np.bool_)
    throwing = np.arange(len(y))
    k = 1
    while len(throwing):
        words = _words(len(throwing), random)
        gap = words * 2.0**-WORD_BITS - gamma[throwing] / k
        heads = gap < 0
        for i in np.flatnonzero(np.abs(gap) < _NEAR):  # one in 2^47
            at = throwing[i]
            heads[i] = _compare(table, int(y[at]), int(u[at]), k, int(words[i]), random)
        throwing = throwing[heads]
        keep[throwing] ^= True
        k += 1
    return keep


def _compare(table: _Table, y: int, u: int, k: int, word: int, random: RandomBytes) -> bool:
    """Throw a coin with probability exactly gamma/k. word: its first 64 random bits."""
    n = u * (u + (y << table.shift + 1)) * table.variance.denominator
    d = 2 * table.variance.numerator * k
    digit, rest = divmod(n << WORD_BITS, d)
    return word < digit if word != digit else bernoulli(rest, d, random)


def _words(count: int, random: RandomBytes) -> Words:
    return np.frombuffer(random(count * WORD_BYTES), dtype="<u8").astype(np.uint64, copy=False)


# --- the table --------------------------------------------------------------------------------


@lru_cache(maxsize=32)
def _table(variance: Fraction) -> _Table:
    shift = _shift(variance)
    threshold, other = _columns(_parts(variance / 4**shift))
    return _Table(
        variance,
        shift,
        np.array([part >> 8 * _LOW_BYTES for part in threshold], dtype=np.uint64),
        tuple(part & (1 << 8 * _LOW_BYTES) - 1 for part in threshold),
        np.array(other, dtype=np.int64),
    )


def _shift(variance: Fraction) -> int:
    """Return the smallest shift >= 0 for which variance < 4^(7 + shift)."""
    return max(0, (int(variance).bit_length() - 13) // 2)


def _parts(variance: Fraction) -> list[int]:
    """Return each y's number of parts, proportional to exp(-y^2 / (2 variance)); N 2^_PART_BITS."""
    # rho(y + 1) = rho(y) r^(2y + 1), r = exp(-1/(2 variance)). Each operation has a relative error
    # of at most 10^-100, and rho(y) takes y^2 operations. So its error is at most 10^-93, which is
    # below the unit 2^-224 of weights.
    context = Context(prec=_DIGITS)
    half = context.divide(Decimal(-variance.denominator), Decimal(2 * variance.numerator))
    step = context.exp(half)
    squared = context.multiply(step, step)
    rho, unit = Decimal(1), Decimal(2**_WEIGHT_BITS)
    weights = []
    for _ in range(2**_COLUMN_BITS):
        weights.append(int(context.multiply(rho, unit)))
        rho = context.multiply(rho, step)
        step = context.multiply(step, squared)
    total, parts_in_all = sum(weights), 1 << _PART_BITS + _COLUMN_BITS
    parts = [weight * parts_in_all // total for weight in weights]
    parts[0] += parts_in_all - sum(parts)
    return parts


def _columns(parts: list[int]) -> tuple[list[int], list[int]]:
    """Fill columns of 2^_PART_BITS parts, each with parts of at most two values (Vose 1991).

    parts: number of parts of each value; the sum is the capacity of all columns
    Returns for each column how many parts are its own value's, and which value fills the rest. The
    parts are integers, so nothing is lost. As long as one value has too few parts for its column,
    another value has too many.
    """
    capacity = 1 << _PART_BITS
    own, other = list(parts), list(range(len(parts)))
    below = [y for y, part in enumerate(own) if part < capacity]
    above = [y for y, part in enumerate(own) if part > capacity]
    while below:
        y, donor = below.pop(), above[-1]
        other[y] = donor
        own[donor] -= capacity - own[y]
        if own[donor] < capacity:
            below.append(above.pop())
    return own, other
