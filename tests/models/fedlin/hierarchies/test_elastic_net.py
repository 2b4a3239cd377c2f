"""The elastic net's hierarchy of HM2: its constant, and moments against quadrature and limits."""

import numpy as np
import pytest
from numpy.typing import NDArray
from oracles.penalised_factor import Factor, log_constant, log_factor, tilted_moments
from support.fedlin.penalised_world import regression, sums, vague
from support.fedlin.plain_ep import propagate

from secagg.models.fedlin.hierarchies.base import SufficientStatistics
from secagg.models.fedlin.hierarchies.elastic_net import ElasticNet, ElasticPenalty
from secagg.models.fedlin.hierarchies.lasso import Lasso
from secagg.models.fedlin.hierarchies.penalised_moments import SamplerBudget
from secagg.models.fedlin.hierarchies.ridge import Ridge
from secagg.models.numerics.natural_gaussian import Natural

Array = NDArray[np.float64]

SHORT = SamplerBudget(sweeps=8, most=1)
RATES = [(1.0, 1.0), (0.01, 3.0), (5.0, 1e-4), (30.0, 0.5), (1e-3, 1e-3), (1.0, 1e6), (1e3, 1e-9)]


@pytest.mark.parametrize(("l1", "l2"), RATES)
def test_the_constant_and_the_means_agree_with_quadrature(l1: float, l2: float) -> None:
    phi, rates = np.array([np.log(l1), np.log(l2), 0.7]), (np.array([l1]), np.array([l2]))
    penalty = ElasticPenalty()
    assert penalty.rates(phi) == pytest.approx((l1, l2))
    constant = log_constant(*rates)[0]
    assert penalty.log_constant(phi) == pytest.approx(constant, abs=1e-10)
    first, second = (np.exp(log_constant(*rates, power)[0] - constant) for power in (1, 2))
    assert np.allclose(penalty.expected(phi), [l1 * first, l2 * second / 2], rtol=1e-8, atol=1e-10)


def test_the_gradient_of_the_log_constant_is_the_means() -> None:
    """Also far out, where quadrature is not to be had; nothing overflows."""
    penalty, step = ElasticPenalty(), 1e-5
    for a, b in ((0.0, 0.0), (8.0, -3.0), (20.0, -20.0), (-20.0, 20.0), (6.9, 0.0), (7.3, 0.0)):
        phi = np.array([a, b, 0.0])
        values = [
            [penalty.log_constant(phi + sign * step * np.eye(3)[i]) for sign in (1, -1)]
            for i in (0, 1)
        ]
        slopes = [(up - down) / (2 * step) for up, down in values]
        assert np.allclose(-np.array(slopes), penalty.expected(phi), atol=1e-8)


def log_density(*sites: SufficientStatistics) -> Factor:
    """Return the log of the sites' factors' product, for one coefficient or two."""

    def found(phi: Array) -> Array:
        l1, l2 = np.exp(phi[:, 0]), np.exp(phi[:, 1])
        constant = log_constant(l1, l2)
        return sum(
            log_factor(site, l1, l2, phi[:, 2]) - len(site.cross) * constant for site in sites
        )

    return found


@pytest.mark.oracle
@pytest.mark.parametrize(("n", "cavity"), [(20, vague(1.0, 3)), (2, vague(0.7, 3))])
def test_tilted_moments_agree_with_quadrature(n: int, cavity: Natural) -> None:
    site = sums(*regression(n, 1, seed=n))
    mean, cov = tilted_moments(log_density(site), cavity, 31)
    net = ElasticNet(effort=SHORT)
    found = [net.tilted(site, cavity, np.random.default_rng(seed)) for seed in range(24)]
    upper = np.triu_indices(3)
    for values, exact in (
        (np.array([each.mean for each in found]), mean),
        (np.array([each.cov[upper] for each in found]), cov[upper]),
    ):
        z = (values.mean(axis=0) - exact) / (values.std(axis=0, ddof=1) / np.sqrt(24))
        assert np.max(np.abs(z)) < 5.8  # t with 23 degrees of freedom
    errors = np.sqrt(np.mean([each.error**2 for each in found], axis=0))
    ratio = np.std([each.mean for each in found], axis=0, ddof=1) / errors
    assert np.all(np.abs(ratio - 1) < 4.5 * 0.15)


@pytest.mark.parametrize("lost", ["l1", "l2"])
def test_without_one_penalty_results_are_those_of_the_other(lost: str) -> None:
    """log l1 or log l2 held at -25: the other and log s are as under ridge or the lasso."""
    site = sums(*regression(30, 3, seed=8))
    gone = 0 if lost == "l1" else 1
    means, sds = np.zeros(3), np.ones(3)
    means[gone], sds[gone] = -25.0, 1e-3
    cavity = Natural.of(means, np.diag(sds**2))
    found = ElasticNet(effort=SamplerBudget(error=0.005)).tilted(
        site, cavity, np.random.default_rng(1)
    )
    other = (Ridge() if lost == "l1" else Lasso(effort=SamplerBudget(error=0.005))).tilted(
        site, vague(1.0), np.random.default_rng(2)
    )
    kept = [i for i in range(3) if i != gone]
    error = np.hypot(found.error[kept], other.error)
    assert np.all(np.abs(found.mean[kept] - other.mean) < 4.5 * error)
    assert np.allclose(found.cov[np.ix_(kept, kept)], other.cov, atol=0.05 * np.max(other.cov))
    assert found.mean[gone] == pytest.approx(-25, abs=1e-3)


@pytest.mark.oracle
def test_expectation_propagation_agrees_with_the_pooled_posterior() -> None:
    """EP's own error: means within .02 sd of the posterior, sds .5 % (s), 5 and 8 % too small.

    With each site's moments by quadrature in place of draws it was the same. One coefficient says
    little about two penalties, and a density that is far from normal is taken for one.
    """
    sites = [sums(*regression(8, 1, seed=k)) for k in range(10)]
    found, cov = propagate(ElasticNet(), sites, 4, 0.9, np.random.default_rng(1)).moments()
    exact, spread = tilted_moments(log_density(*sites), vague(1.0, 3), 25)
    sd = np.sqrt(np.diagonal(spread))
    assert np.all(np.abs(found - exact) < 0.05 * sd)
    assert np.allclose(np.sqrt(np.diagonal(cov)), sd, rtol=0.12)
