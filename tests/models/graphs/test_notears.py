from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from secagg.errors import SecaggError
from secagg.models.common.pooled_moments import Moments
from secagg.models.graphs import notears as module
from secagg.models.graphs.acyclic_lasso import LeastSquares
from secagg.models.graphs.acyclicity import is_acyclic
from secagg.models.graphs.metrics import compare_graphs
from secagg.models.graphs.notears import notears
from secagg.models.graphs.proximal_newton import Multipliers, Step


def lasso(S: np.ndarray, parents: list[int], child: int, penalty: float) -> np.ndarray:
    """Coordinate descent to rounding, written from its optimality conditions."""
    w = np.zeros(len(S))
    for _ in range(10_000):
        before = w.copy()
        for k in parents:
            rest = S[k, child] - S[k] @ w + S[k, k] * w[k]
            w[k] = np.sign(rest) * max(abs(rest) - penalty, 0.0) / S[k, k]
        if np.max(np.abs(w - before)) < 1e-14:
            break
    return w


def score(S: np.ndarray, W: np.ndarray, penalty: float) -> float:
    return LeastSquares(S, penalty).value(W)[0] + penalty * float(np.abs(W).sum())


def best_dag(S: np.ndarray, penalty: float) -> float:
    """The global minimum: over every order of the variables, a lasso on all predecessors."""
    best = np.inf
    for order in permutations(range(len(S))):
        columns = [np.zeros(len(S))] * len(S)
        for place, child in enumerate(order):
            columns[child] = lasso(S, list(order[:place]), child, penalty)
        best = min(best, score(S, np.array(columns).T, penalty))
    return best


def moments(S: np.ndarray, n: int = 1000) -> Moments:
    names = tuple(f"x{j}" for j in range(len(S)))
    return Moments(names, n, np.zeros(len(S)), n * S)


def test_the_loss_agrees_with_the_rows(simulate) -> None:
    network = simulate(3, 5, 6, 40)
    W = np.random.default_rng(0).normal(size=(5, 5))
    centred = network.rows - network.rows.mean(axis=0)
    by_rows = np.sum((centred - centred @ W) ** 2) / (2 * 40)
    # Sums of 40 * 5 and of 5 * 5 terms in another order.
    loss = LeastSquares(network.moments.covariance, 0.1).value(W)[0]
    assert loss == pytest.approx(by_rows, rel=1e-12)


@pytest.mark.parametrize(("seed", "p"), [(0, 3), (1, 3), (2, 4), (3, 4)])
def test_the_result_agrees_with_the_best_of_all_dags(simulate, seed: int, p: int) -> None:
    S = simulate(seed, p, p, 200).moments.covariance
    fit = notears(moments(S), standardise=False, penalty=0.1)
    assert fit.converged
    assert is_acyclic(fit.weights != 0)
    best = best_dag(S, 0.1)
    value = score(S, fit.weights, 0.1)
    # A DAG's score cannot lie below the global minimum. It is met up to the last step's stopping
    # rule (1e-12 in each weight) and the coordinate descent's (1e-14), each second order in it.
    assert value == pytest.approx(best, rel=1e-9)


def test_strong_signal_is_recovered(simulate) -> None:
    network = simulate(7, 8, 9, 5000)
    for data in (network.exact, network.moments):
        fit = notears(data, standardise=False)
        assert fit.converged
        assert compare_graphs(fit.directed, network.truth).shd == 0


def test_weights_equal_a_lasso_on_the_parents(simulate) -> None:
    network = simulate(11, 10, 14, 500)
    S = network.moments.correlation
    fit = notears(network.moments)
    for child in range(10):
        parents = np.flatnonzero(fit.weights[:, child]).tolist()
        # The last step stops where no single entry would move by 1e-12, a column of slopes of up to
        # sqrt(10) 1e-12, over the smallest eigenvalue of S; the oracle where none moved by 1e-14.
        near = 2 * np.sqrt(10) * 1e-12 / np.linalg.eigvalsh(S)[0]
        np.testing.assert_allclose(
            fit.weights[:, child], lasso(S, parents, child, 0.1), rtol=0, atol=near
        )


@pytest.mark.parametrize("r", [0.9, -0.5])
def test_nearly_equal_variables_keep_their_edge(r: float) -> None:
    # Perfectly symmetric: a descent from zero would shrink both directions to zero together.
    fit = notears(moments(np.array([[1, r], [r, 1]])))
    assert fit.converged
    assert fit.directed.sum() == 1
    # One edge: minimise 1/2 (1 - 2wr + w^2) + 0.1 |w|, so w = r shrunk by 0.1 (1e-7: as above).
    assert fit.edges()[0]["weight"] == pytest.approx(r - 0.1 * np.sign(r), abs=1e-7)


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("seed", "a", "noise"), [(2, 0.99, 0.1), (3, 1.0, 0.01), (4, 0.99, 0.1), (5, 1.0, 0.01)]
)
def test_a_strongly_correlated_chain_converges_to_a_dag(
    of_rows, seed: int, a: float, noise: float
) -> None:
    """Neighbours correlated 0.995 and 0.9999: the inner problems are ill conditioned.

    With 25 gradient steps for each and no more, none of these seeds of the first converged.
    """
    rows = np.random.default_rng(seed).normal(size=(15, 500)).T
    for j in range(1, 15):
        rows[:, j] = a * rows[:, j - 1] + noise * rows[:, j]
    data = of_rows(rows)
    fit = notears(data)
    assert fit.converged
    assert fit.diagnostics["h"] <= 1e-8
    assert is_acyclic(fit.weights != 0)
    # Each weight is optimal on its parents: to 1e-12 by the rule of the last step.
    assert parents_violation(data.correlation, fit.weights) <= 1e-11


def parents_violation(S: np.ndarray, W: np.ndarray) -> float:
    """The largest slope left, over the entries that are not zero, at penalty 0.1."""
    slope = -S @ (np.eye(len(S)) - W) + 0.1 * np.sign(W)
    return float(np.max(np.abs(slope[W != 0])))


@pytest.mark.parametrize("n", [11, 8])
def test_few_records_give_finite_acyclic_graphs(of_rows, n: int) -> None:
    """Correlations of exactly 1, and ranks 9 and 7: finite, acyclic, in few rounds."""
    rows = np.random.default_rng(n).normal(size=(n, 12))
    rows[:, 1] = rows[:, 0]
    rows[:, 3] = -2 * rows[:, 2]
    rows[:, 5] = rows[:, 0] + rows[:, 4]
    data = of_rows(rows)
    fit = notears(data, few_records=True)
    assert np.all(np.isfinite(fit.weights))
    assert fit.converged
    assert is_acyclic(fit.weights != 0)
    assert parents_violation(data.correlation, fit.weights) <= 1e-9  # what lifting leaves
    # A copy is found, in one of its two directions, whichever.
    assert fit.weights[0, 1] != 0 or fit.weights[1, 0] != 0


def test_a_diverged_fit_is_reported_with_its_cycles(monkeypatch, simulate) -> None:
    cyclic = np.array([[0, 1.0, 0], [0, 0, 1.0], [1.0, 0, 0]])
    monkeypatch.setattr(module, "acyclic_lasso", lambda *_: Step(cyclic, 1.0, False, 1))
    fit = notears(simulate(1, 3, 2, 50).moments)
    assert not fit.converged
    assert fit.notes[0].startswith("not converged")
    assert not is_acyclic(fit.directed)


def test_multipliers_change_as_in_algorithm_1(monkeypatch, simulate) -> None:
    """rho is raised tenfold until h has fallen to a quarter; then alpha rises by rho h."""
    calls: list[tuple[Multipliers, float]] = []
    original = module.acyclic_lasso

    def recorded(S, start, penalty, multipliers: Multipliers) -> Step:
        step = original(S, start, penalty, multipliers)
        calls.append((multipliers, step.h))
        return step

    monkeypatch.setattr(module, "acyclic_lasso", recorded)
    fit = notears(simulate(2, 5, 7, 100).moments)
    alpha, rho, last, rounds = 0.0, 1.0, np.inf, 0
    for multipliers, h in calls:
        assert multipliers == Multipliers(alpha, rho)
        if h <= 0.25 * last or rho >= 1e16:
            rounds += 1
            alpha, last = alpha + rho * h, h
        else:
            rho *= 10
    assert fit.diagnostics["rounds"] == rounds > 3
    assert fit.diagnostics["rho"] == rho > 1


def test_an_unreached_tolerance_is_reported(simulate) -> None:
    fit = notears(simulate(2, 5, 7, 100).moments, tolerance=1e-300)
    assert not fit.converged and fit.notes


VALUES = st.one_of(
    st.floats(-10, 10),
    st.floats(-1e6, 1e6),
    st.sampled_from([0.0, 1.0, -1.0, 1e-300, 1e100, -1e300]),
)
TABLES = st.tuples(st.integers(1, 16), st.integers(1, 5)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=VALUES)
)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(TABLES, st.sampled_from([1.0, 1e-8, 1e3]), st.booleans())
def test_any_finite_records_give_a_graph_or_a_typed_error(
    of_rows, X: np.ndarray, scale: float, standardise: bool
) -> None:
    """They give a finite graph that says whether it converged, or a typed error."""
    with np.errstate(over="ignore", invalid="ignore"):  # of the moments, which are the caller's
        data = of_rows(scale * X)
    try:
        fit = notears(data, standardise=standardise)
    except SecaggError:
        return
    assert np.all(np.isfinite(fit.weights))
    assert is_acyclic(fit.weights != 0) if fit.converged else fit.notes
