"""Cells of the nonlinear methods: NOTEARS-MLP by ADMM over sites, on all records, at each site.

Records keep their own units, as in the paper's program. Unlike in the linear case, moments cannot
replace the records, so AllData requires all records in one place.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from reproductions.harness.graph_scores import scores
from reproductions.notears_admm.tasks.data import Data, data_of
from reproductions.notears_admm.tasks.paper_settings import (
    HIDDEN,
    MLP_RHO,
    RIDGE,
    START,
    THRESHOLD,
    TOLERANCE,
    schedule,
)
from secagg.experiments.runner.types import Settings
from secagg.experiments.simulated_graphs import split_rows
from secagg.models.graphs.mlp import Networks
from secagg.models.graphs.notears_mlp import notears_mlp
from secagg.models.graphs.result import GraphFit
from secagg.models.local_graphs.learners import average, best_graph, vote
from secagg.models.notears_admm.coordinator import Solver
from secagg.models.notears_admm.mlp_simulation import learn

SOLVERS: Mapping[str, Solver] = {"mlp-admm": "subgradient", "mlp-admm-former": "proximal"}


def compute(settings: Settings) -> dict[str, dict[str, float]]:
    """Return the scores of one method, or of the three methods built on the sites' local fits.

    Settings: method ("mlp-admm", "mlp-admm-former", "mlp-alldata" or "mlp-local"), penalty, sites
    (except for "mlp-alldata") and the data's settings.
    """
    data, method = data_of(settings), str(settings["method"])
    penalty, d = float(settings["penalty"]), data.rows.shape[1]
    if method == "mlp-alldata":
        fit = _fit_rows(data.rows, penalty)
        return {method: _scores(data, fit, data.rows.size)}
    parts = split_rows(data.rows, int(settings["sites"]))
    if method in SOLVERS:
        fit = learn(
            parts,
            schedule=schedule(SOLVERS[method], MLP_RHO),
            penalty=penalty,
            hidden=HIDDEN,
            ridge=0.0,
            zero_diagonal=False,
            # The paper's program starts from random weights; the fast variant starts without edges.
            random_inputs=method == "mlp-admm",
            threshold=THRESHOLD,
            seed=START,
        )
        rounds = int(fit.diagnostics["rounds"])
        sent = rounds * Networks(d, HIDDEN, penalty, zero_diagonal=False).size
        return {method: _scores(data, fit, sent) | {"rounds": rounds, "h": fit.diagnostics["h"]}}
    fits = [_fit_rows(rows, penalty) for rows in parts]
    graphs = {
        "mlp-voting": vote(fits),
        "mlp-average": average(fits, THRESHOLD),
        "mlp-best": best_graph(fits, data.truth),
    }
    abstained = float(sum(not fit.converged for fit in fits))
    return {
        name: _scores(data, fit, d * d) | {"abstained": abstained} for name, fit in graphs.items()
    }


def _fit_rows(rows: NDArray[np.float64], penalty: float) -> GraphFit:
    return notears_mlp(
        rows,
        hidden=HIDDEN,
        standardise=False,
        penalty=penalty,
        ridge=RIDGE,
        threshold=THRESHOLD,
        tolerance=TOLERANCE,
        seed=START,
    )


def _scores(data: Data, fit: GraphFit, sent: int) -> dict[str, float]:
    return scores(data.truth, fit.directed, fit.undirected, converged=fit.converged, sent=sent)
