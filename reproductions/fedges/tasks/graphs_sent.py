"""Cells of FedGES. Scores are those of the equivalence class of the last fused graph."""

from __future__ import annotations

from reproductions.data.linear_graphs import records_of
from reproductions.fedges.tasks.equivalence import completed
from reproductions.fedges.tasks.rounds import learn
from reproductions.harness.graph_scores import scores
from secagg.experiments.runner.types import Settings

ROUNDS = 20


def compute(settings: Settings) -> dict[str, dict[str, float]]:
    """Return the scores. Settings: method, insertions, least, and those of the records."""
    records = records_of(settings)
    found = learn(
        records.sites,
        insertions=int(settings["insertions"]),
        least=int(settings["least"]),
        most_rounds=ROUNDS,
    )
    directed, undirected = completed(found.dag).arrays()
    numbers = scores(records.truth, directed, undirected, converged=found.converged, sent=0)
    numbers |= {"kilobytes": found.sent / 1000, "rounds": float(found.rounds)}
    return {str(settings["method"]): numbers}
