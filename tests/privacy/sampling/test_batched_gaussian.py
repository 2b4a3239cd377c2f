"""The fast sampler without chance: its law computed exactly, its draws against a slow oracle.

And ties, which come once in 2^47 draws: from words made to tie. How its draws are distributed is in
`tests/statistical/test_batched_gaussian.py`.
"""

from fractions import Fraction
from hashlib import sha256
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from secagg.core.randomness import RandomBytes, replayable_random
from secagg.privacy.sampling import batched_gaussian as fast

gmpy2: Any = import_module("gmpy2")
"""Any, as its types here cover what secagg itself uses, and that is not MPFR."""


def scripted(*pieces: tuple[int, int]) -> RandomBytes:
    """Random bytes in these pieces, each (number, bytes), and none more than these."""
    script = [number.to_bytes(size, "little") for number, size in pieces]

    def random(n: int) -> bytes:
        piece = script.pop(0)
        assert len(piece) == n
        return piece

    return random


# --- computed exactly -----------------------------------------------------------------------------


def exact_law(table: fast._Table) -> tuple[list[Any], list[Any]]:
    """The law of |x| that table and rejection make, and that of the discrete Gaussian.

    Both as weights of 0, 1, ..., each with the sign that it may have; they do not add up to 1.
    """
    capacity = 2**fast._PART_BITS
    parts = [0] * len(table.high)
    for column, (high, low, other) in enumerate(
        zip(table.high.tolist(), table.low, table.other.tolist(), strict=True)
    ):
        own = (high << 8 * fast._LOW_BYTES) + low
        parts[column] += own
        parts[other] += capacity - own
    assert sum(parts) == len(parts) * capacity
    scale, wide = 2**table.shift, 2 * table.variance
    made, wanted = [], []
    for x in range(len(parts) * scale):
        y, u = divmod(x, scale)
        gamma = gmpy2.mpfr(u * (u + 2 * y * scale) * wide.denominator) / wide.numerator
        made.append(parts[y] * gmpy2.exp(-gamma))
        wanted.append(gmpy2.exp(-gmpy2.mpfr(x * x * wide.denominator) / wide.numerator))
    made[0], wanted[0] = made[0] / 2, wanted[0] / 2
    return made, wanted


def total_variation(made: list[Any], wanted: list[Any]) -> Any:
    """Of two laws whose weights do not add up to 1."""
    all_made, all_wanted = sum(made), sum(wanted)
    return sum(abs(m / all_made - w / all_wanted) for m, w in zip(made, wanted, strict=True)) / 2


@pytest.mark.parametrize(
    "variance", tuple(map(Fraction, ("1/100", "1/4", "7/3", "4095", "16383", "90000")))
)
def test_the_distribution_is_as_close_as_claimed(variance: Fraction) -> None:
    """In arithmetic of 400 bits, apart from the module's; `ERROR` is 2^-179."""
    with gmpy2.context(precision=400):
        made, wanted = exact_law(fast._table(variance))
        beyond = gmpy2.exp(
            -gmpy2.mpfr(len(wanted) ** 2) / gmpy2.mpfr(2 * variance)
        )  # of the tail, see module
        assert 0 < total_variation(made, wanted) + beyond < fast.ERROR


def test_the_distribution_without_rejection_is_detected() -> None:
    """The distance above does see what is missing: of the order of 1 / s0."""
    with gmpy2.context(precision=400):
        table = fast._table(Fraction(90_000))
        made, wanted = exact_law(table)
        scale, wide = 2**table.shift, 2 * table.variance
        for x, weight in enumerate(made):
            y, u = divmod(x, scale)
            made[x] = weight * gmpy2.exp(gmpy2.mpfr(u * (u + 2 * y * scale)) / gmpy2.mpfr(wide))
        assert 1e-3 < total_variation(made, wanted) < 1e-2


def test_the_shift_avoids_overflow_and_keeps_accuracy() -> None:
    for exponent in range(-20, 118):
        for variance in (
            Fraction(2) ** exponent,
            Fraction(2) ** (exponent + 1) - Fraction(1, 2**30),
        ):
            shift = fast._shift(variance)
            assert variance < 4 ** (7 + shift)  # s0 < 128, so the table has 16 of it
            assert shift == 0 or variance >= 4 ** (6 + shift)  # s0 >= 64, so gamma < 1/2
            assert shift + 11 <= 63  # |x| < 2^63


# --- bit by bit -----------------------------------------------------------------------------------


def slow_draws(variance: Fraction, size: int, random: RandomBytes) -> list[int]:
    """The same draws from the same bytes, in integers and fractions only, one by one."""
    table = fast._table(variance)
    drawn: list[int] = []
    while len(drawn) < size:
        count = min(size - len(drawn), fast._BLOCK)
        both = random(16 * count)
        words = [int.from_bytes(both[i : i + 8], "little") for i in range(0, 16 * count, 8)]
        proposals = []
        for first, second in zip(words[:count], words[count:], strict=True):
            column, rest = divmod(first, 2**53)
            assert rest != int(table.high[column])  # a tie has a test of its own
            y = column if rest < int(table.high[column]) else int(table.other[column])
            proposals.append((y, second >> 64 - table.shift, second & 1))
        keep = [True] * count
        throwing = range(count) if table.shift else []
        k = 1
        while throwing:
            thrown = random(8 * len(throwing))
            heads = []
            for place, i in enumerate(throwing):
                y, u, _ = proposals[i]
                gamma = Fraction(u * (u + 2 * y * 2**table.shift)) / (2 * variance)
                word = int.from_bytes(thrown[8 * place : 8 * place + 8], "little")
                if Fraction(word, 2**64) < gamma / k:
                    heads.append(i)
                    keep[i] = not keep[i]
            throwing, k = heads, k + 1
        for (y, u, minus), kept in zip(proposals, keep, strict=True):
            x = (y << table.shift) + u
            if kept and (x or not minus):
                drawn.append(-x if minus else x)
    return drawn


@pytest.mark.parametrize("variance", tuple(map(Fraction, ("1/4", 9, 16384, 4**30 + 7, 4**58))))
def test_draws_are_those_of_exact_arithmetic(variance: Fraction) -> None:
    size = fast._BLOCK + 1000
    drawn = fast.fast_gaussian(variance, size, replayable_random(1))
    assert drawn.dtype == np.int64
    assert drawn.tolist() == slow_draws(variance, size, replayable_random(1))


def test_the_same_bytes_give_the_same_draws_for_ever() -> None:
    """Noise is drawn again from its seed on a retry."""
    assert fast.fast_gaussian(9, 8, replayable_random(5)).tolist() == [-2, 2, 2, 1, -4, -3, -9, -4]
    wide = fast.fast_gaussian(4**30, 3, replayable_random(5))
    assert wide.tolist() == [-92704733, -777766931, -651468606]
    many = fast.fast_gaussian(4**30, 40_000, replayable_random(5)).astype("<i8").tobytes()
    assert sha256(many).hexdigest()[:16] == "a5ca410170c46e8c"


def test_a_tie_in_the_table_is_broken_by_further_bits() -> None:
    table = fast._table(Fraction(9))
    column = 3
    high, low, other = int(table.high[column]), table.low[column], int(table.other[column])
    assert other != column
    assert 0 < low < 2**128
    for first, further, expected in (
        (high - 1, [], column),
        (high + 1, [], other),
        (high, [low - 1], column),
        (high, [low], other),
        (high, [low + 1], other),
    ):
        words = np.array([(column << 53) + first], dtype=np.uint64)
        random = scripted(*((number, 16) for number in further))
        assert fast._look_up(table, words, random).tolist() == [expected]
        with pytest.raises(IndexError):
            random(16)  # all that was there has been used


def test_a_table_column_with_one_value_draws_no_further_bits() -> None:
    table = fast._table(Fraction(9))
    full = np.flatnonzero(table.high == 2**53)
    assert len(full) > 0
    words = (full.astype(np.uint64) << np.uint64(53)) + np.uint64(2**53 - 1)
    assert fast._look_up(table, words, scripted()).tolist() == full.tolist()


def gamma_of(table: fast._Table, y: int, u: int) -> Fraction:
    return Fraction(u * (u + 2 * y * 2**table.shift)) / (2 * table.variance)


def test_decisions_too_close_for_floats_are_made_in_integers() -> None:
    """64 bits equal to those of gamma: the next 64 decide. One off: they are not asked."""
    table = fast._table(Fraction(4**30 + 7))
    y, u = 1000, 2**20 + 1
    digit, rest = divmod(gamma_of(table, y, u) * 2**64, 1)
    half, rest_of_half = divmod(gamma_of(table, y, u) * 2**63, 1)
    second, second_of_half = int(rest * 2**64), int(rest_of_half * 2**64)
    heads, tails = (0, 8), (2**64 - 1, 8)
    for words, keep in (
        ([(digit + 1, 8)], True),
        ([(digit - 1, 8), tails], False),
        ([(digit, 8), (second + 1, 8)], True),
        ([(digit, 8), (second - 1, 8), tails], False),
        ([(digit, 8), (second, 8), heads, tails], False),
        ([(digit - 1, 8), heads, tails], True),  # three throws: an odd number
        ([heads, (half, 8), (second_of_half + 1, 8)], False),  # the second has odds gamma / 2
        ([heads, (half, 8), (second_of_half - 1, 8), tails], True),
    ):
        random = scripted(*words)
        kept = fast._coin_exp(table, np.array([y]), np.array([u]), random)
        assert kept.tolist() == [keep]
        with pytest.raises(IndexError):
            random(8)


def test_floating_point_decisions_agree_with_exact_ones() -> None:
    """Words as near to gamma as 64 bits can tell, and around the distance where floats decide."""
    random = np.random.default_rng(1)
    for variance in (Fraction(2**14), Fraction(4**30 + 7), Fraction(4**59 - 1)):
        table = fast._table(variance)
        y = random.integers(0, 2**11, 100)
        u = random.integers(1, 2**table.shift, 100)
        gammas = [gamma_of(table, *pair) for pair in zip(y.tolist(), u.tolist(), strict=True)]
        for off in (1, -1, 2**8, -(2**8), 2**11, -(2**11), 2**16 - 2**9, 2**16 + 2**9, -(2**16)):
            words = [max(0, int(gamma * 2**64) + off) for gamma in gammas]
            heads = [Fraction(w, 2**64) < g for w, g in zip(words, gammas, strict=True)]
            tails = [(2**64 - 1).to_bytes(8, "little")] * sum(heads)
            script = [b"".join(w.to_bytes(8, "little") for w in words), b"".join(tails)]
            kept = fast._coin_exp(table, y, u, lambda _, script=script: script.pop(0))
            assert (~kept).tolist() == heads
