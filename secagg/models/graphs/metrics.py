"""The distance of a learned graph from a known one: SHD, TPR and FDR.

SHD is the structural Hamming distance, TPR the true positive rate, FDR the false discovery rate.
As in section 6 of Ng and Zhang (AISTATS 2022), who follow Zheng et al. (NeurIPS 2018): the truth
is a DAG. PC and GES return equivalence classes; an undirected edge of the estimate counts as a true
positive if the truth has an edge between the two variables, in either direction.

The estimate's edges are
    true      directed as in the truth, or undirected over a true edge
    reversed  directed against the only true edge between the two variables
    extra     over a pair that the truth leaves unconnected, or from a variable to itself
and `missing` are the pairs that only the truth connects:
    SHD = missing pairs + extra pairs + reversed      TPR = true / edges of the truth
    FDR = (reversed + extra) / edges of the estimate
An estimate may have both i -> j and j -> i (averages over sites can): SHD counts such an extra pair
once; TPR and FDR count both edges. It may also have i -> i, if a search stopped before its
constraint was met (NOTEARS-ADMM): one extra edge.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secagg.errors import UsageError


@dataclass(frozen=True)
class GraphMetrics:
    """Scores of an estimated graph.

    shd, missing, extra (pairs), reversed (edges): counts; tpr, fdr: between 0 and 1, and 0 where
    the truth (for tpr) or the estimate (for fdr) has no edge
    """

    shd: int
    tpr: float
    fdr: float
    missing: int
    extra: int
    reversed: int


def compare_graphs(
    directed: ArrayLike, truth: ArrayLike, undirected: ArrayLike | None = None
) -> GraphMetrics:
    """Compare an estimated graph with the true DAG.

    directed, truth: (p, p), 0/1 or bool, [i, j] = 1 for i -> j
    undirected: (p, p), symmetric, 0/1 or bool, disjoint from `directed`; None for no such edge
    Raises `UsageError` on other shapes or entries, a truth with a loop or two-way edge, or an
    undirected loop.
    """
    true_edge = _adjacency("truth", truth)
    arrow = _adjacency("directed", directed)
    line = _adjacency("undirected", np.zeros(arrow.shape) if undirected is None else undirected)
    if not true_edge.shape == arrow.shape == line.shape:
        raise UsageError("graph comparison", "the graphs differ in their number of variables")
    if np.any(true_edge & true_edge.T):  # a loop included
        raise UsageError("graph comparison", "the true graph is not a DAG")
    if np.any(line != line.T) or np.any(line & (arrow | arrow.T)) or np.any(np.diagonal(line)):
        raise UsageError(
            "graph comparison",
            "undirected edges must be symmetric, without loops, and not also directed",
        )

    line = np.triu(line)  # each undirected edge once
    true_pair = true_edge | true_edge.T
    estimated_pair = arrow | arrow.T | line | line.T
    hits = int(np.sum(arrow & true_edge) + np.sum(line & true_pair))
    reversals = int(np.sum(arrow & true_edge.T))
    missing = int(np.sum(np.triu(true_pair & ~estimated_pair)))
    extra = int(np.sum(np.triu(estimated_pair & ~true_pair)))
    false_edges = reversals + int(np.sum((arrow | line) & ~true_pair))
    return GraphMetrics(
        shd=missing + extra + reversals,
        tpr=hits / max(int(np.sum(true_edge)), 1),
        fdr=false_edges / max(int(np.sum(arrow) + np.sum(line)), 1),
        missing=missing,
        extra=extra,
        reversed=reversals,
    )


def _adjacency(name: str, graph: ArrayLike) -> NDArray[np.bool_]:
    matrix = np.asarray(graph)
    square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1]
    if not square or not np.all(np.isin(matrix, (0, 1))):
        raise UsageError("graph comparison", f"{name!r} must be a square 0/1 matrix")
    return matrix.astype(bool)
