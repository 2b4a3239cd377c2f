"""Limits of scores: from a noisy histogram, beside the best limit for the lengths themselves."""

import numpy as np

from secagg.core.arrays import Array
from secagg.models.one_step.limits import longer

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
