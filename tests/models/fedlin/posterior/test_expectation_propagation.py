"""Federated expectation propagation: steps, guards, and where rounds end.

Factors that are normal are found exactly; of the hierarchy with one term the posterior is known by
quadrature. Of that, a normal approximation of each factor is off by a small share of a standard
deviation, which is stated.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from support.fedlin.ep_rounds import one_term, run

from secagg.models.fedlin.hierarchies.base import (
    PosteriorDraws,
    SufficientStatistics,
    TiltedMoments,
)
from secagg.models.fedlin.hierarchies.normal import NormalHierarchy
from secagg.models.fedlin.posterior.expectation_propagation import (
    Change,
    damping_factor,
    next_damping_limit,
    site_change,
    step_norm,
)
from secagg.models.numerics.natural_gaussian import Natural

Array = NDArray[np.float64]
ANY = SufficientStatistics(np.eye(2), np.ones(2), 1.0, 5, 1.0)


def density(rng: np.random.Generator, size: int = 2) -> Natural:
    root = rng.standard_normal((size, size + 2))
    return Natural.of(rng.standard_normal(size), root @ root.T)


@dataclass(frozen=True)
class Made:
    """A hierarchy whose tilted moments are a function of the cavity; p(phi) = N(0, I)."""

    powers: ClassVar[tuple[float, ...]] = (1.0,)
    moments: Callable[[SufficientStatistics, Natural], tuple[Array, Array]]

    def components(self, terms: tuple[str, ...]) -> tuple[str, ...]:
        return terms

    def prior(self, d: int) -> Natural:
        return Natural(np.zeros(2), np.eye(2))

    def tilted(
        self, site: SufficientStatistics, cavity: Natural, rng: np.random.Generator
    ) -> TiltedMoments:
        return TiltedMoments(*self.moments(site, cavity), np.full(len(cavity.r), 0.25))

    def draw(
        self, site: SufficientStatistics, cavity: Natural, many: int, rng: np.random.Generator
    ) -> PosteriorDraws:
        raise NotImplementedError


NOTHING = Natural(np.zeros(2), np.zeros((2, 2)))
NORMAL = Made(lambda site, cavity: (cavity + Natural(site.cross, site.gram)).moments())
"""A site's factor is exp(cross' phi - phi' gram phi / 2)."""


def changed(made: Made, q: Natural, own: Natural, bits: int = 30) -> Change:
    return site_change(made, ANY, q, own, bits, np.random.default_rng(0))


def test_a_change_is_a_whole_number_of_steps() -> None:
    rng = np.random.default_rng(0)
    own = density(rng).times(0.1)
    q = density(rng) + own
    change = changed(NORMAL, q, own)
    for found, want in ((change.step.r, ANY.cross - own.r), (change.step.Q, ANY.gram - own.Q)):
        np.testing.assert_allclose(found, want, rtol=0, atol=0.6 * 2.0**-30)
        assert np.array_equal(found * 2.0**30, np.round(found * 2.0**30))
    assert np.array_equal(change.step.Q, change.step.Q.T)
    assert not change.strained
    sd = np.sqrt(np.diagonal((q - own + Natural(ANY.cross, ANY.gram)).moments()[1]))
    np.testing.assert_allclose(change.error, 0.25 / sd)


def failing(site: SufficientStatistics, cavity: Natural) -> tuple[Array, Array]:
    raise np.linalg.LinAlgError("no moments")


@pytest.mark.parametrize(
    "moments",
    [
        failing,
        lambda site, cavity: (np.zeros(2), np.ones((2, 2)) - np.diag([0, 1.0])),
        lambda site, cavity: (np.array([np.nan, 0.0]), np.eye(2)),
    ],
)
def test_a_site_without_moments_sends_zero_and_is_marked(
    moments: Callable[[SufficientStatistics, Natural], tuple[Array, Array]],
) -> None:
    with np.errstate(invalid="ignore"):
        change = changed(Made(moments), Natural(np.zeros(2), np.eye(2)), NOTHING)
    assert change.strained
    assert not change.step.r.any()
    assert not change.step.Q.any()
    assert not change.error.any()


@pytest.mark.parametrize(("too_much", "left"), [(1.5, 0.5), (3.0, 0.25), (7.0, 0.125), (99.0, 0.0)])
def test_a_smaller_share_of_a_factor_is_removed_if_no_cavity_remains(
    too_much: float, left: float
) -> None:
    seen = []

    def moments(site: SufficientStatistics, cavity: Natural) -> tuple[Array, Array]:
        seen.append(cavity)
        return (cavity + Natural(site.cross, site.gram)).moments()

    own = Natural(np.zeros(2), np.diag([too_much, 0.0]))
    change = changed(Made(moments), Natural(np.zeros(2), np.eye(2)), own)
    np.testing.assert_allclose(seen[0].Q, np.diag([1 - left * too_much, 1.0]), atol=1e-12)
    assert change.strained
    np.testing.assert_allclose(own.Q + change.step.Q, ANY.gram, atol=1e-8)


class Powered(Made):
    """The same, of a factor that can be taken to a power."""

    powers: ClassVar[tuple[float, ...]] = (1.0, 0.5, 0.25)


@pytest.mark.parametrize(("too_much", "power"), [(1.5, 0.5), (3.0, 0.25)])
def test_updates_by_a_power_of_a_normal_factor_are_exact(too_much: float, power: float) -> None:
    """A normal factor is found exactly, as it is from its whole."""

    def moments(site: SufficientStatistics, cavity: Natural) -> tuple[Array, Array]:
        assert site.power == power
        np.testing.assert_allclose(cavity.Q, np.diag([1 - power * too_much, 1.0]), atol=1e-12)
        return (cavity + Natural(site.cross, site.gram).times(site.power)).moments()

    own = Natural(np.zeros(2), np.diag([too_much, 0.0]))
    change = changed(Powered(moments), Natural(np.zeros(2), np.eye(2)), own)
    assert not change.strained
    np.testing.assert_allclose(own.Q + change.step.Q, ANY.gram, atol=1e-8)
    np.testing.assert_allclose(change.step.r, ANY.cross, atol=1e-8)
    left = Natural(np.zeros(2), np.diag([1 - power * too_much, 1.0]))
    sd = np.sqrt(np.diagonal((left + Natural(ANY.cross, ANY.gram).times(power)).moments()[1]))
    np.testing.assert_allclose(change.error, 0.25 / sd / power)  # q moves by 1 / power times it


def test_a_site_without_records_sends_zero_and_is_not_marked() -> None:
    empty = SufficientStatistics(np.zeros((2, 2)), np.zeros(2), 0.0, 0, 1.0)
    q = density(np.random.default_rng(1))
    change = site_change(NORMAL, empty, q, q.times(0.0), 30, np.random.default_rng(0))
    assert not change.strained
    assert not change.step.Q.any()


@pytest.mark.parametrize(
    ("change", "share"),
    [
        (np.zeros((2, 2)), 1.0),
        (np.diag([8.9, 0.0]), 1.0),  # a precision tenfold
        (np.diag([9.1, 0.0]), 0.5),
        (np.diag([0.0, -0.89]), 1.0),  # a variance tenfold
        (np.diag([0.0, -0.91]), 0.5),
        (np.diag([0.0, -7.0]), 0.125),  # 1 - 7 / 8
        (np.diag([0.0, -1000.0]), 2.0**-11),
    ],
)
def test_no_variance_changes_more_than_tenfold(change: Array, share: float) -> None:
    root = np.array([[2.0, 0.0], [-3.0, 0.1]])  # whatever the units and directions are
    q = Natural(np.zeros(2), root @ root.T)
    total = Natural(np.zeros(2), root @ change @ root.T)
    assert damping_factor(q, total, 1.0) == share
    assert damping_factor(q, total, 0.25) == min(share, 0.25)
    assert (q + total.times(share)).proper


def test_the_largest_share_is_halved_if_rounds_oscillate() -> None:
    assert next_damping_limit(1.0, 1.0, step=0.5, before=0.3) == 0.5
    assert next_damping_limit(0.25, 0.25, step=0.5, before=0.3) == 0.125
    assert next_damping_limit(0.125, 0.125, step=0.5, before=0.3) == 0.125
    assert next_damping_limit(0.05, 0.05, step=0.5, before=0.3) == 0.05  # as a user had it
    for share, far, before in ((1.0, 0.3, 0.5), (0.5, 0.5, 0.3), (1.0, 3.0, 2.0), (1.0, 0.5, None)):
        assert next_damping_limit(1.0, share, far, before) == 1.0


def test_the_movement_of_q_is_in_standard_deviations() -> None:
    C = np.array([[4.0, 1.0], [1.0, 9.0]])
    before = Natural.of(np.zeros(2), C)
    assert step_norm(before, before) < 1e-12
    assert step_norm(before, Natural.of(np.array([0.1, 0.6]), C)) == pytest.approx(0.2)
    assert step_norm(before, Natural.of(np.zeros(2), 4 * C)) == pytest.approx(np.log(2))
    assert step_norm(Natural.of(np.zeros(2), 4 * C), before) == pytest.approx(np.log(2))


def test_normal_factors_are_recovered_up_to_rounding() -> None:
    """With normal factors q is p(phi) times all of them, to the rounding of the last changes."""
    rng = np.random.default_rng(2)
    factors = [density(rng) for _ in range(5)]
    sites = [SufficientStatistics(each.Q, each.r, 0.0, 3, 1.0) for each in factors]
    ended = run(NORMAL, sites, tolerance=1e-9)
    exact = sum(factors, NORMAL.prior(2))
    assert step_norm(ended.q, exact) < 1e-8
    assert ended.rounds < 10
    coarse = run(NORMAL, sites, tolerance=0.0, most=15, bits=4)  # sums of sixteenths are exact
    product = sum(coarse.factors, NORMAL.prior(2))
    assert np.array_equal(product.Q, coarse.q.Q)
    assert np.array_equal(product.r, coarse.q.r)


def hierarchical(
    rng: np.random.Generator, K: int, mu: Array, tau: Array, n: int = 6, noise: float = 0.5
) -> list[SufficientStatistics]:
    """Draw sites of example 4.1."""
    sites = []
    for _ in range(K):
        X = rng.standard_normal((n, len(mu)))
        theta = mu + np.sqrt(tau) * rng.standard_normal(len(mu))
        y = X @ theta + noise * rng.standard_normal(n)
        sites.append(SufficientStatistics(X.T @ X, X.T @ y, float(y @ y), n, noise**2))
    return sites


def quadrature(sites: list[SufficientStatistics], points: int = 401) -> tuple[Array, Array]:
    """Return moments of (mu, log tau) of one term: least squares b_k ~ N(mu, tau + s^2 / x'x)."""
    mu, log_tau = np.meshgrid(np.linspace(-4, 4, points), np.linspace(-6, 4, points))
    log = -(mu**2) / 2 - log_tau**2 / 2
    for site in sites:
        x = site.gram[0, 0]
        variance = np.exp(log_tau) + site.variance / x
        log -= np.log(variance) / 2 + (site.cross[0] / x - mu) ** 2 / (2 * variance)
    w = np.exp(log - log.max()).ravel()
    w /= w.sum()
    both = np.array([mu.ravel(), log_tau.ravel()])
    mean = both @ w
    return mean, (both - mean[:, None]) * w @ (both - mean[:, None]).T


BY_GRID = Made(
    lambda site, cavity: one_term(
        site.cross[0] / site.gram[0, 0], site.variance / site.gram[0, 0], *cavity.moments()
    )
)
"""Example 4.1 with one term: moments by quadrature."""


@pytest.mark.oracle
@pytest.mark.parametrize("K", [3, 8, 30])
def test_one_term_converges_as_with_exact_moments(K: int) -> None:
    """A normal density for each factor costs up to 10 % of sds where sites are few, so here."""
    sites = hierarchical(np.random.default_rng(K), K, np.array([0.7]), np.array([0.6]))
    ended, by_grid = (run(each, sites, 1e-3) for each in (NormalHierarchy(), BY_GRID))
    assert max(ended.far, by_grid.far) <= 1e-3
    # Monte Carlo's bias, 2 / n, and the tolerance, twice
    assert step_norm(by_grid.q, ended.q) < 0.01
    mean, cov = quadrature(sites)
    found, spread = by_grid.q.moments()
    sd = np.sqrt(np.diagonal(cov))
    assert np.all(np.abs(found - mean) < 0.03 * sd)
    assert np.all(np.abs(np.sqrt(np.diagonal(spread)) / sd - 1) < (0.1 if K < 10 else 0.04))


@pytest.mark.statistical
def test_intervals_have_their_coverage_over_data_sets() -> None:
    """Truths from the prior, records from truths: 90 % intervals hold 90 % of these.

    Each of 4 components is a trial for each data set, and each coefficient of one site; trials
    of a data set may depend, so their number is taken as that of data sets in the error.
    """
    rng, z, sets = np.random.default_rng(5), 1.6449, 120
    hierarchy, shared, own = NormalHierarchy(), [], []
    for _ in range(sets):
        mu, tau = rng.standard_normal(2), np.exp(rng.standard_normal(2))
        theta = mu + np.sqrt(tau) * rng.standard_normal(2)
        X = rng.standard_normal((3, 2))
        y = X @ theta + 0.5 * rng.standard_normal(3)
        first = SufficientStatistics(X.T @ X, X.T @ y, float(y @ y), 3, 0.25)
        sites = [first, *hierarchical(rng, 4, mu, tau)]
        ended = run(hierarchy, sites, tolerance=0.05)
        mean, cov = ended.q.moments()
        truth = np.concatenate([mu, np.log(tau)])
        shared.append(np.abs(mean - truth) < z * np.sqrt(np.diagonal(cov)))
        drawn = hierarchy.draw(first, ended.q - ended.factors[0], 1000, rng).theta
        low, high = np.quantile(drawn, [0.05, 0.95], axis=0)
        own.append((low < theta) & (theta < high))
    for held in (np.array(shared), np.array(own)):
        off = np.abs(held.mean(axis=0) - 0.9)
        assert np.all(off < 4.5 * np.sqrt(0.09 / sets))
        assert abs(held.mean() - 0.9) < 0.01 + 3 * np.sqrt(0.09 / sets)
