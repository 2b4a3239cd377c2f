"""The alternatives of a round: those of `common_moves`, or of `orders` if chains draw their order.

If chains draw their order, alternatives have all p (p - 1) entries, by the names of the columns.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from secagg.contracts import State
from secagg.core.arrays import Array
from secagg.models.sparse_bayes.joint.common_moves import Alternative, exchange_places, propose
from secagg.models.sparse_bayes.joint.direction_means import some_translated
from secagg.models.sparse_bayes.joint.orders import (
    Flags,
    Indices,
    Orders,
    inner,
    outer,
    propose_reversals,
)
from secagg.models.sparse_bayes.laplace_graph import GraphDraw, Order, matrices


def propose_round(
    theta: Array,
    p: int,
    pairs: Indices,
    records: int,
    rng: np.random.Generator,
    known: Order,
    orders: Orders | None,
    means: State | None,
) -> Alternative:
    """Return alternatives to the common graphs theta, (chains, entries).

    known: which arrows are possible; means: of `direction_means`, if warmup learns them
    """
    if orders is None:
        return propose(matrices(theta, p, known), pairs, records, rng, ordered=known)
    graphs = matrices(inner(theta, orders.places), p)
    made = propose_reversals(graphs, pairs, rng)
    if means is not None:
        made = some_translated(made, graphs, orders, pairs, means, rng)
    return replace(made, theta=outer(made.theta, orders.places_after(pairs, made.reversal), p))


def site_alternative(
    other: Array,
    draw: GraphDraw,
    theta: Array,
    pairs: Indices,
    reversal: Flags,
    known: Order,
    orders: Orders | None,
) -> tuple[Array, Array, Array]:
    """Return a site's entries and v of an alternative, and its graph (chains, p, p).

    other: the common alternative; draw, theta: the site's and the common one, by position if chains
        draw their order, and so is the graph returned
    """
    if orders is not None:
        return orders.alternative(other, draw, theta, pairs, reversal)
    p = draw.b.shape[-1]
    places = exchange_places(pairs, reversal, p, ordered=known)
    mine = other + np.take_along_axis(draw.theta - theta, places, axis=1)
    return mine, np.take_along_axis(draw.v, places, axis=1), matrices(mine, p, known)
