"""Replicates and intervals: derivatives, and standard errors against formulas and bootstraps."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import norm
from support.methods.fitted_ngms import PRECISION, coupled, coupled_table, gaussian

from secagg.core.arrays import Array
from secagg.models.neural.ngm.fitted import intervals, replicates
from secagg.models.neural.ngm.fitted.column_networks import ColumnNetwork
from secagg.models.neural.ngm.fitted.conditionals import Conditional
from secagg.models.neural.ngm.fitted.intervals import (
    mean_interval,
    probability_interval,
    sampling_errors,
)
from secagg.models.neural.ngm.fitted.replicates import Replicates, replicates_of
from secagg.models.neural.ngm.fitted.residuals import (
    NORMAL_SHARES,
    SHAPE,
    Residuals,
    group_of,
)
from secagg.models.neural.ngm.fitted.sampling import Effort, start, sweep

RECORDS = 600
MANY = 1000  # replicates: the error of a standard error is then .96 / root 1000 = 3.0 %
DRAWN = 4000
WITHIN = 0.14  # 4 times that, and that of the covariances of the drawn records
TABLES = 300  # of a bootstrap: 4.1 %
OF_BOOTSTRAP = 0.2  # 4 times both


def replicated(
    of: list[Conditional], monkeypatch: Any, hidden: float = 0, linear: float = 0
) -> Replicates:
    """Return replicates for `RECORDS` records, made of records drawn from the model."""
    for module in (replicates, intervals):
        monkeypatch.setattr(module, "REPLICATES", MANY)
    model, rng = of[0].model, np.random.default_rng(0)
    drawn = model.states_of(np.full((DRAWN, model.layout.d), np.nan))
    start(of, drawn, rng)
    for _ in range(30):
        sweep(of, drawn, rng)
    return replicates_of(model, drawn, RECORDS, hidden, linear, rng)


def errors(of: list[Conditional], made: Replicates, given: list[float], target: int) -> Array:
    rng = np.random.default_rng(1)
    return sampling_errors(of, made, np.array(given), [target], rng)[target]


# --- derivatives ----------------------------------------------------------------------------------


@pytest.mark.parametrize("units", [(), (4,), (4, 3)])
def test_derivatives_are_those_of_finite_differences(units: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    widths = (2, *units)
    pairs = list(zip(widths[1:], widths[:-1], strict=True))
    shapes = [s for out, below in pairs for s in ((out, below), (out,))]
    shapes += [(2, units[-1] if units else 0), (2, 2), (2,)]
    theta = rng.standard_normal(sum(int(np.prod(s)) for s in shapes))

    def network(theta: Array) -> ColumnNetwork:
        ends = np.cumsum([int(np.prod(s)) for s in shapes])[:-1]
        parts = [a.reshape(s) for a, s in zip(np.split(theta, ends), shapes, strict=True)]
        *hidden, output, linear, bias = parts
        layers = tuple(zip(hidden[::2], hidden[1::2], strict=True))
        return ColumnNetwork(np.array([0, 2]), np.ones(2, dtype=bool), layers, output, linear, bias)

    z = rng.standard_normal((3, 7))
    found = network(theta).derivatives(z)
    assert network(theta).parameters == found.shape[2] == len(theta)
    for i, step in enumerate(1e-6 * np.eye(len(theta))):
        slope = (network(theta + step)(z) - network(theta - step)(z)) / 2e-6
        np.testing.assert_allclose(found[:, :, i], slope, atol=1e-8)
    biases = network(theta).precisions(3.0, 5.0)
    weights = [size for s, size in zip(shapes, map(np.prod, shapes), strict=True) if len(s) == 2]
    assert np.sum(biases == 3) == sum(weights) - 4 and np.sum(biases == 5) == 4


# --- all neighbours given -------------------------------------------------------------------------


def test_the_error_of_a_linear_mean_is_that_of_least_squares(monkeypatch: Any) -> None:
    """Of y given x and z: sigma^2 / N (1 + v' S^-1 v), with S the covariance of x and z."""
    of = gaussian()
    made = replicated(of, monkeypatch)
    S = np.linalg.inv(PRECISION)[np.ix_([0, 2], [0, 2])]
    for v in ([0.0, 0.0], [2.0, -1.0], [-1.0, 2.0]):
        error = np.sqrt((1 + v @ np.linalg.solve(S, v)) / (PRECISION[1, 1] * RECORDS))
        found = errors(of, made, [v[0], np.nan, v[1]], 1)
        assert found.shape == (1,) and found[0] == pytest.approx(error, rel=WITHIN)
    log_sd = np.std(made.log_sd[:, 1:], axis=1)
    np.testing.assert_allclose(log_sd, np.full(3, (2 * RECORDS) ** -0.5), rtol=WITHIN)


def test_the_error_of_a_probability_is_that_of_logistic_regression(monkeypatch: Any) -> None:
    """Of b given a and c, by the Fisher information over the known joint distribution."""
    of = coupled()
    made = replicated(of, monkeypatch)
    H = np.zeros((3, 3))
    slope, intercept = np.array([2.5, -2.0]), -0.2
    for (a, _, c), share in coupled_table().items():
        p, x = expit(intercept + slope @ (a, c)), np.array([1.0, a, c])
        H += RECORDS * share * p * (1 - p) * np.outer(x, x)
    x = np.array([1.0, 1.0, 0.0])
    error = np.sqrt(x @ np.linalg.solve(H, x))
    found = errors(of, made, [1, np.nan, 0], 1)
    np.testing.assert_allclose(found, [error, error], rtol=WITHIN)


def test_a_prior_widens_by_its_bias_and_shortens_by_what_it_knows(monkeypatch: Any) -> None:
    """Posterior standard deviation of a ridge regression: H^-1, not H^-1 (H - L) H^-1."""
    of = gaussian()
    made = replicated(of, monkeypatch, linear=RECORDS)
    S = np.linalg.inv(PRECISION)[np.ix_([0, 2], [0, 2])] * PRECISION[1, 1] + np.eye(2)
    v = np.array([2.0, -1.0])
    error = np.sqrt((1 / PRECISION[1, 1] + v @ np.linalg.solve(S, v)) / RECORDS)
    assert errors(of, made, [2, np.nan, -1], 1)[0] == pytest.approx(error, rel=WITHIN)


# --- neighbours drawn: parametric bootstraps by least squares -------------------------------------


def bootstrap(estimate: Callable[[Array], float]) -> float:
    """Return the standard deviation of estimates over tables of records of x - y - z."""
    rng, root = np.random.default_rng(2), np.linalg.cholesky(np.linalg.inv(PRECISION))
    tables = rng.standard_normal((TABLES, RECORDS, 3)) @ root.T
    return float(np.std([estimate(table) for table in tables]))


def regression(table: Array, target: int, on: list[int]) -> Array:
    X = np.column_stack([np.ones(len(table)), table[:, on]])
    return np.asarray(np.linalg.lstsq(X, table[:, target], rcond=None)[0])


def test_the_error_of_a_mean_with_drawn_neighbours_is_that_of_a_bootstrap(
    monkeypatch: Any,
) -> None:
    """E(z | x) solves y = a + b x + c z, z = d + e y, with coefficients of two regressions."""

    def estimate(table: Array) -> float:
        (a, b, c), (d, e) = regression(table, 1, [0, 2]), regression(table, 2, [1])
        return float((d + e * (a + b * 1.5)) / (1 - c * e))

    of = gaussian()
    made = replicated(of, monkeypatch)
    monkeypatch.setattr(intervals, "EFFORT", Effort(chains=4, warm_up=20, sweeps=60))
    found = errors(of, made, [1.5, np.nan, np.nan], 2)[0]
    assert found == pytest.approx(bootstrap(estimate), rel=OF_BOOTSTRAP)


def test_the_error_of_counted_residuals_is_that_of_a_bootstrap(monkeypatch: Any) -> None:
    """The mean of a group's residuals is part of the model's mean, and of its error."""
    x, z = 2.4, -1.5

    def estimate(table: Array) -> float:
        a, b, c = regression(table, 1, [0, 2])
        outputs = a + b * table[:, 0] + c * table[:, 2]
        output = a + b * x + c * z
        here = group_of(outputs) == group_of(np.array([output]))
        return float(output + np.sum((table[:, 1] - outputs)[here]) / (np.sum(here) + 10))

    counts = np.zeros((3, *SHAPE))
    for i, sd in enumerate(np.sqrt(np.diag(np.linalg.inv(PRECISION)) - 1 / np.diag(PRECISION))):
        ends = np.concatenate([[-np.inf], np.linspace(-2.5, 2.5, 5), [np.inf]]) / sd
        counts[i] = RECORDS * np.diff(norm.cdf(ends))[:, None] * NORMAL_SHARES
    plain = gaussian()[0].model
    model = replace(plain, residuals=Residuals.of(counts, 3))
    of = [Conditional(model, i) for i in range(3)]
    made = replicated(of, monkeypatch)
    found = errors(of, made, [x, np.nan, z], 1)[0]
    assert found == pytest.approx(bootstrap(estimate), rel=OF_BOOTSTRAP)
    without = errors(gaussian(), replicated(gaussian(), monkeypatch), [x, np.nan, z], 1)[0]
    assert found > 1.2 * without


def test_the_error_of_the_draws_is_no_part_of_that_of_the_records(monkeypatch: Any) -> None:
    """Replicates without an error answer alike, because all of them use the same random numbers."""
    of = gaussian()
    made = replicated(of, monkeypatch)
    networks = tuple(replace(n, delta=0 * n.delta) for n in made.networks)
    exact = replace(made, networks=networks, log_sd=0 * made.log_sd)
    monkeypatch.setattr(intervals, "EFFORT", Effort(chains=2, warm_up=3, sweeps=3))
    assert errors(of, exact, [1.5, np.nan, np.nan], 2)[0] < 1e-12


def test_directions_without_curvature_have_no_error_and_those_with_little_do() -> None:
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    curvature, expected = ((turn * each) @ turn.T for each in ([4, 1e-6, 1e-14], [0.25, 1e6, 0]))
    np.testing.assert_allclose(replicates._inverse(curvature), expected, rtol=1e-6, atol=1e-3)


# --- intervals ------------------------------------------------------------------------------------


def test_intervals_are_symmetric_for_means_and_logits() -> None:
    low, high = mean_interval(2.0, 0.5)
    assert (low + high) / 2 == 2 and (high - low) / 2 == pytest.approx(0.5 * 1.984, rel=1e-3)
    low, high = probability_interval(0.98, 1.0)
    assert 0 < low < 0.98 < high < 1
    assert np.log(low / (1 - low)) + np.log(high / (1 - high)) == pytest.approx(2 * np.log(49))
    for certain in (0.0, 1.0):
        low, high = probability_interval(certain, 0.0)
        assert low == pytest.approx(certain, abs=1e-11) and high == pytest.approx(
            certain, abs=1e-11
        )
