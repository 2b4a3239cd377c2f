"""The two networks of a neural graphical model, each with its penalty.

"masked"   a network for each column that reads its neighbours only; a normal prior
"paper"    one network from all variables to all, and equation 1's penalty on forbidden paths
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import numpy as np

from secagg.contracts import State
from secagg.core.arrays import Array
from secagg.models.neural.ngm.layout import NgmLayout
from secagg.models.neural.ngm.masked_network import MaskedNetwork
from secagg.models.neural.ngm.path_norms import PathTerm, path_penalty
from secagg.models.neural.ngm.shared_network import SharedNetwork, forbidden_paths, self_paths
from secagg.models.neural.rounds import Penalty

NetworkKind = Literal["masked", "paper"]
Network = MaskedNetwork | SharedNetwork


@lru_cache(maxsize=16)
def masked_network(
    layout: NgmLayout,
    hidden: tuple[int, ...],
    graph: bytes,
    centre: bytes,
    scale: bytes,
    curved: bytes | None = None,
) -> MaskedNetwork:
    """Return the network of these facts; one object, because what is found out about it is kept."""
    masks = [
        None if each is None else np.frombuffer(each, np.uint8).reshape(layout.d, layout.d) > 0
        for each in (graph, curved)
    ]
    at, by = (np.frombuffer(each, dtype=np.float64) for each in (centre, scale))
    assert masks[0] is not None
    return MaskedNetwork(layout, hidden, masks[0], at, by, curved=masks[1])


def no_facts(layout: NgmLayout) -> State:
    """Return facts with which a network can be measured."""
    zeros = np.zeros(layout.variables)
    graph = np.zeros((layout.d, layout.d), dtype=np.uint8)
    return {"graph": graph, "centre": zeros, "scale": zeros}


def equation_1(network: SharedNetwork, graph: Array, factor: float) -> Penalty:
    """Return the penalty on paths that the graph forbids. factor: lambda, for the mean loss."""
    paths = forbidden_paths(network.layout, graph.astype(np.bool_))
    return path_penalty(network.blocks, network.layers, [PathTerm(factor, paths, logarithm=True)])


def leaks(network: SharedNetwork, graph: Array, theta: Array, seed: int) -> list[dict[str, Any]]:
    """Return each column's mean |d output / d input| at public points, by kind of input.

    Keys: "self": the column's own variables; "edges": its neighbours'; "other": all others', which
    the graph forbids as well. None if there is no such input.
    """
    layout, found = network.layout, network.derivatives(theta, seed)
    own = self_paths(layout)
    forbidden = forbidden_paths(layout, graph.astype(np.bool_))
    kinds = {"self": own, "edges": 1 - forbidden, "other": forbidden - own}
    return [
        {"column": column.name}
        | {name: _mean(found, mask, list(column.positions)) for name, mask in kinds.items()}
        for column in layout.columns
    ]


def _mean(values: Array, mask: Array, rows: list[int]) -> float | None:
    number = float(np.sum(mask[rows]))
    return float(np.sum((values * mask)[rows]) / number) if number else None
