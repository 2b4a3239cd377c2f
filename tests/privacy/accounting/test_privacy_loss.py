"""Privacy-loss distributions against quadrature, closed forms and dp-accounting."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from scipy.special import ndtr
from scipy.stats import norm

from secagg.privacy.accounting.gaussian_dp import gaussian_delta
from secagg.privacy.accounting.privacy_loss import Pattern, Step, composed

CASES = [
    (1 / 1.1, 0.01, 1000),
    (0.5, 0.1, 500),
    (1.25, 0.001, 3000),
    (0.2, 0.5, 100),
    (1.4, 0.02, 1),
]
EPSILONS = (0.0, 0.1, 0.5, 1.0, 3.0)


def delta(
    pattern: Pattern, mu: float, rate: float, count: int, epsilon: float, nu: float = 0.0
) -> float:
    return composed((Step(pattern, mu, rate, nu, count),), 0.0).delta(epsilon)


def exact_one(pattern: str, mu: float, rate: float, epsilon: float) -> float:
    """Return delta of one release: the likelihood ratio is monotone in x, so there is one root."""
    a = math.exp(epsilon)
    if pattern == "remove":  # P = mixture exceeds a Q where x is above the root
        x = (math.log((a - 1 + rate) / rate) + mu**2 / 2) / mu
        return float((1 - rate - a) * ndtr(-x) + rate * ndtr(mu - x))
    share = (1 / a - 1 + rate) / rate  # P = N(0) exceeds a times the mixture below the root
    if share <= 0:
        return 0.0
    x = (math.log(share) + mu**2 / 2) / mu
    return float(ndtr(x) - a * ((1 - rate) * ndtr(x) + rate * ndtr(x - mu)))


@pytest.mark.parametrize("pattern", ["remove", "add"])
@pytest.mark.parametrize(("mu", "rate"), [(0.5, 0.1), (2.0, 0.01), (0.05, 0.7), (3.0, 0.5)])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_one_release_is_exact_up_to_the_grid(
    pattern: Pattern, mu: float, rate: float, epsilon: float
) -> None:
    exact, found = exact_one(pattern, mu, rate, epsilon), delta(pattern, mu, rate, 1, epsilon)
    # The grid has 60 points in a standard deviation s of the loss, so a chord of the curve is above
    # it by at most (s / 60)^2 / 8 times the density of the loss, of size 1 / s.
    assert exact <= found <= exact * 1.002 + 1e-6 * mu * rate + 1e-9


@pytest.mark.parametrize("epsilon", [0.2, 1.0])
@pytest.mark.parametrize("pattern", ["remove", "add"])
def test_two_releases_agree_with_quadrature(pattern: Pattern, epsilon: float) -> None:
    mu, rate = 1.5, 0.3
    x = np.linspace(-9, 11, 4001)
    one = norm.pdf(x)
    mixture = (1 - rate) * one + rate * norm.pdf(x - mu)
    p, q = (mixture, one) if pattern == "remove" else (one, mixture)
    apart = np.maximum(np.outer(p, p) - math.exp(epsilon) * np.outer(q, q), 0)
    exact = float(np.trapezoid(np.trapezoid(apart, x), x))
    assert exact * (1 - 1e-5) <= delta(pattern, mu, rate, 2, epsilon) <= exact * 1.002 + 1e-10


@pytest.mark.oracle
@pytest.mark.parametrize(("mu", "rate", "count"), CASES)
def test_many_releases_agree_with_dp_accounting(mu: float, rate: float, count: int) -> None:
    """Ours is an upper bound; its estimate is within a part in 500 of theirs, which is one too."""
    theirs, low = (
        privacy_loss_distribution.from_gaussian_mechanism(
            1 / mu, sampling_prob=rate, value_discretization_interval=1e-4,
            pessimistic_estimate=pessimistic, use_connect_dots=pessimistic,
        ).self_compose(count) for pessimistic in (True, False)
    )  # fmt: skip
    for epsilon in EPSILONS:
        found = max(delta(pattern, mu, rate, count, epsilon) for pattern in ("remove", "add"))
        assert found >= low.get_delta_for_epsilon(epsilon)
        expected = theirs.get_delta_for_epsilon(epsilon)
        assert found == pytest.approx(expected, rel=2e-3, abs=2e-8)


@pytest.mark.parametrize("pattern", ["remove", "add", "replace"])
def test_with_rate_one_it_is_the_gaussian(pattern: Pattern) -> None:
    for count in (1, 7):
        for epsilon in EPSILONS:
            found = delta(pattern, 0.6, 1.0, count, epsilon, nu=0.6)
            exact = gaussian_delta(0.6 * math.sqrt(count), epsilon)
            assert exact <= found <= exact * 1.002 + 1e-9


@pytest.mark.oracle
@pytest.mark.parametrize("angle", [0.3, 1.5, 2.6, math.pi])
@pytest.mark.parametrize("rate", [0.05, 0.5, 0.9])
@pytest.mark.parametrize("epsilon", [0.0, 0.2, 1.0])
def test_the_bound_for_replacing_holds_for_records_at_any_angle(
    angle: float, rate: float, epsilon: float
) -> None:
    """In the plane of the two records, by quadrature; both records have the largest norm."""
    mu = 1.2
    x, y = np.meshgrid(np.linspace(-7, 8, 901), np.linspace(-8, 8, 901), indexing="ij")

    def mixture(a: float, b: float) -> np.ndarray:
        return (1 - rate) * norm.pdf(x) * norm.pdf(y) + rate * norm.pdf(x - a) * norm.pdf(y - b)

    a, b = mu * math.cos(angle), mu * math.sin(angle)
    apart = np.maximum(mixture(mu, 0.0) - math.exp(epsilon) * mixture(a, b), 0)
    exact = float(np.trapezoid(np.trapezoid(apart, dx=16 / 900), dx=15 / 900))
    nu = math.hypot(mu - a, b)
    found = delta("replace", mu, rate, 1, epsilon, nu=nu)
    assert found >= exact * (1 - 1e-4) - 1e-12
    if angle == math.pi and epsilon == 0:  # the total variation: convexity loses nothing
        assert found == pytest.approx(exact, rel=5e-3)


def test_releases_of_all_records_are_added_exactly() -> None:
    steps = (Step("remove", 0.5, 0.05, 0.0, 200), Step("remove", 1.0, 0.01, 0.0, 50))
    theirs = privacy_loss_distribution.from_gaussian_mechanism(
        2.0, sampling_prob=0.05, value_discretization_interval=1e-4
    ).self_compose(200)
    for other in (
        privacy_loss_distribution.from_gaussian_mechanism(
            1.0, sampling_prob=0.01, value_discretization_interval=1e-4
        ).self_compose(50),
        privacy_loss_distribution.from_gaussian_mechanism(
            1 / 0.7, value_discretization_interval=1e-4
        ),
    ):
        theirs = theirs.compose(other)
    found = max(
        composed(tuple(Step(p, s.mu, s.rate, 0.0, s.count) for s in steps), 0.7).delta(1.0)
        for p in ("remove", "add")
    )
    assert found == pytest.approx(theirs.get_delta_for_epsilon(1.0), rel=2e-3)


def test_more_releases_records_or_less_noise_cost_more() -> None:
    base = delta("remove", 0.7, 0.03, 300, 0.7)
    assert base < delta("remove", 0.7, 0.03, 360, 0.7)
    assert base < delta("remove", 0.7, 0.035, 300, 0.7)
    assert base < delta("remove", 0.77, 0.03, 300, 0.7)


@pytest.mark.parametrize(("mu", "rate", "count"), CASES)
def test_epsilon_is_the_inverse_of_delta(mu: float, rate: float, count: int) -> None:
    law = composed((Step("remove", mu, rate, 0.0, count),), 0.0)
    for target in (1e-3, 1e-6):
        epsilon = law.epsilon(target)
        assert law.delta(epsilon) <= target
        assert epsilon == 0 or law.delta(epsilon * (1 - 1e-6)) > target


def test_a_delta_below_the_rounding_of_the_transform_has_no_epsilon() -> None:
    assert composed((Step("remove", 1.0, 0.01, 0.0, 1000),), 0.0).epsilon(1e-18) == math.inf
