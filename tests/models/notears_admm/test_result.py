"""Stationarity, against conditions computed with networkx and against a known optimum."""

from typing import Any

import networkx as nx
import numpy as np
import pytest

from secagg.experiments.simulated_graphs import edge_weights, erdos_renyi_dag, linear_gaussian_rows
from secagg.models.graphs.proximal_newton import LinearGraph
from secagg.models.graphs.result import GraphFit
from secagg.models.notears_admm.coordinator import Schedule, begin
from secagg.models.notears_admm.linear_simulation import learn
from secagg.models.notears_admm.result import consensus_fit, stationarity

PENALTY = 0.05


def literal(W: np.ndarray, slope: np.ndarray, graph: LinearGraph) -> float:
    """Entry by entry; W's first block is a DAG."""
    now = nx.from_numpy_array(W[: graph.d] != 0, create_using=nx.DiGraph)
    largest = 0.0
    for i, j in np.ndindex(*W.shape):
        if i < graph.d and (i == j or nx.has_path(now, j, i)):
            continue  # i -> j would close a cycle
        penalty = graph.penalties[0] if i < graph.d else graph.penalties[1]
        if W[i, j] != 0:
            distance = abs(slope[i, j] + penalty * np.sign(W[i, j]))
        else:
            distance = max(abs(slope[i, j]) - penalty, 0.0)
        largest = max(largest, float(distance))
    return largest


@pytest.mark.parametrize(
    ("seed", "zero_diagonal", "lags"), [(0, False, 0), (1, True, 0), (2, False, 2), (3, True, 2)]
)
def test_stationarity_agrees_with_the_written_conditions(
    seed: int, zero_diagonal: bool, lags: int
) -> None:
    rng = np.random.default_rng(seed)
    graph = LinearGraph(6, lags, (0.4, 0.1), zero_diagonal)
    W = rng.normal(size=graph.shape) * (rng.uniform(size=graph.shape) < 0.5)
    W[:6] = edge_weights(erdos_renyi_dag(6, 6, rng), rng)
    slope = rng.normal(size=graph.shape)
    assert stationarity(W, slope, graph) == literal(W, slope, graph)


@pytest.mark.parametrize("d", [20, 34])
def test_entries_that_would_close_a_long_cycle_are_not_violations(d: int) -> None:
    """A chain: every entry from a later variable to an earlier one would close a cycle."""
    W = np.eye(d, k=1)
    slope = 5 * np.tril(np.ones((d, d))) - PENALTY * W
    assert stationarity(W, slope, LinearGraph(d, penalties=(PENALTY, 0.0))) == 0


def test_weak_cycles_are_dropped_first() -> None:
    """Down to a DAG as in the graph itself; an entry that is dropped counts as zero."""
    graph = LinearGraph(3, penalties=(PENALTY, 0.0))
    W = np.array([[0, 1.0, 0], [1e-5, 0, 1.0], [0, 0, 1e-6]])
    dag = np.where(np.abs(W) > 0.5, W, 0)
    slope = np.random.default_rng(0).normal(size=(3, 3))
    assert stationarity(W, slope, graph) == literal(dag, slope, graph)


def test_a_run_reports_its_distance_from_optimality() -> None:
    """The diagnostic of a run is that of its W and the pooled slope S (I - W)."""
    rng = np.random.default_rng(1)
    X = linear_gaussian_rows(edge_weights(erdos_renyi_dag(6, 6, rng), rng), 200, rng)
    fit = learn([X[:80], X[80:]], penalty=PENALTY)
    S = sum((p - p.mean(axis=0)).T @ (p - p.mean(axis=0)) for p in (X[:80], X[80:])) / 200
    slope = -S @ (np.eye(6) - fit.weights)
    spread = np.sqrt(np.diagonal(S))
    units = np.outer(spread, spread)
    expected = stationarity(fit.weights, slope, LinearGraph(6, penalties=(PENALTY, 0.0)), units)
    # B_k is within some 1e-8 of W, and so are their slopes, times |S|.
    near = 1e-7 * np.linalg.norm(S, 2) * 6 / units.min()
    assert fit.diagnostics["stationarity"] == pytest.approx(expected, abs=near)


@pytest.mark.parametrize("acyclic", [False, True])
def test_cycles_above_the_threshold_are_reported(acyclic: bool) -> None:
    graph, schedule = LinearGraph(3), Schedule("subgradient")
    W = np.array([[0, 1.0, 0], [0, 0, 0.8], [0.5, 0, 0]])
    state = begin(schedule, W) | {"status": "converged", "rounds": 3}
    fit = consensus_fit(state, graph, schedule, "abc", method="m", weights=W, threshold=0.3,
                        acyclic=acyclic, units=None, standardised=False,
                        settings={"penalty": 0.01})  # fmt: skip
    assert fit.converged
    assert fit.method == "m-subgradient"
    assert fit.names == ("a", "b", "c")
    assert fit.directed.sum() == (2 if acyclic else 3)
    assert fit.diagnostics["threshold"] == (0.5 if acyclic else 0.3)
    assert "cycle" in fit.notes[0]


LINE = np.diag([1.0, 1.0], k=1)
SLOPE = np.zeros((3, 3))
SLOPE[0, 2] = 0.5
SLOWER = Schedule(gamma1=1.3, gamma2=1.1)
NO_EDGE = np.zeros((3, 3))
ALIKE = np.ones((3, 3))


def fitted(
    W: np.ndarray,
    total: np.ndarray,
    units: np.ndarray | None,
    schedule: Schedule | None = None,
    status: str = "converged",
    *,
    standardised: bool = False,
    **settings: float,
) -> GraphFit:
    """Return the graph of a run that ended at W, with that sum of V_k."""
    schedule = schedule or Schedule()
    state = begin(schedule, W) | {"status": status, "rounds": 3, "total": total}
    return consensus_fit(state, LinearGraph(3), schedule, "abc", method="m", weights=W,
                         threshold=0.3, acyclic=False, units=units, standardised=standardised,
                         settings=settings)  # fmt: skip


def notes(*args: Any, **settings: Any) -> tuple[str, ...]:
    """Return the notes of such a run."""
    return fitted(*args, **settings).notes


def test_that_a_graph_is_not_a_local_optimum_comes_first() -> None:
    cycle = np.array([[0, 1.0, 0], [0, 0, 0.8], [0.5, 0, 0]])
    fit = fitted(cycle, SLOPE, ALIKE)
    assert len(fit.notes) == 2  # and that there is a cycle
    assert fit.caution == fit.notes[0] == fit.to_dict()["caution"]
    assert fit.caution.startswith("not a local optimum")
    near = fitted(cycle, 0.1 * SLOPE, ALIKE)
    assert near.caution == "" and len(near.notes) == 1 and "caution" not in near.to_dict()
    assert fitted(cycle, SLOPE, ALIKE, status="out of rounds").caution == ""


def test_remaining_slopes_are_noted_in_units_of_correlations() -> None:
    units = np.full((3, 3), 100.0)
    (note,) = notes(LINE, 60 * SLOPE, units)
    assert "a stationarity of 0.3 " in note
    assert "method.gamma1 = 1.3 and gamma2 = 1.1" in note
    assert notes(LINE, 6 * SLOPE, units) == ()
    (note,) = notes(LINE, 60 * SLOPE, None)  # without units for comparison
    assert "method.standardise" in note and "stationarity" not in note
    units[0, 2] = 0  # a variable without variance
    assert notes(LINE, 60 * SLOPE, units) == ()


def test_advice_names_no_setting_that_is_in_force() -> None:
    (note,) = notes(LINE, SLOPE, ALIKE, SLOWER)
    assert "method." not in note
    spread = np.array([1.0, 11.0, 1.0])
    (note,) = notes(LINE, SLOPE, np.outer(spread, spread), SLOWER)
    assert "method.standardise" in note and "gamma" not in note
    (note,) = notes(LINE, SLOPE, ALIKE, status="penalty limit reached")
    assert note.startswith("not converged")


@pytest.mark.parametrize(("ratio", "unlike"), [(9.9, False), (10.1, True)])
def test_unequal_columns_are_judged_by_the_ratio_of_deviations(ratio: float, unlike: bool) -> None:
    """Not by that of the products of two of them, the units."""
    spread = np.array([1.0, ratio, 1.0])
    (note,) = notes(LINE, SLOPE, np.outer(spread, spread))
    assert ("method.standardise" in note) == unlike


@pytest.mark.parametrize("status", ["converged", "out of rounds"])
def test_an_edge_of_a_variable_to_itself_is_noted(status: str) -> None:
    loop = LINE + np.diag([0, 0.5, 0])
    assert len(notes(loop, NO_EDGE, ALIKE, status=status)) > len(
        notes(LINE, NO_EDGE, ALIKE, status=status)
    )


def test_an_empty_graph_has_an_explanation() -> None:
    (note,) = notes(NO_EDGE, 0.01 * SLOPE, ALIKE)
    assert note.startswith("no edge: no slope") and "standardise" in note
    (note,) = notes(NO_EDGE, NO_EDGE, ALIKE, standardised=True)
    assert note.startswith("no edge: no slope") and "standardise" not in note
    W = np.zeros((3, 3))
    W[1, 0], W[1, 2] = -0.2345, 0.1  # below the threshold
    (note,) = notes(W, NO_EDGE, ALIKE)
    assert note.startswith("no edge: ") and note.endswith("-0.234 (b -> a)")
    (note,) = notes(W, NO_EDGE, ALIKE, lags=1)
    assert note.startswith("no edge within a step: ")
    assert len(notes(W, SLOPE, ALIKE)) == 2  # and that the slope is too large
    (note,) = notes(W, NO_EDGE, ALIKE, status="diverged")
    assert note.startswith("not converged")


def test_sizeable_weights_below_the_threshold_are_told() -> None:
    """The threshold is 0.3: half of it and more counts, a weight of a variable on itself does not.

    Two edges and a weaker one: notes of the line graph alone are the control.
    """
    W = LINE.copy()
    W[0, 2], W[2, 2] = -0.16, 0.29
    (note,) = set(notes(W, NO_EDGE, ALIKE)) - set(notes(LINE, NO_EDGE, ALIKE))
    assert ": 1 (threshold 0.3); the largest in size is -0.16 (a -> c)" in note
    W[0, 2] = 0.14
    assert not set(notes(W, NO_EDGE, ALIKE)) - set(notes(LINE, NO_EDGE, ALIKE))


@pytest.mark.parametrize("unit", [1e-2, 1e3])
def test_stationarity_does_not_depend_on_units(unit: float) -> None:
    """W, and the penalty with the square of the unit: the same problem."""
    rng = np.random.default_rng(0)
    W = np.triu(rng.normal(size=(4, 4)), 1)
    slope, spread = rng.normal(size=(4, 4)), np.array([1.0, 2.0, 3.0, 4.0])
    expected = stationarity(W, slope, LinearGraph(4, penalties=(0.01, 0)), np.outer(spread, spread))
    graph = LinearGraph(4, penalties=(0.01 * unit**2, 0))
    scaled = np.outer(spread, spread) * unit**2
    assert stationarity(W, slope * unit**2, graph, scaled) == pytest.approx(expected, rel=1e-12)
