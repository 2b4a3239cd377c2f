"""The auditor of epsilon, on mechanisms whose epsilon is known.

Every assertion about a confidence limit may fail by chance: with the auditor's default error, 2^-20
each, were the seeds drawn anew.
"""

import math

import numpy as np
import pytest
from scipy import stats

from secagg.audits.epsilon import lower_bound
from secagg.audits.epsilon.lower_bound import Floats, bound_epsilon
from secagg.errors import UsageError
from secagg.privacy.accounting.gaussian_dp import gaussian_epsilon

DELTA = 1e-5


def normal(
    mu: float, runs: int, seed: int = 1, numbers: int = 1, coupled: bool = True
) -> tuple[Floats, Floats]:
    """Return releases with unit noise and without, and with, a shift of length mu."""
    rng = np.random.default_rng(seed)
    first = rng.standard_normal((runs, numbers))
    second = first if coupled else rng.standard_normal((runs, numbers))
    return first, second + mu / math.sqrt(numbers)


@pytest.mark.parametrize(
    ("mu", "numbers", "coupled"),
    [(0.1, 1, True), (0.1, 20, False), (0.5, 20, True), (1.0, 1, False), (3.0, 20, True)],
)
def test_the_interval_contains_the_true_epsilon(mu: float, numbers: int, coupled: bool) -> None:
    truth = gaussian_epsilon(mu, DELTA)
    found = bound_epsilon(*normal(mu, 40_000, 2, numbers, coupled), truth, DELTA)
    assert found.mu_low <= mu <= found.mu_high and found.mu_low < found.mu < found.mu_high
    assert found.epsilon_low <= truth <= found.epsilon_high
    assert 0 <= found.threshold_low <= truth and not found.refuted


@pytest.mark.statistical
def test_lower_bounds_are_too_high_no_more_often_than_stated() -> None:
    mu, error, audits = 0.7, 0.2, 1000
    claim = gaussian_epsilon(mu, DELTA)
    found = [
        bound_epsilon(*normal(mu, 1000, seed, 2, coupled=bool(seed % 2)), claim, DELTA, error)
        for seed in range(audits)
    ]
    # What is not above the 2^-20 quantile of the binomial law is no more often than stated.
    for wrong, rate in (
        (sum(f.mu_low > mu for f in found), error / 2),
        (sum(f.mu_high < mu for f in found), error / 2),
        (sum(f.refuted for f in found), error),
    ):
        assert wrong <= stats.binom.isf(2.0**-20, audits, rate)


def test_a_claim_that_is_too_low_is_refuted() -> None:
    releases = normal(0.5, 40_000)
    assert bound_epsilon(*releases, gaussian_epsilon(0.45, DELTA), DELTA).refuted
    assert not bound_epsilon(*releases, gaussian_epsilon(0.5, DELTA), DELTA).refuted


def test_equal_noise_on_both_data_sets_narrows_the_interval() -> None:
    widths = [
        (found := bound_epsilon(*normal(0.3, 40_000, coupled=c), 1.0, DELTA)).mu_high - found.mu_low
        for c in (True, False)
    ]
    # Of n pairs mu n / root(2 pi) gain and none loses, against n / 4 of each; deviations are as
    # root(0.12 (1 - 0.12)) to root(0.5).
    assert widths[0] < 0.55 * widths[1]


def test_the_tested_direction_has_the_smallest_noise() -> None:
    """Two numbers share most of their noise, and the shift is in their difference."""
    rng = np.random.default_rng(3)
    shared, own = 100 * rng.standard_normal((20_000, 1)), rng.standard_normal((20_000, 2))
    first = shared + own
    found = bound_epsilon(first, first + np.array([0.5, -0.5]), 1.0, DELTA)
    assert found.mu_low <= math.sqrt(0.5) <= found.mu_high


def test_noise_of_another_distribution_is_judged_by_its_advantage() -> None:
    """A uniform number, shifted by an eighth of its width: no test has more than 1 / 8."""
    rng = np.random.default_rng(4)
    first = rng.uniform(0, 1, (40_000, 1))
    found = bound_epsilon(first, first + 1 / 8, 1.0, DELTA)
    assert found.mu_low <= 2 * stats.norm.ppf((1 + 1 / 8) / 2) <= found.mu_high


def test_one_exact_number_among_noised_ones_is_detected() -> None:
    first, second = normal(0.01, 2000, numbers=3)
    first[:, 1], second[:, 1] = 50.0, 51.0
    found = bound_epsilon(first, second, 1.0, DELTA)
    assert found.mu == math.inf and found.epsilon == math.inf and found.refuted
    assert found.threshold_low > 1.0  # neither bound needs noise


def test_equal_releases_refute_no_claim() -> None:
    constant = np.full((1000, 2), 3.0)
    for first in (constant, normal(1.0, 1000, numbers=2)[0]):
        found = bound_epsilon(first, first.copy(), 0.0, DELTA)
        assert found.mu == found.mu_low == found.epsilon_low == found.threshold_low == 0.0
        assert not found.refuted and found.verdict.startswith("No evidence against")


def test_the_older_bound_is_tight_for_randomised_response() -> None:
    """Warner's coin of epsilon = 1; and a shape that is not the claim's, as the text says."""
    rng = np.random.default_rng(5)
    truth = 1 / (1 + math.exp(-1.0))
    yes, no = (rng.random((100_000, 1)) < p for p in (truth, 1 - truth))
    found = bound_epsilon(no.astype(np.float64), yes.astype(np.float64), 1.0, DELTA)
    assert 0.95 < found.threshold_low <= 1.0 < found.epsilon_low


@pytest.mark.parametrize("k", [0, 1, 7, 500, 999, 1000])
def test_limits_equal_those_of_clopper_and_pearson(k: int) -> None:
    part = 0.01
    exact = stats.binomtest(k, 1000).proportion_ci(1 - 2 * part, method="exact")
    assert lower_bound._low(k, 1000, part) == pytest.approx(exact.low, rel=1e-9)
    assert lower_bound._high(k, 1000, part) == pytest.approx(exact.high, rel=1e-9)


def test_the_verdict_states_the_numbers() -> None:
    found = bound_epsilon(*normal(1.0, 20_000), 0.5, DELTA)
    assert found.verdict.startswith("The claim is refuted: epsilon is at least")
    for number in (found.epsilon_low, found.claimed, found.delta):
        assert f"{number:.3g}" in found.verdict
    assert found.runs == 18_000  # a tenth chose the test


@pytest.mark.parametrize(
    ("shapes", "numbers"),
    [
        (((99, 1), (99, 1)), (1.0, DELTA, 0.1)),
        (((200, 1), (199, 1)), (1.0, DELTA, 0.1)),
        (((200,), (200,)), (1.0, DELTA, 0.1)),
        (((200, 1), (200, 1)), (math.nan, DELTA, 0.1)),
        (((200, 1), (200, 1)), (1.0, 0.0, 0.1)),
        (((200, 1), (200, 1)), (1.0, 1.0, 0.1)),
        (((200, 1), (200, 1)), (1.0, DELTA, 0.0)),
    ],
)
def test_invalid_arguments_are_refused(
    shapes: tuple[tuple[int, ...], ...], numbers: tuple[float, float, float]
) -> None:
    with pytest.raises(UsageError):
        bound_epsilon(np.zeros(shapes[0]), np.ones(shapes[1]), *numbers)


def test_numbers_that_are_not_finite_are_refused() -> None:
    first, second = normal(1.0, 200)
    second[7, 0] = math.nan
    with pytest.raises(UsageError):
        bound_epsilon(first, second, 1.0, DELTA)
