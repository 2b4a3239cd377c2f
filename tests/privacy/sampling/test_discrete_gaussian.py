"""The exact samplers: their laws, and what each step that could be wrong would do to them.

Sound samplers raise a false alarm with probability at most 2^-20 for the whole file, over seeds
(`support.privacy.noise_laws`); each case has its share. Each broken variant has one step replaced.
"""

from collections.abc import Callable
from fractions import Fraction
from math import exp

import numpy as np
import pytest
from support.privacy.noise_laws import alarms, compare, compare_wide, gaussian, laplace, two_sided

from secagg.core.randomness import RandomBytes, replayable_random
from secagg.errors import InternalError
from secagg.privacy.sampling import bernoulli, discrete_gaussian

VARIANCES = (Fraction(1, 4), Fraction(1), Fraction(7, 3), Fraction(9), Fraction(100))
SCALES = (1, 4, 20)
WIDE = (4**20 + 7, 4**40 + 1)
ODDS = ((0, 1), (1, 7), (1, 2), (2**80 - 1, 2**80), (1, 1))
RATES = ((0, 1), (1, 3), (1, 1), (5, 2), (10**30, 3 * 10**30))
SHARE = 2.0**-20 / (len(VARIANCES) + 2 * len(WIDE) + len(SCALES) + len(ODDS) + len(RATES))
DRAWS = 20_000

Draw = Callable[[int | Fraction, RandomBytes], int]
Break = Callable[[pytest.MonkeyPatch], None]


def draws(one: Draw, parameter: int | Fraction, seed: int, count: int = DRAWS) -> np.ndarray:
    random = replayable_random(seed)
    return np.array([one(parameter, random) for _ in range(count)], dtype=np.int64)


def scripted(*words: int) -> RandomBytes:
    """Random bytes that are these 64-bit words, and not one more."""
    left = b"".join(word.to_bytes(8, "little") for word in words)

    def random(n: int) -> bytes:
        nonlocal left
        assert n <= len(left), "more randomness than expected"
        taken, left = left[:n], left[n:]
        return taken

    return random


# --- coins --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d"), ODDS)
def test_bernoulli_draws_have_their_probability(n: int, d: int) -> None:
    random = replayable_random(n % 1000)
    heads = sum(bernoulli.bernoulli(n, d, random) for _ in range(DRAWS))
    assert not alarms(SHARE, {"coin": two_sided(heads, DRAWS, n / d)})


@pytest.mark.parametrize(("n", "d"), RATES)
def test_bernoulli_exp_draws_have_their_probability(n: int, d: int) -> None:
    random = replayable_random(n % 1000)
    heads = sum(bernoulli.bernoulli_exp(n, d, random) for _ in range(DRAWS))
    assert not alarms(SHARE, {"coin": two_sided(heads, DRAWS, exp(-n / d))})


def test_bernoulli_reads_as_many_digits_as_needed() -> None:
    """1/3 is 0.555... in base 16, so each digit in base 2^64 is the same."""
    digit = 2**64 // 3
    assert bernoulli.bernoulli(1, 3, scripted(digit - 1))
    assert not bernoulli.bernoulli(1, 3, scripted(digit + 1))
    assert bernoulli.bernoulli(1, 3, scripted(digit, digit, digit - 1))
    assert not bernoulli.bernoulli(1, 3, scripted(digit, digit, digit + 1))


def test_bernoulli_is_exact_at_the_ends_of_its_range() -> None:
    """Exact means: 1 even when all bits of U are ones, 0 even when the first 64 are zeros."""
    assert bernoulli.bernoulli(1, 1, scripted(2**64 - 1))
    assert not bernoulli.bernoulli(0, 1, scripted(0, 0, 1))
    assert bernoulli.bernoulli(1, 2**64, scripted(0))
    assert not bernoulli.bernoulli(1, 2**64, scripted(1, 0, 1))


# --- sound --------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", SCALES)
def test_discrete_laplace_draws_have_their_distribution(scale: int) -> None:
    found = compare(draws(discrete_gaussian.discrete_laplace, scale, 1), laplace(scale))
    assert not alarms(SHARE, found)


@pytest.mark.statistical
@pytest.mark.parametrize("variance", VARIANCES)
def test_discrete_gaussian_draws_have_their_distribution(variance: Fraction) -> None:
    found = compare(draws(discrete_gaussian.discrete_gaussian, variance, 2), gaussian(variance))
    assert not alarms(SHARE, found)


@pytest.mark.statistical
@pytest.mark.parametrize("variance", WIDE)
def test_wide_discrete_gaussian_draws_have_their_distribution(variance: int) -> None:
    sample = draws(discrete_gaussian.discrete_gaussian, Fraction(variance), 3)
    assert not alarms(SHARE, compare_wide(sample, variance))


@pytest.mark.statistical  # 7 s: 2 % of sigma show in 200,000 draws, not in 20,000
@pytest.mark.parametrize("variance", WIDE)
def test_an_error_of_two_percent_in_sigma_is_detected(variance: int) -> None:
    sample = draws(discrete_gaussian.discrete_gaussian, Fraction(variance), 4, 10 * DRAWS)
    assert not alarms(SHARE, compare_wide(sample, variance))
    assert "width" in alarms(SHARE, compare_wide(sample, round(variance / 1.02**2)))
    assert "width" in alarms(SHARE, compare_wide(sample, round(variance * 1.02**2)))


def test_the_same_bytes_give_the_same_draws_for_ever() -> None:
    """Noise is drawn again from its seed on a retry: another order of coins would change it."""
    small = draws(discrete_gaussian.discrete_gaussian, Fraction(9), 5, 8)
    wide = draws(discrete_gaussian.discrete_gaussian, Fraction(4**30), 5, 3)
    assert small.tolist() == [4, -2, -3, -2, 3, -3, -1, 1]
    assert wide.tolist() == [108474327, 564037177, 1415900604]


@pytest.mark.parametrize(
    "one", [discrete_gaussian.discrete_laplace, discrete_gaussian.discrete_gaussian]
)
@pytest.mark.parametrize("parameter", [0, -1, Fraction(-1, 2)])
def test_variance_zero_gives_no_noise(one: Draw, parameter: int | Fraction) -> None:
    with pytest.raises(InternalError):
        one(parameter, scripted())


# --- broken -------------------------------------------------------------------------------------


def gaussian_becomes(make: Callable[[Draw], Draw]) -> Break:
    one = discrete_gaussian.discrete_gaussian
    return lambda patch: patch.setattr(discrete_gaussian, "discrete_gaussian", make(one))


def laplace_becomes(make: Callable[[Draw], Draw]) -> Break:
    one = discrete_gaussian.discrete_laplace
    return lambda patch: patch.setattr(discrete_gaussian, "discrete_laplace", make(one))


def zero_twice_as_often(one: Draw) -> Draw:
    def biased(scale: int | Fraction, random: RandomBytes) -> int:
        while (x := one(scale, random)) and random(1)[0] & 1:
            pass
        return x

    return biased


def each_draw_twice(one: Draw) -> Draw:
    kept = list[int]()

    def twice(variance: int | Fraction, random: RandomBytes) -> int:
        if not kept:
            kept.extend([one(variance, random)] * 2)
        return kept.pop()

    return twice


def series_cut_short(patch: pytest.MonkeyPatch) -> None:
    """Two throws at most: 1 - gamma + gamma^2 / 2 for exp(-gamma)."""

    def cut(n: int, d: int, random: RandomBytes) -> bool:
        return not (bernoulli.bernoulli(n, d, random) and not bernoulli.bernoulli(n, 2 * d, random))

    patch.setattr(bernoulli, "_at_most_one", cut)


NORMAL = np.random.default_rng(6)
SIGMA_OFF = gaussian_becomes(lambda one: lambda v, r: one(v * Fraction(9, 8), r))  # by 6 %
ZERO_TWICE = laplace_becomes(zero_twice_as_often)
ONE_TOO_WIDE = laplace_becomes(lambda one: lambda scale, r: one(scale + 1, r))
ROUNDED = gaussian_becomes(lambda one: lambda v, r: round(NORMAL.normal(0, float(v) ** 0.5)))
ONE_SIGN = gaussian_becomes(lambda one: lambda v, r: abs(one(v, r)))


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("broken", "variance", "caught"),
    [
        (SIGMA_OFF, Fraction(9), {"width"}),
        (ZERO_TWICE, Fraction(1), {"cells", "chi-square", "width"}),
        (ONE_TOO_WIDE, Fraction(1), {"cells", "width"}),
        (series_cut_short, Fraction(100), {"cells", "chi-square", "width"}),
        (ROUNDED, Fraction(1, 4), {"cells", "chi-square", "distance", "width"}),
        (ONE_SIGN, Fraction(9), {"signs", "distance"}),
        (gaussian_becomes(each_draw_twice), Fraction(9), {"pairs", "neighbours"}),
    ],
)
def test_broken_gaussian_samplers_are_detected(
    broken: Break, variance: Fraction, caught: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    count = DRAWS if broken is SIGMA_OFF else DRAWS // 4
    sample = draws(discrete_gaussian.discrete_gaussian, variance, 2, count)
    assert alarms(SHARE, compare(sample, gaussian(variance))) >= caught


@pytest.mark.parametrize(
    ("broken", "scale", "caught"),
    [(ZERO_TWICE, 1, {"cells", "chi-square", "width"}), (ONE_TOO_WIDE, 4, {"width"})],
)
def test_broken_laplace_samplers_are_detected(
    broken: Break, scale: int, caught: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    sample = draws(discrete_gaussian.discrete_laplace, scale, 1, DRAWS // 4)
    assert alarms(SHARE, compare(sample, laplace(scale))) >= caught
