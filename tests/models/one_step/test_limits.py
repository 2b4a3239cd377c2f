"""Limits of scores: first ones, and from a noisy histogram, beside the best for the lengths."""

import math

import numpy as np
import pytest

from secagg.core.arrays import Array
from secagg.models.one_step.limits import Limits, longer

ENDS = 2.0 ** np.arange(-4, 5)


def histogram(lengths: Array, sd: float, rng: np.random.Generator) -> Array:
    counts = np.bincount(np.searchsorted(ENDS, lengths), minlength=10)
    return np.asarray(counts + sd * rng.normal(size=10))


def loss(lengths: Array, f: float, size: int, sd_g: float) -> float:
    cut = np.maximum(lengths - f, 0.0).sum()
    return float(cut**2 + size * (f * sd_g) ** 2)


def test_without_noise_in_counts_the_limit_is_nearly_the_best() -> None:
    """Counts know lengths up to a factor of 2, so the loss may be larger by a factor of up to 4;
    that of the first limit is always larger."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        lengths = 0.1 * rng.pareto(1.5, size=5000)
        best = min(loss(lengths, f, 5, 6.0) for f in 2.0 ** np.arange(0, 5, 0.1))
        found = loss(lengths, longer(histogram(lengths, 0.0, rng), 0.0, 5, 6.0), 5, 6.0)
        assert found <= 4 * best
        assert loss(lengths, 1.0, 5, 6.0) > found


def test_noise_alone_seldom_makes_a_limit_longer() -> None:
    rng = np.random.default_rng(2)
    made = []
    for _ in range(300):
        lengths = np.abs(rng.normal(size=1000) * rng.normal(size=1000)) / 2
        made.append(longer(histogram(lengths, 15.0, rng), 15.0, 5, 6.0) > 1)
    assert np.mean(made) < 0.15  # one of four tails above two standard deviations: .02 to .09


def test_limits_of_other_families_grow_with_the_records_as_far_as_noise_allows() -> None:
    """By half of the logarithm of their number, up to noise as large as the sampling error."""

    def product(records: float, sd_g: float) -> float:
        found = Limits.of(6, records, sd_g, linear=False)
        return found.record * found.residual

    for records, more in ((1000.0, 0.0), (20_000.0, math.log(20) / 2), (10.0, 0.0)):
        assert product(records, 0.2 * math.sqrt(records / 6)) == pytest.approx(max(2.5, 2 + more))
    assert product(20_000.0, math.sqrt(20_000 / 6) / 2.5) == pytest.approx(
        2.5
    )  # the noise allows no more
    assert product(10.0**9, 1.0) == 30.0
