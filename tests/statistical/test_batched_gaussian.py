"""A million draws of the fast sampler, and what each part that could be wrong would do to them.

Sound samplers raise a false alarm with probability at most 2^-20 for the whole file, over seeds
(`support.privacy.noise_laws`); each case has its share.
"""

from collections.abc import Callable
from fractions import Fraction
from math import exp

import numpy as np
import pytest
from scipy import stats
from support.privacy.noise_laws import alarms, compare, compare_wide, gaussian, two_sided

from secagg.core.randomness import RandomBytes, replayable_random
from secagg.privacy.sampling import batched_gaussian as fast
from secagg.privacy.sampling.discrete_gaussian import discrete_gaussian

NARROW = tuple(map(Fraction, ("1/4", "1", "7/3", "9", "100", "4095", "16383", "16384", "90000")))
WIDE = (4**20 + 7, 3 * 4**27 + 1, 4**55, fast.MAX_VARIANCE)
PROPOSALS = ((0, 2**40 - 1), (100, 3), (1000, 2**39), (2047, 2**40 - 1))
SHARE = 2.0**-20 / (len(NARROW) + len(WIDE) + len(PROPOSALS) + 2)
DRAWS = 2**20

Break = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize("variance", NARROW)
def test_narrow_draws_have_their_distribution(variance: Fraction) -> None:
    drawn = fast.fast_gaussian(variance, DRAWS, replayable_random(2))
    assert not alarms(SHARE, compare(drawn, gaussian(variance)))


@pytest.mark.parametrize("variance", WIDE)
def test_wide_draws_have_their_distribution(variance: int) -> None:
    drawn = fast.fast_gaussian(variance, DRAWS, replayable_random(3))
    assert not alarms(SHARE, compare_wide(drawn, variance))


@pytest.mark.parametrize(("y", "u"), PROPOSALS)
def test_rejection_has_its_probability(y: int, u: int) -> None:
    """Its odds, far out too, where few proposals ever come."""
    table = fast._table(Fraction(4**46))
    assert table.shift == 40
    ones = np.ones(DRAWS, dtype=np.int64)
    kept = fast._coin_exp(table, y * ones, u * ones, replayable_random(4)).sum()
    gamma = Fraction(u * (u + 2 * y * 2**40)) / (2 * table.variance)
    assert not alarms(SHARE, {"kept": two_sided(kept, DRAWS, exp(-gamma))})


@pytest.mark.parametrize("variance", [Fraction(9), Fraction(4**30 + 1)])
def test_draws_agree_with_the_exact_sampler(variance: Fraction) -> None:
    """Two samples against each other: hypergeometric, given both together, so no law is assumed."""
    random = replayable_random(5)
    exact = np.array([discrete_gaussian(variance, random) for _ in range(20_000)])
    drawn = fast.fast_gaussian(variance, 200_000, random)
    edges = np.linspace(-3, 3, 61) * float(variance) ** 0.5
    both = np.sort(np.concatenate([exact, drawn]))
    below = np.searchsorted(both, edges), np.searchsorted(np.sort(exact), edges)
    sizes = (len(both), below[0], len(exact))
    low, high = stats.hypergeom.cdf(below[1], *sizes), stats.hypergeom.sf(below[1] - 1, *sizes)
    assert not alarms(SHARE, {"below": np.minimum(1.0, 2 * np.minimum(low, high))})


# --- broken ---------------------------------------------------------------------------------------


def sigma_off(patch: pytest.MonkeyPatch) -> None:
    """By 2 %."""
    table = fast._table
    patch.setattr(fast, "_table", lambda variance: table(variance * Fraction(51, 50) ** 2))


def without_rejection(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fast, "_coin_exp", lambda _, y, *__: np.ones(len(y), dtype=np.bool_))


def after(change: Callable[[np.ndarray], np.ndarray]) -> Break:
    """What is drawn is changed."""

    def broken(patch: pytest.MonkeyPatch) -> None:
        draw = fast._draw
        patch.setattr(fast, "_draw", lambda *of: change(draw(*of)))

    return broken


def before(change: Callable[[np.ndarray], np.ndarray]) -> Break:
    """Change the random words of proposals: the first half chooses y, the second u and sign."""

    def broken(patch: pytest.MonkeyPatch) -> None:
        draw = fast._draw

        def changed(table: fast._Table, count: int, random: RandomBytes) -> np.ndarray:
            proposals = [change(fast._words(2 * count, random)).tobytes()]
            return draw(table, count, lambda n: proposals.pop() if proposals else random(n))

        patch.setattr(fast, "_draw", changed)

    return broken


def low_level_missing(words: np.ndarray) -> np.ndarray:
    """u = 0 always, the sign as it was."""
    half = len(words) // 2
    return np.concatenate([words[:half], words[half:] & np.uint64(1)])


def low_level_of_32_bits(words: np.ndarray) -> np.ndarray:
    half = len(words) // 2
    keep = np.uint64(0xFFFFFFFF00000001)
    return np.concatenate([words[:half], words[half:] & keep])


def one_word_for_both(words: np.ndarray) -> np.ndarray:
    half = len(words) // 2
    return np.concatenate([words[:half], words[:half]])


def each_block_twice(patch: pytest.MonkeyPatch) -> None:
    draw, kept = fast._draw, list[np.ndarray]()

    def again(table: fast._Table, count: int, random: RandomBytes) -> np.ndarray:
        if not kept:
            kept.extend([draw(table, count, random)] * 2)
        return kept.pop()[:count]

    patch.setattr(fast, "_draw", again)


def zero_with_two_signs(drawn: np.ndarray) -> np.ndarray:
    """Half of the others go, so zero comes twice as often."""
    return drawn[(drawn == 0) | (np.arange(len(drawn)) % 2 == 0)]


@pytest.mark.parametrize(
    ("broken", "variance", "caught"),
    [
        (sigma_off, 4**20, {"width", "chi-square", "distance"}),
        (before(low_level_missing), 4**20, {"bits", "modulo 256", "modulo 1000"}),
        (before(low_level_of_32_bits), 4**55, {"bits", "modulo 256", "modulo 1000"}),
        (before(one_word_for_both), 4**20, {"modulo 1000"}),
        (each_block_twice, 4**20, {"repeats"}),
        (after(np.abs), 4**20, {"signs", "distance"}),
        (after(np.sort), 4**20, {"neighbours"}),
    ],
)
def test_broken_wide_samplers_are_detected(
    broken: Break, variance: int, caught: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    drawn = fast.fast_gaussian(variance, DRAWS, replayable_random(3))
    assert alarms(SHARE, compare_wide(drawn, variance)) >= caught


@pytest.mark.parametrize(
    ("broken", "variance", "caught"),
    [
        (without_rejection, 4**9, {"width"}),
        (sigma_off, 9, {"width", "cells", "chi-square", "distance"}),
        (after(zero_with_two_signs), 9, {"width", "cells", "chi-square"}),
        (after(lambda x: x + (x < 0)), 9, {"signs", "cells"}),
    ],
)
def test_broken_narrow_samplers_are_detected(
    broken: Break, variance: int, caught: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    # A law that is off by 0.002 at most (above) does not show in a million draws.
    size = 8 * DRAWS if broken is without_rejection else DRAWS
    drawn = fast.fast_gaussian(variance, size, replayable_random(2))
    assert alarms(SHARE, compare(drawn, gaussian(variance))) >= caught


def test_normal_noise_in_floating_point_has_no_low_bits() -> None:
    variance = 4**55
    noise = np.random.default_rng(6).normal(0, 2.0**55, DRAWS).astype(np.int64)
    assert alarms(SHARE, compare_wide(noise, variance)) >= {"bits", "modulo 256", "modulo 1000"}
