"""A new site's posterior against quadrature, and the coverage of its predictions."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import hyperu

from secagg.models.sparse_bayes.horseshoe import NoisePrior
from secagg.models.sparse_bayes.new_site import NewSiteDraws, fit_new_site, have_moments, predict

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
    grid = np.linspace(-12, 12, 2001)

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
def test_the_posterior_agrees_with_quadrature(m: int, slope: float) -> None:
    theta, t, z = 0.5, 0.3, records(m, slope, m)
    rng = np.random.default_rng(1)
    common = np.full((DRAWS, 1), theta), np.full((DRAWS, 1), t)
    found = fit_new_site(*common, z, PRIOR, 60, rng)
    mean, variance = by_quadrature(theta, t, z)
    drawn = found.theta[:, 0]
    assert abs(drawn.mean() - mean) < 4.5 * np.sqrt(variance / DRAWS)
    fourth = np.mean((drawn - mean) ** 4)
    assert abs(drawn.var() - variance) < 4.5 * np.sqrt((fourth - variance**2) / DRAWS)
    assert found.has_converged


def test_without_records_the_posterior_is_the_prior() -> None:
    rng = np.random.default_rng(2)
    theta, t = rng.standard_normal((DRAWS, 2)), np.array([0.01, 4.0]) * np.ones((DRAWS, 1))
    found = fit_new_site(theta, t, np.zeros((0, 3)), PRIOR, 4, rng)
    share = (found.theta - theta) / np.sqrt(t)  # a horseshoe: half of it is within its median
    fresh = np.abs(rng.standard_cauchy((DRAWS, 2)) * rng.standard_normal((DRAWS, 2)))
    for middle, inside in zip(np.median(fresh, axis=0), np.abs(share).T, strict=True):
        assert abs(np.mean(inside < middle) - 0.5) < 4.5 * np.sqrt(2 * 0.25 / DRAWS)


def horseshoe(value: np.ndarray) -> np.ndarray:
    """Its density with t = 1, up to a factor: exp(z) E1(z), z = value^2 / 2."""
    return hyperu(1.0, 1.0, value**2 / 2)


def order(density: Callable[[float], float], far: float) -> float:
    """Return d log density / d log theta far out."""
    return float(np.log(density(2 * far) / density(far)) / np.log(2))


@pytest.mark.parametrize("a", [0.01, 1.0])
@pytest.mark.parametrize("m", [1, 2, 5])
def test_tails_have_the_order_used_to_judge_moments(m: int, a: float) -> None:
    z = records(m, 0.8, m)

    def density(value: float) -> float:
        left = float(np.sum((z[:, 0] - value * z[:, 1]) ** 2))
        return float(horseshoe(np.array(value))) * (1 + left / 2) ** -(a + (m - 1) / 2)

    found = order(density, 1e3)
    # without terms of order 1 / theta
    expected = -(2 + 2 * a + m - 1) if m > 1 else -2
    assert found == pytest.approx(expected, abs=0.02)
    assert have_moments(z[:, 1:])[0] == (found < -3)  # theta^2 is integrable


def test_tails_of_collinear_predictors_have_a_variance() -> None:
    """Data on theta_1 + theta_2 only: far out both are large; each prior gives 1/theta^2."""
    x = np.tile(np.random.default_rng(1).standard_normal((5, 1)), 2)
    total = np.linspace(-60, 60, 4001)
    likelihood = (1 + (total - 0.5) ** 2) ** -4.0  # order 8: the truncated tail is negligible

    def density(value: float) -> float:
        return float(horseshoe(np.array(value)) * (likelihood @ horseshoe(total - value)))

    assert order(density, 1e3) == pytest.approx(-4, abs=0.02)
    assert have_moments(x).all()


def test_a_constant_predictor_has_no_posterior_moments() -> None:
    x = np.array([[1.0, 0.1], [2.0, 0.1], [3.0, 0.1]])
    assert have_moments(x).tolist() == [True, False]
    assert not have_moments(x[:1]).any() and not have_moments(x[:0]).any()


def test_too_few_sweeps_are_noticed() -> None:
    """Many precise records, far from the run's sites: the chain leaves its start slowly."""
    rng = np.random.default_rng(3)
    z = records(400, 8.0, 5)
    common = np.zeros((DRAWS, 1)), np.full((DRAWS, 1), 1e-8)
    assert not fit_new_site(*common, z, PRIOR, 2, rng).has_converged


@pytest.mark.parametrize("m", [1, 2, 6])
def test_predictions_include_error_and_intercept_variance(m: int) -> None:
    """Given theta_* and s_*, by (3)."""
    theta, s, x = np.array([0.5, -1.0]), 0.7, np.array([[1.0, 2.0], [0.0, 0.0]])
    known = NewSiteDraws(np.tile(theta, (DRAWS, 1)), np.full(DRAWS, s), 0.0)
    drawn = predict(known, x, m, np.random.default_rng(m))
    variance = s * (1 + 1 / m)
    error = 4.5 * np.sqrt(variance / DRAWS), 4.5 * variance * np.sqrt(2 / DRAWS)
    np.testing.assert_allclose(drawn.mean(axis=0), x @ theta, rtol=0, atol=error[0])
    np.testing.assert_allclose(drawn.var(axis=0), variance, rtol=0, atol=error[1])


@pytest.mark.statistical
def test_prediction_intervals_have_their_stated_coverage() -> None:
    """New sites from the model itself: 90 % intervals hold 90 % of further records."""
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
        found = fit_new_site(*common, z[:m] - centre, PRIOR, 30, rng)
        drawn = predict(found, z[m:, 1:] - centre[1:], m, rng)[:, 0] + centre[0]
        inside.append(np.quantile(drawn, 0.05) < y[m] < np.quantile(drawn, 0.95))
    assert abs(np.mean(inside) - 0.9) < 4 * np.sqrt(0.9 * 0.1 / 400)
