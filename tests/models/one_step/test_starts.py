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
