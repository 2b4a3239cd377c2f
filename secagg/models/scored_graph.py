"""A learned graph as a job's result, scored where the job states the true edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import Result
from secagg.errors import JobError
from secagg.models.acyclic import is_acyclic
from secagg.models.graph_metrics import compare_graphs
from secagg.models.graph_result import GraphFit

Edges = tuple[tuple[str, str], ...]
"""Pairs (cause, effect) of names."""

SHRUNK_NOTE = (
    "Weights are shrunk towards zero by the penalty: to estimate the effects of a linear graph, "
    "refit each variable on its parents without one (analysis 'ols' of 'moments'; its intervals "
    "ignore that the graph was chosen from these records)."
)
DIRECTIONS_NOTE = (
    "Columns were divided by their standard deviations, and such data hardly tell a linear score "
    "the directions of edges: compare the analysis 'pc' of 'moments'."
)
"""Reisach, Seiler and Weichwald (NeurIPS 2021): see `secagg.models.notears`."""


def check_truth(truth: Edges | None, names: Sequence[str]) -> None:
    """Raise `JobError` unless there are two variables at least and the truth is a DAG over them."""
    if len(names) < 2:
        raise JobError("variables", "a graph needs at least two variables")
    strangers = sorted({name for edge in truth or () for name in edge} - set(names))
    if strangers:
        raise JobError("truth", f"{strangers[0]!r} is not one of the graph's variables")
    if not is_acyclic(adjacency(truth or (), names)):
        raise JobError("truth", "the true edges form a cycle", "Leave one of them out.")


def adjacency(edges: Edges, names: Sequence[str]) -> NDArray[np.bool_]:
    """Return the edges as a matrix, [i, j] for i -> j, in the order of `names`."""
    matrix = np.zeros((len(names), len(names)), dtype=np.bool_)
    for cause, effect in edges:
        matrix[names.index(cause), names.index(effect)] = True
    return matrix


def graph_result(fit: GraphFit, truth: Edges | None, *, linear: bool = True) -> Result:
    """Return the fit's summary and arrays, with its score if the truth is known.

    linear: whether effects are taken to be; curved ones may tell directions in any units
    Every method's graphs come by here, so what holds of all that standardise, and of all penalised
    weights, is noted here.
    """
    if linear and fit.settings.get("standardise", False):
        fit = replace(fit, notes=(*fit.notes, DIRECTIONS_NOTE))
    if fit.weights is not None and fit.settings.get("penalty", 0) > 0:
        fit = replace(fit, notes=(*fit.notes, SHRUNK_NOTE))
    summary = fit.to_dict()
    arrays: dict[str, NDArray[Any]] = {"directed": fit.directed, "undirected": fit.undirected}
    if fit.weights is not None:
        arrays["weights"] = fit.weights
    if truth is not None:
        summary["truth"] = [list(edge) for edge in truth]
        summary["score"] = asdict(
            compare_graphs(fit.directed, adjacency(truth, fit.names), fit.undirected)
        )
    return Result(summary, arrays)
