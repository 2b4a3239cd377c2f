"""Each metric against its definition, computed in another way."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from secagg.contracts import TableKind
from secagg.experiments.measures.coefficients import Coefficients, distances, read_coefficients
from secagg.experiments.measures.graphs import Graph, graph_distances, read_graph
from secagg.experiments.measures.predictions import area_under_curve, unexplained_share

TRUE = Coefficients(("a", "b"), np.array([3.0, -4.0]), inclusion=np.array([1.0, 0.25]))
SCALE = {"a": 1.0, "b": 0.5, "c": 9.0}


def test_the_error_weighs_slopes_by_their_variables_spread() -> None:
    found = Coefficients(("b", "a"), np.array([-2.0, 3.0]))
    # |(0, 0.5 * 2)| / |(3, 0.5 * 4)|
    assert distances(found, TRUE, SCALE) == {"error": pytest.approx(1 / math.sqrt(13))}
    none = Coefficients(("a", "b"), np.zeros(2))
    assert distances(none, TRUE, SCALE)["error"] == pytest.approx(1.0)
    assert distances(TRUE, TRUE, SCALE)["error"] == 0.0


def test_coverage_width_and_inclusion() -> None:
    found = Coefficients(
        ("b", "a"), np.array([-2.0, 3.0]), low=np.array([-5.0, 3.5]), high=np.array([-1.0, 4.0]),
        inclusion=np.array([0.5, 0.5]),
    )  # fmt: skip
    metrics = distances(found, TRUE, SCALE)
    assert metrics["coverage"] == 0.5  # b is covered, a is not
    assert metrics["width"] == pytest.approx(np.median([0.5 * 1.0, 4.0 * 0.5]))
    assert metrics["pip_error"] == pytest.approx((0.25 + 0.5) / 2)


def test_the_tables_of_every_kind_of_regression_are_read() -> None:
    row = {"term": "x", "estimate": 2.0, "ci_low": 1.0, "ci_high": 3.0}
    start = {"term": "(intercept)", "estimate": 7.0, "ci_low": None, "ci_high": None}
    found = read_coefficients({"terms": [start, row]}, TableKind.REGRESSION)
    assert found is not None and found.names == ("x",) and found.intercept == 7.0
    assert found.low is not None and found.low.tolist() == [1.0]
    bare = read_coefficients({"terms": [{**row, "ci_low": None}]}, TableKind.REGRESSION)
    assert bare is not None and bare.low is None and bare.intercept is None

    own = {"mean": 1.5, "low": 1.0, "high": 2.0}
    rows = [{"term": "x", "pip": 0.9, "own_units": own}]
    posterior = read_coefficients({"coefficients": rows}, TableKind.POSTERIOR)
    assert posterior is not None and posterior.inclusion is not None
    assert (posterior.slopes.tolist(), posterior.inclusion.tolist()) == ([1.5], [0.9])

    across = {"across_sites": [{"term": "x", "own_units": {"mean": 1.0}}]}
    sites = read_coefficients(across, TableKind.SITES)
    assert sites is not None and sites.slopes.tolist() == [1.0] and sites.low is None
    shared = [{"estimate": 1.2, "low": 1.0, "high": 1.4}, {"estimate": 9, "low": 9, "high": 9}]
    common = read_coefficients({**across, "shared": shared}, TableKind.SITES)
    assert common is not None and common.slopes.tolist() == [1.2] and common.high is not None
    assert read_coefficients({}, TableKind.GRAPH) is None


def test_the_auc_is_the_share_of_pairs_in_order() -> None:
    rng = np.random.default_rng(1)
    predicted, case = rng.integers(0, 5, 40).astype(float), rng.integers(0, 2, 40).astype(float)
    pairs = list(itertools.product(predicted[case == 1], predicted[case == 0]))
    share = sum((a > b) + 0.5 * (a == b) for a, b in pairs) / len(pairs)
    assert area_under_curve(predicted, case) == pytest.approx(share)
    assert area_under_curve(predicted, np.ones(40)) is None


def test_the_unexplained_share_ignores_a_shift() -> None:
    y = np.array([1.0, 2.0, 4.0])
    assert unexplained_share(y + 10, y) == pytest.approx(0.0)
    assert unexplained_share(np.zeros(3), y) == pytest.approx(1.0)
    assert unexplained_share(y, np.ones(3)) is None


def edge(start: str, end: str, kind: str = "directed") -> dict[str, str]:
    return {"from": start, "to": end, "kind": kind}


def test_graphs_of_every_kind_are_read() -> None:
    names = ["a", "b", "c"]
    graph = read_graph(
        {"names": names, "edges": [edge("a", "b"), edge("c", "b", "undirected")]}, TableKind.GRAPH
    )
    assert graph is not None and np.argwhere(graph.directed).tolist() == [[0, 1]]
    assert np.argwhere(graph.undirected).tolist() == [[1, 2], [2, 1]] and not graph.is_directed
    pairs = [{"between": ["a", "c"], "edge": True}, {"between": ["a", "b"], "edge": False}]
    markov = read_graph({"names": names, "pairs": pairs}, TableKind.POSTERIOR_GRAPH)
    assert markov is not None and np.argwhere(markov.undirected).tolist() == [[0, 2], [2, 0]]
    arrows = [{"from": "b", "to": "a", "edge": True}]
    directed = read_graph({"names": names, "arrows": arrows}, TableKind.POSTERIOR_GRAPH)
    assert directed is not None and np.argwhere(directed.directed).tolist() == [[1, 0]]
    assert read_graph({}, TableKind.REGRESSION) is None


def graph_of(directed: list[list[int]], undirected: list[list[int]] | None = None) -> Graph:
    edges = np.array(directed, dtype=bool)
    lines = np.zeros_like(edges) if undirected is None else np.array(undirected, dtype=bool)
    return Graph(("a", "b", "c"), edges, lines)


def test_a_turned_a_missing_and_an_extra_edge_each_count_one() -> None:
    true = graph_of([[0, 1, 0], [0, 0, 1], [0, 0, 0]])
    found = graph_of([[0, 0, 1], [1, 0, 0], [0, 0, 0]])  # b -> a turned, b -> c missing, a -> c new
    assert graph_distances(found, true) == {"shd": 3.0, "tpr": 0.0, "fdr": 1.0}
    assert graph_distances(true, true) == {"shd": 0.0, "tpr": 1.0, "fdr": 0.0}


def test_without_directions_in_the_truth_only_pairs_count() -> None:
    true = graph_of([[0, 0, 0]] * 3, [[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    turned = graph_of([[0, 0, 0], [1, 0, 0], [0, 0, 0]])
    assert graph_distances(turned, true) == {"shd": 1.0, "tpr": 0.5, "fdr": 0.0}
    assert graph_distances(true, true)["shd"] == 0.0


def test_a_markov_network_is_compared_with_the_moral_graph() -> None:
    true = graph_of([[0, 0, 1], [0, 0, 1], [0, 0, 0]])  # a -> c <- b: given c, a and b depend
    pairs = [{"between": list(names), "edge": True} for names in ("ab", "ac", "bc")]
    found = read_graph({"names": ["a", "b", "c"], "pairs": pairs}, TableKind.POSTERIOR_GRAPH)
    assert found is not None and found.markov
    assert graph_distances(found, true) == {"shd": 0.0, "tpr": 1.0, "fdr": 0.0}
    as_lines = replace(found, markov=False)
    assert graph_distances(as_lines, true)["shd"] == 1.0  # one too many
