"""The columns of a linear graph: the variables, then their values at each lag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import PublicFacts
from secagg.core.arrays import Array
from secagg.errors import JobError
from secagg.models.common.variables import choose


def graph_columns(
    public: PublicFacts, variables: Sequence[str] | None, lags: Sequence[Sequence[str]]
) -> NDArray[np.int64]:
    """Return their positions; variables: None for all columns that no lag lists."""
    lagged = [choose(public, lag, "method.lags") for lag in lags]
    if variables is None:
        in_lags = {int(i) for lag in lagged for i in lag}
        others = [i for i in range(len(public.variables)) if i not in in_lags]
        instantaneous = np.array(others, dtype=np.int64)
    else:
        instantaneous = choose(public, variables, "method.variables")
    for lag in lagged:
        if len(lag) != len(instantaneous):
            raise JobError(
                "method.lags",
                f"a lag has {len(lag)} columns and the graph {len(instantaneous)} variables",
                "In each lag list the earlier values of all variables, in their order.",
            )
    positions = np.concatenate([instantaneous, *lagged])
    if len(set(positions.tolist())) < len(positions):
        raise JobError("method.lags", "a column is named twice", "Name each column once.")
    return positions


def lagged_edges(
    weights: Array,
    lags: Sequence[Sequence[str]],
    names: Sequence[str],
    threshold: float,
    floor: Array | float,
) -> list[dict[str, Any]]:
    """Return the effects of earlier steps beyond the threshold.

    weights: (lags, d, d); floor: a smallest threshold, one or of that shape
    """
    return [
        {"from": lags[p][i], "to": names[j], "lag": p + 1, "weight": weights[p, i, j]}
        for p, i, j in np.argwhere(np.abs(weights) > np.maximum(threshold, floor)).tolist()
    ]
