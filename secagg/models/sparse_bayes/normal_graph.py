"""Directed graphs with normal errors, the Gaussian surrogate: what number and scatter determine.

In place of (1) of `secagg.models.sparse_bayes.laplace_graph`, errors are e_ij ~ N(0, s_kj) with
s_kj ~ IG(a_s, b_s). With A = I - Theta_k, rows a_j of A, the scatter S = SUM_i (Y_i - mean)(Y_i -
mean)' and the constants integrated out, the likelihood is

    |det A|^(n_k - 1) PROD_j s_kj^-(n_k - 1)/2 exp(-a_j S a_j' / (2 s_kj))  if rho(Theta_k) < 1  (1)

Sites need n_k and S only. The sweep is that of `laplace_graph` without its step (4): the records
are replaced by the p columns of a matrix F, F F' = S, whose errors A F have the sums of squares
a_j S a_j' (`secagg.models.sparse_bayes.metropolis_entries.ErrorLaw`). b_kj is the root of s_kj.

What is determined. (1) depends on the graph only through the precision matrix

    Omega = A' diag(1 / s) A                                                                     (2)

and so do all records, however many: two graphs with the same (2) cannot be told apart. For p = 2,
a -> b and b -> a always have the same (2). Acyclic graphs with the same (2) for all values of their
coefficients have the same pairs of neighbours (Verma and Pearl 1990), but arrows may be reversed.
Graphs with cycles can have the same (2) with other neighbours (Ghassami, Yang, Kiyavash and Zhang,
ICML 2020). Then only the prior, which prefers few arrows, decides between them. So

    * partial correlations, functions of (2), are determined by the records;
    * that two columns are neighbours is determined by records and prior if the graph is acyclic and
      sparse;
    * directions are not determined. With few arrows and no cycle some would be; chains find them too
      rarely to rely on it.

A pair's probability in a draw is that of at least one arrow: slabs are independent given the draw,

    P(pair j, h) = 1 - (1 - P_jh) (1 - P_hj)                                                     (3)

The coordinator does not know error variances. It computes partial correlations of the common graph
with the error variances s that give each column variance 1, its pooled one: the solution of

    SUM_h B_jh^2 s_h = 1,  B = A^-1                                                              (4)

where solutions below `LEAST_VARIANCE`, which some draws far from the records have, are raised to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from secagg.core.arrays import Array
from secagg.models.common.posterior_summary import Posterior, summarise
from secagg.models.sparse_bayes.laplace_graph import Indices, entry_positions, matrices
from secagg.models.sparse_bayes.markov_random_field import discoveries, expected_fdr
from secagg.models.sparse_bayes.result import coefficient, undecided

SURROGATE = "Gaussian surrogate of the sparse directed graph: pairs, not directions"
NOT_DETERMINED = (
    "Gaussian surrogate: errors are taken as normal, so causes and effects cannot be told apart. "
    "Edges are pairs of columns without a direction. Means and PIPs of single directions depend on "
    "the prior and on where the chains started; do not read them as directions. That a pair is "
    "connected is determined if the graph is sparse and has no cycles."
)
LEAST_VARIANCE = 1e-3
"""Of an error, as a share of its column's variance."""


def scatter_columns(z: Array) -> Array:
    """Return F (p, p) of centred records z (n, p): F F' = z'z."""
    values, vectors = np.linalg.eigh(z.T @ z)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def pair_positions(p: int) -> tuple[Indices, Indices]:
    """Return both columns of each pair."""
    first, second = np.triu_indices(p, 1)
    return first, second


def partial_correlations(graphs: Array, variances: Array) -> Array:
    """Return those of (2), shape (..., pairs), from Theta (..., p, p) and s (..., p)."""
    rows = (np.eye(graphs.shape[-1]) - graphs) / np.sqrt(variances)[..., None]
    precision = np.swapaxes(rows, -1, -2) @ rows
    first, second = pair_positions(graphs.shape[-1])
    squares = np.diagonal(precision, axis1=-2, axis2=-1)
    product = squares[..., first] * squares[..., second]
    return np.asarray(-precision[..., first, second] / np.sqrt(product))


def unit_variances(graphs: Array) -> Array:
    """Return s of (4), shape (..., p)."""
    p = graphs.shape[-1]
    effects = np.linalg.inv(np.eye(p) - graphs) ** 2
    # rho(Theta) < 1 holds at sites, not for the common graph: its (4) may be singular
    with np.errstate(all="ignore"):
        found = np.linalg.pinv(effects) @ np.ones(p)
    return np.maximum(found, LEAST_VARIANCE)


def pair_summary(
    names: Sequence[str], draws: Mapping[str, Array], level: float, fdr: float
) -> tuple[dict[str, Any], dict[str, Posterior], dict[str, Array]]:
    """Return the pairs, likeliest first; the posteriors of what is determined; and matrices.

    draws: those recorded, theta and inclusion of shape (draws, chains, 1, p (p - 1))
    """
    p = len(names)
    first, second = pair_positions(p)
    each = {name: draws[name][:, :, 0] for name in ("theta", "inclusion")}
    absent = 1 - _filled(each["inclusion"], p)
    graphs = _filled(each["theta"], p)
    partial = partial_correlations(graphs, unit_variances(graphs))
    determined = {
        "partial correlations": summarise(partial, level),
        "PIPs of pairs": summarise(1 - absent[..., first, second] * absent[..., second, first], level),
    }
    arrows = {name: summarise(values, level) for name, values in each.items()}
    pip = determined["PIPs of pairs"].mean
    edges = discoveries(pip, fdr)
    place = {pair: i for i, pair in enumerate(zip(*entry_positions(p), strict=True))}

    def arrow(j: int, h: int) -> dict[str, Any]:
        at = (place[j, h],)
        numbers = coefficient(arrows["theta"], arrows["inclusion"], at)
        return {"from": names[h], "to": names[j], **numbers}

    pairs = []
    for i in np.argsort(-pip, kind="stable"):
        j, h = int(first[i]), int(second[i])
        directions = [arrow(h, j), arrow(j, h)]
        numbers = coefficient(*determined.values(), (int(i),))
        edge = bool(edges[i])
        pairs.append({
            "between": [names[j], names[h]],
            "edge": edge,
            "undecided": any(undecided(edge, [one]) for one in directions),
            "partial_correlation": numbers["mean"],
            "pip": numbers["pip"],
            "sides": [{"outcome": names[j], "predictor": names[h], **numbers}],
            "directions_not_determined": directions,
        })  # fmt: skip
    both = np.zeros((p, p))
    both[first, second] = both[second, first] = pip
    chosen = np.zeros((p, p), dtype=bool)
    chosen[first, second] = chosen[second, first] = edges
    summary = {"expected_fdr": expected_fdr(pip[edges]), "pairs": pairs}
    return summary, determined, {"pip": both, "edges": chosen}


def _filled(entries: Array, p: int) -> Array:
    """Return matrices (..., p, p) of entries (..., p (p - 1))."""
    flat = matrices(entries.reshape(-1, entries.shape[-1]), p)
    return flat.reshape(*entries.shape[:-1], p, p)
