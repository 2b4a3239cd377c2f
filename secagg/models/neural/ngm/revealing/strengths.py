"""Which paths of a graph revealer are edges, and what its penalty is.

Equations (1) and (2) are those of `secagg.models.neural.ngm.revealer`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from secagg.core.arrays import Array
from secagg.models.neural.graph_votes import vote_level
from secagg.models.neural.ngm.layout import NgmLayout
from secagg.models.neural.ngm.path_norms import edge_strengths, path_norms
from secagg.models.neural.ngm.revealing.settings import NgrSettings
from secagg.models.neural.ngm.shared_network import SharedNetwork, self_paths
from secagg.models.neural.rounds import OUT_OF_ROUNDS

_LAST_SHARE = 0.1  # of the rounds, over which the last changes of path norms are measured
_MORE_CHANGE = 5.0  # a path norm may go on to change by this many times its last change
_MAX_OPEN, _MAX_OPEN_SHARE = 2, 0.05  # pairs of a settled graph that may still cross the threshold


@dataclass(frozen=True, eq=False)
class FoundGraph:
    """The graph, and s P of (1) between columns, both of shape (columns, columns).

    sparsity, threshold: the settings, or what they are by default
    """

    graph: NDArray[np.bool_]
    strength: Array
    sparsity: float
    threshold: float


def found_graph(
    settings: NgrSettings, layout: NgmLayout, centre: Array, norms: Array, records: float
) -> FoundGraph:
    """Return the edges. norms: P, shape (outputs, inputs); centre: pooled means, or 0"""
    strength = edge_strengths(layout, deviations(layout, centre)[:, None] * norms)
    gamma, threshold = _sparsity(settings, records), settings.threshold
    if threshold is None:  # (2)
        alpha = level(settings, layout)
        threshold = max(-float(ndtri(alpha / 2)) / math.sqrt(records) - gamma, 0.0)
    graph = (strength > threshold) & ~np.eye(layout.d, dtype=np.bool_)
    return FoundGraph(graph, strength, gamma, threshold)


def earlier_round(rounds: int) -> int:
    """Return the round with whose path norms those of the last one are compared."""
    return rounds - max(1, round(_LAST_SHARE * rounds))


def with_search(
    summary: dict[str, Any], found: FoundGraph, earlier: Array | None, rounds: int
) -> dict[str, Any]:
    """Return the summary, which also says whether the graph settled, in its `status` too.

    The search makes all its rounds, from path norms that are larger than those at its end. The
    graph has settled if hardly any path norm would cross the threshold by changing on, by
    `_MORE_CHANGE` times its change in the last tenth of the rounds.

    summary: with `converged` of the refit, if there is one
    earlier: s P in `earlier_round`; None if there was no such round
    """
    pairs = np.triu_indices(len(found.graph), 1)
    change = math.inf if earlier is None else np.abs(found.strength - earlier)[pairs]
    crossing = np.abs(found.strength[pairs] - found.threshold) < _MORE_CHANGE * change
    if np.sum(crossing) > max(_MAX_OPEN, _MAX_OPEN_SHARE * len(crossing)):
        note = (
            f"The search ended before the graph had settled: {np.sum(crossing)} of {len(crossing)} "
            f"possible edges may still come or go after more than {rounds} rounds. Increase "
            "method.rounds."
        )
        summary = summary | {"converged": False, "notes": [note, *summary["notes"]]}
    whole = summary.get("converged", True)
    return summary | {"status": "finished" if whole else OUT_OF_ROUNDS}


def level(settings: NgrSettings, layout: NgmLayout) -> float:
    """Return the probability at which each pair is tested."""
    return vote_level(len(layout.pairs[0]), 1, 1, settings.false_edges)


def penalised_paths(
    settings: NgrSettings, network: SharedNetwork, theta: Array, records: float
) -> Array:
    """Return the factor of each path norm in (1), shape (outputs, inputs)."""
    own = self_paths(network.layout)
    every = np.broadcast_to(deviations(network.layout, network.centre)[:, None], own.shape)
    of_self, of_all = settings.self_penalty, _sparsity(settings, records)
    if settings.log_penalties:
        norms = path_norms(network.weights(theta))
        of_self /= 1 + float(np.sum(norms * own))
        of_all /= 1 + float(np.sum(norms * every))
    return np.asarray(of_self * own + of_all * every)


def deviations(layout: NgmLayout, centre: Array) -> Array:
    """Return s of (1), shape (variables,). centre: 0 if shares are not known: s is then 1/2."""
    found = np.ones(layout.variables)
    levels = np.setdiff1d(np.arange(layout.variables), layout.continuous)
    found[levels] = np.sqrt(1 - centre[levels] ** 2) / 2  # an indicator is -1 or 1, centre 2 p - 1
    return found


def _sparsity(settings: NgrSettings, records: float) -> float:
    return 1 / math.sqrt(records) if settings.sparsity is None else settings.sparsity
