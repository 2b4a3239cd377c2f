"""Starts and curvatures of families that are not linear, beside simulated records."""

import numpy as np
import pytest

from secagg.contracts import Family
from secagg.models.glm.logistic import BINOMIAL
from secagg.models.glm.poisson import POISSON
from secagg.models.one_step.estimate import Estimate, First
from secagg.models.one_step.starts import curvature, from_means

B = np.array([-0.4, 0.6, -0.5, 0.3])


def records(count: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    C = 0.3 + 0.7 * np.eye(3)
    return np.column_stack([np.ones(count), rng.multivariate_normal([0.2, -0.1, 0.0], C, count)])


@pytest.mark.parametrize("family", [POISSON, BINOMIAL])
def test_curvature(family: Family) -> None:
    """400,000 records: a mean is known to about its standard deviation (2 at most) over 630."""
    x = records(400_000)
    weights = family.weight(x @ B)
    found = curvature(family, x.T @ x / len(x), B)
    assert np.allclose(found, (x.T * weights) @ x / len(x), atol=5 * 2 / 630)


@pytest.mark.parametrize("family", [POISSON, BINOMIAL])
def test_a_start_from_least_squares_is_right_for_normal_predictors(family: Family) -> None:
    """From least squares of the means themselves, at which no noise is left but that of x."""
    x = records(400_000)
    mean = family.mean(x @ B)
    S = x.T @ x / len(x)
    b = np.linalg.solve(S, x.T @ mean / len(x))
    zeros = np.zeros((4, 4))
    first = First(Estimate(b, zeros, zeros), np.eye(4), S, 0.0, 1.0, 0.0, np.eye(5))
    assert np.allclose(from_means(family, first, mean.mean(), 0.0, 1.0).b, B, atol=0.02)


def test_noise_in_least_squares_does_not_make_the_start_longer() -> None:
    """The variance that noise adds to the linear predictor of least squares is taken off."""
    S, noise = np.eye(4), np.diag([0.0, 0.04, 0.04, 0.04])
    b = np.array([0.1, 0.2, 0.0, 0.0])

    def start(noise: np.ndarray) -> np.ndarray:
        first = First(Estimate(b, 0 * noise, noise), np.eye(4), S, 0.0, 1.0, 0.0, np.eye(5))
        return from_means(POISSON, first, 0.1, 0.01, 0.2).b[1:]

    shorter = np.diag([0.0, 0.01, 0.01, 0.01])  # 1/4 of the variance of the predictor
    assert 0 < start(shorter)[0] < start(0 * noise)[0]
    assert start(noise)[0] == pytest.approx(0.2 * 0.2 / 0.1, rel=1e-3)  # k = 1 / m


def test_a_noisy_mean_makes_the_intercept_uncertain() -> None:
    S, zeros = np.eye(4), np.zeros((4, 4))
    first = First(Estimate(np.zeros(4), zeros, zeros), np.eye(4), S, 0.0, 1.0, 0.0, np.eye(5))
    known, noisy = (from_means(BINOMIAL, first, 0.02, sd, 1.0).noise[0, 0] for sd in (0.0, 0.01))
    assert noisy - known == pytest.approx((0.01 / (0.02 * 0.98)) ** 2, rel=0.05)  # delta method
