"""A newcomer's posterior against quadrature, and its predictions against what they promise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad

from secagg.models.horseshoe import NoisePrior
from secagg.models.newcomer import predict, welcome

PRIOR = NoisePrior(shape=3.0, scale=2.0)
DRAWS = 20_000


def records(m: int, slope: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(m)
    z = np.column_stack([slope * x + rng.standard_normal(m), x])
    return z - z.mean(axis=0)


def by_quadrature(theta: float, t: float, z: np.ndarray) -> tuple[float, float]:
    """Return mean and variance of theta_*: lambda by adaptive quadrature, s in closed form."""
    degrees = len(z) - 1
    grid = np.linspace(-12, 12, 6001)

    def prior(value: float) -> float:
        def at(angle: float) -> float:  # lambda = tan(angle), uniform
            w = np.tan(angle) ** 2 * t
            return float(np.exp(-((value - theta) ** 2) / 2 / w) / np.sqrt(w))

        return quad(at, 1e-9, np.pi / 2 - 1e-9, limit=200)[0]

    left = np.sum((z[:, 0] - grid[:, None] * z[:, 1]) ** 2, axis=1)
    weight = np.array([prior(v) for v in grid])
    weight *= (PRIOR.scale + left / 2) ** -(PRIOR.shape + degrees / 2)
    weight /= weight.sum()
    mean = float(weight @ grid)
    return mean, float(weight @ (grid - mean) ** 2)


@pytest.mark.parametrize(("m", "slope"), [(4, 0.8), (12, -1.5), (30, 0.5)])
def test_the_posterior_is_that_of_quadrature(m: int, slope: float) -> None:
    theta, t, z = 0.5, 0.3, records(m, slope, m)
    rng = np.random.default_rng(1)
    common = np.full((DRAWS, 1), theta), np.full((DRAWS, 1), t)
    found = welcome(*common, z, PRIOR, 60, rng)
    mean, variance = by_quadrature(theta, t, z)
    drawn = found.theta[:, 0]
    assert abs(drawn.mean() - mean) < 4.5 * np.sqrt(variance / DRAWS)
    fourth = np.mean((drawn - mean) ** 4)
    assert abs(drawn.var() - variance) < 4.5 * np.sqrt((fourth - variance**2) / DRAWS)
    assert found.has_settled


def test_without_records_it_is_the_prior_around_the_common_draws() -> None:
    rng = np.random.default_rng(2)
    theta, t = rng.standard_normal((DRAWS, 2)), np.array([0.01, 4.0]) * np.ones((DRAWS, 1))
    found = welcome(theta, t, np.zeros((0, 3)), PRIOR, 4, rng)
    share = (found.theta - theta) / np.sqrt(t)  # a horseshoe: half of it is within its median
    fresh = np.abs(rng.standard_cauchy((DRAWS, 2)) * rng.standard_normal((DRAWS, 2)))
    for middle, inside in zip(np.median(fresh, axis=0), np.abs(share).T, strict=True):
        assert abs(np.mean(inside < middle) - 0.5) < 4.5 * np.sqrt(2 * 0.25 / DRAWS)


def test_too_few_sweeps_are_noticed() -> None:
    """Many precise records, far from where the run's sites are: the start is forgotten slowly."""
    rng = np.random.default_rng(3)
    z = records(400, 8.0, 5)
    common = np.zeros((DRAWS, 1)), np.full((DRAWS, 1), 1e-8)
    assert not welcome(*common, z, PRIOR, 2, rng).has_settled


def test_predictions_cover_what_they_promise() -> None:
    """Newcomers from the model itself: 90 % intervals hold 90 % of further records."""
    rng, inside, m = np.random.default_rng(4), [], 6
    for _ in range(400):
        t = np.full(2, 0.2)
        theta = rng.standard_normal(2)
        own = theta + np.sqrt(t) * rng.standard_cauchy(2) * rng.standard_normal(2)
        s = PRIOR.scale / rng.standard_gamma(PRIOR.shape)
        x = rng.standard_normal((m + 1, 2))
        y = 3.0 + x @ own + np.sqrt(s) * rng.standard_normal(m + 1)
        z = np.column_stack([y, x])
        centre = z[:m].mean(axis=0)
        common = np.tile(theta, (400, 1)), np.tile(t, (400, 1))
        found = welcome(*common, z[:m] - centre, PRIOR, 30, rng)
        drawn = predict(found, z[m:, 1:] - centre[1:], m, rng)[:, 0] + centre[0]
        inside.append(np.quantile(drawn, 0.05) < y[m] < np.quantile(drawn, 0.95))
    assert abs(np.mean(inside) - 0.9) < 4 * np.sqrt(0.9 * 0.1 / 400)
