"""Scores of an estimated graph: its distance from the truth, and the amount of data sent."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from secagg.experiments.runner.types import CONVERGED
from secagg.models.graphs.metrics import compare_graphs


def scores(
    truth: ArrayLike,
    directed: ArrayLike,
    undirected: ArrayLike | None = None,
    *,
    converged: bool,
    sent: int,
) -> dict[str, float]:
    """Return shd, tpr, fdr, edges, converged (0 or 1) and kilobytes.

    fdr: missing if the estimate has no edge (0/0). The paper does not define this case. The program
        of Zheng et al. returns 0, which would favour a method that finds nothing.
    sent: total numbers sent by a site, eight bytes each, before the overhead of a protocol
    """
    comparison = compare_graphs(directed, truth, undirected)
    lines = 0 if undirected is None else np.sum(np.triu(np.asarray(undirected)))
    edges = int(np.sum(np.asarray(directed)) + lines)
    recorded = {
        "shd": comparison.shd,
        "tpr": comparison.tpr,
        "edges": edges,
        CONVERGED: float(converged),
        "kilobytes": 8 * sent / 1000,
    }
    return recorded | {"fdr": comparison.fdr} if edges else recorded
