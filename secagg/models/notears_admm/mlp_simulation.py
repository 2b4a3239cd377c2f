"""Nonlinear NOTEARS-ADMM (Ng and Zhang, AISTATS 2022, section 5.2): its result, and a simulation.

The federated run is `secagg.models.notears_admm.mlp`. `learn` here runs the same algorithm on
records that one process holds. It sums in float64; a federated run rounds contributions to a fixed
point, so weights agree to about 1e-8, not in their last bits.

Appendix B has lambda = 0.001 and rho1 = rho2 = 0.1 for networks, chosen at 30 variables and 8
sites. The l1 term here is the paper's sum of absolute values (the authors' program has the signed
sum). Unlike that program, the search here starts from W without edges. The penalties grow by a
quarter or more per round, so much of a random start remains once they are large; with few variables
it exceeds the threshold (`random_inputs`). The paper's figure 4, reproduced, shows both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import State
from secagg.errors import UsageError
from secagg.models.graphs.mlp import Networks, squared_loss
from secagg.models.graphs.result import GraphFit
from secagg.models.notears_admm.coordinator import SLOWER_SCHEDULE, Schedule, advance, begin
from secagg.models.notears_admm.mlp_site import answer, begin_site
from secagg.models.notears_admm.result import consensus_fit

MLP_RHO = 0.1  # rho1 and rho2 of appendix B
MLP_PENALTY = 0.001  # lambda of appendix B


def learn(
    sites: Sequence[NDArray[np.float64]],
    *,
    schedule: Schedule | None = None,
    penalty: float = MLP_PENALTY,
    ridge: float = 0.0,
    hidden: int = 10,
    zero_diagonal: bool = False,
    random_inputs: bool = False,
    threshold: float = 0.3,
    names: Sequence[str] | None = None,
    seed: int = 0,
) -> GraphFit:
    """Run nonlinear NOTEARS-ADMM over sites' records held in one process.

    sites: one (n_k, d) array per site, in the units to analyse; not centred, networks have biases
    The other arguments are those of the method `notears_mlp_admm`; their defaults are the paper's,
    except for the start.
    Raises `UsageError` if records are not finite, have different widths, or are fewer than 2.
    """
    d = sites[0].shape[1] if sites and sites[0].ndim == 2 else 0
    if d < 2 or any(X.ndim != 2 or X.shape[1] != d for X in sites):
        raise UsageError("analysis", "sites must be tables of the same columns, at least two")
    if not all(np.all(np.isfinite(X)) for X in sites):
        raise UsageError("analysis", "a site has a value that is not finite")
    n = sum(map(len, sites))
    if n < 2:
        raise UsageError("analysis", f"a graph needs at least 2 records, not {n}")
    networks = Networks(d, hidden, penalty, zero_diagonal)
    schedule = schedule or Schedule(rho1=MLP_RHO, rho2=MLP_RHO)
    losses = [squared_loss(networks, X, n) for X in sites]
    memories = [begin_site(networks.size) for _ in sites]
    start = networks.initial(np.random.default_rng(seed), random_inputs=random_inputs)
    state = begin(schedule, start)
    while state["status"] == "running":
        total = np.zeros(networks.size)
        for k, loss in enumerate(losses):
            V, memories[k] = answer(memories[k], loss, state["W"], state["rho2"])
            total += V
        state = advance(state, total, len(sites), networks, schedule, networks.ridge(ridge))
    names = names or [f"x{i}" for i in range(d)]
    return graph_fit(
        state,
        names,
        networks,
        schedule,
        threshold,
        ridge=ridge,
        acyclic=False,
        standardised=False,
        random_inputs=random_inputs,
    )


def graph_fit(
    state: State,
    names: Sequence[str],
    networks: Networks,
    schedule: Schedule,
    threshold: float,
    *,
    ridge: float,
    acyclic: bool,
    standardised: bool,
    random_inputs: bool,
) -> GraphFit:
    """Return the graph of a finished run: edges W_ij > threshold, W the equivalent adjacency.

    acyclic: raise the threshold until no cycle is left
    standardised: whether the variables are in standard deviations; otherwise their units are not
        known
    random_inputs: whether the search started with edges
    """
    fit = consensus_fit(
        state,
        networks,
        schedule,
        names,
        method="notears-mlp-admm",
        weights=networks.adjacency(state["W"]),
        threshold=threshold,
        acyclic=acyclic,
        units=np.ones(networks.size) if standardised else None,
        standardised=standardised,
        shrunk=networks.ridge(ridge) * state["W"],
        settings={
            "penalty": networks.sparsity,
            "ridge": ridge,
            "hidden": networks.m,
            "zero_diagonal": networks.zero_diagonal,
        },
    )
    if fit.converged and not np.any(fit.directed):
        return replace(
            fit, notes=(*fit.notes, _missed_edges_note(schedule, random_inputs=random_inputs))
        )
    return fit


def _missed_edges_note(schedule: Schedule, *, random_inputs: bool) -> str:
    """Return a note that a graph without edges proves nothing, and what else to try."""
    untried = [] if random_inputs else ["method.random_inputs = true"]
    if schedule.gamma1 > SLOWER_SCHEDULE.gamma1 or schedule.gamma2 > SLOWER_SCHEDULE.gamma2:
        untried.append(
            f"slower growth (method.gamma1 = {SLOWER_SCHEDULE.gamma1:g}, "
            f"gamma2 = {SLOWER_SCHEDULE.gamma2:g}, rounds = {SLOWER_SCHEDULE.rounds})"
        )
    more = f"; {' or '.join(untried)} may find more" if untried else ""
    return f"no edge does not mean that there are no effects: this search often misses them{more}"
