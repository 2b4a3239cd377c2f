"""The proximal Newton method, with test fits and graphs and those of the library."""

from dataclasses import dataclass

import numpy as np
import pytest
import scipy.linalg

from secagg.models.graphs import proximal_newton
from secagg.models.graphs.acyclic_lasso import LeastSquares
from secagg.models.graphs.mlp import Networks
from secagg.models.graphs.proximal_newton import (
    LinearGraph,
    Multipliers,
    Step,
    descend,
    graph_constraint,
    penalties,
)
from secagg.models.notears_admm.w_step import Pull


@dataclass(frozen=True)
class Ridged:
    """f(W) = strength / 2 |W - target|^2; h's multiplier stays at alpha, as in the simplest fit.

    The library's own fits solve for it; the steps here must go down with any of them.
    """

    target: np.ndarray
    strength: float
    penalty: np.ndarray

    def value(self, W: np.ndarray):
        return Pull(self.target, self.strength).value(W)

    def solve(self, W: np.ndarray, E: np.ndarray, rest: float, multipliers: Multipliers):
        mu = multipliers.alpha + multipliers.rho * max(0.0, rest + float(np.vdot(E, W * W)))
        shrunk = np.maximum(self.strength * np.abs(self.target) - self.penalty, 0)
        shrunk[np.isinf(self.penalty)] = 0
        return np.copysign(shrunk, self.target) / (self.strength + 2 * mu * E)


def objective(graph, fit, W: np.ndarray, multipliers: Multipliers) -> float:
    A = graph.squares(W)
    h = float(np.trace(scipy.linalg.expm(A))) - len(A)
    value = fit.value(W)[0] + float(np.sum(penalties(graph)[1] * np.abs(W)))
    return value + multipliers.alpha * h + multipliers.rho / 2 * h * h


def violation(graph, fit, step: Step, multipliers: Multipliers) -> float:
    """Distance of 0 from the subdifferential of (F) by scipy's exponential, free entries only."""
    held, penalty = penalties(graph)
    A = graph.squares(step.W)
    exponential = scipy.linalg.expm(A)
    h = float(np.trace(exponential)) - len(A)
    mu = multipliers.alpha + multipliers.rho * h
    slope = fit.value(step.W)[1] + 2 * mu * step.W * graph.spread(exponential.T)
    distance = np.where(
        step.W == 0,
        np.maximum(np.abs(slope) - penalty, 0),
        np.abs(slope + penalty * np.sign(step.W)),
    )
    return float(np.max(np.where(held, 0, distance)))


def cases():
    rng = np.random.default_rng(4)
    d = 5
    target = rng.normal(size=(d, d))
    X = rng.normal(size=(40, d)) @ rng.normal(size=(d, d))
    lagged = LinearGraph(d, 1, (0.3, 0.1), zero_diagonal=True)
    networks = Networks(3, 2, 0.2)
    theta = rng.normal(size=networks.size)
    static, both = LinearGraph(d, penalties=(0.3, 0.0)), rng.normal(size=(2 * d, d))
    return {
        "static": (static, Ridged(target, 2.0, static.penalty), target),
        "lagged": (lagged, Ridged(both, 0.5, lagged.penalty), both),
        "networks": (networks, Ridged(theta, 1.0, networks.penalty), 0.3 * theta),
        "least squares": (
            LinearGraph(d, penalties=(0.1, 0.0), zero_diagonal=True),
            LeastSquares(np.cov(X.T), 0.1),
            0.3 * target,
        ),
    }


CASES = cases()
MULTIPLIERS = [Multipliers(0.0, 1e-3), Multipliers(0.7, 3.0), Multipliers(50.0, 1e6)]


@pytest.mark.parametrize("case", CASES)
def test_the_constraint_and_its_gradient_are_correct(case: str, numerical_gradient) -> None:
    graph, _, W = CASES[case]
    W = 0.5 * W
    h, E = graph_constraint(graph, W)
    # trace(expm) - d: an absolute error of a few roundings of d.
    assert h == pytest.approx(np.trace(scipy.linalg.expm(graph.squares(W))) - graph.d, abs=1e-12)
    assert np.all(E >= 0)
    numerical, error = numerical_gradient(lambda V: graph_constraint(graph, V)[0], W)
    np.testing.assert_allclose(2 * W * E, numerical, rtol=0, atol=error)


@pytest.mark.parametrize("multipliers", MULTIPLIERS)
@pytest.mark.parametrize("case", CASES)
def test_every_step_lowers_the_objective(case: str, multipliers: Multipliers) -> None:
    graph, fit, start = CASES[case]
    start = np.where(penalties(graph)[0], 0, start)
    before = objective(graph, fit, start, multipliers)
    for steps in range(1, 9):
        W = descend(graph, fit, start, multipliers, steps=steps, tolerance=0).W
        value = objective(graph, fit, W, multipliers)
        # scipy's h errs by about 1e-14, which mu = alpha + rho h amplifies; the method's own
        # slack is 1e-15 of F.
        h = graph_constraint(graph, W)[0]
        slack = 1e-13 * (abs(before) + multipliers.alpha + multipliers.rho * h)
        assert value <= before + slack
        before = value


@pytest.mark.parametrize("multipliers", MULTIPLIERS[:2])
@pytest.mark.parametrize("case", CASES)
def test_the_result_meets_the_first_order_conditions(case: str, multipliers: Multipliers) -> None:
    graph, fit, start = CASES[case]
    step = descend(graph, fit, start, multipliers, steps=2000, tolerance=1e-9)
    assert step.finite
    assert step.h == graph_constraint(graph, step.W)[0]
    # The steps end where a decrease of F is below its rounding, 1e-15 |F|: at curvatures c
    # between those of the fits here, 0.1 and 100, a slope g is worth g^2 / 2 c.
    F = objective(graph, fit, step.W, multipliers)
    assert violation(graph, fit, step, multipliers) <= 2 * np.sqrt(2 * 100 * 1e-15 * (1 + F))


def test_the_search_ends_at_the_tolerance() -> None:
    graph, fit, start = CASES["static"]
    run = {
        s: descend(graph, fit, start, MULTIPLIERS[1], steps=50, tolerance=s) for s in (1e9, 1e-9)
    }
    assert run[1e9].evaluations < run[1e-9].evaluations
    once = descend(graph, fit, start, MULTIPLIERS[1], steps=1, tolerance=0)
    np.testing.assert_array_equal(run[1e9].W, once.W)


def test_overflowing_trial_points_are_rejected(monkeypatch) -> None:
    """From zero, where h has no slope yet, the first trial is the far target itself: exp(1e4)."""
    overflowed = 0
    original = proximal_newton.exponential_minus_identity

    def watched(A: np.ndarray) -> np.ndarray:
        nonlocal overflowed
        result = original(A)
        overflowed += not np.all(np.isfinite(result))
        return result

    monkeypatch.setattr(proximal_newton, "exponential_minus_identity", watched)
    graph = LinearGraph(4, penalties=(0.1, 0.0), zero_diagonal=True)
    fit = Ridged(np.full((4, 4), 100.0), 1.0, graph.penalty)
    step = descend(graph, fit, np.zeros((4, 4)), Multipliers(0.0, 1e-3), steps=100, tolerance=1e-6)
    assert overflowed > 0
    assert step.finite
    assert 0 < step.h < np.inf
    assert objective(graph, fit, step.W, Multipliers(0.0, 1e-3)) < fit.value(np.zeros((4, 4)))[0]


@pytest.mark.parametrize(
    "start", [np.full((3, 3), 40.0), np.full((3, 3), np.nan), np.diag([1e200] * 3)]
)
def test_a_start_that_is_not_finite_is_reported(start: np.ndarray) -> None:
    graph = LinearGraph(3)
    fit = Ridged(np.zeros((3, 3)), 1.0, graph.penalty)
    step = descend(graph, fit, start, Multipliers(1.0, 1.0), steps=5, tolerance=0)
    assert not step.finite
    np.testing.assert_array_equal(step.W, start)
    assert step.evaluations == 1


def test_if_all_steps_overflow_the_start_is_returned() -> None:
    """A fit that always proposes huge steps: the result is the start, which is finite."""

    class Absurd(Ridged):
        def solve(self, W, E, rest, multipliers):
            return np.full(W.shape, 1e200)

    graph = LinearGraph(3)
    start = 0.1 * np.ones((3, 3))
    step = descend(
        graph, Absurd(start, 1.0, graph.penalty), start, Multipliers(1.0, 1.0), steps=5, tolerance=0
    )
    np.testing.assert_array_equal(step.W, start)
    assert np.isfinite(step.h)
