"""Directed graphs with normal errors, the Gaussian surrogate: what number and scatter determine.

In place of (1) of `secagg.models.sparse_bayes.laplace_graph`, errors are e_ij ~ N(0, s_kj) with
s_kj ~ IG(a_s, b_s). With A = I - Theta_k, rows a_j of A, the scatter S = SUM_i (Y_i - mean)(Y_i -
mean)' and the constants integrated out, the likelihood is

    |det A|^(n_k - 1) PROD_j s_kj^-(n_k - 1)/2 exp(-a_j S a_j' / (2 s_kj))  if rho(Theta_k) < 1  (1)

Sites need n_k and S only. The sweep is that of `laplace_graph` without its step (4): the records
are replaced by the p columns of a matrix F, F F' = S, whose errors A F have the sums of squares
a_j S a_j' (`secagg.models.sparse_bayes.metropolis.entries.ErrorLaw`). b_kj is the root of s_kj.

What is determined. (1) depends on the graph only through the precision matrix

    Omega = A' diag(1 / s) A                                                                     (2)

and so do all records, however many. So they determine partial correlations, but not directions;
that two columns are neighbours depends on the prior, too. If the order of the columns is known
(`ordered`), all effects are determined: (2) has one such A (docs/math/laplace-graph.md).

A pair's probability in a draw is that of at least one arrow: slabs are independent given the draw,

    P(pair j, h) = 1 - (1 - P_jh) (1 - P_hj)                                                     (3)

The coordinator does not know error variances. It computes partial correlations of the common graph
with the error variances s that give each column variance 1, its pooled one: the solution of

    SUM_h B_jh^2 s_h = 1,  B = A^-1                                                              (4)

where solutions below `LEAST_VARIANCE`, which some draws far from the records have, are raised to
it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from secagg.contracts import Result, State
from secagg.core.arrays import Array
from secagg.models.common.posterior_summary import summarise
from secagg.models.sparse_bayes.base import SparseModel, recorded_draws
from secagg.models.sparse_bayes.laplace_graph import Indices, Order, entry_positions, matrices
from secagg.models.sparse_bayes.markov_random_field import discoveries, expected_fdr
from secagg.models.sparse_bayes.result import (
    coefficient,
    draw_arrays,
    summary_fields,
    undecided,
    with_note_on_undecided,
)

SURROGATE = "Gaussian surrogate of the sparse directed graph: pairs, not directions"
NOT_DETERMINED = (
    "Gaussian surrogate: errors are taken as normal, so causes and effects cannot be told apart. "
    "Edges are pairs of columns without a direction. Means and PIPs of single directions depend on "
    "the prior and on where the chains started; do not read them as directions. The PIP of a pair "
    "depends much on the prior, which prefers few arrows: other graphs explain the same records. "
    "Partial correlations do not depend on it. If the order of the columns is known, set "
    "method.ordered: then effects are determined."
)
LEAST_VARIANCE = 1e-3
"""Of an error, as a share of its column's variance."""


def scatter_columns(z: Array) -> Array:
    """Return F (p, p) of centred records z (n, p): F F' = z'z."""
    values, vectors = np.linalg.eigh(z.T @ z)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def pair_positions(p: int) -> tuple[Indices, Indices]:
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
    # the common graph need not have rho(Theta) < 1, and its (4) may be singular
    found = np.linalg.pinv(effects) @ np.ones(p)
    return np.maximum(found, LEAST_VARIANCE)


def surrogate_result(
    model: SparseModel, state: State, level: float, fdr: float, known: Order = False
) -> Result:
    """Return every pair and whether it is an edge, and the draws.

    R-hat and effective sample sizes are those of what is reported, pairs: chains may differ in
    directions. A pair has the direction of the job if it can have only one (`known`).
    """
    draws, names = recorded_draws(state), state["columns"]
    p = len(names)
    first, second = pair_positions(p)
    theta, inclusion = draws["theta"][:, :, 0], draws["inclusion"][:, :, 0]
    graphs, absent = graphs_of(theta, p, known), 1 - graphs_of(inclusion, p, known)
    partial = partial_correlations(graphs, unit_variances(graphs))
    connected = 1 - absent[..., first, second] * absent[..., second, first]
    determined = {
        "partial correlations": summarise(partial, level),
        "PIPs of pairs": summarise(connected, level),
    }
    arrows = summarise(theta, level), summarise(inclusion, level)
    pip = determined["PIPs of pairs"].mean
    edges = discoveries(pip, fdr)
    place = {end: i for i, end in enumerate(zip(*entry_positions(p, ordered=known), strict=True))}

    def arrow(j: int, h: int) -> dict[str, Any]:
        return {"from": names[h], "to": names[j], **coefficient(*arrows, (place[j, h],))}

    pairs, open_pairs = [], []
    for i in np.argsort(-pip, kind="stable").tolist():
        j, h = int(first[i]), int(second[i])
        directions = [arrow(*end) for end in ((h, j), (j, h)) if end in place]
        if not directions:
            continue
        found = determined["partial correlations"], determined["PIPs of pairs"]
        numbers, edge = coefficient(*found, (i,)), bool(edges[i])
        pairs.append(
            {
                "between": [names[j], names[h]],
                "pip": numbers["pip"],
                "edge": edge,
                "undecided": any(undecided(edge, [one]) for one in directions),
                "partial_correlation": numbers["mean"],
                "sides": [{"outcome": names[j], "predictor": names[h], **numbers}],
                "directions_not_determined" if len(directions) > 1 else "by_the_job": directions,
            }
        )
        if pairs[-1]["undecided"]:
            open_pairs.append(f"{names[j]!r} - {names[h]!r} (PIP {pip[i]:.2f})")
    labels = [f"{names[j]!r} - {names[h]!r}" for j, h in zip(first, second, strict=True)]
    rest = summary_fields(model, state, draws, determined, labels)
    notes = [NOT_DETERMINED, *rest["notes"]]
    if rest["converged"] is False:  # the first note is why nobody should use the result
        notes = [*rest["notes"], NOT_DETERMINED]
    summary = {
        "method": "sparse-directed-gaussian-surrogate",
        "errors": "gaussian",
        "names": list(names),
        "level": level,
        "fdr_at_most": fdr,
        "expected_fdr": expected_fdr(pip[edges]),
        "pairs": pairs,
        **rest,
        "notes": notes,
    }
    both = {"pip": np.zeros((p, p)), "edges": np.zeros((p, p), dtype=bool)}
    for name, values in (("pip", pip), ("edges", edges)):
        both[name][first, second] = both[name][second, first] = values
    targets, sources = entry_positions(p, ordered=known)
    drawn = draw_arrays(draws, own_eta=model.own_eta)
    summary = with_note_on_undecided(summary, open_pairs, "")
    return Result(summary, {**both, "sources": sources, "targets": targets, **drawn})


def graphs_of(entries: Array, p: int, ordered: Order | None = None) -> Array:
    """Return matrices (..., p, p) of entries (..., p (p - 1)), as `laplace_graph.matrices`."""
    flat = matrices(entries.reshape(-1, entries.shape[-1]), p, ordered)
    return flat.reshape(*entries.shape[:-1], p, p)
