"""Least squares from noisy moments: exact without noise, calibrated with it."""

import math
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.special import beta
from support.methods.short_chains import short_chains

from secagg.errors import UsageError
from secagg.models.common.noisy_moments import NoisyMoments
from secagg.models.common.pooled_moments import Moments
from secagg.models.moments import noisy_ols as noise_ols_module
from secagg.models.moments.noisy_ols import first_order, noisy_ols
from secagg.models.moments.ols import ols
from secagg.models.numerics import noise_posterior
from secagg.models.numerics.noise_posterior import Target, draw_factors, mixing

__all__ = ["short_chains"]  # a fixture

LEVEL = 0.9


@pytest.fixture
def simulation(monkeypatch):
    """The benchmark's designs and methods: what it prints is what is tested."""
    return import_module("benchmarks.noise.interval_coverage")


def table(rng, n, d):
    """Scaled records of d correlated predictors and an outcome that follows them."""
    x = 0.5 * rng.normal(size=(n, 1)) + 0.8 * rng.normal(size=(n, d))
    y = x @ np.linspace(0.5, -0.2, d) + 0.7 * rng.normal(size=n)
    return np.clip(np.column_stack([x, y]) / 3, -1, 1)


def moments_of(u):
    z = np.column_stack([np.ones(len(u)), u])
    return z.T @ z


def symmetric_noise(rng, shape, deviation):
    noise = np.triu(rng.normal(0, deviation, shape))
    return noise + np.swapaxes(np.triu(noise, 1), -1, -2)


def as_released(matrix, variance, middle=0.0, half=1.0):
    p = len(matrix) - 1
    names = (*(f"x{j}" for j in range(p - 1)), "y")
    ones = np.ones(p)
    variances = np.full(matrix.shape, variance)
    return NoisyMoments(names, middle * ones, half * ones, matrix, variances, np.ones(p + 1))


@pytest.mark.parametrize("middle", [0.0, 1e4])
def test_without_noise_results_equal_ordinary_least_squares(middle):
    rng = np.random.default_rng(0)
    u = table(rng, 200, d=4)
    half = np.array([1.0, 10, 0.1, 3, 7])
    middles = middle * np.array([1.0, -1, 1, 0.5, 2])
    own = middles + half * u
    z = np.column_stack([np.ones(200), u])
    names = ("a", "b", "c", "d", "y")
    noisy = NoisyMoments(names, middles, half, z.T @ z, np.zeros((6, 6)), np.ones(6))
    ours = noisy_ols(noisy, "y", ["c", "a", "d"], LEVEL)
    theirs = sm.OLS(own[:, 4], sm.add_constant(own[:, [2, 0, 3]])).fit()
    table_ = [[t.estimate, t.std_error, t.statistic, t.p_value] for t in ours.terms]
    # rounding: n eps, times the condition of a table whose mean is 1e4 times its spread, squared
    exact = {"rtol": 1e-9} if middle == 0 else {"rtol": 1e-4}
    np.testing.assert_allclose(
        table_,
        np.transpose([theirs.params, theirs.bse, theirs.tvalues, theirs.pvalues]),
        **exact,
        atol=1e-12,
    )
    bounds = [[t.ci_low, t.ci_high] for t in ours.terms]
    np.testing.assert_allclose(bounds, theirs.conf_int(1 - LEVEL), **exact, atol=1e-12)
    centred = own - own.mean(axis=0)
    moments = Moments(noisy.names, 200, own.mean(axis=0), centred.T @ centred)
    plain = ols(moments, "y", ["c", "a", "d"], LEVEL)
    for of in ("n", "residual_dof", "model_dof", "outcome", "level"):
        assert getattr(ours, of) == getattr(plain, of)
    assert ours.r_squared == pytest.approx(plain.r_squared, rel=1e-9)
    assert ours.residual_std_error == pytest.approx(plain.residual_std_error, rel=1e-9)
    assert ours.widened == pytest.approx(1)
    assert (ours.noise_ratio, ours.r_hat) == (0, 1)


def test_the_gradient_agrees_with_the_density():
    rng = np.random.default_rng(2)
    matrix = moments_of(table(rng, 50, d=2)) + symmetric_noise(rng, (4, 4), 2.0)
    target = Target(matrix[None], symmetric_noise(rng, (4, 4), 1.0) ** 2 + 1)
    X = np.linalg.cholesky(matrix + 20 * np.eye(4))[None]
    X[0, np.arange(4), np.arange(4)] = np.log(np.diagonal(X[0]))
    slope = target(X)[1][0]
    for j, k in zip(*np.tril_indices(4), strict=True):
        step = np.zeros((1, 4, 4))
        step[0, j, k] = 1e-5
        by_difference = (target(X + step)[0] - target(X - step)[0])[0] / 2e-5
        # truncation: 1e-10 times a third derivative; rounding: 1e-16 / 1e-5 times the value
        assert slope[j, k] == pytest.approx(by_difference, rel=1e-5, abs=1e-5)
    assert (slope[np.triu_indices(4, 1)] == 0).all()


@pytest.mark.statistical
@pytest.mark.parametrize("first", [16.0, 0.5])
def test_draws_follow_the_stated_posterior(first):
    """Against importance sampling: noise about the release, weighted by the prior of M itself.

    So this checks the Jacobians and the sampler. With p = 3 columns, two of them predictors, a is
    from 1 to 27 / 2, and the integral of (1 - r^2)^(a - 1/2) over r is B(1/2, a + 1/2).

    first: variance of the noise in the number of records, which is known better from two releases
    """
    rng = np.random.default_rng(3)
    variance = np.full((4, 4), 16.0)
    variance[0, 0] = first
    # fmt: off
    released = np.array([[ 60.0, 5, -3,  4],
                         [  5.0, 22, 6, 12],
                         [ -3.0, 6, 18,  9],
                         [  4.0, 12, 9, 20]])
    # fmt: on
    M = released + symmetric_noise(rng, (300_000, 4, 4), np.sqrt(variance))
    M = M[np.linalg.eigvalsh(M)[:, 0] > 0]
    S = M[:, 1:, 1:] - M[:, 1:, :1] * M[:, :1, 1:] / M[:, :1, :1]
    squares = np.diagonal(S, axis1=1, axis2=2)
    C = S / np.sqrt(squares[:, :, None] * squares[:, None, :])
    # dS = prod S_jj^((p - 1) / 2) dS_jj dC
    a = np.geomspace(1, 13.5, 12)
    determinant = np.linalg.det(C[:, :2, :2])[:, None]
    prior = (a**6 / beta(0.5, a + 0.5) * determinant ** (a - 1)).sum(axis=1)
    weight = prior / squares.prod(axis=1)
    weight /= weight.sum()
    effective = 1 / np.sum(weight**2)
    assert effective > 10_000

    def quantities(M):
        slopes = np.linalg.solve(M[..., :3, :3], M[..., :3, 3:])[..., 0]
        least = np.linalg.eigvalsh(M)[..., 0]
        entries = (M[..., 0, 0], M[..., 3, 3], M[..., 1, 2])
        return np.stack([slopes[..., 1], slopes[..., 2], least, *entries], -1)

    L = draw_factors(np.repeat(released[None], 32, axis=0), variance, draws=400)
    ours = quantities(L @ L.swapaxes(-1, -2))
    theirs = quantities(M)
    # the distribution functions agree at three quantiles of each: 12 800 draws, of which an
    # autocorrelation of a third leaves half, and `effective` weighted ones; five deviations
    slack = 5 * 0.5 * math.sqrt(1 / 6400 + 1 / effective)
    for j in range(ours.shape[-1]):
        for cut in np.quantile(ours[..., j], [0.1, 0.5, 0.9]):
            below = float(weight @ (theirs[:, j] < cut))
            assert below == pytest.approx(float(np.mean(ours[..., j] < cut)), abs=slack), j
    assert mixing(ours) < 1.02


def test_chains_that_disagree_are_noticed():
    rng = np.random.default_rng(4)
    draws = rng.normal(size=(100, 8, 3))
    assert mixing(draws) < 1.02
    draws[:, 0, 1] += 3
    assert mixing(draws) > 1.05


def test_too_few_records_and_bad_levels_are_refused():
    for n, allowed in ((-3.0, False), (2.0, False), (3.0, True)):
        few = as_released(np.diag([n, 5, 5, 5]), 0.0)
        if allowed:
            assert noisy_ols(few, "y", ["x0"]).residual_dof == 1
            continue
        with pytest.raises(UsageError):
            noisy_ols(few, "y", ["x0"])
    for predictors, level in ((["x0"], 1.0), ([], 0.9), (["x0", "y"], 0.9)):
        with pytest.raises(UsageError):
            noisy_ols(as_released(100 * np.eye(4), 1.0), "y", predictors, level=level)


@pytest.mark.usefixtures("short_chains")
def test_overwhelming_noise_gives_wide_intervals_and_a_note():
    rng = np.random.default_rng(5)
    matrix = moments_of(table(rng, 300, d=4)) + symmetric_noise(rng, (6, 6), 30.0)
    assert np.linalg.eigvalsh(matrix)[0] < 0  # no Cholesky factor exists
    fit = noisy_ols(as_released(matrix, 900.0), "y", ["x0", "x1", "x2", "x3"])
    assert all(term.ci_high - term.ci_low > 1 for term in fit.terms[1:])
    assert fit.noise_ratio == 2 and len(fit.notes) >= 3
    assert noisy_ols(as_released(matrix, 900.0), "y", ["x0", "x1", "x2", "x3"]) == fit


@pytest.mark.statistical
def test_collinearity_that_noise_may_hide_is_reported(simulation):
    """Where slopes of predictors that are nearly the same are not covered, the result says so."""
    hidden = simulation.Design(1, 2000, pair=0.95)
    assert simulation.coverage(hidden, 40).least < 0.7  # or this need not be told
    for design, told in ((hidden, True), (simulation.Design(4, 2000), False)):
        for matrix in design.releases(4):
            fit = noisy_ols(replace(design.noise, matrix=matrix), "10", ["0", "1", "2"])
            assert any("correlation of 0.95" in note for note in fit.notes) == told


def test_the_noise_covariance_of_the_estimating_equation_is_correct(simulation):
    """Equation (1), by brute force: 200 000 draws of (E, e)."""
    theta = np.array([0.3, -1.2, 0.7])
    noise = symmetric_noise(np.random.default_rng(8), (200_000, 4, 4), 2.0)
    g = noise[:, :3, 3] - noise[:, :3, :3] @ theta
    stated = simulation.noise_covariance(theta, np.full((4, 4), 2.0))
    # a product of two normal variables of variance v has a deviation of at most root(2) v
    slack = 5 * math.sqrt(2 / 200_000) * stated.max()
    np.testing.assert_allclose(g.T @ g / 200_000, stated, atol=slack)


@pytest.mark.statistical
def test_intervals_cover_better_than_plug_in_and_first_order_ones(simulation):
    design = simulation.Design(1)
    ours, plugged, first = (
        simulation.coverage(design, 60, of) for of in ("ours", "plugged in", "first order")
    )
    assert 0.88 - 3 * ours.error < ours.share < 0.92 + 3 * ours.error
    assert plugged.share + 3 * plugged.error < 0.8
    assert first.share > 0.95
    assert ours.length < 0.5 * first.length


@pytest.mark.statistical
@pytest.mark.parametrize("epsilon", [1, 4])
@pytest.mark.parametrize("kind", [{}, {"binary": 0.0, "square": 2.0}])
def test_ninety_percent_intervals_cover_ninety_percent(simulation, epsilon, kind):
    """500 records, ten predictors; the bar is 0.88 to 0.92."""
    design = simulation.Design(epsilon, **kind)
    ours = simulation.coverage(design, 120)
    plugged = simulation.coverage(design, 120, "plugged in")
    assert ours.error < 0.012
    assert 0.88 - 2 * ours.error < ours.share < 0.92 + 2 * ours.error
    assert plugged.share < 0.75


@pytest.mark.statistical
@pytest.mark.parametrize("design", [(4, 500, 0.8), (1, 2000, 0.8), (1, 500, 0.65)], ids=str)
def test_intervals_cover_slopes_of_collinear_predictors(simulation, design):
    """Where the noise is near their least eigenvalue, and a prior that ignores them covers 0.75."""
    epsilon, n, correlation = design
    found = simulation.coverage(simulation.Design(epsilon, n, correlation=correlation), 40)
    assert found.share > 0.9 - 3 * found.error


@pytest.mark.statistical
@pytest.mark.usefixtures("short_chains")
def test_the_range_of_r_squared_contains_that_of_the_exact_moments():
    """The median alone can be far off: the noise hides how much of the outcome is explained."""
    rng = np.random.default_rng(8)
    inside = []
    for _ in range(12):
        M = moments_of(table(rng, 300, d=3))
        released = as_released(M + symmetric_noise(rng, M.shape, 1.0), 1.0)
        fit = noisy_ols(released, "y", ["x0", "x1", "x2"], LEVEL)
        exact = noisy_ols(as_released(M, 0.0), "y", ["x0", "x1", "x2"], LEVEL)
        for value, (low, high) in (
            (exact.r_squared, fit.r_squared_range),
            (exact.residual_std_error, fit.residual_std_error_range),
        ):
            assert low < high
            inside.append(low <= value <= high)
    # Of 24 ranges of 90 %, correlated in pairs, 17 or fewer contain the value with p < 0.01.
    assert sum(inside) > 17


@pytest.mark.usefixtures("short_chains")
def test_no_r_squared_if_the_noise_hides_the_outcome():
    rng = np.random.default_rng(8)
    u = table(rng, 300, d=3)
    u[:, -1] /= 20
    M = moments_of(u)
    fit = noisy_ols(
        as_released(M + symmetric_noise(rng, M.shape, 3.0), 9.0), "y", ["x0", "x1"], LEVEL
    )
    assert (fit.r_squared, fit.r_squared_range) == (None, None)
    assert (fit.residual_std_error, fit.residual_std_error_range) == (None, None)
    assert all(np.isfinite(term.estimate) for term in fit.terms)


@pytest.mark.statistical
def test_disagreeing_chains_draw_more_and_then_make_the_fit_unusable(monkeypatch):
    rng = np.random.default_rng(8)
    M = moments_of(table(rng, 300, d=2))
    released = as_released(M + symmetric_noise(rng, M.shape, 3.0), 9.0)
    calls = []

    def draw(releases, variance, draws=20, a=None):
        calls.append(draws)
        return noise_posterior.draw_factors(releases, variance, 20, a)

    monkeypatch.setattr(noise_ols_module, "draw_factors", draw)
    for agreement, usable in ((1.04, True), (1.06, False)):
        calls.clear()
        monkeypatch.setattr(noise_ols_module, "mixing", lambda _, found=agreement: found)
        fit = noisy_ols(released, "y", ["x0", "x1"], LEVEL)
        assert (fit.converged, fit.r_hat) == (usable, agreement)
        assert calls == ([20] if usable else [20, 400])


def test_first_order_is_least_squares_without_noise_and_has_the_errors_of_the_noise():
    """Errors against the spread of 1500 noisy fits; that spread has a relative error of 2 %."""
    rng = np.random.default_rng(11)
    u, deviation = table(rng, 4000, 3), 2.0
    matrix, names = moments_of(u), ["x0", "x1", "x2"]
    fit = sm.OLS(u[:, 3], sm.add_constant(u[:, :3])).fit()
    exact = first_order(as_released(matrix, 0.0), "y", names)
    np.testing.assert_allclose([t["estimate"] for t in exact], fit.params[1:], rtol=1e-8)
    np.testing.assert_allclose([t["std_error"] for t in exact], fit.bse[1:], rtol=1e-8)
    noised = first_order(as_released(matrix, deviation**2), "y", names)
    draws = [
        [t["estimate"] for t in first_order(as_released(noisy, deviation**2), "y", names)]
        for noisy in matrix + symmetric_noise(rng, (1500, *matrix.shape), deviation)
    ]
    of_noise = np.sqrt(np.array([t["std_error"] for t in noised]) ** 2 - fit.bse[1:] ** 2)
    np.testing.assert_allclose(np.std(draws, axis=0), of_noise, rtol=0.08)  # 4 errors
