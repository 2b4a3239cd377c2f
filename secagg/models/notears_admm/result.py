"""The graph of a finished run of NOTEARS-ADMM, and how far its parameters are from optimal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from secagg.contracts import Label, State
from secagg.core.arrays import Array
from secagg.models.graphs.acyclicity import (
    acyclic_edges,
    graph_over_threshold,
    heaviest,
    is_acyclic,
)
from secagg.models.graphs.proximal_newton import Graphed
from secagg.models.graphs.result import GraphFit
from secagg.models.notears_admm.advice import advice
from secagg.models.notears_admm.coordinator import Schedule, failure

CONVERGED: Final = "The sites agree and no cycle is left (which is not the same as an optimum)."
STATIONARITY_LABELS: Final[Mapping[str, Label]] = {
    "consensus_residual": (
        "consensus residual",
        "how far the sites' solutions are, on average, from the graph's weights",
    ),
    "stationarity": (
        "stationarity",
        "how far the graph is from a local optimum: the largest slope of the penalised loss over "
        "edges that close no cycle (of linear graphs, in units of correlations); 0 at one, which "
        "penalties that grow by a fixed factor need not reach",
    ),
}
MAX_SD_RATIO = 10.0  # ratio of deviations from which rho2 cannot suit all columns
SLOWER_SCHEDULE = Schedule(gamma1=1.3, gamma2=1.1, rounds=500)
MAX_GRADIENT = 0.1
"""Of `stationarity` in standardised units, which for linear graphs are correlations': slopes above
it are told to the reader. A variable that has nothing to say on another has a slope of 0, a copy of
it that is not used one of 1."""


def stationarity(W: Array, slope: Array, graphed: Graphed, units: Array | None = None) -> float:
    """Return how far W is from satisfying the first-order conditions of problem (3).

    slope: sum of grad l(B_k), shaped like W
    units: of the slopes; for linear graphs the products of the variables' deviations, so that the
        result is in units of correlations whatever the data's are. None: the slopes' own
    grad h vanishes on every DAG, so no multiplier of h makes DAGs stationary in the usual sense.
    What a local minimum does satisfy (Wei, Gao and Yu, NeurIPS 2020): with the multiplier of any
    entry that would close a cycle left free, 0 is in the subdifferential of loss + lambda |W|_1 at
    all others. The result is the distance from 0 to it, in the largest norm. The DAG is W's with
    its weakest edges dropped as far as it takes to leave no cycle.
    """
    edges, _ = acyclic_edges(np.sqrt(graphed.squares(W)), 0.0)
    paths = edges
    for _ in range(len(edges).bit_length()):  # of up to 1, 2, 4, ... edges
        paths = paths | (paths @ paths)
    closing = paths.T | np.eye(len(paths), dtype=bool)
    dropped = (W == 0) | (graphed.spread((~edges).astype(np.float64)) > 0)
    free = (graphed.spread(closing.astype(np.float64)) > 0) | np.isinf(graphed.penalty)
    penalty = np.where(free, 0, graphed.penalty)
    distance = np.where(
        dropped,
        np.maximum(np.abs(slope) - penalty, 0),
        np.abs(slope + penalty * np.sign(W)),
    )
    distance = np.where(free, 0, distance)
    if units is not None:  # a variable without variance has no slopes
        distance = np.divide(distance, units, out=np.zeros_like(distance), where=units > 0)
    return float(np.max(distance))


def _less_of_it(schedule: Schedule, units: Array) -> str:
    """Return what would leave smaller slopes, if that is not in force already."""
    positive = units[units > 0]  # products of two deviations
    if positive.max() > MAX_SD_RATIO**2 * positive.min():
        return "; columns differ much in size: method.standardise = true leaves less"
    if schedule.gamma1 <= SLOWER_SCHEDULE.gamma1 and schedule.gamma2 <= SLOWER_SCHEDULE.gamma2:
        return ""
    return (
        f"; method.gamma1 = {SLOWER_SCHEDULE.gamma1:g} and gamma2 = {SLOWER_SCHEDULE.gamma2:g}, "
        f"with rounds = {SLOWER_SCHEDULE.rounds}, leave less, which with many records made "
        "graphs better and with three a variable worse"
    )


def _short_of_optimum(steep: float, units: Array | None, schedule: Schedule) -> tuple[str, ...]:
    """Return what a reader must know of the slopes that are left, if anything."""
    if units is None:
        return (
            "columns were analysed in their own units, which the penalties suit if deviations are "
            "near 1; with method.standardise = true the result tells how far from an optimum it is",
        )
    if steep <= MAX_GRADIENT:
        return ()
    return (
        f"not a local optimum: penalties froze the weights at a stationarity of {steep:.2g} "
        f"(the largest slope left, in standardised units){_less_of_it(schedule, units)}",
    )


def _no_edge(
    weights: Array,
    names: Sequence[str],
    applied: float,
    *,
    lagged: bool,
    standardised: bool,
) -> str:
    """Return why a graph is empty. lagged: it may have effects of earlier steps all the same."""
    what = "no edge within a step" if lagged else "no edge"
    if np.any(weights):
        return f"{what}: {heaviest(weights, names, applied)}"
    less = "lower method.penalty" if standardised else "standardise, or lower method.penalty"
    return f"{what}: no slope of the loss exceeds the penalty in the units analysed; {less}"


def consensus_fit(
    state: State,
    graphed: Graphed,
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
) -> GraphFit:
    """Return the graph of a finished run: edges with |weight| > threshold.

    weights: (d, d), those of the last W
    acyclic: raise the threshold until no cycle is left
    units: see `stationarity`; None where the units of the variables are not known
    standardised: whether the method divided them by their deviations
    settings: those of the method, beside threshold, acyclic and the schedule's
    """
    failed = failure(state)
    directed, applied, notes = np.abs(weights) > threshold, threshold, tuple[str, ...]()
    if acyclic or failed is not None:
        helps = "" if failed is None else advice(state, schedule, standardised=standardised)
        directed, applied, notes = graph_over_threshold(weights, threshold, failed, helps)
    elif not is_acyclic(directed):
        notes = (f"the edges above {threshold:g} hold a cycle: none was removed",)
    if np.any(np.diagonal(directed)):
        notes += ("a variable has an edge to itself: the graph has not converged to a DAG",)
    steep = stationarity(state["W"], -state["total"], graphed, units)
    if failed is None and not np.any(directed):
        lagged = bool(settings.get("lags"))
        notes += (_no_edge(weights, names, applied, lagged=lagged, standardised=standardised),)
    if failed is None and np.any(weights):
        notes += _short_of_optimum(steep, units, schedule)
    return GraphFit(
        method=f"{method}-{schedule.variant}",
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
            "stationarity": steep,
            "rounds": state["rounds"],
            "evaluations": state["evaluations"],
            "threshold": applied,
        },
        notes=notes,
    )
