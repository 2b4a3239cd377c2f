"""The sums of one round of logistic regression: their values, and their public bounds."""

import math

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from secagg.errors import DataError, UsageError
from secagg.models.glm.logistic import BINOMIAL
from secagg.models.glm.newton import term_sums

EPS = np.finfo(float).eps
LIMITS = BINOMIAL.bounds(None)


def logistic_sums(X, y, beta):
    return term_sums(BINOMIAL, LIMITS, X, y, beta)


@pytest.mark.parametrize("size", [0.0, 1.0, 5.0])
def test_gradients_and_hessians_agree_with_statsmodels(size):
    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(300), rng.uniform(-1, 1, size=(300, 4))])
    y = (rng.random(300) < 0.4).astype(float)
    beta = size * np.random.default_rng(2).normal(size=5)
    oracle = sm.Logit(y, X)
    log_likelihood, gradient, hessian = logistic_sums(X, y, beta)
    # n terms of size at most 1 (log-likelihood: about 10), each rounded a few times
    close = 300 * 10 * EPS
    assert log_likelihood == pytest.approx(oracle.loglike(beta), rel=close)
    np.testing.assert_allclose(gradient, oracle.score(beta), rtol=0, atol=300 * close)
    np.testing.assert_allclose(hessian, -oracle.hessian(beta), rtol=0, atol=300 * close)
    assert np.array_equal(hessian, hessian.T)


@pytest.mark.parametrize("eta", [40.0, 60.0, 700.0, 1e5, 1e299])
def test_large_linear_predictors_keep_digits_and_meet_the_floor(eta):
    X = np.array([[1.0, 0.5], [1.0, -0.25]])
    beta = np.array([eta, 0.0])
    right = logistic_sums(X, np.array([1.0, 1.0]), beta)
    tail = math.exp(-eta) if eta < 700 else 0.0  # mu (1 - mu) and 1 - mu are exp(-eta) (1 + tail)
    assert -right[0] == pytest.approx(2 * tail, rel=4 * EPS, abs=1e-300)
    assert right[2][0, 0] == pytest.approx(2 * tail, rel=8 * EPS, abs=1e-300)
    wrong = logistic_sums(X, np.array([0.0, 0.0]), beta)
    assert wrong[0] == -2 * min(eta, 64.0)
    assert wrong[1][0] == -2.0
    mirrored = logistic_sums(X, np.array([0.0, 0.0]), -beta)
    np.testing.assert_array_equal(mirrored[2], right[2])


unit = st.one_of(st.sampled_from([-1.0, 1.0, 0.0, 5e-324, -1 + EPS]), st.floats(-1, 1))
coefficient = st.one_of(st.sampled_from([0.0, 1e299, -1e299, 1e-17, -1e-16]), st.floats(-800, 800))


@settings(deadline=None, max_examples=100)
@given(data=st.data(), n=st.integers(1, 40), p=st.integers(1, 4))
def test_the_public_bounds_hold_to_the_last_bit(data, n, p):
    X = data.draw(arrays(float, (n, p), elements=unit))
    X[:, 0] = 1.0
    y = data.draw(arrays(float, n, elements=st.sampled_from([0.0, 1.0])))
    beta = data.draw(arrays(float, p, elements=coefficient))
    log_likelihood, gradient, hessian = logistic_sums(X, y, beta)
    assert -64 * n <= log_likelihood <= 0
    assert np.all(np.abs(gradient) <= n)
    assert np.all(np.abs(hessian) <= n / 4)


@pytest.mark.parametrize("n", [100_003, 500_000])
def test_the_public_bounds_are_attained_and_not_exceeded(n):
    X = np.ones((n, 2))
    assert logistic_sums(X, np.zeros(n), np.array([800.0, 0.0]))[0] == -64.0 * n
    assert logistic_sums(X, np.zeros(n), np.array([800.0, 0.0]))[1].tolist() == [-n, -n]
    # tiny predictors: where mu (1 - mu) rounds worst
    for eta in (0.0, EPS / 4, -EPS / 4, EPS, 3e-9):
        hessian = logistic_sums(X, np.zeros(n), np.array([eta, 0.0]))[2]
        assert np.all(hessian <= n / 4)
    assert np.all(logistic_sums(X, np.zeros(n), np.zeros(2))[2] == n / 4)


@pytest.mark.parametrize(
    ("X", "y", "beta", "error"),
    [
        ([[1, 1 + 1e-9], [1, 0]], [0, 1], [0, 0], DataError),
        ([[1, math.nan], [1, 0]], [0, 1], [0, 0], DataError),
        ([[0.5, 1], [1, 1]], [0, 1], [0, 0], DataError),  # the first column is not 1
        *(([[1, 0.5]], [wrong], [0, 0], DataError) for wrong in (2.0, 0.5, math.nan)),
        *(([[1, 0.5]], [1], [0, wrong], UsageError) for wrong in (math.nan, math.inf, 1e301)),
    ],
)
def test_data_and_coefficients_out_of_range_are_refused(X, y, beta, error):
    with pytest.raises(error):
        logistic_sums(*(np.array(each, dtype=float) for each in (X, y, beta)))
