"""A learned graph as a job's result, with its score if the job states the true edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import PublicFacts, Result
from secagg.core.validation import did_you_mean
from secagg.errors import JobError
from secagg.models.common.shrinkage import marked_shrunk, shrunk_note
from secagg.models.graphs.acyclicity import is_acyclic
from secagg.models.graphs.knowledge import Edges, adjacency
from secagg.models.graphs.metrics import compare_graphs
from secagg.models.graphs.pdag import moral_graph
from secagg.models.graphs.result import GraphFit

_REFIT = (
    "To estimate the effects of a linear graph, refit each variable on its parents without a "
    "penalty (analysis 'ols' of 'moments'; its intervals ignore that the graph was chosen from "
    "these records)."
)
SHRUNK_NOTE = shrunk_note("weights", _REFIT)
NETWORKS_NOTE = (
    "Each weight is the size of the first layer by which one variable's network reads another. It "
    "has no sign and is not an effect."
)
_DIRECTIONS_NOT_IDENTIFIED = (
    "Columns were divided by their standard deviations; a linear score then hardly identifies the "
    "directions of edges"
)
DIRECTIONS_NOTE = f"{_DIRECTIONS_NOT_IDENTIFIED}: compare the analysis 'pc' of 'moments'."
"""Reisach, Seiler and Weichwald (NeurIPS 2021): see `secagg.models.graphs.notears`."""
LAGGED_DIRECTIONS_NOTE = (
    f"{_DIRECTIONS_NOT_IDENTIFIED} within a step. The weights of earlier steps' effects depend on "
    "these directions, too."
)
"""For time series, for which `moments` has no graph analysis."""
UNITS_NOTE = (
    "Directions rest on errors of equal variance in the columns' own units: with another unit of a "
    "column, arrows may turn."
)
"""The same source: in own units, columns that vary more tend to be effects."""

MORAL_NOTE = (
    "The graph is compared with the moral graph of the true edges, in which all causes of a common "
    "effect are joined, too."
)


def check_truth(
    truth: Edges | None, names: Sequence[str], public: PublicFacts, at: str = "method."
) -> None:
    """Raise `JobError` unless the graph has two or more variables and the truth is a DAG over them.

    names: of the graph's variables; at: prefix of the keys `truth` and `variables`
    """
    listed = f"Variables are {', '.join(names)}."
    if len(names) < 2:
        raise JobError(f"{at}variables", "a graph needs at least two variables", listed)
    unknown = sorted({name for edge in truth or () for name in edge} - set(names))
    if unknown:
        column = unknown[0]
        variables = [v.name for v in public.variables if column == v.column and v.name in names]
        quoted = " and ".join(map(repr, variables))
        hint = did_you_mean(column, names)
        if variables:
            hint = f"Column {column!r} is the variable{'s' if len(variables) > 1 else ''} {quoted}."
        what = f"{column!r} is not one of the graph's variables"
        raise JobError(f"{at}truth", what, f"{hint} {listed}".strip())
    if not is_acyclic(adjacency(truth or (), names)):
        raise JobError(f"{at}truth", "the true edges form a cycle", "Leave one of them out.")


def graph_result(fit: GraphFit, truth: Edges | None, *, linear: bool = True) -> Result:
    """Return the fit's summary and arrays, with its score if the truth is known.

    linear: whether effects are assumed linear. Networks may identify directions in any units, and
        their weights are not effects.
    All methods build their graph results here. So this function adds the notes that hold for every
    graph of a linear score and for every graph with weights.
    """
    if linear and fit.settings.get("standardise", False) is True:
        note = LAGGED_DIRECTIONS_NOTE if fit.settings.get("lags") else DIRECTIONS_NOTE
        fit = replace(fit, notes=(*fit.notes, note))
    own_units = linear and fit.settings.get("standardise") is False
    if own_units and fit.settings.get("equal_variances", True):
        fit = replace(fit, notes=(*fit.notes, UNITS_NOTE))
    if fit.weights is not None and not linear:
        fit = replace(fit, notes=(*fit.notes, NETWORKS_NOTE))
    true = adjacency(truth or (), fit.names)
    if truth is not None and fit.knowledge is not None:
        against = fit.knowledge.against(true)
        fit = replace(fit, notes=(against, *fit.notes) if against else fit.notes)
    summary = fit.to_dict()
    if fit.weights is not None and linear and float(fit.settings.get("penalty", 0)) > 0:
        summary = marked_shrunk(summary, "weights", _REFIT)
    arrays: dict[str, NDArray[Any]] = {"directed": fit.directed, "undirected": fit.undirected}
    if fit.weights is not None:
        arrays["weights"] = fit.weights
    if truth is not None:
        summary["truth"] = [list(edge) for edge in truth]
        summary["score"] = asdict(compare_graphs(fit.directed, true, fit.undirected))
    return Result(summary, arrays)


def undirected_result(
    fit: GraphFit, errors: NDArray[np.float64] | None, truth: Edges | None
) -> Result:
    """Return the summary and arrays of a Markov network.

    errors: standard errors of the weights, (p, p), or None; truth: edges of a DAG. The network of
    its distribution is its moral graph, with which the fit is compared
    """
    result = graph_result(fit, None)
    summary, arrays = {**result.summary, "markov": True}, dict(result.arrays)
    if errors is not None:
        at = {name: i for i, name in enumerate(fit.names)}
        arrays["std_errors"] = errors
        summary["edges"] = [
            edge | {"std_error": float(errors[at[edge["from"]], at[edge["to"]]])}
            for edge in summary["edges"]
        ]
    if truth is not None:
        directed = adjacency(truth, fit.names)
        pairs = np.triu(moral_graph(directed, np.zeros_like(directed)), 1)
        summary["truth"] = [[fit.names[i], fit.names[j]] for i, j in np.argwhere(pairs)]
        summary["score"] = asdict(compare_graphs(fit.directed, pairs, fit.undirected))
        summary["notes"] = [*summary["notes"], MORAL_NOTE]
    return Result(summary, arrays)


def note_indicators(result: Result, public: PublicFacts) -> Result:
    """Return a graph's result, with a note if an edge joins two indicators of one column.

    Such indicators depend on one another by construction, whatever the records are.
    """
    column = {v.name: v.column for v in public.variables}
    ends = [(edge["from"], edge["to"]) for edge in result.summary["edges"]]
    columns = sorted({column[i] for i, j in ends if i != j and column[i] == column[j]})
    if not columns:
        return result
    note = (
        f"Indicators of one column exclude each other: an edge between two indicators of "
        f"{', '.join(map(repr, columns))} is not an effect."
    )
    return replace(result, summary={**result.summary, "notes": [*result.summary["notes"], note]})
