"""Reversals of an arrow by a translation that warmup learns: jumps between two fits.

A rotation of rows keeps the law of normal records, and leads to least squares. If errors are not
normal, the records may make other effects likely: among the proteins of Sachs, those of P38 and PKC
on Jnk are .06 and -.24 by least squares, and .37 and -.62 by least absolute deviations. Here the
rows of j and h, and the arrow between them, move by the difference of their means with either
direction,

    theta'_jc = theta_jc + m_jc(h -> j) - m_jc(j -> h),  and the same for h and for the arrow    (1)

for each earlier column c. m are means over the draws of all chains in warmup in which the arrow is
in the slab and c is before both; an entry of which one mean has few draws is kept. The jump back
has the opposite sign, so (1) has the volume 1, and after warmup it is fixed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import State
from secagg.core.arrays import Array
from secagg.models.sparse_bayes.joint.common_moves import Alternative
from secagg.models.sparse_bayes.joint.orders import Orders
from secagg.models.sparse_bayes.laplace_graph import entry_positions, matrices

Indices = NDArray[np.int64]

MOST_COLUMNS = 40
"""With more, the means are too many numbers to keep, and are not learned."""
_KEPT = 0.99  # weight of earlier draws, per round
_LEAST = 5.0  # weight of a mean that is used
_SHARE = 0.5  # of reversals that are translations


def first_means(p: int) -> State:
    """Return sums and weights, (2, p, p, p): [0, b, a, c] of the effect of c on b and [1, b, a, c]
    of that on a, given a -> b.
    """
    return {"sum": np.zeros((2, p, p, p)), "weight": np.zeros((2, p, p, p))}


def learned(means: State, orders: Orders, theta: Array, g: Array) -> State:
    """Return the means after one more round; theta, g: of all chains, all entries."""
    p = orders.p
    graphs, slab, there = (matrices(each, p) for each in (theta, g, orders.present()))

    def added(values: Array) -> Array:
        of_rows = [np.einsum(f"kba,k{row}c->bac", slab, values) for row in "ba"]
        return np.array(of_rows)

    return {
        "sum": _KEPT * means["sum"] + added(graphs),
        "weight": _KEPT * means["weight"] + added(there),
    }


def translated(graphs: Array, orders: Orders, pairs: Indices, means: State) -> Array:
    """Return graphs (chains, p, p) after (1) of these pairs, all by position.

    The new arrow is in the place of the one that it replaces, as in `orders`.
    """
    weight = means["weight"]
    known, mean = weight >= _LEAST, means["sum"] / np.maximum(weight, _LEAST)
    made = graphs.copy()
    for i, k in pairs:
        j, h = orders.columns[:, i, None], orders.columns[:, k, None]
        earlier = orders.columns[:, :i]
        for row, now, then in ((i, (1, h, j), (0, j, h)), (k, (0, h, j), (1, j, h))):
            both = known[*now, earlier] & known[*then, earlier]
            made[:, row, :i] += np.where(both, mean[*then, earlier] - mean[*now, earlier], 0.0)
        old, new = (0, h, j, j), (0, j, h, h)  # the arrow itself
        both = known[old] & known[new]
        made[:, k, i] += np.where(both, mean[new] - mean[old], 0.0)[:, 0]
    return made


def some_translated(
    made: Alternative,
    graphs: Array,
    orders: Orders,
    pairs: Indices,
    means: State,
    rng: np.random.Generator,
) -> Alternative:
    """Return reversals of which a random half are translations; graphs: by position."""
    p = orders.p
    rows, sources = entry_positions(p, ordered=True)
    jumps = rng.random(made.weight.shape) < _SHARE
    by_row = np.zeros((len(graphs), p), dtype=bool)
    for two, flags in zip(pairs, jumps.T, strict=True):
        by_row[:, two] = flags[:, None]
    moved = translated(graphs, orders, pairs, means)[:, rows, sources]
    theta = np.where(by_row[:, rows], moved, made.theta)
    return replace(made, theta=theta, weight=np.where(jumps, 0.0, made.weight))
