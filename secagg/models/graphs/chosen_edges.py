"""From the weights of NOTEARS or GOLEM to edges: threshold, what it dropped, and noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.core.arrays import Array
from secagg.models.graphs.acyclicity import (
    between_variables,
    failure_advice,
    graph_over_threshold,
    no_edge_note,
)
from secagg.models.graphs.inputs import GraphInput
from secagg.models.graphs.support import CLEAR, Support, Threshold, heaviest_dag


@dataclass(frozen=True, eq=False)
class ChosenEdges:
    """directed: (p, p); threshold: as applied, 0 for "ebic"; notes, noise, dropped: of the fit"""

    directed: NDArray[np.bool_]
    threshold: float
    notes: tuple[str, ...]
    noise: dict[str, Any] | None = None
    dropped: dict[str, Any] | None = None


def chosen_edges(
    W: Array,
    data: GraphInput,
    threshold: Threshold,
    *,
    penalty: float,
    in_force: Array | float,
    standardised: bool,
    failure: str | None = None,
) -> ChosenEdges:
    """Return the edges of a fit.

    penalty: the job's; in_force: of each entry; failure: why the optimiser failed, or None. After a
    failure, the edges are those over the threshold, including cycles.
    Raises `UsageError` for "ebic" on a singular matrix.
    """
    by_score = threshold == "ebic"
    number = 0.0 if threshold == "ebic" else threshold
    support = None
    if data.full_rank:
        partials = None if data.noise is None else data.noise.partials
        support = Support(data.matrix, data.effective_n, partials)
    elif by_score:
        data.require_full_rank('threshold = "ebic"')
    W = between_variables(W)
    directed, applied, notes = graph_over_threshold(
        W, number, failure, failure_advice(standardised=standardised)
    )
    if by_score and failure is None:
        assert support is not None
        directed, applied, notes = support.supported(heaviest_dag(W)), 0.0, ()
    if failure is None and not np.any(directed):
        raised = bool(np.any(in_force > penalty))
        if by_score and np.any(W):
            notes += ("no edge: the extended BIC keeps none",)
        else:
            notes += (no_edge_note(W, data.names, number, raised=raised),)
    below, noise, dropped = np.where(directed, 0, W), None, None
    if data.noise is not None:
        directed, noise, told = data.noise.judged(directed, penalty, np.asarray(in_force))
        notes += (told,)
    if failure is None and support is not None:
        dropped = support.dropped(below, directed, data.names)
        if dropped["clear"] and not by_score:
            notes += (_dropped_note(dropped, number, standardised=standardised),)
    return ChosenEdges(directed, applied, notes, noise, dropped)


def _dropped_note(dropped: dict[str, Any], threshold: float, *, standardised: bool) -> str:
    largest = dropped["largest"]
    unit = "standard deviations" if standardised else "the columns' own units"
    return (
        f"Edges dropped by the threshold of {threshold:g} (in {unit}): {dropped['edges']}. Of "
        f"these, {dropped['clear']} with |t| above {CLEAR:g} beside the causes found. The largest: "
        f"{largest['from']} -> {largest['to']}, {largest['weight']:.3g} (by least squares "
        f"{largest['estimate']:.3g}, standard error {largest['std_error']:.2g}, which ignores that "
        'the graph was chosen). A smaller threshold keeps more; threshold = "ebic" keeps those '
        "that the extended BIC supports."
    )
