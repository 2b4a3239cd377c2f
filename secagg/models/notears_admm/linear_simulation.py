"""Linear NOTEARS-ADMM (Ng and Zhang, AISTATS 2022): its graph, its result, and a simulation.

The federated run is `secagg.models.notears_admm.linear`. `learn` here runs the same algorithm on
records that one process holds, for simulations. It sums in float64; a federated run rounds
contributions to a fixed point. Weights then agree to about 1e-9 with the solver "proximal", and to
about 1e-3 with "subgradient", which stops at the kinks of the l1 term, at a point that depends on
rounding.

Time series (section 5.2; Pamfil et al., "DYNOTEARS", AISTATS 2020): the first d rows of W hold the
instantaneous coefficients, and each lag has d more rows. Only the first block has to be acyclic: an
effect of the past on the present cannot close a cycle.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from secagg.contracts import State
from secagg.core.arrays import Array
from secagg.errors import UsageError
from secagg.models.common.units import centred
from secagg.models.graphs.inputs import singular
from secagg.models.graphs.proximal_newton import LinearGraph
from secagg.models.graphs.result import GraphFit
from secagg.models.notears_admm.coordinator import SLOWER_SCHEDULE, Schedule, advance, begin
from secagg.models.notears_admm.linear_site import answer, begin_site, spectrum, stack
from secagg.models.notears_admm.result import consensus_fit

_MAX_RECORD_VALUE = 1e100  # of records: their squares do not overflow
_MIN_SHARE = 1e-6  # of a variance that the other variables leave unexplained


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

    sites: one (n_k, d (1 + lags)) array per site, in the units to analyse; each site is centred by
        its own means. Columns: the d variables, then their values one step before, and so on.
    The other arguments are those of the method `notears_admm`.
    Raises `UsageError` if records are not finite, have different widths, or are fewer than 2.
    """
    q = sites[0].shape[1] if sites and sites[0].ndim == 2 else 0
    if q < 2 or q % (1 + lags) or any(X.ndim != 2 or X.shape[1] != q for X in sites):
        raise UsageError("analysis", "sites must be tables of the same columns, at least two")
    if not all(np.all(np.abs(X) <= _MAX_RECORD_VALUE) for X in sites):
        raise UsageError(
            "analysis", f"a site has a value that is not finite, or above {_MAX_RECORD_VALUE:g}"
        )
    n = sum(map(len, sites))
    if n < 2:
        raise UsageError("analysis", f"a graph needs at least 2 records, not {n}")
    graph = LinearGraph(q // (1 + lags), lags, (penalty, lag_penalty), zero_diagonal)
    schedule = schedule or (SLOWER_SCHEDULE if lags else Schedule())
    Q, L = stack([spectrum(centred(X), n) for X in sites])
    state, site = begin(schedule, np.zeros(graph.shape)), begin_site(Q, L, graph.d)
    while state["status"] == "running":
        V, site = answer(site, state["W"], state["rho2"])
        state = advance(state, V.sum(axis=0), len(sites), graph, schedule)
    return linear_fit(
        state,
        names or [f"x{i}" for i in range(graph.d)],
        graph,
        schedule,
        threshold,
        deviations=np.sqrt(np.einsum("kir,kr->i", Q * Q, L)),
        acyclic=False,
        standardised=False,
    )


def refuse_singular(state: State, sites: int) -> None:
    """Raise `UsageError` if the pooled covariance S of a converged static graph is singular.

    With no more records than variables, after `sites` means are subtracted, it always is; the
    penalty then chooses, as in `secagg.models.graphs.notears` with `few_records`.

    There all B_k are W, so the last sum is S (I - W). It is off by at most a few consensus
    residuals, 1e-8 each. With an unexplained share of a variance below 1e-6, S counts as singular.
    A column without variance (in own units only) is left out.
    """
    records = state["records"]
    if state["status"] != "converged" or records - sites < len(state["W"]):
        return
    S = state["total"] @ np.linalg.inv(np.eye(len(state["W"])) - state["W"])
    deviation = np.sqrt(np.maximum(np.diagonal(S), 0))
    varies = state["deviations"] > 0
    R = ((S + S.T) / 2)[np.ix_(varies, varies)] / np.outer(deviation, deviation)[varies][:, varies]
    if varies.any() and np.linalg.eigvalsh(R)[0] <= _MIN_SHARE:
        names = [name for name, kept in zip(state["columns"], varies, strict=True) if kept]
        raise singular("NOTEARS-ADMM", records, R, names, _MIN_SHARE)


def linear_fit(
    state: State,
    names: Sequence[str],
    graph: LinearGraph,
    schedule: Schedule,
    threshold: float,
    *,
    deviations: Array,
    acyclic: bool,
    standardised: bool,
    floor: Array | None = None,
) -> GraphFit:
    """Return the graph of a finished run; see `consensus_fit`.

    deviations: pooled standard deviations within sites, of the columns, in the units analysed
    The weights are the instantaneous coefficients; W's other rows are those of the lags.
    """
    return consensus_fit(
        state,
        graph,
        schedule,
        names,
        method="notears-admm",
        weights=state["W"][: graph.d],
        threshold=threshold,
        acyclic=acyclic,
        units=np.outer(deviations, deviations[: graph.d]),
        standardised=standardised,
        floor=floor,
        settings={
            "penalty": graph.penalties[0],
            **({"lag_penalty": graph.penalties[1], "lags": graph.lags} if graph.lags else {}),
            "zero_diagonal": graph.zero_diagonal,
        },
    )
