"""The merge of the sites' graphs: sums of 0/1 votes for pairs of columns.

Chajewska and Shrivastava (2023), section 2.1: the union of the sites' edges. Here the sites' votes
are added in one secure sum, so nobody sees the graph of a single site; and an edge can need more
than one vote. The order of pairs is that of `NgmLayout.pairs`: the upper triangle, by rows.

The level of the sites' tests. If two columns are not associated, each of K independent sites votes
for them with probability alpha. They get v or more votes with probability I_alpha(v, K - v + 1),
the regularised incomplete beta function. `vote_level` chooses alpha such that the expected number
of false edges in the merged graph, over all pairs, is a given number. This holds whatever the
dependence between pairs, if the sites' tests keep their level. The probability of any false edge is
no larger than this number (Markov's inequality). The more votes an edge needs, the larger alpha is.
In simulations of mixed columns (`benchmarks/methods/site_graph_quality.py`), 0.2 expected false
edges with one vote or two found graphs about equally well at 200 to 1000 records a site (F1 0.94 to
0.98). At 100 to 300 records, two votes were better by 0.03 to 0.10. The numbers of sites, pairs and
votes are public, so alpha says nothing about records.

What protects privacy. The sum hides which sites have an edge. The coordinator sees all counts.
`shown` leaves out small counts for everybody else; an edge of the union still says that at least
one site has it, and a count equal to the number of sites says that every site has it. Without noise
nothing hides a single record (`secagg.models.neural.site_graphs`).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri

from secagg.core.arrays import Array
from secagg.errors import UsageError
from secagg.models.common.checks import require_number

Graph = NDArray[np.bool_]
MIN_FALSE_EDGES = float(np.finfo(np.float64).tiny)
"""Smallest setting `false_edges`: smaller numbers have fewer digits."""
_POWER = 0.8


def pack(graph: Graph) -> Array:
    """Return a site's votes, 0 or 1 for each pair of columns. graph: (columns, columns)."""
    return graph[np.triu_indices(len(graph), k=1)].astype(np.float64)


def vote_level(pairs: int, sites: int, votes: int, false_edges: float) -> float:
    """Return alpha, the level of each test at a site.

    pairs: number of pairs of columns; votes: that an edge needs, from 1 to `sites`
    false_edges: their expected number in the merged graph if no pair is associated; above 0. From
        `pairs` on, nothing is asked of the tests, and alpha is 1/2.
    """
    if not 1 <= votes <= sites:
        raise UsageError("graph", f"an edge cannot need {votes} votes of {sites} sites")
    require_number("false_edges", false_edges, low=MIN_FALSE_EDGES)
    share = min(false_edges / pairs, 1.0)
    return min(float(betaincinv(votes, sites - votes + 1, share)), 0.5)


def missing_edges_note(alpha: float, records: float) -> str:
    """Return a note on which linear dependences tests at the level alpha may miss."""
    weakest = (ndtri(1 - alpha / 2) + ndtri(_POWER)) / math.sqrt(records)
    return (
        f"Weak dependences have no edge: with {records:,.0f} records, a linear dependence (of two "
        f"columns given all others) is found in four of five cases if it is {weakest:.2f} standard "
        "deviations for one of the other column, or more."
    )


def merge(votes: Array, needed: int) -> Graph:
    """Return for each pair of columns whether it has an edge.

    votes: the sums over sites, one for each pair
    needed: the smallest number of votes of an edge, at least 1; with 1, it is the union
    """
    if needed < 1:
        raise UsageError("graph", f"an edge needs at least 1 vote, not {needed}")
    return np.asarray(votes >= needed)


def shown(votes: Array, minimum: int) -> list[int | None]:
    """Return the counts that may be shown: None for those below `minimum`, 0 included."""
    return [int(count) if count >= minimum else None for count in votes]
