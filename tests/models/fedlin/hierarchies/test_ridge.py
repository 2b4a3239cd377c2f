"""Ridge regression's hierarchy of HM2: its factor, moments and draws against quadrature."""

import numpy as np
import pytest
from numpy.typing import NDArray
from oracles.penalised_factor import tilted_moments
from support.fedlin.penalised_world import regression, sums, vague
from support.fedlin.plain_ep import propagate

from secagg.models.fedlin.hierarchies.ridge import Ridge
from secagg.models.fedlin.hierarchies.ridge_likelihood import SpectralLeastSquares
from secagg.models.numerics.natural_gaussian import Natural

Array = NDArray[np.float64]
RNG = np.random.default_rng(0)  # tilted() draws nothing


def log_marginal(X: Array, y: Array, phi: Array) -> Array:
    """log N(y | 0, s (I + XX' / lambda)) for phi (many, 2), from the rows."""
    cov = np.eye(len(y)) + (X @ X.T) / np.exp(phi[:, 0])[:, None, None]
    L = np.linalg.cholesky(cov)
    white = np.linalg.solve(L, np.tile(y, (len(phi), 1))[..., None])[..., 0]
    found = -np.sum(white**2, axis=1) / np.exp(phi[:, 1]) - len(y) * np.log(2 * np.pi)
    found -= len(y) * phi[:, 1]
    return found / 2 - np.sum(np.log(np.diagonal(L, axis1=1, axis2=2)), axis=1)


@pytest.mark.parametrize(("n", "d"), [(20, 3), (3, 3), (3, 6), (1, 2)])
def test_the_evidence_is_the_density_of_the_rows(n: int, d: int) -> None:
    X, y = regression(n, d, seed=n)
    found = SpectralLeastSquares.of(sums(X, y))
    phi = np.random.default_rng(1).normal(0, 2, (10, 2))
    values = found.evidence(phi[:, 0], phi[:, 1]) - n / 2 * np.log(2 * np.pi)
    assert np.allclose(values, log_marginal(X, y, phi), rtol=1e-9, atol=1e-9)


def test_gradients_of_the_evidence_are_correct() -> None:
    site, step = SpectralLeastSquares.of(sums(*regression(12, 4, seed=2))), 1e-5
    for phi in np.random.default_rng(1).normal(0, 1, (10, 2)):
        gradient, hessian = site.slopes(phi[0], phi[1])
        moves = [phi + sign * step * np.eye(2) for sign in (1, -1)]
        values = [site.evidence(move[:, 0], move[:, 1]) for move in moves]
        assert np.allclose(gradient, (values[0] - values[1]) / (2 * step), rtol=1e-6, atol=1e-6)
        slopes = [np.array([site.slopes(*at)[0] for at in move]) for move in moves]
        assert np.allclose(hessian, (slopes[0] - slopes[1]) / (2 * step), rtol=1e-6, atol=1e-6)


def test_residuals_of_a_nearly_perfect_fit_keep_their_digits() -> None:
    """|y - X theta|^2 is far below y'y's rounding; as y'y - 2 theta'X'y + ... it would be noise."""
    X, _ = regression(20, 3, seed=1)
    theta = np.array([1e6, -2e6, 3e6])
    site = SpectralLeastSquares.of(sums(X, X @ theta))
    near = theta + 1e-4 * np.array([1, 1, -1])
    assert np.sum((site.R @ near - site.t) ** 2) == pytest.approx(
        float(np.sum((X @ (near - theta)) ** 2)), rel=1e-3
    )


@pytest.mark.parametrize(
    ("n", "d", "cavity"),
    [
        (30, 3, vague(1.0)),
        (5, 3, vague(1.0)),
        (2, 4, vague(2.0)),
        (40, 2, vague(2.0)),
        (30, 3, Natural.of(np.array([1.0, -0.5]), np.array([[0.3, -0.1], [-0.1, 0.2]]))),
    ],
)
def test_tilted_moments_agree_with_the_density_of_the_rows(n: int, d: int, cavity: Natural) -> None:
    X, y = regression(n, d, seed=n + d)
    found = Ridge().tilted(sums(X, y), cavity, RNG)
    mean, cov = tilted_moments(lambda phi: log_marginal(X, y, phi), cavity, 61)
    sd = np.sqrt(np.diagonal(cov))
    assert np.all(np.abs(found.mean - mean) < 1e-4 * sd)
    assert np.all(np.abs(found.cov - cov) < 2e-4 * np.outer(sd, sd))
    assert np.all(found.error < 1e-4 * sd)


@pytest.mark.parametrize("n", [30, 2])
def test_draws_follow_the_tilted_density(n: int) -> None:
    """phi has the moments that are claimed; theta given phi is a standard normal, when whitened."""
    X, y = regression(n, 3, seed=4)
    site, many = sums(X, y), 20_000
    found = Ridge().tilted(site, vague(1.0), RNG)
    draws = Ridge().draw(site, vague(1.0), many, np.random.default_rng(3))
    z = (draws.phi - found.mean) @ np.linalg.inv(np.linalg.cholesky(found.cov)).T
    assert np.max(np.abs(z.mean(axis=0))) * np.sqrt(many) < 4.5
    squares = np.stack([z[:, 0] ** 2, z[:, 0] * z[:, 1], z[:, 1] ** 2], axis=1)
    error = squares.std(axis=0) / np.sqrt(many)
    # the grid's interpolation adds .08^2 / 6 = .1 % to the variances
    assert np.all(np.abs(squares.mean(axis=0) - [1, 0, 1]) < 4.5 * error + 0.0011)
    ratio, s = np.exp(draws.phi[:, 0]), np.exp(draws.phi[:, 1])
    A = X.T @ X + ratio[:, None, None] * np.eye(3)
    away = draws.theta - np.linalg.solve(A, np.tile(X.T @ y, (many, 1))[..., None])[..., 0]
    u = (np.swapaxes(np.linalg.cholesky(A), 1, 2) @ away[..., None])[..., 0] / np.sqrt(s)[:, None]
    assert np.max(np.abs(u.mean(axis=0))) * np.sqrt(many) < 4.5
    cov = u.T @ u / many
    assert np.max(np.abs(cov - np.eye(3)) / np.where(np.eye(3), np.sqrt(2), 1)) < 4.5 / many**0.5
    # and is independent of phi
    assert np.max(np.abs(u.T @ z / many)) < 4.5 / np.sqrt(many)


@pytest.mark.parametrize(
    ("name", "most"),
    [("perfect", 0.01), ("collinear", 0.01), ("units", 0.01), ("constant", 0.01), ("wide", 0.05)],
)
def test_difficult_sites_have_finite_and_correct_moments(name: str, most: float) -> None:
    """Moments are finite, and as the trapezoidal rule has them, in sds."""
    X, y = regression(20, 3, seed=5)
    cavity = vague(1.0)
    if name == "perfect":
        y = X @ np.ones(3)
    elif name == "collinear":
        X[:, 2] = X[:, 0]
    elif name == "units":
        X *= [1e3, 1.0, 1e-3]
    elif name == "constant":
        y = np.zeros(20)
    else:
        X, y, cavity = X[:2], y[:2], vague(10.0)
    found = Ridge().tilted(sums(X, y), cavity, RNG)

    def log_density(phi: Array) -> Array:
        return log_marginal(X, y, phi)

    if name == "perfect":  # rows' covariance, of condition 1e16, says nothing
        site = SpectralLeastSquares.of(sums(X, y))
        assert site.left < 1e-12
        log_density = lambda phi: site.evidence(phi[:, 0], phi[:, 1])  # noqa: E731
    mean, cov = tilted_moments(log_density, cavity, 41)
    sd = np.sqrt(np.diagonal(cov))
    assert np.all(np.abs(found.mean - mean) < most * sd)
    assert np.allclose(np.sqrt(np.diagonal(found.cov)), sd, rtol=most)


@pytest.mark.parametrize(("n", "d"), [(20, 2), (5, 2), (3, 6)])
def test_expectation_propagation_agrees_with_the_pooled_posterior(n: int, d: int) -> None:
    """Ten sites, no damping. Found: means within .001 sd, sds at most 1.0 % too small.

    That is the approximation's own error: each site's moments are exact here. Twice that is let
    pass.
    """
    worlds = [regression(n, d, seed=100 * n + k) for k in range(10)]
    sites = [sums(X, y) for X, y in worlds]
    found, cov = propagate(Ridge(), sites, 8, 1.0, RNG).moments()
    rotated = [SpectralLeastSquares.of(site) for site in sites]

    def log_density(phi: Array) -> Array:
        return np.sum([each.evidence(phi[:, 0], phi[:, 1]) for each in rotated], axis=0)

    exact, spread = tilted_moments(log_density, vague(1.0), 81)
    sd = np.sqrt(np.diagonal(spread))
    assert np.all(np.abs(found - exact) < 0.002 * sd)
    assert np.allclose(np.sqrt(np.diagonal(cov)), sd, rtol=0.02)
