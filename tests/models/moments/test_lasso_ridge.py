import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LassoLars, Ridge

from secagg.errors import UsageError
from secagg.models.common.pooled_moments import Moments
from secagg.models.moments.lasso import lasso
from secagg.models.moments.ols import ols
from secagg.models.moments.ridge import ridge


def moments_of(table, names):
    mean = table.mean(axis=0)
    centred = table - mean
    return Moments(tuple(names), len(table), mean, centred.T @ centred)


def sample(seed, n, p):
    """Correlated columns in units from 0.01 to 100, means of a few units; half the slopes zero."""
    rng = np.random.default_rng(seed)
    units = 10.0 ** rng.integers(-2, 3, size=p)
    mixing = np.eye(p) + 0.4 * rng.normal(size=(p, p)) / math.sqrt(p)
    X = (rng.normal(size=(n, p)) @ mixing + rng.normal(size=p)) * units
    slopes = rng.normal(size=p) * (np.arange(p) < (p + 1) // 2)
    return X, 5 + (X / units) @ slopes + rng.normal(size=n)


def named(X, y):
    names = [f"x{j}" for j in range(X.shape[1])]
    return moments_of(np.column_stack([X, y]), [*names, "y"]), "y", names


def estimates(fit):
    return np.array([term.estimate for term in fit.terms])


def z_scored(X, y):
    return (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()


def own_units(g, X, y):
    """Intercept and slopes from the slopes on z-scored columns."""
    slopes = g * y.std() / X.std(axis=0)
    return np.array([y.mean() - slopes @ X.mean(axis=0), *slopes])


def size_of(b, X, y):
    """What the rounding of each coefficient is relative to: shape (p + 1,)."""
    unit = y.std() / X.std(axis=0)
    return np.array([abs(y.mean()) + np.abs(X.mean(axis=0)) @ unit, *unit])


# Ridge ---------------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    p=st.integers(1, 8),
    n=st.integers(4, 60),
    penalty=st.sampled_from([1e-2, 0.3, 1.0, 50.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_ridge_agrees_with_scikit_learn(p, n, penalty, seed):
    X, y = sample(seed, n, p)
    Z, z = z_scored(X, y)
    oracle = Ridge(alpha=n * penalty, fit_intercept=False, solver="svd").fit(Z, z)
    expected = own_units(oracle.coef_, X, y)
    fit = ridge(*named(X, y), penalty=penalty)
    # the system's condition is at most (p + 0.01) / 0.01 < 10^3; times n eps = 10^-14
    assert np.all(np.abs(estimates(fit) - expected) <= 1e-11 * size_of(expected, X, y))


def hat_and_coefficients(X, y, penalty):
    """The fit as explicit linear maps of y: fitted = H y, (intercept, slopes) = A y."""
    n = len(y)
    Z, _ = z_scored(X, y)
    G = np.linalg.solve(Z.T @ Z / n + penalty * np.eye(Z.shape[1]), Z.T / n)
    centre = np.eye(n) - 1 / n
    slopes = (G @ centre) / X.std(axis=0)[:, None]
    A = np.vstack([np.full(n, 1 / n) - X.mean(axis=0) @ slopes, slopes])
    return np.full((n, n), 1 / n) + Z @ G @ centre, A


def brute_gcv(X, y, penalty):
    H, _ = hat_and_coefficients(X, y, penalty)
    n = len(y)
    return np.sum((y - H @ y) ** 2) / n / (1 - np.trace(H) / n) ** 2


@pytest.mark.parametrize(("n", "p"), [(40, 3), (25, 8), (12, 20)])
@pytest.mark.parametrize("penalty", [0.05, 2.0])
def test_ridge_errors_are_those_of_a_linear_estimator(n, p, penalty):
    X, y = sample(1, n, p)
    fit = ridge(*named(X, y), penalty=penalty, level=0.9)
    H, A = hat_and_coefficients(X, y, penalty)
    rel = 1e-10  # condition up to p / 0.05 = 400, n eps = 10^-14, squared sums
    dof = n - np.trace(H)
    sigma = math.sqrt(np.sum((y - H @ y) ** 2) / dof)
    assert fit.effective_dof == pytest.approx(np.trace(H), rel=rel)
    assert fit.residual_std_error == pytest.approx(sigma, rel=rel)
    assert fit.r_squared == pytest.approx(
        1 - np.sum((y - H @ y) ** 2) / np.sum((y - y.mean()) ** 2)
    )
    errors = sigma * np.sqrt(np.diagonal(A @ A.T))
    np.testing.assert_allclose([term.std_error for term in fit.terms], errors, rtol=rel)
    assert fit.gcv == pytest.approx(brute_gcv(X, y, penalty), rel=rel)
    widths = np.array([term.ci_high - term.ci_low for term in fit.terms]) / errors
    assert np.ptp(widths) < 1e-6
    assert all(term.p_value is None and term.statistic is None for term in fit.terms)


@pytest.mark.parametrize(("n", "p", "seed"), [(40, 3, 0), (25, 8, 1), (12, 20, 2)])
def test_the_chosen_penalty_has_the_lowest_gcv(n, p, seed):
    X, y = sample(seed, n, p)
    fit = ridge(*named(X, y))
    assert fit.penalty_rule == "gcv"
    assert fit.gcv == pytest.approx(brute_gcv(X, y, fit.penalty), rel=1e-8)
    grid = np.geomspace(1e-6, 1e3 * p, 2000)
    # near its minimum GCV is quadratic in log penalty: 10^-8 away costs 10^-16
    assert fit.gcv <= min(brute_gcv(X, y, penalty) for penalty in grid) * (1 + 1e-10)


def test_gcv_reports_a_penalty_at_the_end_of_its_range():
    X, _ = sample(2, 30, 2)
    Z, _ = z_scored(X, np.arange(30.0))
    noise = np.random.default_rng(0).normal(size=30)
    noise -= noise.mean()
    noise -= Z @ np.linalg.lstsq(Z, noise, rcond=None)[0]
    fit = ridge(*named(X, noise + 1e-3 * Z[:, 0]))
    assert fit.penalty == pytest.approx(2e3)
    assert any("upper end" in note for note in fit.notes)
    strong = ridge(*named(X, noise + 1e5 * Z[:, 0]))
    assert strong.penalty == pytest.approx(1e-6)
    assert any("lower end" in note for note in strong.notes)


# Lasso ---------------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    p=st.integers(1, 8),
    n=st.integers(12, 80),
    share=st.sampled_from([0.02, 0.2, 0.6, 0.999, 1.5]),
    seed=st.integers(0, 2**32 - 1),
)
def test_lasso_agrees_with_scikit_learn_and_is_optimal(p, n, share, seed):
    X, y = sample(seed, n, p)
    Z, z = z_scored(X, y)
    largest = np.max(np.abs(Z.T @ z)) / n
    penalty = share * largest
    fit = lasso(*named(X, y), penalty=penalty)
    # homotopy, solved exactly on each segment: no stopping tolerance to share with ours
    oracle = LassoLars(alpha=penalty, fit_intercept=False, eps=0).fit(Z, z).coef_
    expected = own_units(oracle, X, y)
    size = size_of(expected, X, y)
    # violations of 10^-10 move slopes by at most 10^-10 root(p) / (least eigenvalue of R)
    least = np.linalg.eigvalsh(Z.T @ Z / n)[0]
    assert np.all(np.abs(estimates(fit) - expected) <= 1e-9 / least * size)
    assert fit.penalty_max == pytest.approx(largest, rel=1e-12)
    assert fit.kkt_violation <= 1e-10
    g = estimates(fit)[1:] * X.std(axis=0) / y.std()
    correlation = Z.T @ (z - Z @ g) / n
    rounding = 1e-10 + 1e-13 * n
    assert np.all(np.abs(correlation) <= penalty + rounding)
    active = g != 0
    assert np.all(np.abs(correlation - penalty * np.sign(g))[active] <= rounding)
    assert fit.selected == tuple(f"x{j}" for j in np.flatnonzero(active))


@pytest.mark.parametrize("seed", range(5))
def test_the_chosen_lasso_has_the_lowest_bic_along_the_path(seed):
    n, p = 60, 7
    X, y = sample(seed, n, p)
    Z, z = z_scored(X, y)
    fit = lasso(*named(X, y))

    def brute_bic(penalty):
        g = LassoLars(alpha=penalty, fit_intercept=False, eps=0).fit(Z, z).coef_
        rss = np.sum((z - Z @ g) ** 2) * y.var()
        nonzero = np.count_nonzero(np.abs(g) > 1e-12)
        return n * (math.log(2 * math.pi * rss / n) + 1) + math.log(n) * (1 + nonzero)

    largest = np.max(np.abs(Z.T @ z)) / n
    path = np.geomspace(largest * (1 - 1e-12), 1e-3 * largest, 100)
    values = [brute_bic(penalty) for penalty in path]
    assert fit.penalty_rule == "bic"
    assert fit.penalty == pytest.approx(path[int(np.argmin(values))], rel=1e-9)
    assert fit.bic == pytest.approx(min(values), rel=1e-9)


@pytest.mark.parametrize("seed", range(40))
def test_collinear_columns_do_not_stall_the_descent(seed):
    rng = np.random.default_rng(seed)
    p = int(rng.integers(4, 40))
    X, y = sample(seed, p + int(rng.integers(3, 100)), p)
    X[:, 2] = X[:, 0] + X[:, 1]
    moments, outcome, names = named(X, y)
    assert lasso(moments, outcome, names).kkt_violation <= 1e-10
    # fixed-point sums, whose rounding made the variance of the null combination negative
    root = np.sqrt(np.diagonal(moments.scatter))
    null = np.linalg.eigh(moments.correlation)[1][:, 0]
    rounded = moments.scatter - 1e-9 * np.outer(root * null, root * null)
    rough = Moments(moments.names, moments.n, moments.mean, rounded)
    assert lasso(rough, outcome, names).kkt_violation <= 1e-10
    ridge(rough, outcome, names)


def test_more_predictors_than_records_need_a_given_penalty():
    X, y = sample(9, 15, 30)
    for n, records in ((15, X), (31, sample(9, 31, 30)[0])):  # p + 1 with the mean
        with pytest.raises(UsageError):
            lasso(*named(records, np.arange(float(n)) ** 2))
    assert lasso(*named(X, y), penalty=0.1).kkt_violation <= 1e-10


def test_an_outcome_unrelated_to_everything_selects_nothing():
    x = np.array([-1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0])
    y = np.array([-1.0, -1.0, 1.0, 1.0, -1.0, -1.0, 1.0, 1.0])
    fit = lasso(*named(x[:, None], y), penalty=1e-3)
    assert fit.selected == ()
    assert estimates(fit).tolist() == [0.0, 0.0]
    assert lasso(*named(x[:, None], y)).selected == ()


# Both ----------------------------------------------------------------------------------------


TABLE = np.column_stack([np.arange(9.0) % 4, np.arange(9.0) % 5, np.full(9, 0.1), np.arange(9.0)])
"""Columns a, b, same, which is constant, and y."""
INDEFINITE = np.eye(4) + 1.2 * np.outer([1, 1, 0, 0], [1, 1, 0, 0])
INDEFINITE[[0, 1], [0, 1]] = 1.0


@pytest.mark.parametrize("method", [ols, ridge, lasso])
@pytest.mark.parametrize(
    ("outcome", "predictors", "named"),
    [
        ("y", [], "no predictors"),
        ("y", ["a", "y"], "'y'"),
        ("y", ["a", "b", "a"], "'a'"),
        ("y", ["as"], "'as'"),
        ("z", ["a"], "'z'"),
        ("y", ["a", "same"], "'same'"),
        ("same", ["a"], "'same'"),
    ],
)
def test_bad_columns_are_named(method, outcome, predictors, named):
    with pytest.raises(UsageError, match=named):
        method(moments_of(TABLE, ["a", "b", "same", "y"]), outcome, predictors)


@pytest.mark.parametrize("method", [ols, ridge, lasso])
def test_impossible_moments_are_refused(method):
    moments = Moments(("a", "b", "c", "y"), 50, np.zeros(4), INDEFINITE)
    with pytest.raises(UsageError):
        method(moments, "y", ["a", "b"])


@pytest.mark.parametrize(
    ("method", "setting"),
    [(method, {"penalty": penalty})
     for method in (ridge, lasso) for penalty in (0, -1.0, math.nan, math.inf, "aic")]
    + [(method, {"level": level}) for method in (ols, ridge) for level in (0.0, 1.0, 95, math.nan)],
)  # fmt: skip
def test_bad_settings_are_refused(method, setting):
    with pytest.raises(UsageError):
        method(*named(*sample(10, 40, 3)), **setting)


def test_ridge_without_residual_variance_is_refused():
    x = np.arange(20.0)[:, None]
    with pytest.raises(UsageError):
        ridge(*named(x, 2 * x[:, 0] + 1), penalty=1e-12)
