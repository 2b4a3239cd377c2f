"""FedGES: a graph over several sites, each of which sends graphs only.

Torrijos, Gamez and Puerta, "FedGES: a federated learning approach for Bayesian network structure
learning" (Discovery Science 2024; arXiv 2502.01538). We read the abstract, the beginning of the
paper and the structure of its program (github.com/ptorrijos99/BayesFL, MIT licence; nothing is
copied). A round:

    each site      GES from its graph: at most l insertions, then deletions; sends the graph
    stop           if no site's graph has changed
    coordinator    fuses the sites' graphs: the union, or the edges of at least m sites ("controlled
                   fusion"); sends the result
    each site      unites it with its own graph

The paper has discrete records and the score BDeu. Ours are linear Gaussian, with the BIC. It
reports several limits; l and m here are our choices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reproductions.fedges.tasks.equivalence import Graph
from reproductions.fedges.tasks.fusion import fuse
from reproductions.fedges.tasks.search import GaussianBic, search

EDGE_BYTES = 8
"""An edge that is sent: two 32-bit numbers."""


@dataclass(frozen=True, eq=False)
class Learned:
    """dag: the last fused graph; rounds; sent: bytes that each site sent, mean; converged"""

    dag: Graph
    rounds: int
    sent: float
    converged: bool


def learn(
    sites: Sequence[NDArray[np.float64]], *, insertions: int, least: int, most_rounds: int
) -> Learned:
    """Run FedGES. sites: (n_k, d) records; insertions: l; least: m"""
    d = sites[0].shape[1]
    scores = [GaussianBic(np.cov(rows.T, bias=True), len(rows)) for rows in sites]
    graphs: list[Graph] = [np.zeros((d, d), bool)] * len(sites)
    fused, before, edges = graphs[0], None, 0
    for done in range(1, most_rounds + 1):
        graphs = [search(score, dag, insertions) for score, dag in zip(scores, graphs, strict=True)]
        edges += sum(int(dag.sum()) for dag in graphs)
        sent = EDGE_BYTES * edges / len(sites)
        if before is not None and all(map(np.array_equal, graphs, before)):
            return Learned(fused, done, sent, converged=True)
        before, fused = graphs, fuse(graphs, least)
        graphs = [fuse([dag, fused], 1) for dag in graphs]
    return Learned(fused, most_rounds, sent, converged=False)
