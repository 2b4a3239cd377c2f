"""Control variates: means that are 0, moments that are exact, errors that are honest."""

import numpy as np

from secagg.models.fedlin.hierarchies.control_variates import controls, moments

MEAN = np.array([1.0, -2.0, 0.5])
COV = np.array([[2.0, 0.3, -0.5], [0.3, 0.5, 0.1], [-0.5, 0.1, 1.0]])


def test_moments_of_a_normal_density_are_exact_for_any_draws() -> None:
    """The draws are of another law, and few; two of three coordinates are asked for."""
    x = np.random.default_rng(1).exponential(2, (20, 8, 3))
    slopes = -(x - MEAN) @ np.linalg.inv(COV)
    found = moments(x[..., :2], controls(slopes, x, (0, 1, 2)))
    assert np.allclose(found.mean, MEAN[:2], atol=1e-8)
    assert np.allclose(found.cov, COV[:2, :2], atol=1e-8)
    assert np.all(found.error < 1e-8)


def test_control_variates_have_mean_zero() -> None:
    """Also where slopes are of some coordinates only; the density is not normal."""
    draws = np.random.default_rng(2).standard_normal((400, 500, 2))
    u, v = draws[..., 0], draws[..., 1]
    x = np.stack([u, v + u**2], axis=-1)  # log p = -u^2 / 2 - (x2 - u^2)^2 / 2
    slope = np.stack([2 * u * v - u, -v], axis=-1)
    for places in ((0, 1), (1,), (1, 0)):
        found = controls(slope[..., list(places)], x, places)
        assert found.shape[-1] == len(places) * 3
        chains = found.mean(axis=0)
        z = chains.mean(axis=0) / (chains.std(axis=0, ddof=1) / np.sqrt(500))
        assert np.max(np.abs(z)) < 4.5


def test_estimates_are_unbiased_and_standard_errors_correct() -> None:
    """Of a skewed density, by 400 repetitions of 32 draws by 16 chains."""
    rng = np.random.default_rng(3)
    x = np.log(rng.gamma(4.0, 1.0, (400, 32, 16, 1)))  # log p = 4 x - exp(x)
    found = [moments(each, controls(4 - np.exp(each), each, (0,))) for each in x]
    means, errors = (np.array([getattr(f, name)[0] for f in found]) for name in ("mean", "error"))
    exact = 1.2561176684318  # digamma(4)
    variance = 0.2838229557371  # trigamma(4)
    spread = means.std(ddof=1)
    assert abs(means.mean() - exact) < 4.5 * spread / np.sqrt(400)
    assert abs(spread / np.sqrt(np.mean(errors**2)) - 1) < 4.5 / np.sqrt(2 * 400)
    covs = np.array([f.cov[0, 0] for f in found])
    # less the mean's own variance, by which a variance about a mean found is too small
    bias = covs.mean() - variance + spread**2
    assert abs(bias) < 4.5 * covs.std() / np.sqrt(400)
    assert spread < 0.4 * np.sqrt(variance / 512)  # a plain mean's error


def test_many_irrelevant_controls_do_not_understate_errors() -> None:
    """40 controls that say nothing, 128 draws: fitted to themselves they would explain a third."""
    rng = np.random.default_rng(5)
    found = [
        moments(rng.standard_normal((8, 16, 1)), rng.standard_normal((8, 16, 40)))
        for _ in range(400)
    ]
    means, errors = (np.array([getattr(f, name)[0] for f in found]) for name in ("mean", "error"))
    # coefficients of one half are those of the other's chains: 4.5 errors, and 5 % for that
    ratio = means.std(ddof=1) / np.sqrt(np.mean(errors**2))
    assert abs(ratio - 1) < 4.5 / np.sqrt(2 * 400) + 0.05
