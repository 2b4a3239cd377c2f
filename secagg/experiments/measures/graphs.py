"""How far a learned graph is from the true one: SHD, TPR, FDR (`secagg.models.graphs.metrics`).

If the true graph has edges without a direction, or arrows both ways, directions are left out: only
pairs of variables are compared. A Markov network joins pairs that depend on each other given all
others. So it is compared with the pairs of the moral graph of a directed truth: edges, and causes
of one variable (Lauritzen 1996, *Graphical Models*, section 3.2.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import TableKind
from secagg.models.graphs.metrics import compare_graphs

Edges = NDArray[np.bool_]


@dataclass(frozen=True)
class Graph:
    """directed, undirected: shape (variables, variables), [i, j] for i -> j; no edge is in both.

    markov: whether it is a Markov network
    """

    names: tuple[str, ...]
    directed: Edges
    undirected: Edges
    markov: bool = False

    @property
    def moral(self) -> Edges:
        """The pairs of the moral graph; symmetric."""
        arrows = self.directed.astype(np.int64)
        either: Edges = self.pairs | (arrows @ arrows.T > 0)
        np.fill_diagonal(either, val=False)
        return either

    @property
    def pairs(self) -> Edges:
        """Which variables are joined; symmetric."""
        either: Edges = self.directed | self.directed.T | self.undirected
        return either

    @property
    def is_directed(self) -> bool:
        """Whether every edge has one direction."""
        return not (self.undirected.any() or (self.directed & self.directed.T).any())


def read_graph(summary: Mapping[str, Any], kind: TableKind) -> Graph | None:
    """Return the graph in the summary of a result or an analysis; None for other kinds."""
    names = tuple(summary.get("names", ()))
    directed, undirected = np.zeros((2, len(names), len(names)), dtype=np.bool_)
    edges: Sequence[tuple[str, str, bool]]
    match kind:
        case TableKind.GRAPH if "edges" in summary:
            edges = [(e["from"], e["to"], e["kind"] == "directed") for e in summary["edges"]]
        case TableKind.NETWORK if "edges" in summary:
            edges = [(*e["between"], False) for e in summary["edges"]]
        case TableKind.POSTERIOR_GRAPH if "pairs" in summary:
            edges = [(*e["between"], False) for e in summary["pairs"] if e["edge"]]
        case TableKind.POSTERIOR_GRAPH:
            edges = [(e["from"], e["to"], True) for e in summary["arrows"] if e["edge"]]
        case _:
            return None
    for start, end, has_direction in edges:
        i, j = names.index(start), names.index(end)
        if has_direction:
            directed[i, j] = True
        else:
            undirected[i, j] = undirected[j, i] = True
    # Networks read a column's neighbours given all others, so theirs is a Markov network, too.
    markov = kind is TableKind.NETWORK or "pairs" in summary
    return Graph(names, directed & ~undirected, undirected, summary.get("markov", markov))


def graph_of(names: tuple[str, ...], edges: Iterable[tuple[str, str]]) -> Graph:
    """Return the graph with these directed edges."""
    directed = np.zeros((len(names), len(names)), dtype=np.bool_)
    for start, end in edges:
        directed[names.index(start), names.index(end)] = True
    return Graph(names, directed, np.zeros_like(directed))


def graph_distances(found: Graph, true: Graph) -> dict[str, float]:
    """Return SHD, TPR and FDR of a graph."""
    if true.is_directed and not found.markov:
        both = found.directed & found.directed.T
        of = compare_graphs(found.directed & ~both, true.directed, found.undirected | both)
    else:  # any order of the variables makes a DAG of the true pairs
        pairs = true.moral if found.markov else true.pairs
        of = compare_graphs(np.zeros_like(true.directed), np.triu(pairs, 1), found.pairs)
    return {"shd": float(of.shd), "tpr": of.tpr, "fdr": of.fdr}
