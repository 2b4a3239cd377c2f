"""Partially directed graphs: Meek's rules, equivalence classes, their members, moral graphs.

A graph is two boolean (p, p) matrices: `directed`, [i, j] for i -> j, and `undirected`, symmetric.
Rules R1 to R4 are those of Meek ("Causal inference and causal explanation with background
knowledge", UAI 1995). Without background knowledge R1 to R3 orient every edge that all members of
the class orient in the same way; with it, R4 is needed, too (Meek's theorems 3 and 4).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secagg.models.graphs.acyclicity import is_acyclic

Edges = NDArray[np.bool_]


def orient_by_rules(
    directed: Edges, undirected: Edges, kept: Edges | None = None
) -> tuple[Edges, Edges]:
    """Return the graph after Meek's rules, until none applies.

    kept: further edges that no rule orients, symmetric; they only join pairs
    An edge that would close a directed cycle stays undirected: that happens only if the colliders
    or the background knowledge contradict one another.
    """
    directed, undirected = directed.copy(), undirected.copy()
    closing = np.zeros_like(directed)
    kept = np.zeros_like(directed) if kept is None else kept
    while True:
        todo = np.argwhere(_implied(directed, undirected, kept) & ~closing)
        if not len(todo):
            return directed, undirected
        i, j = todo[0]
        directed[i, j] = True
        if is_acyclic(directed):
            undirected[i, j] = undirected[j, i] = False
        else:
            directed[i, j] = False
            closing[i, j] = True


def _implied(D: Edges, U: Edges, kept: Edges) -> Edges:
    """Return the orientations i -> j of undirected edges i - j that one rule gives."""
    away = ~(D | D.T | U | kept)
    np.fill_diagonal(away, False)
    found = D.T @ away  # R1: k -> i, i - j, k and j not adjacent
    found |= D @ D  # R2: i -> k -> j
    for i, j in np.argwhere(U & ~found):
        # R3: i - k -> j, i - l -> j, k and l not adjacent
        between = np.flatnonzero(U[i] & D[:, j])
        # R4: i - k -> l -> j, i and l adjacent, k and j not
        last = np.flatnonzero(D[:, j] & ~away[i])
        first = np.flatnonzero(U[i] & away[j])
        found[i, j] = away[np.ix_(between, between)].any() or D[np.ix_(first, last)].any()
    return np.asarray(found & U)


def colliders(directed: Edges, undirected: Edges) -> Edges:
    """Return [i, k, j] for every i -> j <- k with i and k not adjacent, shape (p, p, p)."""
    apart = ~(directed | directed.T | undirected)
    np.fill_diagonal(apart, False)
    return np.asarray(directed[:, None, :] & directed[None, :, :] & apart[:, :, None])


def orient_by_knowledge(
    directed: Edges, undirected: Edges, forbidden: Edges
) -> tuple[Edges, Edges]:
    """Return the graph with i -> j wherever i - j and j -> i is forbidden, and Meek's rules."""
    known = np.asarray(undirected & forbidden.T & ~forbidden)
    return orient_by_rules(directed | known, np.asarray(undirected & ~(known | known.T)))


def equivalence_class(dag: Edges, forbidden: Edges) -> tuple[Edges, Edges]:
    """Return the graph of all DAGs that are equivalent to this one and have no forbidden edge.

    Equivalent DAGs have the same adjacent pairs and the same `colliders` (Verma and Pearl 1990).
    The graph is Meek's maximally oriented one. forbidden: (p, p); none is in `dag`
    """
    compelled = np.asarray(colliders(dag, np.zeros_like(dag)).any(axis=1))
    rest = (dag | dag.T) & ~(compelled | compelled.T)
    return orient_by_knowledge(*orient_by_rules(compelled, rest), forbidden)


def member(directed: Edges, undirected: Edges, forbidden: Edges) -> Edges | None:
    """Return a DAG with these adjacent pairs, arrows and colliders and no forbidden edge, or None.

    Edges are oriented one by one, with the rules after each (Meek's algorithm): that finds a DAG if
    the graph is a class, or a class with arrows added. In other cases it may find none, although
    there is one.
    """
    wanted = colliders(directed, undirected)
    D, U = orient_by_knowledge(directed, undirected, forbidden)
    while U.any():
        i, j = np.argwhere(U)[0]
        U[i, j] = U[j, i] = False
        D[i, j] = True
        D, U = orient_by_rules(D, U)
    kept = np.array_equal(colliders(D, U), wanted)
    return D if kept and is_acyclic(D) and not (D & forbidden).any() else None


def moral_graph(directed: Edges, undirected: Edges) -> Edges:
    """Return the skeleton, with the parents of each common child joined. directed[i, j]: i -> j."""
    parents = directed.astype(np.int64)
    joined = directed | directed.T | undirected | (parents @ parents.T > 0)
    np.fill_diagonal(joined, False)
    return np.asarray(joined)
