"""NOTEARS-MLP on the records of all sites, by one secure sum for each evaluation of the loss.

ADMM (`secagg.models.notears_admm.mlp`) lets every site solve a problem of its own and holds the
solutions together by a penalty rho2 that grows in each round. The coordinator's networks move by
(sum of slopes) / (K rho2) in a round, so in all rounds together by no more than a constant times
1 / rho2 of the first one: with the paper's growth they stop long before a minimum. Here no site
solves anything. Sites send the loss and its gradient at the networks they are sent; the sum is the
pooled loss, exactly; and the coordinator takes the steps of `secagg.models.graphs.mlp_search`. So
the result is that of `notears_mlp` on all records in one place, up to the rounding of the sums.

What the transcript determines: every sum is a function of the pooled records, at networks that all
parties know. How records are split over sites has no influence on any sum, except through rounding.
Each sum has as many numbers as parameters, in some hundred rounds: with few records that are more
equations than their values. Then the sums determine the pooled records (attack
`gradient_inversion`). A coordinator that departs from the method can choose networks at which the
gradient depends on few records, as in ADMM.

=================================  =================================================================
site                               contribution
=================================  =================================================================
no record                          zeros
networks that are not finite       `PeerError`, nothing is sent
a loss beyond the declared bound   the search diverges, and nothing is sent
=================================  =================================================================
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from secagg.contracts import Field, Kind, Spec, State, Update
from secagg.core.arrays import Array
from secagg.models.graphs.acyclicity import failure_advice, graph_over_threshold, is_acyclic
from secagg.models.graphs.mlp import FlatObjective, Networks
from secagg.models.graphs.mlp_search import RIDGE, MlpSearch
from secagg.models.graphs.proximal_newton import graph_constraint
from secagg.models.graphs.result import GraphFit
from secagg.models.notears_admm.range import FIELD_BOUND, FRACTION_BITS, within_bound
from secagg.models.numerics.owlqn import Stopping

TOLERANCE = 1e-8  # of h
STOPPING = Stopping(decrease=1e-5, slope=1e-3)
"""Coarser than that of `notears_mlp`, for half as many evaluations. On 14 simulated graphs with ten
edges, decreases of 1e-4, 1e-5 and 1e-6 took 440, 870 and 1,700 evaluations, and left 3.5, 2.7 and
2.4 errors (standard errors 0.4)."""
ROUNDS = 4000
_ADVICE = "use a smaller method.penalty or method.ridge"


def pooled_search(networks: Networks, ridge: float = RIDGE) -> MlpSearch:
    return MlpSearch(networks, ridge, TOLERANCE, STOPPING)


def begin_pooled(networks: Networks, start: Array) -> State:
    """Return what the coordinator's state has beside that of ADMM."""
    search = pooled_search(networks).begin(start)
    return {"search": search, "W": search["trial"]}


def pooled_spec(networks: Networks, units: Array, scale: Array) -> Spec:
    """Return the fields: loss and slopes, divided by `units` and `loss_unit`."""
    largest = max(float(np.max(units)), loss_unit(scale))
    bits = FRACTION_BITS + max(0, math.ceil(math.log2(largest)))
    return (
        Field("loss", (1,), FIELD_BOUND, bits, Kind.WEIGHT),
        Field("slopes", (networks.size,), FIELD_BOUND, bits, Kind.BOUNDED),
    )


def loss_unit(scale: Array) -> float:
    """Return the divisor of the loss when it is sent; scale: 1 for standardised columns."""
    return max(1.0, float(np.sum(scale**2)))


def pooled_answer(loss: FlatObjective, W: Array, units: Array, unit: float) -> Update:
    """Return a site's loss and slopes at W. Raises `DataError` beyond their bound."""
    with np.errstate(all="ignore"):
        value, slopes = loss(W)
    sent = {"loss": np.array([value / unit]), "slopes": slopes / units}
    return {name: within_bound(values, _ADVICE) for name, values in sent.items()}


def after_round(
    state: State, total: Update, search: MlpSearch, units: Array, unit: float, rounds: int
) -> State:
    """Return the coordinator's state after a sum; rounds: the largest number of them."""
    found = search.told(state["search"], float(total["loss"][0]) * unit, total["slopes"] * units)
    done = state["rounds"] + 1
    status = "running"
    if found["done"]:
        status = "diverged" if found["failed"] else "converged"
    elif done == rounds:
        status = "out of rounds"
    return {**state, "search": found, "W": found["trial"], "rounds": done, "status": status}


def pooled_fit(
    state: State, names: Sequence[str], search: MlpSearch, threshold: float, *,
    acyclic: bool, standardised: bool, rounds: int,
) -> tuple[GraphFit, Array]:  # fmt: skip
    """Return the graph of a finished run, and its networks."""
    found = state["search"]
    failed, advice = found["failed"] or None, failure_advice(standardised=standardised)
    theta = found["theta"]
    if state["status"] == "out of rounds":
        failed = f"{rounds} rounds were not enough"
        advice = "Allow more (method.rounds)."
    networks = search.networks
    weights = networks.adjacency(theta)
    directed, applied, notes = weights > threshold, threshold, tuple[str, ...]()
    if acyclic or failed is not None:
        directed, applied, notes = graph_over_threshold(weights, threshold, failed, advice)
    elif not is_acyclic(directed):
        notes = (f"the edges above {threshold:g} contain a cycle; none was removed",)
    fit = GraphFit(
        method="notears-mlp-pooled",
        names=tuple(names),
        directed=directed,
        undirected=np.zeros_like(directed),
        weights=weights,
        converged=failed is None,
        settings={
            "penalty": networks.sparsity,
            "ridge": search.ridge,
            "hidden": networks.m,
            "threshold": threshold,
            "acyclic": acyclic,
        },
        diagnostics={
            "h": graph_constraint(networks, theta)[0],
            "rounds": state["rounds"],
            "threshold": applied,
        },
        notes=notes,
    )
    return fit, theta
