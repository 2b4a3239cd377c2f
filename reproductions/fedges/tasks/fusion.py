"""Structural fusion: graphs of several sites as one (Puerta, Aledo, Gamez and Laborda, 2021).

J. M. Puerta and others, "Efficient and accurate structural fusion of Bayesian networks",
Information Fusion 66. Each graph is transformed to one order of the variables by reversing edges,
which adds the edges that keep every independence of the result true in the graph (Chickering, UAI
1995). In one order, edges of several graphs form no cycle, so they can be united or counted.

The order is built from its end: the next variable from the end is the one that becomes a sink of
all graphs with the fewest reversed and added edges. The published heuristic estimates this number;
we count it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from reproductions.fedges.tasks.equivalence import Graph


def as_sink(dag: Graph, v: int) -> tuple[Graph, int]:
    """Return the graph with v as a sink, and the number of edges reversed or added.

    Reversing v -> c needs equal other parents. The child c that comes first in an order of the
    graph has no other path from v, so the reversal makes no cycle.
    """
    dag, changes = dag.copy(), 0
    while (children := np.flatnonzero(dag[v])).size:
        c = next(int(c) for c in children if not _descends(dag, v, int(c)))
        parents = dag[:, v] | dag[:, c]
        parents[v] = parents[c] = False
        changes += 1 + int(np.sum(parents & ~dag[:, v]) + np.sum(parents & ~dag[:, c]))
        dag[:, v] = dag[:, c] = parents
        dag[c, v] = True
    return dag, changes


def _descends(dag: Graph, v: int, c: int) -> bool:
    """Return whether c can be reached from v through another child of v."""
    seen = dag[v].copy()
    seen[c] = False
    while True:
        more = seen | dag[seen].any(axis=0)
        if more[c] or np.array_equal(more, seen):
            return bool(more[c])
        seen = more


def in_common_order(dags: Sequence[Graph]) -> list[Graph]:
    """Return the graphs transformed to one order; each can represent what it represented before."""
    left = list(range(len(dags[0])))
    current = [dag.copy() for dag in dags]
    found = [np.zeros_like(dag) for dag in dags]
    while left:
        last, moved = _cheapest_sink(current, left)
        for i, dag in enumerate(moved):
            found[i][:, last] = dag[:, last]
            dag[:, last] = dag[last] = False
            current[i] = dag
        left.remove(last)
    return found


def _cheapest_sink(dags: Sequence[Graph], left: Sequence[int]) -> tuple[int, list[Graph]]:
    """Return the variable that becomes a sink with the fewest changes, and the graphs then."""
    best, fewest, graphs = -1, math.inf, list[Graph]()
    for v in left:
        changes, moved = 0, list[Graph]()
        for dag in dags:
            after, needed = as_sink(dag, v)
            moved.append(after)
            changes += needed
            if changes >= fewest:
                break
        else:
            best, fewest, graphs = v, changes, moved
        if fewest == 0:
            break
    return best, graphs


def fuse(dags: Sequence[Graph], least: int) -> Graph:
    """Return the edges that at least `least` graphs have in the common order; 1 is the union."""
    return np.asarray(np.sum(in_common_order(dags), axis=0) >= least)
