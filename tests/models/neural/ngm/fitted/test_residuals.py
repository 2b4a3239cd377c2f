"""Counts of residuals, and the distribution that follows from them."""

import numpy as np
import pytest
from scipy.stats import norm

from secagg.models.neural.ngm.fitted import residuals
from secagg.models.neural.ngm.fitted.residuals import (
    BIN_ENDS,
    ENDS,
    GROUP_ENDS,
    SHAPE,
    Residuals,
    count_residuals,
    merged,
)


def test_every_residual_is_counted_once_in_its_group_and_bin() -> None:
    rng = np.random.default_rng(0)
    outputs, sd = 2 * rng.standard_normal((2, 500)), np.array([0.5, 2.0])
    z = outputs + sd[:, None] * 3 * rng.standard_normal((2, 500))
    counts = count_residuals(z, outputs, sd)
    assert counts.shape == (2, *SHAPE) and np.all(counts.sum(axis=(1, 2)) == 500)
    e = (z[1] - outputs[1]) / 2.0
    chosen = (outputs[1] > GROUP_ENDS[1]) & (outputs[1] <= GROUP_ENDS[2])
    chosen &= (e > BIN_ENDS[6]) & (e <= BIN_ENDS[7])
    assert counts[1, 2, 7] == chosen.sum() > 0


def test_without_counts_the_distribution_is_normal_and_with_many_it_is_theirs() -> None:
    normal = np.diff(norm.cdf(ENDS))
    none = Residuals.of(np.zeros((1, *SHAPE)), 1)
    np.testing.assert_allclose(none.shares, np.broadcast_to(normal, (1, *SHAPE)), atol=1e-8)
    counts = np.zeros((1, *SHAPE))
    counts[0, 3, 4], counts[0, 3, 9] = 3e6, 1e6
    many = Residuals.of(counts, 1)
    np.testing.assert_allclose(many.shares[0, 3, [4, 9]], [0.75, 0.25], atol=1e-4)
    # A group without records has the shares of all others.
    np.testing.assert_allclose(many.shares[0, 0, [4, 9]], [0.75, 0.25], atol=1e-4)


@pytest.fixture
def not_centred(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of merged bins are spread as in the normal distribution, whatever their mean."""
    monkeypatch.setattr(residuals, "_MOST_TILT", 1e-9)


@pytest.mark.usefixtures("not_centred")
@pytest.mark.parametrize("records", [0, 3, 40, 900])
def test_no_shown_cell_has_few_records(records: int) -> None:
    """And none is lost, if there are enough of them."""
    rng = np.random.default_rng(records)
    outputs, z = rng.standard_normal((2, 1, records))
    counts = count_residuals(z, outputs, np.ones(1))
    shown = merged(counts, 5)
    assert shown.sum() == pytest.approx(records if records >= 5 else 0)
    for row in shown[0]:
        # Bins that are merged have the same ratio to the normal distribution.
        ratio = row / np.diff(norm.cdf(ENDS))
        for value in np.unique(ratio.round(6)):
            total = row[np.isclose(ratio, value, atol=1e-5)].sum()
            groups = np.sum(np.all(np.isclose(shown[0], row), axis=1))
            assert total == 0 or total * groups > 4.99


@pytest.mark.usefixtures("not_centred")
def test_cells_reach_to_the_next_one() -> None:
    """So the end of a cell shows no single record: one in the last bin, or in no other group."""
    counts = np.zeros((1, *SHAPE))
    counts[0, 2, [3, 5, 6, 9]] = [7, 2, 4, 0]
    shown = merged(counts, 5)[0]
    assert np.all(shown > 0)  # groups are one cell, and no bin shows that it was empty
    np.testing.assert_allclose(shown[:, :4].sum(), 7)
    np.testing.assert_allclose(shown[:, 4:].sum(), 6)
    counts[0, 2, 9] = counts[0, 4, 17] = 1
    np.testing.assert_allclose(merged(counts, 5)[0, :, 4:] / shown[:, 4:], 8 / 6)


@pytest.mark.parametrize("sign", [1, -1])
def test_merged_bins_of_skewed_residuals_keep_the_mean(
    sign: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exponential residuals have a hard end at one standard deviation, and a long tail.

    Their mean is 0. What is left is below a third of what it would be, and below the standard
    error of the mean of 300 records.
    """
    e = np.random.default_rng(1).exponential(size=300) - 1
    e = sign * (e - e.mean())
    counts = count_residuals(e[None], np.zeros((1, 300)), np.ones(1))
    uniform = (np.arange(4000) + 0.5) / 4000

    def mean(shown: np.ndarray) -> float:
        drawn = Residuals.of(shown, 1).draws(0, np.zeros(4000), np.ones(4000), uniform)
        return float(drawn.mean())

    centred = merged(counts, 5)
    monkeypatch.setattr(residuals, "_MOST_TILT", 1e-9)
    plain = merged(counts, 5)
    assert abs(mean(centred)) < min(1 / np.sqrt(300), abs(mean(plain)) / 3)
    alone = counts.sum(axis=1)[0] >= 5  # bins that are not merged keep their counts
    alone[[0, -1]] = False
    inner = alone & np.roll(alone, 1) & np.roll(alone, -1)
    assert inner.sum() >= 3
    np.testing.assert_allclose(centred.sum(axis=1)[0, inner], counts.sum(axis=1)[0, inner])
    assert centred.sum() == pytest.approx(300)


def test_draws_are_normal_within_a_bin() -> None:
    counts = np.zeros((1, *SHAPE))
    counts[0, :, 10] = 1e12
    uniform = np.linspace(0.001, 0.999, 5)
    found = Residuals.of(counts, 1).draws(0, np.full(5, 0.5), 2.0, uniform)
    expected = norm.ppf(norm.cdf(ENDS[10]) + uniform * np.diff(norm.cdf(ENDS[10:12])))
    np.testing.assert_allclose(found, 0.5 + 2 * expected, rtol=1e-6)


def test_draws_and_density_without_counts_are_normal() -> None:
    residuals, p = Residuals.of(np.zeros((1, *SHAPE)), 1), np.linspace(1e-6, 1 - 1e-6, 101)
    found = residuals.draws(0, np.zeros(101), 1.0, p)
    np.testing.assert_allclose(found, norm.ppf(p), atol=1e-6)
    z = np.linspace(-9, 9, 50)
    density = residuals.log_density(0, np.full(50, 0.3), 0.7, z)
    np.testing.assert_allclose(density, norm.logpdf(z, 0.3, 0.7), rtol=1e-9)
