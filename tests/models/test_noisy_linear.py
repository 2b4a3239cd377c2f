"""Least squares from noisy moments: exact without noise, calibrated with it."""

import math

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.special import stdtrit

from secagg.errors import UsageError
from secagg.models.linear import ols
from secagg.models.moment_posterior import Target, draw_factors, mixing
from secagg.models.noisy_linear import fits_of, mixture_term, noisy_ols
from secagg.models.noisy_moments import NoisyMoments
from secagg.models.pooled import Moments
from secagg.privacy.gaussian import gaussian_mu

DELTA, LEVEL = 1e-6, 0.9


def symmetric_noise(rng, shape, deviation):
    noise = np.triu(rng.normal(0, deviation, shape))
    return noise + np.swapaxes(np.triu(noise, 1), -1, -2)


def table(rng, n, d=10, correlation=0.3, binary=None):
    """Scaled records: d predictors of variance 1/9 and an outcome, half of it explained.

    Every other predictor is cut at the quantile `binary` and coded -1, 1, if that is given.
    """
    x = math.sqrt(correlation) * rng.normal(size=(n, 1))
    x = x + math.sqrt(1 - correlation) * rng.normal(size=(n, d))
    slopes = np.resize([0.5, -0.3, 0, 0.2, -0.4, 0.1, 0, 0.3, -0.2, 0.15], d)
    signal = x @ slopes
    variance = (1 - correlation) * slopes @ slopes + correlation * slopes.sum() ** 2
    y = signal + math.sqrt(variance) * rng.normal(size=n)
    u = np.column_stack([x, y / math.sqrt(2 * variance)]) / 3
    if binary is not None:
        u[:, :d:2] = np.where(u[:, :d:2] > binary / 3, 1.0, -1.0)
    return np.clip(u, -1, 1)


def clipped_moments(u, square):
    """Return M of records shrunk to |u|^2 <= square."""
    norm = np.sqrt((u**2).sum(axis=1, keepdims=True))
    z = np.column_stack([np.ones(len(u)), u * np.minimum(1, math.sqrt(square) / norm)])
    return z.T @ z


def deviation(square, epsilon):
    """The noise of one release under add or remove, by the equation in `models/moments.py`."""
    whole = math.floor(square)
    most = ((1 + square) ** 2 + 1 + whole + (square - whole) ** 2) / 2
    return math.sqrt(most) / gaussian_mu(epsilon, DELTA)


def as_released(matrix, variance, middle=0.0, half=1.0):
    p = len(matrix) - 1
    names = (*(f"x{j}" for j in range(p - 1)), "y")
    ones = np.ones(p)
    return NoisyMoments(names, middle * ones, half * ones, matrix, np.full(matrix.shape, variance))


@pytest.mark.parametrize("middle", [0.0, 1e4])
def test_without_noise_it_is_ordinary_least_squares(middle):
    rng = np.random.default_rng(0)
    u = table(rng, 200, d=4)
    half = np.array([1.0, 10, 0.1, 3, 7])
    middles = middle * np.array([1.0, -1, 1, 0.5, 2])
    own = middles + half * u
    z = np.column_stack([np.ones(200), u])
    noisy = NoisyMoments(("a", "b", "c", "d", "y"), middles, half, z.T @ z, np.zeros((6, 6)))
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


def test_little_noise_changes_little_and_the_same_release_says_the_same():
    rng = np.random.default_rng(1)
    exact = clipped_moments(table(rng, 2000, d=4), 1.0)
    noisy = exact + symmetric_noise(rng, exact.shape, 0.02)
    first = noisy_ols(as_released(noisy, 0.02**2), "y", ["x0", "x1"])
    plain = noisy_ols(as_released(exact, 0.0), "y", ["x0", "x1"])
    for ours, theirs in zip(first.terms, plain.terms, strict=True):
        assert ours.estimate == pytest.approx(theirs.estimate, abs=0.05 * theirs.std_error)
        assert ours.std_error == pytest.approx(theirs.std_error, rel=0.01)
    assert first == noisy_ols(as_released(noisy, 0.02**2), "y", ["x0", "x1"])
    assert first.noise_ratio < 0.01 and len(first.notes) == 2


def test_the_gradient_is_that_of_the_density():
    rng = np.random.default_rng(2)
    matrix = clipped_moments(table(rng, 50, d=2), 1.0) + symmetric_noise(rng, (4, 4), 2.0)
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


def test_the_draws_follow_the_posterior_that_is_stated():
    """Against importance sampling: noise about the release, weighted by the prior of M itself.

    So this checks the Jacobians and the sampler. With p = 3 columns, a = 9 and b = 1.
    """
    rng = np.random.default_rng(3)
    deviation_ = 4.0
    # fmt: off
    released = np.array([[ 60.0, 5, -3,  4],
                         [  5.0, 22, 6, 12],
                         [ -3.0, 6, 18,  9],
                         [  4.0, 12, 9, 20]])
    # fmt: on
    M = released + symmetric_noise(rng, (300_000, 4, 4), deviation_)
    M = M[np.linalg.eigvalsh(M)[:, 0] > 0]
    S = M[:, 1:, 1:] - M[:, 1:, :1] * M[:, :1, 1:] / M[:, :1, :1]
    squares = np.diagonal(S, axis1=1, axis2=2)
    C = S / np.sqrt(squares[:, :, None] * squares[:, None, :])
    unexplained = np.linalg.det(C) / np.linalg.det(C[:, :2, :2])
    weight = np.linalg.det(C) ** 8 * unexplained**-8 / squares.prod(axis=1)
    weight /= weight.sum()
    effective = 1 / np.sum(weight**2)
    assert effective > 10_000

    def quantities(M):
        slopes = np.linalg.solve(M[..., :3, :3], M[..., :3, 3:])[..., 0]
        least = np.linalg.eigvalsh(M)[..., 0]
        return np.stack([slopes[..., 1], slopes[..., 2], least, M[..., 3, 3], M[..., 1, 2]], -1)

    L = draw_factors(np.repeat(released[None], 32, axis=0), np.full((4, 4), 16.0), draws=400)
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


@pytest.mark.parametrize(
    ("outcome", "predictors", "match"),
    [
        ("y", [], "no predictors"),
        ("y", ["x0", "y"], "also a predictor"),
        ("y", ["x0", "x0"], "named twice"),
        ("y", ["z"], "no column 'z'"),
    ],
)
def test_bad_columns_are_named(outcome, predictors, match):
    with pytest.raises(UsageError, match=match):
        noisy_ols(as_released(100 * np.eye(4), 1.0), outcome, predictors)


def test_too_few_records_and_bad_levels_are_refused():
    few = as_released(np.diag([-3.0, 5, 5, 5]), 1.0)
    with pytest.raises(UsageError, match="-3 records"):
        noisy_ols(few, "y", ["x0"])
    with pytest.raises(UsageError, match="confidence level"):
        noisy_ols(as_released(100 * np.eye(4), 1.0), "y", ["x0"], level=1.0)


def test_noise_beyond_the_signal_gives_wide_intervals_and_says_why():
    rng = np.random.default_rng(5)
    matrix = clipped_moments(table(rng, 300, d=4), 1.0) + symmetric_noise(rng, (6, 6), 30.0)
    assert np.linalg.eigvalsh(matrix)[0] < 0  # no Cholesky factor exists
    fit = noisy_ols(as_released(matrix, 900.0), "y", ["x0", "x1", "x2", "x3"])
    assert all(term.ci_high - term.ci_low > 1 for term in fit.terms[1:])
    assert fit.noise_ratio > 1 and "rest on the prior" in " ".join(fit.notes)


def shares_covered(epsilon, releases, binary=None, n=500, d=10, square=1.25, draws=300):
    """Return, for each release, the share of 90 % intervals that hold the coefficients, and the
    same for intervals from the textbook's formulas on the noisy moments, repaired if need be.
    """
    every = clipped_moments(table(np.random.default_rng(6), 1_000_000, d, binary=binary), square)
    truth = np.linalg.solve(every[:-1, :-1], every[:-1, -1])
    rng = np.random.default_rng(7)
    s = deviation(square, epsilon)
    records = (table(rng, n, d, binary=binary) for _ in range(releases))
    exact = np.array([clipped_moments(u, square) for u in records])
    released = exact + symmetric_noise(rng, exact.shape, s)
    L = draw_factors(released, np.full((d + 2, d + 2), s**2), draws)
    dof = n - d - 1
    fits = fits_of(L, as_released(released[0], s**2), dof)
    terms = [
        [mixture_term("", fits.estimates[:, i, j], fits.errors[:, i, j], dof, LEVEL) for j in J]
        for i, J in enumerate([range(d + 1)] * releases)
    ]
    covered = np.array([[t.ci_low <= v <= t.ci_high for t, v in zip(r, truth, strict=True)]
                        for r in terms])  # fmt: skip
    floor = s * math.sqrt(d + 2)
    eigenvalues, basis = np.linalg.eigh(released)
    fixed = (basis * np.maximum(eigenvalues, floor)[:, None, :]) @ basis.swapaxes(1, 2)
    plug = fits_of(np.linalg.cholesky(fixed)[None], as_released(released[0], s**2), dof)
    reach = -stdtrit(dof, (1 - LEVEL) / 2) * plug.errors[0]
    return covered.mean(axis=1), (np.abs(plug.estimates[0] - truth) <= reach).mean(axis=1)


@pytest.mark.parametrize(("epsilon", "plugged"), [(1, 0.45), (4, 0.65)])
def test_intervals_cover_where_plugged_in_ones_do_not(epsilon, plugged):
    ours, plug = shares_covered(epsilon, releases=60, draws=100)
    error = ours.std(ddof=1) / math.sqrt(len(ours))  # releases are independent, coefficients not
    assert 0.88 - 3 * error < ours.mean() < 0.92 + 3 * error
    assert plug.mean() + 3 * plug.std(ddof=1) / math.sqrt(len(plug)) < plugged


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1, 4])
@pytest.mark.parametrize("binary", [None, 0.0])
def test_ninety_percent_intervals_cover_ninety_percent(epsilon, binary):
    """500 records, ten predictors. The bar is 0.88 to 0.92; errors are of one release's share."""
    square = 1.25 if binary is None else 6.0
    ours, plug = shares_covered(epsilon, releases=400, binary=binary, square=square)
    error = ours.std(ddof=1) / math.sqrt(len(ours))
    print(f"epsilon {epsilon}: {ours.mean():.3f} +- {error:.3f}; plugged in {plug.mean():.3f}")
    assert error < 0.008
    assert 0.88 - 2 * error < ours.mean() < 0.92 + 2 * error
    assert plug.mean() < 0.6
