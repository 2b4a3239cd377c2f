"""Problem (5): its two solvers, and the convex problems inside one of them."""

import numpy as np
import pytest
import scipy.linalg

from secagg.models.graphs.proximal_newton import LinearGraph, Multipliers
from secagg.models.notears_admm.w_step import (
    Pull,
    ScaledPull,
    _Shrunk,
    proximal_step,
    subgradient_step,
)

ROUNDING = 2.0**-53
CONVEX = Multipliers(0.0, 1e-30)  # h has almost no weight


def soft(c: np.ndarray, by: float | np.ndarray) -> np.ndarray:
    return np.sign(c) * np.maximum(np.abs(c) - by, 0)


def objective(graph: LinearGraph, pull: Pull, multipliers: Multipliers, W: np.ndarray) -> float:
    """(5) as the module writes it, by scipy's exponential."""
    now = W[: graph.d]
    h = float(np.trace(scipy.linalg.expm(now * now))) - graph.d
    l1 = float(np.sum(np.where(np.isinf(graph.penalty), 0, graph.penalty) * np.abs(W)))
    away = pull.strength / 2 * float(np.sum((W - pull.target) ** 2))
    return l1 + multipliers.alpha * h + multipliers.rho / 2 * h * h + away


@pytest.mark.parametrize("seed", range(300))
def test_the_convex_problem_meets_its_first_order_conditions(seed: int) -> None:
    """V minimises lambda |V|_1 + kappa/2 |V - C|^2 + alpha l + rho/2 max(0, l)^2, l linearised h.

    For one mu, V = soft(C, lambda / kappa) / (1 + 2 mu E / kappa) in all entries, and
    mu = alpha + rho max(0, l(V)). As the problem is convex, these conditions are sufficient. Sizes
    are those of whole runs, first rounds to last.
    """
    rng = np.random.default_rng(seed)
    C = rng.normal(size=(4, 4)) * 10 ** rng.uniform(-3, 3)
    kappa, penalty = 10 ** rng.uniform(-3, 16), 10 ** rng.uniform(-3, 0)
    E = np.exp(rng.uniform(-30, 5, size=(4, 4)))
    W = rng.normal(size=(4, 4)) * 10 ** rng.uniform(-3, 3)
    rest = 10 ** rng.uniform(-9, 2) - float(np.vdot(E, W * W))
    alpha, rho = (10 ** rng.uniform(-6, 16) if seed % 2 else 0.0), 10 ** rng.uniform(-3, 16)

    shrunk = soft(C, penalty / kappa)
    V = _Shrunk(Pull(C, kappa), shrunk).solve(W, E, rest, Multipliers(alpha, rho))
    np.testing.assert_array_equal(V == 0, shrunk == 0)
    if not shrunk.any():
        return
    # The mu that was used, from the entry that it shrinks most, to some roundings of 1 + shrinkage.
    ridge = 2 * E / kappa
    shrinkage = np.where(shrunk == 0, 0, shrunk / np.where(V == 0, 1, V) - 1)
    most = np.unravel_index(np.argmax(shrinkage), V.shape)
    mu = float(shrinkage[most] / ridge[most])
    unsure = 8 * ROUNDING * float((1 + shrinkage[most]) / ridge[most])
    expected = shrunk / (1 + mu * ridge)
    np.testing.assert_allclose(V, expected, rtol=1e-14 + unsure * float(ridge.max()), atol=0)
    # Its equation: Newton's method stops at a step of 1e-9 mu, and l is a sum that may cancel.
    terms = E * V * V
    slope = 1 + 2 * rho * float(np.vdot(terms, ridge / (1 + mu * ridge)))
    cancelled = rho * 20 * ROUNDING * float(abs(rest) + terms.sum())
    right = alpha + rho * max(0.0, rest + float(terms.sum()))
    assert abs(mu - right) <= (unsure + 2e-9 * mu) * slope + cancelled + 20 * ROUNDING * alpha


@pytest.mark.parametrize("step", [proximal_step, subgradient_step])
def test_without_a_constraint_the_step_is_the_soft_threshold(step) -> None:
    rng = np.random.default_rng(2)
    graph = LinearGraph(4, 1, (0.3, 0.1), zero_diagonal=True)
    # No |C| below the thresholds 0.15 and 0.05: subgradients do not settle at a kink.
    target = np.copysign(rng.uniform(0.2, 1, size=(8, 4)), rng.normal(size=(8, 4)))
    found = step(graph, 0.9 * target, Pull(target, 2.0), CONVEX)
    assert found.finite
    expected = soft(target, np.where(np.isinf(graph.penalty), 10, graph.penalty) / 2)
    # A slope of 1e-5 (SciPy's gtol) over a curvature of 2; by a formula otherwise.
    near = 1e-15 if step is proximal_step else 0.5e-5
    np.testing.assert_allclose(found.W, expected, rtol=0, atol=near)


@pytest.mark.parametrize("zero_diagonal", [False, True])
@pytest.mark.parametrize("step", [proximal_step, subgradient_step])
def test_fixed_entries_stay_zero_and_lagged_ones_are_unconstrained(
    step, zero_diagonal: bool
) -> None:
    """Fixed entries are zero for any start and target; lagged ones do not enter h."""
    rng = np.random.default_rng(4)
    graph = LinearGraph(4, 2, (0.0, 0.1), zero_diagonal)
    target = rng.normal(size=(12, 4))
    target[4:] = np.copysign(np.abs(target[4:]) + 0.2, target[4:])  # above the threshold 0.05
    # The start has the final signs of the lagged entries, so subgradients meet no kink.
    found = step(graph, np.sign(target), Pull(target, 2.0), Multipliers(0.5, 1.0))
    assert found.finite
    assert np.all((np.diagonal(found.W[:4]) == 0) == zero_diagonal)
    # L-BFGS ends where a step gains 2.2e-9 of values near 10: sqrt(2 * 2.2e-8 / 2) at a curvature
    # of 2, if the rest of the way gains no more than that step.
    near = 1e-15 if step is proximal_step else 1.5e-4
    np.testing.assert_allclose(found.W[4:], soft(target[4:], 0.05), rtol=0, atol=near)


@pytest.mark.parametrize("seed", range(5))
def test_both_solvers_descend_and_the_proximal_is_at_least_as_good(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = LinearGraph(5)
    pull, multipliers = Pull(rng.normal(size=(5, 5)), 2.0), Multipliers(0.5, 1.0)
    start = 0.5 * rng.normal(size=(5, 5))
    values = []
    for step in (proximal_step, subgradient_step):
        found = step(graph, start, pull, multipliers)
        values.append(objective(graph, pull, multipliers, found.W))
        assert values[-1] < objective(graph, pull, multipliers, start)
        A = found.W * found.W
        assert found.h == pytest.approx(np.trace(scipy.linalg.expm(A)) - 5, abs=1e-12)
    # Started at the other's end it does not increase F; its own end may be another minimum.
    again = proximal_step(graph, found.W, pull, multipliers)
    assert objective(graph, pull, multipliers, again.W) <= values[1] * (1 + 1e-14)


@pytest.mark.parametrize("step", [proximal_step, subgradient_step])
def test_overflow_is_reported(step) -> None:
    start = np.full((3, 3), 40.0)
    result = step(LinearGraph(3), start, Pull(np.zeros((3, 3)), 1.0), Multipliers(1.0, 1.0))
    assert not result.finite
    np.testing.assert_array_equal(result.W, start)
    # Both weights of a cycle are in the hundreds: exp(W o W) overflows on the way.
    target = 300.0 * (np.ones((3, 3)) - np.eye(3))
    result = step(LinearGraph(3), np.zeros((3, 3)), Pull(target, 1e-3), Multipliers(0.0, 1e-3))
    assert np.all(np.isfinite(result.W)) and np.isfinite(result.h)


@pytest.mark.parametrize("seed", range(5))
def test_a_step_with_a_strength_for_each_entry_is_a_minimum(seed: int) -> None:
    """No entry can be moved to lower (5); equal strengths are one strength."""
    rng = np.random.default_rng(seed)
    graph, C = LinearGraph(3, 0, (0.1, 0.1)), rng.normal(size=(3, 3))
    pull, multipliers = ScaledPull(C, np.exp(rng.normal(size=(3, 3)) * 2)), Multipliers(0.2, 3.0)
    W = C
    for _ in range(20):
        W = proximal_step(graph, W, pull, multipliers).W

    def value(at: np.ndarray) -> float:
        h = float(np.trace(scipy.linalg.expm(at * at))) - 3
        away = float(np.sum(pull.strength * (at - C) ** 2)) / 2
        return 0.1 * float(np.sum(np.abs(at))) + 0.2 * h + 1.5 * h * h + away

    for i, j in np.ndindex(3, 3):
        for move in (-1e-3, 1e-3):
            other = W.copy()
            other[i, j] += move
            assert value(other) >= value(W) - 1e-9  # the search ends at changes of 1e-6
    same = proximal_step(graph, C, ScaledPull(C, np.full((3, 3), 2.5)), multipliers).W
    np.testing.assert_allclose(same, proximal_step(graph, C, Pull(C, 2.5), multipliers).W, 1e-9)
