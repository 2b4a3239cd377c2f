"""A Gaussian graphical model from pooled moments: an undirected graph, partial correlations.

Two columns have an edge if they are dependent given all others: for normal variables, if their
entry of the precision matrix Theta is not 0 (Lauritzen, Graphical Models, 1996, proposition 5.2).
The graph is that of the graphical lasso (Friedman, Hastie and Tibshirani, Biostatistics 2008), at a
given penalty or at the one with the smallest extended BIC (`secagg.models.numerics.ebic_graph`).
uGLAD, which Chajewska and Shrivastava (2023, section 2.1) use at each site, is a trained form of
it.

The graphical lasso shrinks what it keeps. So the partial correlations

    rho_ij = -Theta_ij / root(Theta_ii Theta_jj)                                                 (1)

are those of the maximum-likelihood Theta of the chosen graph, without a penalty (Hastie, Tibshirani
and Friedman, The Elements of Statistical Learning, 2009, section 17.3.1). Its free entries have the
asymptotic covariance 2/n H^-1, with H the second derivatives of -log det Theta in them (Lauritzen,
section 5.2.2). The delta method gives the standard errors of (1). If all pairs are joined, they are
(1 - rho^2) / root n.

Mixed columns. A column with levels has an indicator for each level but the first. Indicators of one
column are never penalised and never an edge. The likelihood is that of normal variables, so an edge
says that two variables have a linear partial correlation. For binary variables whose graph is a
tree, these are the edges of their Markov network (Loh and Wainwright, Annals of Statistics 2013,
corollary 2); in general there may be more edges. Which level has no indicator can change the graph.

Not done. Standard errors ignore that the graph was chosen from the same records, and those of
indicators assume normal variables. There is no directed graph, so tiers and forbidden edges have no
effect: a common effect joins two columns that no edge of a directed graph would join.

Noise. Moments with noise have fewer effective records (`NoiseSize.effective_records`), by which
edges are chosen. Then there are no standard errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import NoisyMatrix
from secagg.errors import UsageError
from secagg.models.common.checks import require_number
from secagg.models.common.pooled_moments import Moments
from secagg.models.graphs.inputs import graph_input
from secagg.models.graphs.noise_size import NoiseSize, scatter_noise
from secagg.models.graphs.result import GraphFit
from secagg.models.numerics.ebic_graph import EBIC_GAMMA, best_on_path
from secagg.models.numerics.graphical_lasso import graphical_lasso, log_det_hessian

Matrix = NDArray[np.float64]
Graph = NDArray[np.bool_]

REFITTED_NOTE = (
    "Partial correlations are maximum-likelihood estimates of the chosen graph, without a penalty. "
    "Their standard errors ignore that the graph was chosen from these records."
)
INDICATORS_NOTE = (
    "Levels are indicators, analysed as normal variables: an edge is a linear dependence given all "
    "other columns."
)


def gaussian_graph(
    moments: Moments,
    *,
    variables: Sequence[str] | None = None,
    penalty: float | Literal["ebic"] = "ebic",
    gamma: float = EBIC_GAMMA,
) -> tuple[GraphFit, Matrix | None]:
    """Return the graph with partial correlations as weights, and their standard errors.

    variables: names to use (None: all)
    penalty: of each entry of the precision matrix of standardised columns, above 0; "ebic" chooses
        from 30
    gamma: of EBIC, at least 0; with 0 it is BIC
    Standard errors: shape (p, p), NaN where no edge is; None if the moments have noise.
    Diagnostics: penalty, EBIC of the chosen graph, number of edges, effective number of records.
    Raises `UsageError` as `graph_input` does, on a singular covariance, or a setting out of range.
    """
    require_number("gamma", gamma, low=0)
    data = graph_input(moments, variables, standardise=True)
    data.require_full_rank("The graphical lasso")
    selected = moments.select(data.names)
    n, R = effective_records(selected, data.effective_n), data.matrix
    numbers = {name: i for i, name in enumerate(dict.fromkeys(selected.columns))}
    owner = np.array([numbers[name] for name in selected.columns])
    between = owner[:, None] != owner
    if penalty == "ebic":
        chosen = best_on_path(R, n, owner, gamma)
        edges, diagnostics = chosen.edges, {"penalty": chosen.penalty, "ebic": chosen.ebic}
        if not np.isfinite(chosen.ebic):  # all correlations between columns are 0
            diagnostics = {}
    else:
        require_number("penalty", penalty, low=np.finfo(float).tiny)
        edges = between & (graphical_lasso(R, np.where(between, penalty, 0.0)) != 0)
        diagnostics = {"penalty": float(penalty)}
    Theta = graphical_lasso(R, np.zeros_like(R), free=edges | ~between)
    rho, errors = partial_correlations(Theta, edges | ~between, n)
    notes = [REFITTED_NOTE] if moments.noisy is None else []
    if selected.columns != selected.names:
        notes.append(INDICATORS_NOTE)
    fit = GraphFit(
        method="graphical_lasso",
        names=data.names,
        directed=np.zeros_like(edges),
        undirected=edges,
        weights=np.where(edges, rho, 0.0),
        converged=True,
        settings={"gamma": gamma},
        diagnostics={**diagnostics, "edges": int(edges.sum()) // 2, "effective_records": n},
        notes=tuple(notes),
    )
    return fit, None if moments.noisy is not None else np.where(edges, errors, np.nan)


def partial_correlations(Theta: Matrix, free: Graph, n: float) -> tuple[Matrix, Matrix]:
    """Return (1) and its standard errors, each of shape (p, p); 0 on the diagonal.

    Theta: maximum-likelihood precision matrix of n records; free: the entries that may differ from
        0, symmetric
    """
    p = len(Theta)
    root = np.sqrt(np.diagonal(Theta))
    rho = -Theta / np.outer(root, root)
    np.fill_diagonal(rho, 0.0)
    rows, columns = np.nonzero(np.triu(free | np.eye(p, dtype=np.bool_)))
    W = np.asarray(np.linalg.inv(Theta), dtype=np.float64)
    hessian = log_det_hessian(W, rows, columns)
    covariance = np.asarray(2 / n * np.linalg.inv(hessian), dtype=np.float64)
    at = {pair: k for k, pair in enumerate(zip(rows.tolist(), columns.tolist(), strict=True))}
    errors = np.zeros((p, p))
    for (i, j), k in at.items():
        if i == j:
            continue
        moved = [k, at[i, i], at[j, j]]
        slope = np.array([
            -1 / (root[i] * root[j]), -rho[i, j] / (2 * Theta[i, i]), -rho[i, j] / (2 * Theta[j, j])
        ])  # fmt: skip
        variance = float(slope @ covariance[np.ix_(moved, moved)] @ slope)
        errors[i, j] = errors[j, i] = np.sqrt(variance)
    return rho, errors


def effective_records(moments: Moments, records: float) -> float:
    """Return the number of records with as much chance error as these have with their noise."""
    if moments.noisy is None:
        return float(records)
    deviation = moments.standard_deviation / moments.noisy.half_range
    released = NoisyMatrix(moments.noisy.matrix, moments.noisy.variance)
    noise = np.sqrt(scatter_noise(released)) / records
    size = NoiseSize(noise / np.outer(deviation, deviation), np.ones_like(deviation), records)
    if (found := size.effective_records) < 2:
        raise UsageError(
            "analysis",
            "the noise leaves as much information as fewer than 2 records have",
            "Use less noise, fewer variables or narrower bounds.",
        )
    return found
