import json
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st

from secagg.errors import UsageError
from secagg.models.common.noisy_moments import NoisyMoments
from secagg.models.common.pooled_moments import Moments
from secagg.models.moments.ols import describe, ols

# Correlations here have condition numbers up to 10^3, p is at most 6: coefficients and standard
# errors agree to about p * 10^3 * eps = 10^-12. A p-value's relative error is the statistic's
# times its square; statistics stay below 30, which leaves 10^-9.
REL = 1e-9


def moments_of(table, names):
    mean = table.mean(axis=0)
    centred = table - mean
    return Moments(tuple(names), len(table), mean, centred.T @ centred)


def sample(seed, n, p):
    rng = np.random.default_rng(seed)
    mixing = np.eye(p) + 0.4 * rng.normal(size=(p, p)) / math.sqrt(p)
    X = (rng.normal(size=(n, p)) @ mixing) * 10.0 ** rng.integers(-2, 3, size=p) + rng.normal(
        size=p
    )
    y = 3 + X @ rng.normal(size=p) / X.std(axis=0).max() + rng.normal(size=n)
    return X, y


def fit_of(X, y, **options):
    names = [f"x{j}" for j in range(X.shape[1])]
    return ols(moments_of(np.column_stack([X, y]), [*names, "y"]), "y", names, **options)


def column(fit, field):
    return np.array([getattr(term, field) for term in fit.terms])


@settings(deadline=None)
@given(
    p=st.integers(1, 6),
    extra=st.integers(2, 80),
    seed=st.integers(0, 2**32 - 1),
    level=st.sampled_from([0.5, 0.9, 0.95, 0.999]),
)
def test_every_number_agrees_with_statsmodels(p, extra, seed, level):
    X, y = sample(seed, p + 1 + extra, p)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    if np.linalg.cond(Z) ** 2 > 1e3:  # the tolerance above assumes it; rare, at few records
        return
    fit = fit_of(X, y, level=level)
    expected = sm.OLS(y, sm.add_constant(X, has_constant="add")).fit()
    # near zero an estimate has the absolute accuracy of its standard error, not of itself
    slack = REL * expected.bse
    assert np.all(np.abs(column(fit, "estimate") - expected.params) <= slack)
    np.testing.assert_allclose(column(fit, "std_error"), expected.bse, rtol=REL)
    np.testing.assert_allclose(column(fit, "statistic"), expected.tvalues, rtol=REL, atol=REL)
    huge = np.abs(expected.tvalues) > 30
    np.testing.assert_allclose(column(fit, "p_value")[~huge], expected.pvalues[~huge], rtol=1e-8)
    interval = expected.conf_int(1 - level)
    reach = (1 + np.abs(interval / expected.bse[:, None])).max(axis=1)
    assert np.all(np.abs(column(fit, "ci_low") - interval[:, 0]) <= slack * reach)
    assert np.all(np.abs(column(fit, "ci_high") - interval[:, 1]) <= slack * reach)
    assert fit.r_squared == pytest.approx(expected.rsquared, rel=REL, abs=REL)
    assert fit.adjusted_r_squared == pytest.approx(expected.rsquared_adj, rel=REL, abs=REL)
    assert fit.residual_std_error == pytest.approx(math.sqrt(expected.scale), rel=REL)
    assert (fit.residual_dof, fit.model_dof) == (expected.df_resid, expected.df_model)
    assert fit.f_statistic == pytest.approx(expected.fvalue, rel=REL, abs=REL)
    if expected.fvalue < 900:
        assert fit.f_p_value == pytest.approx(expected.f_pvalue, rel=1e-6)  # F, not its root
    assert fit.log_likelihood == pytest.approx(expected.llf, rel=REL, abs=REL)
    assert fit.aic == pytest.approx(expected.aic, rel=REL, abs=REL)
    assert fit.bic == pytest.approx(expected.bic, rel=REL, abs=REL)


def exact_fit(X, y):
    """Coefficients and standard errors in rational arithmetic, rounded once at the end."""
    rows = [[Fraction(1), *map(Fraction, row)] for row in X.tolist()]
    p = len(rows[0])
    outcome = [Fraction(value) for value in y.tolist()]
    augmented = [
        [sum(row[j] * row[k] for row in rows) for k in range(p)]
        + [Fraction(int(j == k)) for k in range(p)]
        for j in range(p)
    ]
    for j in range(p):  # Gauss and Jordan: exact, so any nonzero pivot does
        augmented[j] = [value / augmented[j][j] for value in augmented[j]]
        for k in range(p):
            if k != j:
                factor = augmented[k][j]
                augmented[k] = [
                    a - factor * b for a, b in zip(augmented[k], augmented[j], strict=True)
                ]
    inverse = [line[p:] for line in augmented]
    moment = [
        sum(row[j] * value for row, value in zip(rows, outcome, strict=True)) for j in range(p)
    ]
    beta = [sum(a * b for a, b in zip(line, moment, strict=True)) for line in inverse]
    residuals = [
        value - sum(a * b for a, b in zip(row, beta, strict=True))
        for row, value in zip(rows, outcome, strict=True)
    ]
    variance = sum(residual**2 for residual in residuals) / (len(rows) - p)
    errors = [math.sqrt(variance * inverse[j][j]) for j in range(p)]
    return np.array([float(value) for value in beta]), np.array(errors)


@pytest.mark.parametrize("distance", [0.0, 1e3, 1e6])
def test_means_far_from_zero_lose_no_digits(distance):
    rng = np.random.default_rng(6)
    X = rng.normal(size=(40, 2)) @ np.array([[1.0, 0.3], [0.0, 1.0]]) + distance * np.array([1, -2])
    y = X @ np.array([0.5, 0.25]) + rng.normal(size=40) + 7
    fit = fit_of(X, y)
    estimates, errors = exact_fit(X, y)
    # Centred entries are exact but for the mean's rounding, a common shift of eps * distance that
    # enters the scatter squared; the rest is a few roundings of n = 40 sums at condition 2: 40 eps.
    rel = 1e-13
    np.testing.assert_allclose(column(fit, "std_error"), errors, rtol=rel)
    assert np.all(np.abs(column(fit, "estimate")[1:] - estimates[1:]) <= rel)
    # the intercept cancels terms of this size, each as accurate as its slope
    size = abs(y.mean()) + np.abs(X.mean(axis=0)) @ (np.abs(estimates[1:]) + 1)
    assert abs(fit.terms[0].estimate - estimates[0]) <= rel * size


def dummies_table(seed=9, n=60):
    rng = np.random.default_rng(seed)
    levels = np.eye(3)[rng.integers(0, 3, n)]
    table = np.column_stack([rng.normal(size=(n, 2)), levels, rng.normal(size=n)])
    return moments_of(table, ["age", "bmi", "north", "south", "west", "y"])


def test_only_the_collinear_dummies_are_named():
    with pytest.raises(UsageError, match=r"'west'.*'north', 'south'") as caught:
        ols(dummies_table(), "y", ["age", "north", "south", "west"])
    assert "age" not in str(caught.value)
    assert len(ols(dummies_table(), "y", ["age", "north", "south"]).terms) == 4


def test_collinearity_not_visible_in_single_pivots_is_found():
    # x1 = e1, x2 = e1 + r e2, x3 = (e1 + e2) / root 2 + r e3, with r^2 = 10^-6: in this order
    # each leaves about 10^-6 unexplained, but x2 given x1 and x3 only 2 * 10^-12
    r = 1e-3
    rows = np.array([[1, 0, 0, 0], [1, r, 0, 0], [0.5**0.5, 0.5**0.5, r, 0], [0, 0, 0, 1.0]])
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    moments = Moments(("x1", "x2", "x3", "y"), 100, np.zeros(4), 100 * rows @ rows.T)
    for pair in (["x1", "x2"], ["x1", "x3"], ["x2", "x3"]):
        ols(moments, "y", pair)
    with pytest.raises(UsageError, match=r"'x2'.*'x1'"):
        ols(moments, "y", ["x1", "x2", "x3"])


def test_an_outcome_computed_from_the_predictors_is_refused():
    X, _ = sample(12, 50, 2)
    with pytest.raises(UsageError, match="'y'"):
        fit_of(X, 1 + X @ np.array([2.0, -3.0]))
    noisy = X @ np.array([2.0, -3.0]) * (1 + 1e-3 * np.random.default_rng(0).normal(size=50))
    assert fit_of(X, noisy).r_squared > 0.999


def test_ols_needs_a_residual_degree_of_freedom():
    X, y = sample(11, 4, 3)
    with pytest.raises(UsageError):
        fit_of(X, y)
    assert fit_of(X[:, :2], y).residual_dof == 1


def test_describe_agrees_with_pandas():
    X, y = sample(13, 40, 3)
    frame = pd.DataFrame(np.column_stack([X, y]), columns=["a", "b", "c", "y"])
    table = describe(moments_of(frame.to_numpy(), list(frame)))
    rel = 1e-12  # sums of 40 products, each rounded once: well above 40 eps
    assert [row.column for row in table.columns] == list(frame)
    np.testing.assert_allclose([row.mean for row in table.columns], frame.mean(), rtol=rel)
    np.testing.assert_allclose([row.sd for row in table.columns], frame.std(), rtol=rel)
    np.testing.assert_allclose(np.array(table.correlation), frame.corr(), rtol=0, atol=rel)


def test_describe_omits_undefined_statistics():
    table = np.column_stack([np.arange(5.0), np.full(5, 0.1), np.arange(5.0) ** 2])
    data = describe(moments_of(table, "abc")).to_dict()
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert data["n"] == 5
    assert data["correlation"][1] == [None] * 3
    assert [row[1] for row in data["correlation"]] == [None] * 3
    assert data["correlation"][0][2] == pytest.approx(np.corrcoef(table[:, [0, 2]].T)[0, 1])
    single = describe(moments_of(table[:1], "abc"))
    assert [row.sd for row in single.columns] == [None] * 3


@pytest.mark.parametrize("within", [None, 3])
def test_effects_per_standard_deviation_are_those_of_a_fit_on_scaled_predictors(within):
    X, y = sample(3, 60, 3)
    moments = moments_of(np.column_stack([X, y]), ["a", "b", "c", "y"])
    moments = replace(moments, within=within, mean=moments.mean * (within is None))
    slopes = [term for term in ols(moments, "y", ["a", "b", "c"]).terms if term.term in "abc"]
    deviations = X.std(axis=0) * math.sqrt(60 / (60 - (within or 1)))
    scaled = sm.OLS(y, sm.add_constant(X / deviations)).fit()
    per_sd = [term.per_sd for term in slopes]
    np.testing.assert_allclose([scale.sd for scale in per_sd], deviations, rtol=REL)
    np.testing.assert_allclose([scale.estimate for scale in per_sd], scaled.params[1:], rtol=REL)
    for term, scale in zip(slopes, per_sd, strict=True):
        assert (scale.ci_high - scale.estimate) / (term.ci_high - term.estimate) == pytest.approx(
            scale.sd, rel=REL
        )


def test_the_intercept_and_noised_deviations_have_no_effect_per_standard_deviation():
    X, y = sample(4, 60, 2)
    moments = moments_of(np.column_stack([X, y]), ["a", "b", "y"])
    terms = ols(moments, "y", ["a", "b"]).terms
    assert [term.per_sd is None for term in terms] == [True, False, False]
    matrix = np.eye(4)
    release = NoisyMoments(moments.names, np.zeros(3), np.ones(3), matrix, matrix, np.ones(4))
    noised = replace(moments, noisy=release)
    assert all(term.per_sd is None for term in ols(noised, "y", ["a", "b"]).terms)
