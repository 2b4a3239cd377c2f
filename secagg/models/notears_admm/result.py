"""The graph of a finished run of NOTEARS-ADMM, and how far its parameters are from an optimum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import Label, State
from secagg.core.arrays import Array
from secagg.models.graphs.acyclicity import (
    RAISED_BY_NOISE,
    acyclic_edges,
    between_variables,
    graph_over_threshold,
    is_acyclic,
    largest_weight,
)
from secagg.models.graphs.proximal_newton import GraphParameters, LinearGraph
from secagg.models.graphs.result import GraphFit
from secagg.models.notears_admm.advice import advice
from secagg.models.notears_admm.coordinator import SLOWER_SCHEDULE, Schedule, failure

CONVERGED: Final = "The sites agree and no cycle is left (which is not the same as an optimum)."
STATIONARITY_LABELS: Final[Mapping[str, Label]] = {
    "consensus_residual": (
        "consensus residual",
        "how far the sites' solutions are, on average, from the graph's weights",
    ),
    "stationarity": (
        "stationarity",
        "how far the graph is from a local optimum: the largest slope of the penalised loss over "
        "edges that close no cycle (of linear graphs, in units of correlations). It is 0 at an "
        "optimum, which penalties that grow by a fixed factor need not reach",
    ),
}
MAX_SD_RATIO = 10.0  # ratio of deviations above which no rho2 suits all columns
MAX_GRADIENT = 0.1
"""Largest `stationarity` without a note. It is in standardised units, for linear graphs those of
correlations: the slope of an unrelated variable is 0, that of an unused copy is 1."""


def stationarity(
    W: Array, slope: Array, graph: GraphParameters, units: Array | None = None
) -> float:
    """Return how far W is from satisfying the first-order conditions of problem (3).

    slope: sum of grad l(B_k), shaped like W
    units: of the slopes; for linear graphs the products of the variables' deviations, so that the
        result has the units of correlations for any data. None: the slopes' own units
    grad h vanishes on every DAG, so no multiplier of h makes DAGs stationary in the usual sense. A
    local minimum satisfies this condition (Wei, Gao and Yu, NeurIPS 2020): let the multiplier be
    free at entries that would close a cycle; then 0 is in the subdifferential of loss + lambda
    |W|_1 at all others. The result is the distance of 0 from it, in the largest norm. The DAG is
    that of W without its weakest edges, as many as it takes to leave no cycle.
    """
    edges, _ = acyclic_edges(np.sqrt(graph.squares(W)), 0.0)
    paths = edges
    for _ in range(len(edges).bit_length()):  # paths of up to 1, 2, 4, ... edges
        paths = paths | (paths @ paths)
    closing = paths.T | np.eye(len(paths), dtype=bool)
    dropped = (W == 0) | (graph.spread((~edges).astype(np.float64)) > 0)
    free = (graph.spread(closing.astype(np.float64)) > 0) | np.isinf(graph.penalty)
    penalty = np.where(free, 0, graph.penalty)
    distance = np.where(
        dropped,
        np.maximum(np.abs(slope) - penalty, 0),
        np.abs(slope + penalty * np.sign(W)),
    )
    distance = np.where(free, 0, distance)
    if units is not None:  # no slopes for a variable without variance
        distance = np.divide(distance, units, out=np.zeros_like(distance), where=units > 0)
    return float(np.max(distance))


def _stationarity_advice(schedule: Schedule, units: Array) -> str:
    """Return advice that reduces the slopes, unless it is already in force."""
    positive = units[units > 0]  # products of two deviations
    if positive.max() > MAX_SD_RATIO**2 * positive.min():
        return "; columns differ much in size: method.standardise = true reduces it"
    if schedule.gamma1 <= SLOWER_SCHEDULE.gamma1 and schedule.gamma2 <= SLOWER_SCHEDULE.gamma2:
        return ""
    return (
        f"; method.gamma1 = {SLOWER_SCHEDULE.gamma1:g} and gamma2 = {SLOWER_SCHEDULE.gamma2:g}, "
        f"with rounds = {SLOWER_SCHEDULE.rounds}, reduce it; in simulations that improved graphs "
        "from many records and worsened graphs from three records per variable"
    )


SIZEABLE = 0.5
"""The result names a dropped weight of at least this share of the threshold."""
_UNITS_NOTE = (
    "columns were analysed in their own units; the penalties suit them if standard deviations are "
    "near 1. With method.standardise = true the result has its distance to an optimum"
)


def _caution(max_slope: float, units: Array | None, schedule: Schedule) -> str:
    """Return that the remaining slopes are large; "" if they are not, or have no units."""
    if units is None or max_slope <= MAX_GRADIENT:
        return ""
    return (
        "not a local optimum: the penalties stopped the weights at a stationarity of "
        f"{max_slope:.2g} (the largest remaining slope, in standardised units)"
        f"{_stationarity_advice(schedule, units)}"
    )


def _no_edge_note(
    weights: Array,
    names: Sequence[str],
    applied: float,
    floor: Array | None,
    *,
    lagged: bool,
    standardised: bool,
    raised: bool,
) -> str:
    """Return why a graph is empty.

    lagged: it may still have effects of earlier steps; raised: whether noise raised its penalty
    """
    what = "no edge within a step" if lagged else "no edge"
    if np.any(between_variables(weights)):
        threshold, why = _in_force(applied, floor), ""
        if np.any(np.abs(weights) > applied):
            why = ". The noise of differential privacy can cause weights of such sizes"
        return f"{what}: {largest_weight(weights, names, threshold)}{why}"
    if raised:
        return f"{what}: no slope of the loss exceeds the penalty. {RAISED_BY_NOISE}"
    fix = "lower method.penalty" if standardised else "standardise, or lower method.penalty"
    return f"{what}: no slope of the loss exceeds the penalty in the units analysed; {fix}"


def _dropped_note(
    weights: Array, directed: NDArray[np.bool_], names: Sequence[str], applied: float,
    floor: Array | None,
) -> str:  # fmt: skip
    """Return how many sizeable weights are no edges, and the largest; "" if there are none."""
    rest = between_variables(np.where(directed, 0, weights))
    dropped = int(np.sum(np.abs(rest) > SIZEABLE * applied))
    if not dropped:
        return ""
    i, j = divmod(int(np.argmax(np.abs(rest))), len(rest))
    return (
        f"weights above {SIZEABLE:g} of the threshold that are no edges: {dropped} "
        f"({_in_force(applied, floor)}); the largest in size is {rest[i, j]:.3g} "
        f"({names[i]} -> {names[j]}). The sums do not tell their standard errors; a smaller "
        "method.threshold keeps more"
    )


def _in_force(applied: float, floor: Array | None) -> str:
    """Return the threshold in words; floor: what noise raised it to."""
    if floor is None or floor.max() <= applied:
        return f"threshold {applied:g}"
    pairs = ~np.eye(len(floor), dtype=bool)
    raised = np.maximum(applied, floor)[pairs]
    low, high = (f"{value:.2g}" for value in (raised.min(), raised.max()))
    span = high if low == high else f"between {low} and {high}"
    return f"threshold, which the noise raised from {applied:g} to {span}"


def consensus_fit(
    state: State,
    graph: GraphParameters,
    schedule: Schedule,
    names: Sequence[str],
    *,
    method: str,
    weights: Array,
    threshold: float,
    acyclic: bool,
    units: Array | None,
    standardised: bool,
    settings: Mapping[str, float | bool],
    floor: Array | None = None,
    shrunk: Array | float = 0.0,
) -> GraphFit:
    """Return the graph of a finished run: edges with |weight| > threshold.

    weights: (d, d), those of the last W
    acyclic: raise the threshold until no cycle is left
    units: see `stationarity`; None if the units of the variables are not known
    standardised: whether the method divided them by their deviations
    settings: those of the method, except threshold, acyclic and the schedule's
    floor: weights of at most this size are no edges either, (d, d); None for 0
    shrunk: slope of a ridge, shaped like W
    """
    failed = failure(state)
    clear = weights if floor is None else np.where(np.abs(weights) > floor, weights, 0)
    directed, applied, notes = np.abs(clear) > threshold, threshold, tuple[str, ...]()
    if acyclic or failed is not None:
        remedy = "" if failed is None else advice(state, schedule, standardised=standardised)
        directed, applied, notes = graph_over_threshold(clear, threshold, failed, remedy)
    elif not is_acyclic(directed):
        notes = (f"the edges above {threshold:g} contain a cycle; none was removed",)
    if np.any(np.diagonal(directed)):
        notes += ("a variable has an edge to itself: the graph has not converged to a DAG",)
    max_slope = stationarity(state["W"], shrunk - state["total"], graph, units)
    if failed is None and not np.any(directed):
        lagged = bool(settings.get("lags"))
        note = _no_edge_note(
            weights, names, applied, floor, lagged=lagged, standardised=standardised,
            raised=isinstance(graph, LinearGraph) and graph.raised,
        )  # fmt: skip
        notes += (note,)
    elif failed is None and (note := _dropped_note(weights, directed, names, applied, floor)):
        notes += (note,)
    caution = ""
    if failed is None and np.any(weights):
        caution = _caution(max_slope, units, schedule)
        notes = (caution, *notes) if caution else notes
        notes += (_UNITS_NOTE,) if units is None else ()
    return GraphFit(
        method=f"{method}-{schedule.solver}",
        names=tuple(names),
        directed=directed,
        undirected=np.zeros_like(directed),
        weights=weights,
        converged=failed is None,
        settings={
            **settings,
            "threshold": threshold,
            "acyclic": acyclic,
            "rho1": schedule.rho1,
            "rho2": schedule.rho2,
            "gamma1": schedule.gamma1,
            "gamma2": schedule.gamma2,
        },
        diagnostics={
            "h": state["h"],
            "consensus_residual": state["residual"],
            "stationarity": max_slope,
            "rounds": state["rounds"],
            "evaluations": state["evaluations"],
            "threshold": applied,
        },
        notes=notes,
        caution=caution,
    )
