"""Which predictors are included: against a normal posterior, whose probabilities are known."""

import numpy as np
import pytest
from scipy.stats import norm

from secagg.models.fedlin.posterior.selection import select

MEANS = np.array([3.0, 0.2, -3.0, 0.0])
MANY = 4000
T = 6.1  # of Student's t with 19 degrees of freedom, what 4.5 is of a normal
DRAWS = MEANS + np.random.default_rng(1).standard_normal((MANY, 4))


def test_selection_from_a_normal_posterior_is_correct() -> None:
    found = select(DRAWS, level=0.9, rope=0.5)
    z = norm.ppf(0.95)
    for value, error, exact in (
        (found.mean, found.mcse_mean, MEANS),
        (found.low, found.mcse_low, MEANS - z),
        (found.high, found.mcse_high, MEANS + z),
    ):
        assert np.all(np.abs(value - exact) < T * error)
    assert np.all(np.abs(found.sd - 1) < 4.5 / np.sqrt(2 * MANY))
    # errors by twenty batches are themselves off by 1 / sqrt(38)
    assert np.allclose(found.mcse_mean, 1 / np.sqrt(MANY), rtol=4.5 / np.sqrt(38))
    # what a share of draws may be off; the largest of two is biased where both are one half
    right, null = norm.cdf(np.abs(MEANS)), norm.cdf(0.5 - MEANS) - norm.cdf(-0.5 - MEANS)
    for share, exact in ((found.direction[:3], right[:3]), (found.null, null)):
        assert np.all(np.abs(share - exact) < 4.5 * np.sqrt(exact * (1 - exact) / MANY))
    assert found.included.tolist() == [True, False, True, False]
    assert not np.any(found.doubtful)


def test_the_interval_level_decides_the_selection() -> None:
    """At mean 2 and sd 1 an interval of 90 % ends at .36, one of 99 % at -.58."""
    draws = DRAWS[:, 3:] + 2
    assert select(draws, level=0.9).included[0]
    assert not select(draws, level=0.99).included[0]


def test_an_interval_end_near_zero_is_marked_uncertain() -> None:
    draws = DRAWS[:, 3:] + norm.ppf(0.95)
    for sign in (1, -1):
        assert select(sign * draws, level=0.9).doubtful[0]


def test_dependent_draws_have_larger_errors() -> None:
    """An autoregression of .9: errors are sqrt(1.9 / .1) = 4.4 times those of independent draws."""
    rng, phi = np.random.default_rng(2), 0.9
    draws = rng.standard_normal((20_000, 1))
    for i in range(1, len(draws)):
        draws[i] = phi * draws[i - 1] + np.sqrt(1 - phi**2) * draws[i]
    found = select(draws, level=0.9)
    assert found.mcse_mean[0] == pytest.approx(4.36 / np.sqrt(20_000), rel=4.5 / np.sqrt(38))
