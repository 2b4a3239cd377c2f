"""FedGES: the search against causal-learn's, fusion against d-separation, and its rounds."""

import itertools

import networkx as nx
import numpy as np
import pytest

from reproductions.fedges.tasks.equivalence import completed, member_of
from reproductions.fedges.tasks.fusion import fuse, in_common_order
from reproductions.fedges.tasks.rounds import learn
from reproductions.fedges.tasks.search import (
    GaussianBic,
    best_neighbour,
    deletions,
    insertions,
    search,
)
from secagg.experiments.simulated_graphs import edge_weights, erdos_renyi_dag, linear_gaussian_rows
from secagg.models.common.pooled_moments import Moments
from secagg.models.graphs.pc_ges import ges


def all_dags(d):
    pairs = list(itertools.permutations(range(d), 2))
    for chosen in itertools.product((0, 1), repeat=len(pairs)):
        dag = np.zeros((d, d), bool)
        for (i, j), has in zip(pairs, chosen, strict=True):
            dag[i, j] = has
        if not np.linalg.matrix_power(dag.astype(int), d).any():
            yield dag


def skeleton_and_colliders(dag):
    adjacent = dag | dag.T
    return adjacent.tobytes(), frozenset(
        (a, b, c)
        for b in range(len(dag))
        for a, c in itertools.combinations(np.flatnonzero(dag[:, b]), 2)
        if not adjacent[a, c]
    )


def test_patterns_of_all_graphs_over_four_variables() -> None:
    """A class is the DAGs with one skeleton and the same colliders (Verma and Pearl); 185 classes.

    An edge is directed in the pattern if it has one direction in the whole class.
    """
    classes = classes_of_four()
    assert len(classes) == 185
    for dags in classes:
        always = np.logical_and.reduce(dags)
        sometimes = np.logical_or.reduce(dags)
        for dag in dags[:3]:
            directed, undirected = completed(dag).arrays()
            assert np.array_equal(directed, always)
            assert np.array_equal(undirected, sometimes & sometimes.T)
        found = member_of(completed(dags[0]))
        assert found is not None and any(np.array_equal(found, dag) for dag in dags)


def classes_of_four():
    classes = {}
    for dag in all_dags(4):
        classes.setdefault(skeleton_and_colliders(dag), []).append(dag)
    return list(classes.values())


def test_a_step_goes_to_the_best_class_that_one_edge_reaches() -> None:
    """All graphs of the class with one edge more or less, by enumeration (Chickering 2002)."""
    rng, steps = np.random.default_rng(9), [(insertions, False), (deletions, True)]
    taken = 0
    for dags in classes_of_four()[::4]:
        L = rng.normal(size=(4, 4))
        score = GaussianBic(L @ L.T + 0.1 * np.eye(4), 20)

        def total(dag, score=score):
            return sum(score(y, int(dag[:, y] @ (1 << np.arange(4)))) for y in range(4))

        for operators, has in steps:
            reached = []
            for dag in dags:
                for i, j in itertools.permutations(range(4), 2):
                    if dag[i, j] == has and (has or not dag[j, i]):
                        other = dag.copy()
                        other[i, j] = not has
                        if not np.linalg.matrix_power(other.astype(int), 4).any():
                            reached.append(total(other))
            best = max(reached, default=-np.inf)
            start = completed(dags[0])
            found = best_neighbour(start, operators(score, start), score)
            if best <= total(dags[0]) + 1e-6:
                assert found is None
            else:
                taken += 1
                assert total(member_of(found)) == pytest.approx(best, abs=1e-6)
    assert taken > 30


@pytest.mark.parametrize("seed", range(6))
def test_the_search_without_limit_is_that_of_causal_learn(seed: int) -> None:
    pytest.importorskip("causallearn")
    rng = np.random.default_rng(seed)
    d, n = 8, 500
    truth = erdos_renyi_dag(d, 10, rng)
    rows = linear_gaussian_rows(edge_weights(truth, rng), n, rng)
    centred = rows - rows.mean(axis=0)
    theirs = ges(Moments(tuple("abcdefgh"), n, rows.mean(axis=0), centred.T @ centred))
    score = GaussianBic(np.cov(rows.T, bias=True), n)
    found = completed(search(score, np.zeros((d, d), bool), 100)).arrays()
    assert np.array_equal(found[0], theirs.directed)
    assert np.array_equal(found[1], theirs.undirected)
    # At most one edge more than the start, and the limit is not the end.
    assert search(score, np.zeros((d, d), bool), 1).sum() == 1


def test_graphs_in_a_common_order_keep_only_true_independences() -> None:
    """Every d-separation of the transformed graph holds in the graph before, by enumeration."""
    rng = np.random.default_rng(7)
    for _ in range(15):
        dags = [erdos_renyi_dag(5, int(rng.integers(2, 8)), rng) for _ in range(3)]
        moved = in_common_order(dags)
        union = nx.from_numpy_array(np.logical_or.reduce(moved), create_using=nx.DiGraph)
        assert nx.is_directed_acyclic_graph(union)
        for before, after in zip(dags, moved, strict=True):
            graphs = [nx.from_numpy_array(g, create_using=nx.DiGraph) for g in (before, after)]
            for x, y in itertools.combinations(range(5), 2):
                rest = [v for v in range(5) if v not in (x, y)]
                for size in range(4):
                    for given in map(set, itertools.combinations(rest, size)):
                        was, now = (nx.is_d_separator(g, {x}, {y}, given) for g in graphs)
                        assert was or not now
    same = erdos_renyi_dag(5, 6, rng)
    assert np.array_equal(fuse([same, same, same], 3), fuse([same], 1))


def test_sites_agree_on_a_clear_graph() -> None:
    rng = np.random.default_rng(8)
    truth = erdos_renyi_dag(6, 6, rng)
    rows = linear_gaussian_rows(edge_weights(truth, rng), 6000, rng)
    found = learn(np.split(rows, 3), insertions=2, least=2, most_rounds=20)
    assert found.converged
    assert found.rounds > 2  # with two insertions a round, six edges take more than one
    assert found.sent >= 8 * truth.sum()
    assert skeleton_and_colliders(found.dag) == skeleton_and_colliders(truth)
