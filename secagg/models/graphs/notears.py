"""Linear NOTEARS on pooled moments (Zheng, Aragam, Ravikumar and Xing, NeurIPS 2018).

    minimise  1/2 tr((I - W)' S (I - W)) + penalty * sum |W_ij|
    subject to  h(W) = tr exp(W o W) - p = 0,  W_ii = 0,

with S the covariance (divisor n) or correlation: equations (1) and (2) of Ng and Zhang (AISTATS
2022), because least squares depend on the records through S alone. The solver is the augmented
Lagrangian of Zheng et al.'s algorithm 1: each round minimises
    loss + penalty * |W|_1 + alpha h(W) + rho/2 h(W)^2
and multiplies rho by 10 until h falls to a quarter of its value in the round before.
`secagg.models.graphs.acyclic_lasso` solves a round's problem; the authors' program uses L-BFGS-B.

One step is not in the paper. With rho near 1e16 the last rounds hardly change W along the
constraint, and weights may be 0.4 away from the optimum for their own graph. So a last step removes
the smallest entries of W, which are of the order of the tolerance, until no cycle is left. It then
solves the convex problem over the remaining edges without the constraint. The weights returned are
a lasso of each variable on its parents.

With noise in the moments, penalties are raised and edges are tested: see
`secagg.models.graphs.noise_size`.

NOTEARS reads pooled moments only. It discloses nothing beyond the secure sum that produced them.

Limits. The objective is not convex: the result is a local minimum. Least squares are the right
score only if all noise variances are equal. Otherwise the method tends to order the variables by
increasing variance (Reisach, Seiler and Weichwald, NeurIPS 2021, "varsortability"), so the result
depends on the units. On simulated data in their own units, the method does far better than on the
same data standardised. On real data with arbitrary units, there is no reason to expect this gain.
By default the variables are standardised, so that the result does not depend on the units. The
direction of an edge is then weak evidence. The penalty shrinks the weights: to estimate effects,
refit each variable on its parents.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from secagg.models.common.checks import require_number
from secagg.models.common.pooled_moments import Moments
from secagg.models.graphs.acyclic_lasso import acyclic_lasso, finite_penalty
from secagg.models.graphs.acyclicity import (
    acyclic_edges,
    break_ties,
)
from secagg.models.graphs.inputs import graph_input
from secagg.models.graphs.knowledge import Knowledge
from secagg.models.graphs.proximal_newton import Multipliers
from secagg.models.graphs.result import GraphFit
from secagg.models.graphs.support import (
    Threshold,
    chosen_edges,
    require_threshold,
    threshold_of,
)
from secagg.models.numerics.column_lassos import ColumnLassos

RHO_MAX = 1e16  # from the authors' program: above it no digit of h is correct
MAX_ROUNDS = 100
DECREASE = 0.25  # a round must reduce h by this factor before alpha changes
GROWTH = 10.0  # of rho


def notears(
    moments: Moments,
    *,
    variables: Sequence[str] | None = None,
    standardise: bool = True,
    penalty: float = 0.1,
    threshold: Threshold | None = None,
    tolerance: float = 1e-8,
    at_least: NDArray[np.float64] | float = 0.0,
    few_records: bool = False,
    knowledge: Knowledge | None = None,
) -> GraphFit:
    """Learn a DAG by linear NOTEARS.

    variables: names to use (None: all); standardise: use the correlation matrix (see above)
    penalty: weight of sum |W_ij|, at least 0; 0.1 is the choice of the authors' program
    threshold: edges with |W_ij| <= threshold, in the units analysed, are dropped; or "ebic",
        the edges that `secagg.models.graphs.support` keeps; None: 0.3 as in the paper, or "ebic"
        for exact moments in own units
    tolerance: a fit with h(W) at most this counts as acyclic, above 0
    at_least: smallest penalties of single entries, (p, p), where `penalty` is smaller
    few_records: accept no more records than variables, where the penalty alone chooses the fit
    knowledge: about these variables; forbidden edges only
    diagnostics: h (before the last step), rounds, evaluations, rho. If the optimiser fails, the
    edges are those of W over the threshold, including cycles.
    Raises `UsageError` as `graph_input` does, on a singular covariance (if one variable determines
    another, no data tell which of them acts on a third), or on a setting out of range.
    """
    require_number("penalty", penalty, low=0)
    require_threshold(threshold)
    require_number("tolerance", tolerance, low=np.finfo(float).tiny)
    data = graph_input(moments, variables, standardise=standardise)
    data.require_full_rank("NOTEARS", few_records=few_records)
    noised = data.noise is not None
    threshold = threshold_of(threshold, standardised=standardise, noised=noised)
    if data.noise is not None:
        at_least = np.maximum(at_least, data.noise.size.penalty)
    S, lambdas = data.matrix, np.maximum(penalty, at_least)
    known = None if knowledge is None else knowledge.select(data.names)
    if known is not None:
        lambdas = np.where(known.forbidden, np.inf, lambdas)

    W = np.zeros_like(S)
    h, alpha, rho = np.inf, 0.0, 1.0
    rounds, evaluations, finite = 0, 0, True
    while finite and h > tolerance and rho < RHO_MAX and rounds < MAX_ROUNDS:
        rounds += 1
        while True:
            step = acyclic_lasso(S, break_ties(W), lambdas, Multipliers(alpha, rho))
            evaluations += step.evaluations
            finite = step.finite
            if not finite or step.h <= DECREASE * h or rho >= RHO_MAX:
                break
            rho *= GROWTH
        W, h = step.W, step.h
        alpha += rho * h

    if finite and h <= tolerance:
        support, _ = acyclic_edges(W, 0.0)
        W = np.where(support, W, 0)
        if support.any():
            W = ColumnLassos(S, finite_penalty(lambdas), support).minimise(W, np.zeros_like(S))
    failure = None
    if not finite:
        failure = "no finite step could be made"
    elif h > tolerance:
        failure = f"h stayed at {h:.3g}"
    chosen = chosen_edges(
        W, data, threshold, penalty=penalty, in_force=np.maximum(penalty, at_least),
        standardised=standardise, failure=failure,
    )  # fmt: skip
    return GraphFit(
        method="notears",
        names=data.names,
        directed=chosen.directed,
        undirected=np.zeros_like(chosen.directed),
        weights=W,
        converged=failure is None,
        settings={
            "standardise": standardise,
            "penalty": penalty,
            "threshold": threshold,
            "tolerance": tolerance,
        },
        diagnostics={
            "h": h,
            "rounds": rounds,
            "evaluations": evaluations,
            "rho": rho,
        },
        notes=chosen.notes,
        knowledge=known,
        noise=chosen.noise,
        dropped=chosen.dropped,
    )
