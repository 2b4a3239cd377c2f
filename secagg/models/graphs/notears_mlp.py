"""NOTEARS-MLP on one table of records (Zheng, Dan, Aragam, Ravikumar and Xing, AISTATS 2020).

    minimise  1/(2n) sum_r |x_r - f(x_r)|^2 + penalty * sum |A_ijk| + ridge/2 (|A|^2 + |C|^2)
    subject to  h = tr exp(W o W) - d = 0.

x_r is record r of n, and f has one small network per variable. A_ijk is the weight from variable i
to hidden unit k of the network of variable j, and C are the output weights. W_ij is the root of
sum_k A_ijk^2 (`secagg.models.graphs.mlp`, which writes h for k).

The solver is `secagg.models.graphs.mlp_search`.

The l1 term is the paper's: absolute values. The ridge comes from the authors' program and is
needed: without it A may shrink while C grows. The sigmoids then become straight lines, and penalty
and h go to zero although every effect is still there.

A problem ends when a step reduces the objective by less than 1e-6 of its value (in the authors'
program 2.2e-9). That takes fewer steps; the last digits of the weights are not those of a minimum.

This learner reads records. A federation runs it at each site alone (for votes and averages of local
graphs) or on simulated data. For all sites together use `notears_mlp_admm`.

Limits: those of `secagg.models.graphs.notears` on local minima and units, and two more. Another
seed, which draws the networks' start, may give another graph. W_ij has no sign and is not an
effect: it measures the size of the weights from x_i into the network of x_j, and may be large
although the output of that network hardly changes with x_i.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from secagg.core.arrays import Array
from secagg.errors import UsageError
from secagg.models.common.checks import require_number
from secagg.models.common.pooled_moments import Moments
from secagg.models.graphs.acyclicity import failure_advice, graph_over_threshold
from secagg.models.graphs.inputs import graph_input
from secagg.models.graphs.knowledge import Knowledge
from secagg.models.graphs.mlp import Networks, squared_loss
from secagg.models.graphs.mlp_search import RIDGE, MlpSearch
from secagg.models.graphs.result import GraphFit
from secagg.models.numerics.owlqn import Stopping

_DECREASE, _SLOPE = 1e-6, 1e-4  # a problem ends here: relative decrease, largest slope


def notears_mlp(
    rows: NDArray[np.float64],
    names: Sequence[str] | None = None,
    *,
    hidden: int = 10,
    standardise: bool = True,
    penalty: float = 0.01,
    ridge: float = RIDGE,
    threshold: float = 0.3,
    tolerance: float = 1e-8,
    seed: int = 0,
    knowledge: Knowledge | None = None,
) -> GraphFit:
    """Learn a DAG by NOTEARS-MLP.

    rows: (n, d) records, finite; names: of the d columns (None: x0, x1, ...)
    hidden: units of each network, at least 1; 10 as in the authors' program
    standardise: divide by standard deviations; columns are always centred
    penalty, ridge: at least 0; 0.01 both, as in the authors' program
    threshold: edges with W_ij <= threshold are dropped, at least 0; 0.3 as in the paper
    tolerance: a fit with h at most this counts as acyclic, above 0
    seed: of the start, at least 0
    knowledge: about these variables; forbidden edges only
    Weights are W. diagnostics: h, rounds, evaluations, rho, threshold (as applied). If the
    optimiser fails, the edges are those of W over the threshold, including cycles.
    Raises `UsageError` as `graph_input` does (fewer than two records or columns, a constant
    column), or on a setting out of range.
    """
    X, variables = _table(rows, names, standardise=standardise)
    require_number("hidden", hidden, low=1)
    require_number("penalty", penalty, low=0)
    require_number("ridge", ridge, low=0)
    require_number("threshold", threshold, low=0)
    require_number("tolerance", tolerance, low=np.finfo(float).tiny)
    require_number("seed", seed, low=0)

    known = None if knowledge is None else knowledge.select(variables)
    forbidden = None if known is None else known.forbidden
    networks = Networks(X.shape[1], hidden, penalty, forbidden=forbidden)
    theta = networks.initial(np.random.default_rng(seed), random_inputs=True)
    search = MlpSearch(networks, ridge, tolerance, Stopping(_DECREASE, _SLOPE))
    state, loss = search.begin(theta), squared_loss(networks, X, len(X))
    while not state["done"]:
        with np.errstate(all="ignore"):
            value, slopes = loss(state["trial"])
        state = search.told(state, value, slopes)
    theta, failure = state["theta"], state["failed"] or None
    W = networks.adjacency(theta)
    directed, applied, notes = graph_over_threshold(
        W, threshold, failure, failure_advice(standardised=standardise)
    )
    return GraphFit(
        method="notears-mlp",
        names=variables,
        directed=directed,
        undirected=np.zeros_like(directed),
        weights=W,
        converged=failure is None,
        settings={
            "hidden": hidden,
            "standardise": standardise,
            "penalty": penalty,
            "ridge": ridge,
            "threshold": threshold,
            "tolerance": tolerance,
            "seed": seed,
        },
        diagnostics={
            "h": state["h"],
            "rounds": state["problems"],
            "evaluations": state["evaluations"],
            "rho": state["rho"],
            "threshold": applied,
        },
        notes=notes,
        knowledge=known,
    )


def _table(
    rows: NDArray[np.float64], names: Sequence[str] | None, *, standardise: bool
) -> tuple[Array, tuple[str, ...]]:
    """Return the records as analysed and the variables' names, checked by `graph_input`."""
    table = np.asarray(rows, dtype=np.float64)
    if table.ndim != 2 or len(table) == 0:
        raise UsageError("analysis", "there are no records", "Give a table of rows and columns.")
    variables = tuple(names or (f"x{j}" for j in range(table.shape[1])))
    if len(variables) != table.shape[1]:
        raise UsageError("analysis", f"{len(variables)} names for {table.shape[1]} columns")
    mean = table.mean(axis=0)
    X = table - mean
    moments = Moments(variables, len(X), mean, X.T @ X)
    graph_input(moments, None, standardise=standardise)
    return X / moments.standard_deviation if standardise else X, variables
