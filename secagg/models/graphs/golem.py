"""GOLEM on pooled moments (Ng, Ghassami and Zhang, NeurIPS 2020): GOLEM-EV and GOLEM-NV.

    minimise  L(B) + penalty * sum |B_ij| + dag_penalty * (tr exp(B o B) - p),   B_ii = 0,

where L is minus the profile log-likelihood per record of a linear Gaussian model x = B'x + e:
    EV, equal noise variances:  p/2 log tr((I - B)' S (I - B))          - log |det(I - B)|
    NV, any noise variances:    1/2 sum_j log ((I - B)' S (I - B))_jj   - log |det(I - B)|
up to constants: the records enter through the covariance S alone. The acyclicity penalty is soft,
so a threshold makes the graph a DAG. NV has many poor local minima and starts from the EV solution,
as the paper recommends.

GOLEM reads pooled moments only. It discloses nothing beyond the secure sum that produced them.

The default penalty. The slopes of L at B = 0 are minus the correlations of x_i with x_j, if the
columns are standardised; without an effect they have the standard deviation 1 / root(n). The
largest of p is hardly ever beyond root(2 log p / n), the universal threshold (Donoho and Johnstone,
Biometrika 81, 1994). The paper's penalties suit n = 1000 records in own units, whose errors all
have variance 1. On fewer records, or on standardised columns with any number, they find more wrong
edges than right ones: more errors than a graph without edges has (docs/math/measured-methods.md).
So the default is the universal threshold, or a quarter of it in own units, in which effects are
larger than correlations; and the paper's, if that is larger. The quarter was chosen in simulations.

With noise in the moments, the slope of L at B = 0 has the noise of S_ij, divided by S_jj (NV) or by
the mean of S's diagonal (EV). So penalties are raised to root(2 log p) times its standard
deviation, and edges are tested: see `secagg.models.graphs.noise_size`.

Difference from the paper. The authors take 100 000 Adam steps on the subgradient. Here L-BFGS-B
minimises the same objective with the l1 term split into W+ - W-. It restarts from the minimum,
perturbed by 1/1000, until a restart gains nothing. Weights that the penalty sets to zero are then
exactly zero, and the search ends at a minimum instead of after a fixed number of steps. The two
programs may stop in different minima.

Limits, as in `secagg.models.graphs.notears`: the result is a local minimum; EV is right only for
equal noise variances in the units analysed; both variants depend on the units through the penalties
(Reisach, Seiler and Weichwald, NeurIPS 2021). By default the variables are standardised. NV does
not identify directions within a Markov equivalence class.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from secagg.core.arrays import Array
from secagg.models.common.checks import require_number
from secagg.models.common.pooled_moments import Moments
from secagg.models.graphs.acyclicity import (
    Objective,
    acyclicity,
    break_ties,
    minimise_sparse,
)
from secagg.models.graphs.inputs import graph_input
from secagg.models.graphs.knowledge import Knowledge
from secagg.models.graphs.noise_size import universal
from secagg.models.graphs.result import GraphFit
from secagg.models.graphs.support import (
    Threshold,
    chosen_edges,
    require_threshold,
    threshold_of,
)
from secagg.models.numerics.lbfgs import FinitePoint

EV_PENALTY, NV_PENALTY = 0.02, 0.002  # lambda_1 of the paper's experiments
OWN_UNITS_SHARE = 0.25  # of the universal threshold, where columns keep their units
MIN_RECORDS = {True: 1.1, False: 1.5}
"""Records for each variable from which graphs with the default penalty have fewer errors than a
graph without edges, in simulations (docs/math/measured-methods.md); by `standardise`."""
MAX_RECORDS_EV = 30.0
"""With more records for each variable, this does not hold for EV on standardised columns."""
MIN_GAIN = 1e-7  # of the objective; a restart that gains less ends the search
MAX_RESTARTS = 50


def golem_objective(S: Array, *, equal_variances: bool, dag_penalty: float) -> Objective:
    """Return the smooth part of the objective above, with its gradient, as a function of B.

    Where I - B is singular or the exponential overflows, the value is not finite: a failed step.
    """

    def objective(B: Array) -> tuple[float, Array]:
        h, h_gradient = acyclicity(B)
        residual = np.eye(len(S)) - B
        sign, log_determinant = np.linalg.slogdet(residual)
        if sign == 0:
            return np.inf, h_gradient
        product = S @ residual
        variance = np.sum(residual * product, axis=0)
        if equal_variances:
            likelihood = 0.5 * len(S) * float(np.log(variance.sum()))
            gradient = -len(S) * product / variance.sum()
        else:
            likelihood = 0.5 * float(np.sum(np.log(variance)))
            gradient = -product / variance
        gradient = gradient + np.linalg.inv(residual).T + dag_penalty * h_gradient
        return likelihood - float(log_determinant) + dag_penalty * h, gradient

    return objective


def golem(
    moments: Moments,
    *,
    equal_variances: bool = False,
    variables: Sequence[str] | None = None,
    standardise: bool = True,
    penalty: float | None = None,
    dag_penalty: float = 5.0,
    threshold: Threshold | None = None,
    knowledge: Knowledge | None = None,
) -> GraphFit:
    """Learn a DAG by GOLEM-EV (equal_variances) or GOLEM-NV (default).

    variables: names to use (None: all); standardise: use the correlation matrix (see above)
    penalty: weight of sum |B_ij|, at least 0; None: the default above. The EV fit that starts NV
        uses EV's, or the paper's if a penalty is given.
    dag_penalty: weight of h, at least 0; 5 as in the paper
    threshold: edges with |B_ij| <= threshold, in the units analysed, are dropped. If cycles
        remain, it is raised until none is left, with a note. "ebic": those that
        `secagg.models.graphs.support` keeps. None: 0.3 as in the
        paper, or "ebic" for exact moments in own units
    knowledge: about these variables; forbidden edges only
    diagnostics: h (not zero: the penalty is soft), evaluations, threshold (as applied). If the
    optimiser fails, the edges are those of B over the threshold, including cycles.
    Raises `UsageError` as `graph_input` does, on a singular covariance (the likelihood is then
    unbounded), or on a setting out of range.
    """
    if penalty is not None:
        require_number("penalty", penalty, low=0)
    require_number("dag_penalty", dag_penalty, low=0)
    require_threshold(threshold)
    data = graph_input(moments, variables, standardise=standardise)
    data.require_full_rank("GOLEM")
    noised = data.noise is not None
    threshold = threshold_of(threshold, standardised=standardise, noised=noised)
    S = data.matrix
    usual = universal(len(S)) / math.sqrt(data.effective_n)
    usual *= 1.0 if standardise else OWN_UNITS_SHARE
    start_penalty = max(usual, EV_PENALTY) if penalty is None else EV_PENALTY
    if penalty is None:
        penalty = start_penalty if equal_variances else max(usual, NV_PENALTY)
    known = None if knowledge is None else knowledge.select(data.names)
    zero = None if known is None else known.forbidden

    def in_force(own: float, *, equal_variances: bool) -> float | Array:
        """Return the penalty, raised by noise."""
        if data.noise is None:
            return own
        variances = np.diagonal(S)
        unit = np.full(len(S), variances.mean()) if equal_variances else variances
        return np.maximum(own, data.noise.size.penalty / unit)

    ev = golem_objective(S, equal_variances=True, dag_penalty=dag_penalty)
    start_penalty = penalty if equal_variances else start_penalty
    lambdas = in_force(start_penalty, equal_variances=True)
    fit, failure = _minimise(ev, np.zeros_like(S), lambdas, zero)
    evaluations = fit.evaluations
    if not equal_variances:
        nv = golem_objective(S, equal_variances=False, dag_penalty=dag_penalty)
        lambdas = in_force(penalty, equal_variances=False)
        fit, failure = _minimise(nv, fit.x, lambdas, zero)
        evaluations += fit.evaluations

    caution = _caution(
        data.effective_n / len(S), standardise=standardise, equal_variances=equal_variances
    )
    chosen = chosen_edges(
        fit.x, data, threshold, penalty=penalty, in_force=lambdas, standardised=standardise,
        failure=failure,
    )  # fmt: skip
    return GraphFit(
        method="golem-ev" if equal_variances else "golem-nv",
        names=data.names,
        directed=chosen.directed,
        undirected=np.zeros_like(chosen.directed),
        weights=fit.x,
        converged=failure is None,
        settings={
            "equal_variances": equal_variances,
            "standardise": standardise,
            "penalty": penalty,
            "dag_penalty": dag_penalty,
            "threshold": threshold,
        },
        diagnostics={
            "h": acyclicity(fit.x)[0],
            "evaluations": evaluations,
            "threshold": chosen.threshold,
        },
        notes=(caution, *chosen.notes) if caution else chosen.notes,
        caution=caution,
        knowledge=known,
        noise=chosen.noise,
        dropped=chosen.dropped,
    )


def _caution(records: float, *, standardise: bool, equal_variances: bool) -> str:
    """Return why a graph may be worse than none; "" if there is no such reason.

    records: for each variable
    """
    least = MIN_RECORDS[standardise]
    if records < least:
        return (
            f"{records:.2g} records for each variable: in simulations with fewer than {least:g}, "
            "graphs by GOLEM have more errors than a graph without edges"
        )
    if standardise and equal_variances and records > MAX_RECORDS_EV:
        return (
            "errors of standardised columns hardly have equal variances: in simulations with many "
            "records, such graphs have no fewer errors than a graph without edges. Set "
            "equal_variances = false, or standardise = false if all columns have the same unit"
        )
    return ""


def _minimise(
    objective: Objective, start: Array, penalty: float | Array, zero: NDArray[np.bool_] | None
) -> tuple[FinitePoint, str | None]:
    """Minimise from `start`, then from the perturbed minimum until a restart gains too little.

    Returns the best minimum, with all evaluations counted, and why the search failed (None: it did
    not).
    """
    best = minimise_sparse(objective, start, penalty, zero)
    evaluations, finite, converged = best.evaluations, best.finite, False
    for _ in range(MAX_RESTARTS):
        if converged or not finite:
            break
        again = minimise_sparse(objective, break_ties(best.x), penalty, zero)
        evaluations += again.evaluations
        finite = again.finite
        converged = finite and again.value >= best.value - MIN_GAIN
        best = min(best, again, key=lambda minimum: minimum.value)
    failure = None
    if not finite:
        failure = "no finite step could be made"
    elif not converged:
        failure = "the objective was still falling"
    return FinitePoint(best.x, best.value, finite, evaluations), failure
