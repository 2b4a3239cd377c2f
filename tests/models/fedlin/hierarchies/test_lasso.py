"""The lasso's hierarchy of HM2: moments and draws against quadrature over theta and phi.

Tolerances are Monte Carlo errors: those claimed, whose honesty has a test of its own, or those seen
among repetitions.
"""

import numpy as np
import pytest
from numpy.typing import NDArray
from oracles.penalised_factor import Factor, log_factor, tilted_moments
from support.fedlin.penalised_world import regression, sums, vague
from support.fedlin.plain_ep import propagate

from secagg.models.fedlin.hierarchies.base import SufficientStatistics, TiltedMoments
from secagg.models.fedlin.hierarchies.lasso import Lasso
from secagg.models.fedlin.hierarchies.penalised_moments import SamplerBudget
from secagg.models.numerics.natural_gaussian import Natural

Array = NDArray[np.float64]

SHORT = SamplerBudget(sweeps=8, most=1)
ELSEWHERE = Natural.of(np.array([1.0, -0.5]), np.array([[0.3, -0.1], [-0.1, 0.2]]))
MOST = 4.5  # standard errors: of some 100 comparisons, one of 1000 runs has a larger one by chance


def log_density(*sites: SufficientStatistics) -> Factor:
    """Return the log of the sites' factors' product."""

    def found(phi: Array) -> Array:
        l1, none = np.exp(phi[:, 0]), np.zeros(len(phi))
        constants = sum(len(site.cross) for site in sites) * (phi[:, 0] - np.log(2))
        return constants + sum(log_factor(site, l1, none, phi[:, 1]) for site in sites)

    return found


def repeated(
    site: SufficientStatistics, cavity: Natural, effort: SamplerBudget, times: int
) -> list[TiltedMoments]:
    lasso = Lasso(effort=effort)
    return [lasso.tilted(site, cavity, np.random.default_rng(seed)) for seed in range(times)]


def z_scores(values: Array, exact: Array) -> Array:
    """Return how far the mean of repetitions is from what it should be, in its standard errors."""
    return (values.mean(axis=0) - exact) / (values.std(axis=0, ddof=1) / np.sqrt(len(values)))


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("n", "d", "cavity"),
    [
        (2, 1, vague(1.0)),
        (40, 2, vague(1.0)),
        (3, 2, vague(2.0)),
        (200, 2, vague(3.0)),
        (40, 2, ELSEWHERE),
    ],
)
def test_tilted_moments_agree_with_quadrature(n: int, d: int, cavity: Natural) -> None:
    """Short runs, so that a bias of few sweeps would show, and their errors are honest."""
    site = sums(*regression(n, d, seed=10 * n + d))
    mean, cov = tilted_moments(log_density(site), cavity, 31)
    found = repeated(site, cavity, SHORT, 24)
    means, covs, errors = (
        np.array([getattr(each, name) for each in found]) for name in ("mean", "cov", "error")
    )
    # 24 repetitions: quantiles of t with 23 degrees of freedom
    assert np.max(np.abs(z_scores(means, mean))) < 5.8
    upper = np.triu_indices(2)
    assert np.max(np.abs(z_scores(covs[:, *upper], cov[upper]))) < 5.8
    # the sd of 24 is within 15 % of itself
    ratio = means.std(axis=0, ddof=1) / np.sqrt(np.mean(errors**2, axis=0))
    assert np.all(np.abs(ratio - 1) < MOST * 0.15)


@pytest.mark.statistical
def test_monte_carlo_error_vanishes_as_the_cavity_outweighs_the_site() -> None:
    """Of means and of covariances: else K sites would add K noises of the whole posterior's."""
    site = sums(*regression(30, 4, seed=1))
    for sd, mean_error, cov_error in ((0.3, 0.02, 0.02), (0.03, 2e-3, 2e-3)):
        found = repeated(site, vague(sd), SHORT, 20)
        means, covs = (
            np.array([getattr(each, name) for each in found]) for name in ("mean", "cov")
        )
        assert np.max(means.std(axis=0)) < mean_error * sd
        assert np.max(covs.std(axis=0)) < cov_error * sd**2
        # plain averages of as many independent draws are worse than 1 / sqrt(512) = .04


@pytest.mark.oracle
def test_draws_agree_with_quadrature_over_theta_and_phi() -> None:
    """One coefficient, a grid of three dimensions, nothing in closed form."""
    X, y = regression(4, 1, seed=7)
    site, many = sums(X, y), 16_000
    theta = np.linspace(-12, 12, 1201)[:, None, None]  # 0 is a point, .31 between two
    a, b = np.linspace(-6, 6, 61)[:, None], np.linspace(-6, 6, 61)
    logs = -(a**2 + b**2) / 2 + a - b / 2 - np.exp(a - b / 2) * np.abs(theta) - len(y) / 2 * b
    logs = logs - np.exp(-b) / 2 * sum(
        (v - x * theta) ** 2 for x, v in zip(X[:, 0], y, strict=True)
    )
    shares = np.exp(logs - logs.max())
    shares /= shares.sum()

    def statistics(theta: Array, a: Array, b: Array) -> list[Array]:
        size = np.abs(theta)
        return [
            theta,
            size**2,
            np.sign(theta),
            size < 0.31,
            a,
            b,
            a * theta,
            b * size,
            a * b,
            a * size,
        ]

    draws = Lasso(effort=SamplerBudget(thin=12)).draw(
        site, vague(1.0), many, np.random.default_rng(1)
    )
    assert draws.theta.shape == (many, 1)
    assert draws.phi.shape == (many, 2)
    for exact, values in zip(
        statistics(theta, a, b), statistics(draws.theta[:, 0], *draws.phi.T), strict=True
    ):
        chains = values.reshape(64, -1).mean(axis=1)
        error = chains.std(ddof=1) / 8
        assert abs(chains.mean() - np.sum(shares * exact)) < 4.8 * error  # t with 63


def test_draws_agree_with_the_moments() -> None:
    site = sums(*regression(60, 8, seed=3))
    found = Lasso().tilted(site, vague(1.0), np.random.default_rng(1))
    draws = Lasso().draw(site, vague(1.0), 6400, np.random.default_rng(2))
    chains = draws.phi.reshape(64, -1, 2).mean(axis=1)
    error = np.hypot(chains.std(axis=0, ddof=1) / 8, found.error)
    assert np.all(np.abs(chains.mean(axis=0) - found.mean) < MOST * error)
    assert np.allclose(draws.phi.std(axis=0), np.sqrt(np.diagonal(found.cov)), rtol=0.1)
    few = [Lasso().draw(site, vague(1.0), 70, np.random.default_rng(2)) for _ in range(2)]
    assert (few[0].theta.shape, few[0].phi.shape) == ((70, 8), (70, 2))
    assert np.array_equal(few[0].theta, few[1].theta)


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["perfect", "units", "far"])
def test_difficult_sites_agree_with_quadrature(name: str) -> None:
    X, y = regression(12, 2, seed=6)
    cavity = vague(1.0)
    if name == "perfect":
        y = X @ np.array([1.0, -2.0])
    elif name == "units":
        X *= [1e-3, 1e3]
    else:
        y = y * 1e4  # the prior says sigma = 1
    site = sums(X, y)
    mean, cov = tilted_moments(log_density(site), cavity, 31)
    means = np.array([each.mean for each in repeated(site, cavity, SHORT, 16)])
    assert np.max(np.abs(z_scores(means, mean))) < 6.3  # t with 15 degrees of freedom
    assert np.max(means.std(axis=0) / np.sqrt(np.diagonal(cov))) < 0.05


@pytest.mark.oracle
@pytest.mark.parametrize(("sites", "n", "d"), [(8, 10, 2), (10, 5, 1)])
def test_expectation_propagation_agrees_with_the_pooled_posterior(
    sites: int, n: int, d: int
) -> None:
    """EP's own error: means within .005 sd of the posterior, sds 1.0 to 1.4 % too small.

    (Our research note found .2 sd, with noisier moments.) Monte Carlo errors of the sites come to
    some .02 sd with other draws, and three times all that is let pass.
    """
    worlds = [sums(*regression(n, d, seed=100 * n + k)) for k in range(sites)]
    found, cov = propagate(Lasso(), worlds, 4, 0.9, np.random.default_rng(1)).moments()
    exact, spread = tilted_moments(log_density(*worlds), vague(1.0), 41)
    sd = np.sqrt(np.diagonal(spread))
    assert np.all(np.abs(found - exact) < 0.06 * sd)
    assert np.allclose(np.sqrt(np.diagonal(cov)), sd, rtol=0.05)
