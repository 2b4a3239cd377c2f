"""Linear NOTEARS-ADMM (Ng and Zhang, AISTATS 2022): its graph, its result, and a simulation.

The federated run is `secagg.models.notears_admm`. `learn` here does the same for records that one
process holds, all sites in one array: for simulations. Its sums are those of float64; a federated
run rounds contributions to a fixed point, so weights agree to about 1e-9, not in their last bits.

Time series (section 5.2; Pamfil et al., "DYNOTEARS", AISTATS 2020): W holds the instantaneous
coefficients in its first d rows and those of each lag in d rows more. Only the first block has to
be acyclic, an effect of the past on the present cannot close a cycle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import State
from secagg.errors import UsageError
from secagg.models.acyclic import acyclic_edges, graph_over_threshold, is_acyclic
from secagg.models.consensus import Schedule, advance, begin, failure
from secagg.models.exponential import exponential_minus_identity
from secagg.models.graph_result import GraphFit
from secagg.models.linear_graph import LinearGraph
from secagg.models.linear_sites import answer, begin_site, centred, spectrum, stack

Array = NDArray[np.float64]


def learn(
    sites: Sequence[Array],
    *,
    schedule: Schedule | None = None,
    penalty: float = 0.01,
    lag_penalty: float = 0.01,
    lags: int = 0,
    zero_diagonal: bool = False,
    threshold: float = 0.3,
    names: Sequence[str] | None = None,
) -> GraphFit:
    """Run linear NOTEARS-ADMM over sites' records held in one process.

    sites: one (n_k, d (1 + lags)) array a site, in the units to analyse; centred here, each site by
        its own means. Columns: the d variables, then their values one step before, and so on.
    The other arguments are those of the method `notears_admm`.
    Raises `UsageError` for records that are not finite, are of different widths, or fewer than 2.
    """
    q = sites[0].shape[1] if sites and sites[0].ndim == 2 else 0
    if q < 2 or q % (1 + lags) or any(X.ndim != 2 or X.shape[1] != q for X in sites):
        raise UsageError("analysis", "sites must be tables of the same columns, two at least")
    if not all(np.all(np.isfinite(X)) for X in sites):
        raise UsageError("analysis", "a site has a value that is not finite")
    n = sum(map(len, sites))
    if n < 2:
        raise UsageError("analysis", f"{n} record is too few for a graph")
    graph = LinearGraph(q // (1 + lags), lags, (penalty, lag_penalty), zero_diagonal)
    schedule = schedule or Schedule()
    Q, L = stack([spectrum(centred(X), n) for X in sites])
    state, site = begin(schedule, np.zeros(graph.shape)), begin_site(Q, L, graph.d)
    while state["status"] == "running":
        V, site = answer(site, state["W"], state["rho2"])
        state = advance(state, V.sum(axis=0), len(sites), graph, schedule)
    return graph_fit(
        state, names or [f"x{i}" for i in range(graph.d)], graph, schedule, threshold, acyclic=False
    )


def stationarity(W: Array, slope: Array, graph: LinearGraph) -> float:
    """Return how far W is from a KKT point of (3), given its own order of the variables.

    slope: sum of grad l(B_k), shaped like W
    grad h vanishes on every DAG, so no multiplier of h makes DAGs stationary in the usual sense.
    What a local minimum does satisfy (Wei, Gao and Yu, NeurIPS 2020): with the multiplier of any
    entry that would close a cycle left free, 0 is in the subdifferential of loss + lambda |W|_1 at
    all others. The result is the distance from 0 to it, in the largest norm. The DAG is W with its
    smallest entries dropped as far as it takes to leave no cycle.
    """
    now = W[: graph.d]
    edges = np.ones(W.shape, dtype=bool)
    edges[: graph.d], _ = acyclic_edges(now, 0.0)
    paths = exponential_minus_identity(edges[: graph.d].astype(np.float64)) > 0
    bound = np.zeros(W.shape, dtype=bool)
    bound[: graph.d] = paths.T | np.eye(graph.d, dtype=bool)
    penalty = np.where(np.isinf(graph.penalty), 0, graph.penalty)
    distance = np.where(
        edges & (W != 0),
        np.abs(slope + penalty * np.sign(W)),
        np.maximum(np.abs(slope) - penalty, 0),
    )
    return float(np.max(np.where(bound, 0, distance)))


def graph_fit(
    state: State,
    names: Sequence[str],
    graph: LinearGraph,
    schedule: Schedule,
    threshold: float,
    *,
    acyclic: bool,
) -> GraphFit:
    """Return the graph of a finished run: edges |W_ij| > threshold.

    acyclic: raise the threshold until no cycle is left
    weights holds the instantaneous coefficients; those of lags are W's other rows.
    """
    now = state["W"][: graph.d]
    failed = failure(state)
    directed, applied, notes = np.abs(now) > threshold, threshold, tuple[str, ...]()
    if acyclic or failed is not None:
        directed, applied, notes = graph_over_threshold(now, threshold, failed)
    elif not is_acyclic(directed):
        notes = (f"the edges above {threshold:g} hold a cycle: none was removed",)
    if graph.zero_diagonal is False and np.any(np.diagonal(directed)):
        notes += ("a variable has an edge to itself: the graph has not converged to a DAG",)
    diagnostics: Mapping[str, float] = {
        "h": state["h"],
        "consensus_residual": state["residual"],
        "stationarity": stationarity(state["W"], -state["total"], graph),
        "rounds": state["rounds"],
        "evaluations": state["evaluations"],
        "threshold": applied,
    }
    return GraphFit(
        method=f"notears-admm-{schedule.variant}",
        names=tuple(names),
        directed=directed,
        undirected=np.zeros_like(directed),
        weights=now,
        converged=failed is None,
        settings={
            "penalty": graph.penalties[0],
            **({"lag_penalty": graph.penalties[1], "lags": graph.lags} if graph.lags else {}),
            "threshold": threshold,
            "zero_diagonal": graph.zero_diagonal,
            "acyclic": acyclic,
            "rho1": schedule.rho1,
            "rho2": schedule.rho2,
            "gamma1": schedule.gamma1,
            "gamma2": schedule.gamma2,
        },
        diagnostics=diagnostics,
        notes=notes,
    )
