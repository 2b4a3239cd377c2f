"""Cells of secagg's GES: on one secure sum of moments, and as a vote of the sites' graphs."""

from __future__ import annotations

import numpy as np

from reproductions.data.linear_graphs import records_of
from reproductions.harness.graph_scores import scores
from secagg.experiments.runner.types import Settings
from secagg.models.common.pooled_moments import Moments
from secagg.models.graphs.pc_ges import ges
from secagg.models.local_graphs.learners import Learner, fit_sites, vote

BIC = 1.0


def compute(settings: Settings) -> dict[str, dict[str, float]]:
    """Return the scores. Settings: method ("ges" or "ges-voting"), and those of the records."""
    records, method = records_of(settings), str(settings["method"])
    d = len(records.truth)
    if method == "ges":
        rows = np.concatenate(records.sites)
        centred = rows - rows.mean(axis=0)
        names = tuple(f"x{j}" for j in range(d))
        fit = ges(Moments(names, len(rows), rows.mean(axis=0), centred.T @ centred), penalty=BIC)
        sent = 1 + d + d * (d + 1) // 2
    else:
        # GES reads neither the threshold of NOTEARS nor the level of PC.
        learner = Learner(algorithm="ges", standardise=True, penalty=BIC, threshold=0.3, alpha=0.05)
        fit = vote(fit_sites(records.sites, learner))
        sent = d * d
    numbers = scores(
        records.truth, fit.directed, fit.undirected, converged=fit.converged, sent=sent
    )
    return {method: numbers | {"rounds": 1.0}}
