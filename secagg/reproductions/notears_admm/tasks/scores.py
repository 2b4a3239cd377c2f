"""What is recorded of an estimated graph: its distance from the truth, and what it cost to send."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from secagg.models.graphs.metrics import compare_graphs
from secagg.reproductions.harness.types import CONVERGED


def scores(
    truth: ArrayLike,
    directed: ArrayLike,
    undirected: ArrayLike | None = None,
    *,
    converged: bool,
    sent: int,
) -> dict[str, float]:
    """Return shd, tpr, fdr, edges, converged (0 or 1) and kilobytes.

    fdr: missing where the estimate has no edge, 0/0. The paper does not define it there; the
        program of Zheng et al. has 0, by which whoever finds nothing would do best.
    sent: numbers that a site sends in all, of eight bytes each, before any protocol's own cost
    """
    found = compare_graphs(directed, truth, undirected)
    lines = 0 if undirected is None else np.sum(np.triu(np.asarray(undirected)))
    edges = int(np.sum(np.asarray(directed)) + lines)
    recorded = {
        "shd": found.shd,
        "tpr": found.tpr,
        "edges": edges,
        CONVERGED: float(converged),
        "kilobytes": 8 * sent / 1000,
    }
    return recorded | {"fdr": found.fdr} if edges else recorded
