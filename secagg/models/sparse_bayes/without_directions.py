"""What draws of a directed graph tell about pairs of columns, whatever the arrows' directions.

Chains that seldom pass between graphs that explain the records about equally well disagree about
arrows and cycles. Such graphs differ little in the columns' covariances, and so chains may agree
about a pair where they disagree about its arrows. For each pair j, h of a draw,

* connected: 1 - (1 - P_jh)(1 - P_hj), with P_jh the probability of the slab given all but the slabs
  (which are independent then), (11) of `secagg.models.sparse_bayes.spike_slab`;
* the partial correlation given all other columns, (2) with the variances (4) of
  `secagg.models.sparse_bayes.normal_graph`: second moments, for which errors need not be normal;
* in one cycle: whether each of the two acts on the other, directly or through others, by the
  arrows with P above 1/2 (a strongly connected component of this graph).

Each has an R-hat of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.core.arrays import Array
from secagg.models.common.posterior_summary import Posterior, chains_agree, number, summarise
from secagg.models.sparse_bayes.laplace_graph import Order
from secagg.models.sparse_bayes.normal_graph import (
    graphs_of,
    pair_positions,
    partial_correlations,
    unit_variances,
)

_LIKELY = 0.5
_MOST_LISTED = 12


def in_one_cycle(arrows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return whether two columns act on each other, (..., p, p); arrows: any [j, h] for h -> j."""
    p = arrows.shape[-1]
    reached = arrows | np.eye(p, dtype=bool)
    for _ in range(max(p - 1, 1).bit_length()):  # paths of up to 1, 2, 4, ... arrows
        reached = reached.astype(np.float32) @ reached.astype(np.float32) > 0
    both: NDArray[np.bool_] = reached & np.swapaxes(reached, -1, -2)
    return both


def agreed(chains: int, *found: Posterior) -> list[bool | None]:
    """Return of which entries the chains agree in all of these quantities; None with one chain.

    An entry that no chain moves has no R-hat, and its chains agree.
    """
    largest = np.max([np.nan_to_num(each.r_hat, nan=1.0) for each in found], axis=0).ravel()
    return [None if chains == 1 else chains_agree(value) for value in largest.tolist()]


def pairs_without_directions(
    theta: Array, inclusion: Array, names: Sequence[str], level: float, known: Order | None = None
) -> list[dict[str, Any]]:
    """Return what the draws tell about each pair, the likeliest first.

    theta, inclusion: (draws, chains, p (p - 1)), in the order of `laplace_graph.entry_positions`
    known: which arrows are possible; None for all
    """
    p = len(names)
    first, second = pair_positions(p)
    graphs, chance = graphs_of(theta, p, known), graphs_of(inclusion, p, known)
    absent = 1 - chance
    connected = summarise(1 - absent[..., first, second] * absent[..., second, first], level)
    partial = summarise(partial_correlations(graphs, unit_variances(graphs)), level)
    cyclic = in_one_cycle(chance > _LIKELY)[..., first, second]
    together = summarise(cyclic.astype(np.float64), level)
    agree = agreed(theta.shape[1], connected, partial)
    return [
        {
            "between": [names[first[i]], names[second[i]]],
            "pip": number(connected.mean[i]),
            "pip_mcse": number(connected.mcse_mean[i]),
            "pip_r_hat": number(connected.r_hat[i]),
            "partial_correlation": number(partial.mean[i]),
            "low": number(partial.low[i]),
            "high": number(partial.high[i]),
            "r_hat": number(partial.r_hat[i]),
            "ess_bulk": number(partial.ess_bulk[i]),
            "in_one_cycle": number(together.mean[i]),
            "in_one_cycle_r_hat": number(together.r_hat[i]),
            "chains_agree": agree[i],
        }
        for i in np.argsort(-connected.mean, kind="stable").tolist()
    ]


def note_on_directions(arrows: Sequence[dict[str, Any]], pairs: Sequence[dict[str, Any]]) -> str:
    """Return of what the chains agree, and of what not; "" if they agree on all arrows."""
    unclear = [row for row in arrows if row["chains_agree"] is False]
    if not unclear:
        return ""
    listed = ", ".join(f"{row['from']!r} -> {row['to']!r}" for row in unclear[:_MOST_LISTED])
    more = ", and others" if len(unclear) > _MOST_LISTED else ""
    agreed_pairs = [pair for pair in pairs if pair["chains_agree"]]
    edges = [
        f"{' - '.join(map(repr, pair['between']))} ({pair['pip']:.2f}; "
        f"{pair['partial_correlation']:.2f})"
        for pair in agreed_pairs
        if pair["pip"] > _LIKELY
    ]
    known = ", ".join(edges[:_MOST_LISTED]) + (", and others" if len(edges) > _MOST_LISTED else "")
    return (
        f"Not known: {len(unclear)} of {len(arrows)} arrows ({listed}{more}). Without directions, "
        f"the chains agree about {len(agreed_pairs)} of {len(pairs)} pairs. Of these, connected "
        f"(probability; partial correlation): {known or 'none'}. `pairs_without_directions` in "
        "result.json has all."
    )
