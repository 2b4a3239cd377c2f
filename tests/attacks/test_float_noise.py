"""The attack on noise in floating point finds nothing in what a site sends, and finds the textbook.

The same value 0 or 1, the same standard deviation 1, a million outputs of each.
"""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special, stats
from support.privacy.noise_laws import alarms, likelihood_ratio

from secagg.audits.attacks.guarantees.float_noise_low_bits import (
    distinguished_share,
    impossible_outputs,
    lowest_set_bits,
)
from secagg.contracts import Field, Kind
from secagg.contracts.noise import Noise, Placement
from secagg.core.randomness import replayable_random
from secagg.privacy.sampling.sampler import sample
from secagg.sessions.fixed_point import add_noise, decode, encode
from secagg.sessions.sum_plan import plan_sum

DRAWS = 2**20
GRIDS = (20, 40)
SHARE = 2.0**-20 / (2 * len(GRIDS))

Floats = NDArray[np.float64]


def textbook(value: float, seed: int) -> Floats:
    return value + np.random.default_rng(seed).normal(0.0, 1.0, DRAWS)


def ours(value: float, seed: int, fraction_bits: int) -> Floats:
    """What the coordinator decodes of a site's contribution, all entries being `value`."""
    noise = Noise(Placement.SITE, 4**fraction_bits, fraction_bits, colluding=0, min_sites=1)
    spec = (Field("x", (DRAWS,), 1.0, fraction_bits, Kind.BOUNDED),)
    plan = plan_sum(spec, 1, noise=noise)
    vector = encode(plan, {"x": np.full(DRAWS, value)})
    add_noise(plan, vector, sample(noise.variance, DRAWS, replayable_random(seed)))
    return decode(plan, vector)[0]["x"]


def test_claimed_proofs_are_proofs_for_all_16_bit_floats() -> None:
    """By trying all floats for the noise: 16-bit ones, of which there are few enough."""
    everything = np.arange(2**16, dtype=np.uint16).view(np.float16)
    everything = everything[np.isfinite(everything)]
    outputs = everything[np.abs(everything) <= 8]
    for value in (0.0, 1.0, 0.75, 1.0 / 3):
        value16 = float(np.float16(value))
        with np.errstate(over="ignore"):
            reached = np.unique(value16 + everything)
        assert reached.dtype == np.float16
        np.testing.assert_array_equal(
            impossible_outputs(outputs, value16), ~np.isin(outputs, reached)
        )


def test_lowest_set_bits_are_found() -> None:
    assert lowest_set_bits(np.array([0.0, 1.0, -3.0, 12.0, 0.75, 2.0**-1074])).tolist() == [
        0, 0, 0, 2, -2, -1074,
    ]  # fmt: skip


def test_textbook_noise_reveals_the_value() -> None:
    """43 % of the outputs of 0 prove that it was not 1; none prove it was not 0.

    Where floats near y are 2^j times as fine as near y - 1, one in 2^j is reached from 1. That is
    summed over the quantiles of y; low bits are taken for even, hence 1 % of tolerance.
    """
    quantiles = special.ndtri((np.arange(10**5) + 0.5) / 10**5)
    finer = np.frexp(quantiles - 1)[1] - np.frexp(quantiles)[1]
    expected = np.mean(1 - 2.0 ** -np.maximum(0, finer))
    of_zero, of_one = textbook(0.0, 1), textbook(1.0, 2)
    assert impossible_outputs(of_zero, 1.0).mean() == pytest.approx(expected, abs=0.01)
    assert expected > 0.4
    assert not impossible_outputs(of_zero, 0.0).any()
    assert not impossible_outputs(of_one, 1.0).any()
    assert distinguished_share(of_zero, of_one) > 0.2


@pytest.mark.parametrize("bits", GRIDS)
def test_discrete_noise_does_not_reveal_the_value(bits: int) -> None:
    of_zero, of_one = ours(0.0, 1, bits), ours(1.0, 2, bits)
    for outputs, other in ((of_zero, 1.0), (of_one, 0.0), (of_zero, 1 / 3), (of_one, 1 / 3)):
        assert not impossible_outputs(outputs, np.round(other * 2.0**bits) / 2.0**bits).any()
    assert distinguished_share(of_zero, of_one) == distinguished_share(of_one, of_zero) == 0
    assert np.std(of_zero) == pytest.approx(1, abs=0.01)
    assert np.mean(of_one) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("bits", GRIDS)
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_low_bits_of_discrete_noise_do_not_depend_on_the_value(value: float, bits: int) -> None:
    """The lowest set bit is the grid's in half of the outputs, the next in a quarter, and so on."""
    places = np.clip(lowest_set_bits(ours(value, 3, bits)) + bits, 0, 12)
    rates = 0.5 ** np.r_[1.0:13.0, 12.0]
    found = likelihood_ratio(np.bincount(places, minlength=13), rates)
    assert not alarms(SHARE, {"lowest bits": found})


@pytest.mark.parametrize("bits", GRIDS)
def test_low_bits_of_textbook_noise_depend_on_the_value(bits: int) -> None:
    """Nor is noise on the grid any help for a value that is not on it."""
    on_grid = ours(0.0, 4, bits)
    assert distinguished_share(1 / 3 + on_grid, on_grid) > 0.9
    assert distinguished_share(1 / 3 + on_grid, 1.0 + on_grid) > 0.9
    assert distinguished_share(ours(1 / 3, 4, bits), on_grid) == 0
    assert stats.ks_2samp(1 / 3 + on_grid, ours(1 / 3, 4, bits)).pvalue > 0.5  # alike otherwise
