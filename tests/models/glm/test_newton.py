"""Newton's method over summed parts: fits, separation, and the way back to the columns' units."""

import math
from fractions import Fraction

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from secagg.errors import UsageError
from secagg.models.common.coefficient_table import plain_terms
from secagg.models.common.pooled_moments import CONSTANT_COLUMN_ADVICE
from secagg.models.glm.logistic import BINOMIAL
from secagg.models.glm.newton import (
    DECREMENT_TOLERANCE,
    accept_step,
    converged,
    covariance,
    diverging,
    inference,
    newton_decrement,
    newton_direction,
    term_sums,
    units_matrix,
)
from secagg.models.numerics.precision import ROUNDING

EPS = np.finfo(float).eps
LIMITS = BINOMIAL.bounds(None)


def logistic_sums(X, y, beta):
    return term_sums(BINOMIAL, LIMITS, X, y, beta)


def scaled(columns, mid, half):
    return np.column_stack([np.ones(len(columns)), (columns - mid) / half])


def newton(sums, names, tolerance=DECREMENT_TOLERANCE, slack=0.0):
    """The loop a method runs: (beta, hessian, names of diverging coefficients, rounds)."""
    beta = np.zeros(len(names))
    log_likelihood, gradient, hessian = sums(beta)
    null_hessian = hessian
    direction = newton_direction(gradient, hessian, names)
    for rounds in range(1, 200):
        decrement = newton_decrement(gradient, direction)
        gone = diverging(direction, hessian, null_hessian, names, tolerance)
        if gone:
            return beta, hessian, gone, rounds
        if converged(decrement, tolerance):
            return beta + direction, hessian, (), rounds
        step = 1.0
        while True:
            after = sums(beta + step * direction)
            if accept_step(log_likelihood, after[0], decrement, step, slack):
                break
            step /= 2
        beta = beta + step * direction
        log_likelihood, gradient, hessian = after
        direction = newton_direction(gradient, hessian, names, ROUNDING)
    raise AssertionError("Newton's method did not end")


def sample(seed, n, p):
    """Columns in units of 0.1 to 1000, far from zero; bounds twice as wide as needed."""
    rng = np.random.default_rng(seed)
    units = 10.0 ** rng.integers(-1, 4, size=p)
    columns = (rng.normal(size=(n, p)) + 5 * rng.normal(size=p)) * units
    low, high = columns.min(axis=0), columns.max(axis=0)
    mid, half = (low + high) / 2, high - low
    X = scaled(columns, mid, half)
    eta = -0.5 + (columns - mid) / units @ (rng.normal(size=p) / math.sqrt(p))
    y = (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float)
    return columns, mid, half, X, y


# Newton's method -----------------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "level"), [(0, 0.9), (1, 0.95), (2, 0.95), (3, 0.9), (5, 0.95)])
def test_fits_in_own_units_agree_with_statsmodels(seed, level):
    p = 1 + seed % 4
    columns, mid, half, X, y = sample(seed, 400, p)
    names = ["(intercept)", *(f"x{j}" for j in range(p))]
    beta, _, gone, _ = newton(lambda b: logistic_sums(X, y, b), names, tolerance=1e-6)
    assert gone == ()
    # statsmodels on well-scaled columns, so that the oracle has its digits; then mapped by hand
    spread = columns.std(axis=0)
    Z = np.column_stack([np.ones(len(y)), (columns - columns.mean(axis=0)) / spread])
    oracle = sm.Logit(y, Z).fit(method="newton", tol=1e-13, maxiter=100, disp=0)
    back = np.eye(p + 1)
    back[0, 1:] = -columns.mean(axis=0) / spread
    back[1:, 1:] = np.diag(1 / spread)
    estimates = back @ oracle.params
    errors = np.sqrt(np.diagonal(back @ oracle.cov_params() @ back.T))
    at_estimate = logistic_sums(X, y, beta)[2]
    terms = inference(beta, at_estimate, units_matrix(mid, half), names, level)
    # the last step leaves about (10^-6)^2 standard errors; the intercept's map cancels numbers up
    # to 10^2 standard errors apart, at conditions up to 10^3: 10^-16 * 10^5, ten times for luck
    rel = 1e-10
    quantile = (oracle.conf_int(1 - level)[0, 1] - oracle.params[0]) / oracle.bse[0]
    assert [term.term for term in terms] == names
    for term, estimate, error in zip(terms, estimates, errors, strict=True):
        assert abs(term.estimate - estimate) <= rel * (error + abs(estimate))
        assert term.std_error == pytest.approx(error, rel=1e-9)
        assert term.statistic == pytest.approx(estimate / error, rel=1e-9, abs=1e-9)
        assert term.ci_low == pytest.approx(estimate - quantile * error, abs=1e-8 * error)
        assert term.ci_high == pytest.approx(estimate + quantile * error, abs=1e-8 * error)
    # slopes' tests do not depend on the units
    np.testing.assert_allclose([t.p_value for t in terms[1:]], oracle.pvalues[1:], rtol=1e-7)


def test_the_default_tolerance_ends_within_a_hundred_millionth_of_a_standard_error():
    _, _, _, X, y = sample(7, 500, 3)
    names = ["(intercept)", "a", "b", "c"]
    loose, hessian, _, rounds = newton(lambda b: logistic_sums(X, y, b), names)
    tight, *_ = newton(lambda b: logistic_sums(X, y, b), names, tolerance=1e-9)
    errors = np.sqrt(np.diagonal(np.linalg.inv(hessian)))
    # quadratic convergence: (5e-5)^2 = 2.5e-9, times a constant of order 1
    assert np.all(np.abs(loose - tight) <= 1e-8 * errors)
    assert rounds <= 8


def test_fixed_point_sums_give_the_same_fit_and_the_same_verdict():
    rng = np.random.default_rng(8)
    resolution = 2.0**-30
    _, _, _, X, y = sample(8, 500, 2)
    X = np.column_stack([X, np.where(rng.random(500) < 0.1, 1.0, -1.0)])
    names = ["(intercept)", "a", "b", "ward"]

    def rounded(outcome):
        def sums(beta):
            exact = logistic_sums(X, outcome, beta)
            value, *arrays_ = (np.round(part / resolution) * resolution for part in exact)
            return float(value), *arrays_

        return sums

    # here H has least eigenvalue above 1, so errors of 2^-31 move estimates by less than 10^-8
    fit, hessian, gone, _ = newton(rounded(y), names, slack=resolution)
    exact, *_ = newton(lambda b: logistic_sums(X, y, b), names, tolerance=1e-9)
    assert gone == ()
    assert np.linalg.eigvalsh(hessian)[0] > 1
    assert np.max(np.abs(fit - exact)) < 1e-7
    separated = np.where(X[:, 3] > 0, 0.0, y)
    assert newton(rounded(separated), names, slack=resolution)[2] == ("ward",)


@given(seed=st.integers(0, 2**32 - 1), p=st.integers(1, 6))
def test_direction_and_decrement_solve_the_newton_system(seed, p):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(p + 20, p)) * 10.0 ** rng.integers(-6, 6, size=p)
    hessian = root.T @ root
    gradient = rng.normal(size=p) * np.sqrt(np.diagonal(hessian))
    direction = newton_direction(gradient, hessian, [f"x{j}" for j in range(p)])
    residual = np.abs(hessian @ direction - gradient)
    # Cholesky is backward stable: p eps per entry of |H||d|, doubled for the scaling
    assert np.all(residual <= 64 * p * EPS * (np.abs(hessian) @ np.abs(direction)))
    decrement = newton_decrement(gradient, direction)
    assert decrement**2 == pytest.approx(direction @ hessian @ direction, rel=1e-9)
    errors = np.sqrt(np.diagonal(np.linalg.inv(hessian)))
    assert np.all(np.abs(direction) <= decrement * errors * (1 + 1e-6))


@pytest.mark.parametrize(
    ("columns", "named", "others"),
    [
        ("wards", "west", ("north", "south")),
        ("constant", "same", ()),
        ("at the middle of its bounds", "same", ()),
    ],
)
def test_collinear_columns_are_named_at_the_start(columns, named, others):
    rng = np.random.default_rng(9)
    n, names = 200, ["(intercept)", "age", "same"]
    table = np.column_stack([rng.random(n), np.full(n, 0.8 if columns == "constant" else 0.5)])
    if columns == "wards":
        names = ["(intercept)", "age", "north", "south", "west"]
        table = np.column_stack([rng.random(n), np.eye(3)[rng.integers(0, 3, n)]])
    X, y = scaled(table, 0.5, 0.5), (rng.random(n) < 0.5).astype(float)
    _, gradient, hessian = logistic_sums(X, y, np.zeros(len(names)))
    with pytest.raises(UsageError, match=f"'{named}'") as caught:
        newton_direction(gradient, hessian, names)
    assert all(repr(name) in caught.value.what for name in others)
    assert "age" not in str(caught.value)
    assert (caught.value.advice == CONSTANT_COLUMN_ADVICE) == (columns != "wards")


def test_a_step_is_accepted_on_a_sufficient_increase_only():
    assert accept_step(-100.0, -99.5, decrement=1.0, step=1.0)
    assert not accept_step(-100.0, -100.5, decrement=1.0, step=1.0)
    assert not accept_step(-100.0, -100.0 + 0.5e-4, decrement=1.0, step=1.0)
    assert accept_step(-100.0, -100.0 + 0.5e-4, decrement=1.0, step=0.25)
    assert accept_step(-100.0, -100.0 - 1e-6, decrement=1e-7, step=1.0, slack=1e-5)
    assert accept_step(-1e6, -1e6 * (1 + EPS), decrement=1e-9, step=1.0)  # rounding alone
    assert not accept_step(-100.0, math.nan, decrement=1.0, step=1.0)


def test_errors_from_the_hessian_before_the_last_step_are_within_the_stated_factor():
    _, _, _, X, y = sample(12, 300, 3)
    names = ["(intercept)", "a", "b", "c"]
    beta = np.zeros(4)
    before = logistic_sums(X, y, beta)
    direction = newton_direction(before[1], before[2], names)
    after = logistic_sums(X, y, beta + direction)[2]
    ratio = np.diagonal(np.linalg.inv(after)) / np.diagonal(np.linalg.inv(before[2]))
    bound = np.sum(np.abs(direction))
    assert np.all(np.abs(np.log(ratio)) <= bound)
    assert np.max(np.abs(np.log(ratio))) > 0.01  # a step that matters


# Separation ----------------------------------------------------------------------------------


def separated_by_linear_programming(X, y):
    """Albert & Anderson: is there v with every margin >= 0 and some margin > 0?"""
    margins = np.where(y == 1, 1.0, -1.0)[:, None] * X
    program = linprog(
        -margins.sum(axis=0), A_ub=-margins, b_ub=np.zeros(len(y)), bounds=[(-1, 1)] * X.shape[1]
    )
    return -program.fun > 1e-7


@pytest.mark.oracle
@pytest.mark.parametrize("block", range(4))
def test_separation_is_found_exactly_where_linear_programming_finds_it(block):
    verdicts = []
    for seed in range(50 * block, 50 * block + 50):
        rng = np.random.default_rng(seed)
        n, p = int(rng.integers(6, 40)), int(rng.integers(1, 4))
        columns = [
            rng.choice([-1.0, 0.0, 1.0], n) if rng.random() < 0.5 else rng.uniform(-1, 1, n)
            for _ in range(p)
        ]
        X = np.column_stack([np.ones(n), *columns])
        chance = 1 / (1 + np.exp(-3 * X @ rng.normal(size=p + 1)))
        y = (rng.random(n) < chance).astype(float)
        names = ["(intercept)", *"abc"[:p]]
        if np.linalg.matrix_rank(X) <= p:
            continue
        gone = newton(lambda b, X=X, y=y: logistic_sums(X, y, b), names)[2]
        assert bool(gone) == separated_by_linear_programming(X, y), seed
        verdicts.append(bool(gone))
    assert 10 < sum(verdicts) < len(verdicts) - 10  # both verdicts were put to the test


@pytest.fixture
def cohort():
    rng = np.random.default_rng(10)
    n = 500
    age = rng.uniform(-1, 1, n)
    ward = np.where(rng.random(n) < 0.1, 1.0, -1.0)
    y = (rng.random(n) < 1 / (1 + np.exp(-0.3 - age))).astype(float)
    return np.column_stack([np.ones(n), age, ward]), y, ["(intercept)", "age", "ward"]


@pytest.mark.parametrize(
    ("outcome", "named"),
    [
        (lambda X, y: np.where(X[:, 2] > 0, 0.0, y), ("ward",)),  # a group without events
        (lambda X, y: np.where(np.arange(500) == np.argmax(X[:, 2]), 1.0,
                               np.where(X[:, 2] > 0, 0.0, y)), ()),  # with one
        (lambda X, y: (X[:, 1] > 0.1).astype(float), ("age",)),  # a column decides
        (lambda X, y: np.ones(500), ("(intercept)",)),
        (lambda X, y: np.zeros(500), ("(intercept)",)),
    ],
)  # fmt: skip
def test_separating_columns_are_named(cohort, outcome, named):
    X, y, names = cohort
    separated = outcome(X, y)
    _, _, gone, rounds = newton(lambda b: logistic_sums(X, separated, b), names)
    assert gone == named
    assert rounds <= 25  # information falls by e a round, to 10^-8


def test_wide_bounds_and_rare_events_are_not_separation(cohort):
    X, y, names = cohort
    wide = X * np.array([1, 1e-3, 1]) + np.array([0, 0.5, 0])
    beta, _, gone, _ = newton(lambda b: logistic_sums(wide, y, b), names)
    assert gone == ()
    assert abs(beta[1]) > 500
    rare = np.zeros(200_000)
    rare[:2] = 1.0
    group = np.column_stack([np.ones(200_000), np.where(np.arange(200_000) % 2, 1.0, -1.0)])
    beta, _, gone, _ = newton(lambda b: logistic_sums(group, rare, b), ["(intercept)", "group"])
    assert gone == ()
    assert beta[0] == pytest.approx(math.log(1 / 99_999), rel=1e-8)  # one event in each half


# Back to the columns' units ------------------------------------------------------------------


def test_units_matrix_keeps_the_linear_predictor_and_maps_the_covariance():
    columns, mid, half, X, y = sample(11, 200, 3)
    T = units_matrix(mid, half)
    beta = np.array([0.2, -3.0, 1.0, 2.0])
    original = np.column_stack([np.ones(200), columns]) @ (T @ beta)
    # both sides round numbers of the size of |x| |T beta|
    size = np.max(np.abs(np.column_stack([np.ones(200), columns])) @ np.abs(T @ beta))
    np.testing.assert_allclose(X @ beta, original, rtol=0, atol=16 * EPS * size)
    hessian = logistic_sums(X, y, beta)[2]
    names = ["(intercept)", "a", "b", "c"]
    found = covariance(hessian, T, names)
    np.testing.assert_allclose(found, T @ np.linalg.inv(hessian) @ T.T, rtol=1e-9)
    assert np.array_equal(found, found.T)


def test_covariance_far_from_zero_is_that_of_rational_arithmetic():
    hessian = np.array([[4.0, 1.0], [1.0, 0.5]])
    mid, half = np.array([1e6]), np.array([0.25])
    T = units_matrix(mid, half)
    inverse = [[Fraction(1, 2), Fraction(-1)], [Fraction(-1), Fraction(4)]]  # determinant 1
    exact = [[Fraction(float(value)) for value in row] for row in T]
    expected = sum(exact[0][j] * inverse[j][k] * exact[0][k] for j in range(2) for k in range(2))
    found = covariance(hessian, T, ["(intercept)", "x"])[0, 0]
    assert found == pytest.approx(float(expected), rel=16 * EPS)


def test_a_ratio_beyond_floats_is_none():
    # one unit of the column is 10^6 times the range it was scaled from
    terms = inference(
        np.array([0.0, 2.0]),
        np.eye(2) * 10,
        units_matrix(np.zeros(1), np.array([1e-6])),
        ["(intercept)", "x"],
    )
    first, last = plain_terms(terms, "rate")
    assert first["rate_ratio"] == 1.0
    assert first["rate_low"] == math.exp(terms[0].ci_low)
    assert first["rate_high"] == math.exp(terms[0].ci_high)
    assert last["estimate"] == pytest.approx(2e6) and last["rate_ratio"] is None  # in results


def test_inference_refuses_what_it_cannot_invert():
    singular = np.array([[1.0, 1.0], [1.0, 1.0]])
    with pytest.raises(UsageError):
        inference(np.zeros(2), singular, np.eye(2), ["(intercept)", "x"])
    with pytest.raises(UsageError):
        inference(np.zeros(2), np.eye(2), np.eye(2), ["(intercept)", "x"], level=95)
