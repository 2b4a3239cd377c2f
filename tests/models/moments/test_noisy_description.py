"""Descriptions of noisy moments: those of the records without noise, with calibrated errors."""

from dataclasses import replace

import numpy as np
import pytest

from secagg.errors import UsageError
from secagg.models.common.noisy_moments import NoisyMoments, repaired
from secagg.models.moments.noisy_description import NoisyDescription, describe_noisy

NAMES = ("age", "days", "sbp")
MIDDLE, HALF = np.array([60.0, 182.5, 150.0]), np.array([40.0, 182.5, 100.0])


def records(rng: np.random.Generator, n: int, days: tuple[float, float] = (100, 60)) -> np.ndarray:
    """Return records in own units. days: mean and standard deviation of the second column."""
    z = (
        rng.normal(size=(n, 3))
        @ np.linalg.cholesky([[1, 0.3, 0.5], [0.3, 1, -0.2], [0.5, -0.2, 1]]).T
    )
    return np.array([62.0, days[0], 135.0]) + z * np.array([11.0, days[1], 18.0])


def released(
    own: np.ndarray, variance: float, rng: np.random.Generator, counted: float = 1.0
) -> NoisyMoments:
    """Return moments with noise of this variance. counted: variance of the number of records."""
    z = np.column_stack([np.ones(len(own)), (own - MIDDLE) / HALF])
    variances = variance * (1 + np.eye(4))
    variances[0, 0] = counted if variance else 0.0
    noise = np.triu(rng.normal(size=(4, 4)) * np.sqrt(variances))
    matrix = z.T @ z + noise + np.triu(noise, 1).T
    return NoisyMoments(NAMES, MIDDLE, HALF, matrix, variances, np.ones(4))


def numbers(found: NoisyDescription) -> np.ndarray:
    """Return means, deviations and the three correlations."""
    r = np.array(found.correlation, dtype=float)[np.triu_indices(3, 1)]
    return np.array([*(c.mean for c in found.columns), *(c.sd for c in found.columns), *r])


def errors(found: NoisyDescription) -> np.ndarray:
    r = np.array(found.correlation_error, dtype=float)[np.triu_indices(3, 1)]
    return np.array(
        [*(c.mean_error for c in found.columns), *(c.sd_error for c in found.columns), *r]
    )


def truth(own: np.ndarray) -> np.ndarray:
    r = np.corrcoef(own, rowvar=False)[np.triu_indices(3, 1)]
    return np.array([*own.mean(axis=0), *own.std(axis=0, ddof=1), *r])


def test_without_noise_the_numbers_are_those_of_the_table() -> None:
    rng = np.random.default_rng(0)
    own = records(rng, 200)
    found = describe_noisy(released(own, 0.0, rng))
    np.testing.assert_allclose(numbers(found), truth(own), rtol=1e-12)
    assert not errors(found).any() and found.n == 200


def test_numbers_are_unbiased_and_their_errors_calibrated() -> None:
    """Standardised errors have mean 0 and standard deviation 1, up to the second order."""
    rng = np.random.default_rng(1)
    own = records(rng, 4000)
    runs = [describe_noisy(released(own, 2.0, rng, counted=25.0)) for _ in range(400)]
    z = np.array([(numbers(found) - truth(own)) / errors(found) for found in runs])
    # Monte Carlo errors of 400 runs: 0.05 of a mean, 0.035 of a standard deviation; 4 of them
    assert np.abs(z.mean(axis=0)).max() < 0.2
    assert np.abs(z.std(axis=0) - 1).max() < 0.14


def test_a_column_that_fills_little_of_its_bounds_keeps_its_mean() -> None:
    """Its spread is hidden. The repair of the moments would move its mean in each release."""
    rng = np.random.default_rng(2)
    own = records(rng, 2700, days=(5, 3.5))
    ours, moved = [], []
    for _ in range(50):
        noisy = released(own, 64.0, rng)
        days = describe_noisy(noisy).columns[1]
        assert days.sd is None and days.sd_error is None
        ours.append(days.mean)
        matrix = repaired(noisy).matrix
        moved.append(MIDDLE[1] + HALF[1] * matrix[0, 2] / matrix[0, 0])
    limit = 4 * days.mean_error / np.sqrt(50)  # four Monte Carlo errors: 0.3 days
    assert abs(np.mean(ours) - own[:, 1].mean()) < limit < 0.4
    assert abs(np.mean(moved) - own[:, 1].mean()) > 3 * limit


def test_correlations_with_a_hidden_spread_are_left_out_and_the_limit_is_named() -> None:
    rng = np.random.default_rng(2)
    found = describe_noisy(released(records(rng, 2700, days=(5, 3.5)), 64.0, rng))
    r = found.correlation
    assert (r[0][1], r[1][1], r[1][2]) == (None, None, None)
    assert r[0][0] == 1.0 and r[0][2] is not None
    assert "days" in " ".join(found.notes) and "sbp" not in " ".join(found.notes)


def test_means_stay_inside_the_bounds() -> None:
    rng = np.random.default_rng(3)
    noisy = released(records(rng, 30), 400.0, rng)
    noisy = replace(noisy, matrix=noisy.matrix + 500 * (np.eye(4)[[0]].T @ np.eye(4)[[1]]))
    assert describe_noisy(noisy).columns[0].mean == MIDDLE[0] + HALF[0]


@pytest.mark.parametrize(("n", "variance"), [(1.0, 0.0), (-5.0, 1.0), (15.0, 400.0)])
def test_a_hidden_number_of_records_is_a_usage_error(n: float, variance: float) -> None:
    rng = np.random.default_rng(4)
    noisy = released(records(rng, 50), 1.0, rng)
    noisy.matrix[0, 0], noisy.variance[0, 0] = n, variance
    with pytest.raises(UsageError):
        describe_noisy(noisy)
