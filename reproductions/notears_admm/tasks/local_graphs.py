"""Graphs that each site learns alone, and that are then combined (`secagg.models.local_graphs`).

A cell of an experiment is one setting with one seed. In a cell, each site's graph is learned once.
The NOTEARS fits serve voting, averaging and the best graph. PC and GES have no weights to average,
and the paper uses them for voting only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from reproductions.harness.graph_scores import scores
from reproductions.notears_admm.tasks.data import data_of
from reproductions.notears_admm.tasks.paper_settings import ALPHA, BIC, THRESHOLD
from secagg.experiments.runner.types import Settings
from secagg.experiments.simulated_graphs import split_rows
from secagg.models.local_graphs.learners import Learner, average, best_graph, fit_sites, vote

LEARNERS: Mapping[str, Literal["notears", "pc", "ges"]] = {
    "notears": "notears", "pc": "pc", "ges": "ges",
}  # fmt: skip


def compute(settings: Settings) -> dict[str, dict[str, float]]:
    """Return the scores of "voting", "average" and "best", or of "pc-voting" or "ges-voting".

    Settings: learner, sites, penalty (for NOTEARS; GES uses the BIC's), and the data's settings. A
    site that cannot learn a graph abstains; `abstained` counts these sites.
    """
    data, learner = data_of(settings), str(settings["learner"])
    parts = split_rows(data.rows, int(settings["sites"]))
    site = Learner(
        algorithm=LEARNERS[learner],
        standardise=False,
        penalty=float(settings.get("penalty", BIC)),
        threshold=THRESHOLD,
        alpha=ALPHA,
    )
    fits = fit_sites(parts, site)
    if learner == "notears":
        graphs = {
            "voting": vote(fits),
            "average": average(fits, THRESHOLD),
            "best": best_graph(fits, data.truth),
        }
    else:
        graphs = {f"{learner}-voting": vote(fits)}
    abstained = float(sum(not fit.converged for fit in fits))
    return {
        name: scores(
            data.truth,
            fit.directed,
            fit.undirected,
            converged=fit.converged,
            sent=len(data.truth) ** 2,
        )
        | {"abstained": abstained}
        for name, fit in graphs.items()
    }
