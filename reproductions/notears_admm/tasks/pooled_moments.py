"""Cells of the one-shot methods: one secure sum of moments, then a learner on the pooled moments.

NOTEARS on the pooled moments is the paper's NOTEARS-AllData. Linear least squares depends on the
records only through their moments, so all records in one place would give the same graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from reproductions.harness.graph_scores import scores
from reproductions.notears_admm.tasks.data import data_of, moments_of
from reproductions.notears_admm.tasks.paper_settings import (
    ALPHA,
    BIC,
    GOLEM_DAG_PENALTY,
    GOLEM_PENALTY,
    THRESHOLD,
    TOLERANCE,
)
from secagg.experiments.runner.types import Settings
from secagg.models.common.pooled_moments import Moments
from secagg.models.graphs.golem import golem
from secagg.models.graphs.notears import notears
from secagg.models.graphs.pc_ges import ges, pc
from secagg.models.graphs.result import GraphFit

LEARNERS: Mapping[str, Callable[[Moments, float], GraphFit]] = {
    "notears-alldata": lambda moments, penalty: notears(
        moments,
        standardise=False,
        penalty=penalty,
        threshold=THRESHOLD,
        tolerance=TOLERANCE,
    ),
    "golem-ev": lambda moments, _: golem(
        moments,
        equal_variances=True,
        standardise=False,
        penalty=GOLEM_PENALTY,
        dag_penalty=GOLEM_DAG_PENALTY,
        threshold=THRESHOLD,
    ),
    "pc": lambda moments, _: pc(moments, alpha=ALPHA),
    "ges": lambda moments, _: ges(moments, penalty=BIC),
}


def compute(settings: Settings) -> dict[str, dict[str, float]]:
    """Return the scores of one method. Settings: method, penalty (NOTEARS), the data's settings."""
    data, method = data_of(settings), str(settings["method"])
    fit = LEARNERS[method](moments_of(data.rows), float(settings.get("penalty", 0)))
    d = len(data.truth)
    numbers = 1 + d + d * (d + 1) // 2  # number of records, sums, products
    return {
        method: scores(
            data.truth, fit.directed, fit.undirected, converged=fit.converged, sent=numbers
        )
    }
