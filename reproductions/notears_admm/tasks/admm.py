"""Cells of linear NOTEARS-ADMM, in one process (`secagg.models.notears_admm.linear_simulation`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from reproductions.harness.graph_scores import scores
from reproductions.notears_admm.tasks.data import data_of
from reproductions.notears_admm.tasks.paper_settings import RHO, THRESHOLD, schedule
from secagg.experiments.runner.types import Settings
from secagg.experiments.simulated_graphs import split_rows
from secagg.models.notears_admm.coordinator import Solver
from secagg.models.notears_admm.linear_simulation import learn

SOLVERS: Mapping[str, Solver] = {
    "admm-paper": "subgradient",
    "admm-fast": "proximal",
    "admm-slower": "proximal",
}


def compute(settings: Settings) -> dict[str, dict[str, float]]:
    """Return the scores of one method. Settings: method, sites, penalty, and the data's settings.

    Only a run that has not converged can have an edge from a variable to itself. The score ignores
    such an edge, and the run counts as not converged.
    """
    data, method = data_of(settings), str(settings["method"])
    penalties = schedule(SOLVERS[method], RHO)
    if method == "admm-slower":
        penalties = replace(penalties, gamma1=1.3, gamma2=1.1, rounds=500)
    fit = learn(
        split_rows(data.rows, int(settings["sites"])),
        schedule=penalties,
        penalty=float(settings["penalty"]),
        lags=0,
        zero_diagonal=False,
        threshold=THRESHOLD,
    )
    loops = bool(np.any(np.diagonal(fit.directed)))
    directed = fit.directed & ~np.eye(len(data.truth), dtype=np.bool_)
    rounds = fit.diagnostics["rounds"]
    return {
        method: scores(
            data.truth,
            directed,
            converged=fit.converged and not loops,
            sent=int(rounds) * len(data.truth) ** 2,
        )
        | {"rounds": float(rounds), "h": float(fit.diagnostics["h"])}
    }
