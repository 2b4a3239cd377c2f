"""Linear NOTEARS-ADMM with noise once at the site: its size, what it raises, and each edge's score.

The sites know the variances of the noise in their own moments, so each knows the variances of the
noise in its scatter matrix (`secagg.models.graphs.noise_size`, (1)). The first sum adds them up
over the sites. They are functions of the noisy moments, so they cost nothing, as all rounds. From
the sum, the coordinator raises the penalty of every entry before the first W, and the threshold of
every edge after the last. With lags, that holds for the effects of earlier steps, too.

`times_noise` of an edge is its absolute weight divided by the standard deviation of its noise, as
if no other column were related to the two. It is a score for comparing edges of one graph. It is
not the probability of an edge, and not a share of repetitions: those need whole runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import Field, Kind, PublicFacts, Result, SiteRecords, State, Update
from secagg.core.arrays import Array
from secagg.models.graphs.knowledge import FORBIDDEN
from secagg.models.graphs.noise_size import (
    NoiseSize,
    job_penalties,
    raised_facts,
    raised_note,
    scatter_noise,
)
from secagg.models.graphs.proximal_newton import LinearGraph

NOISE = "noise"
_BITS = 24


def noise_fields(public: PublicFacts, d: int) -> tuple[Field, ...]:
    """Return the field of the first sum; none without noise once at the site.

    Noise whose standard deviation is the number of records hides everything: so its square is the
    bound.
    """
    if not public.site_moments:
        return ()
    return (Field(NOISE, (d, d), float(public.max_rows) ** 2, _BITS, Kind.WEIGHT),)


def noise_told(public: PublicFacts) -> str:
    """Return what this field tells the coordinator."""
    told = "; the sums of the variances of the noise in the sites' sums of squares and products"
    return told if public.site_moments else ""


def noise_sums(rows: SiteRecords, chosen: NDArray[np.int64]) -> Update:
    """Return a site's part of that field."""
    return {} if rows.noisy is None else {NOISE: scatter_noise(rows.noisy.select(chosen))}


def noise_in(total: Update, scale: Array, records: int) -> State:
    """Return G for the coordinator's state, from the first sum; nothing without noise."""
    if NOISE not in total:
        return {}
    return {NOISE: np.sqrt(total[NOISE]) * np.outer(scale, scale) / records}


def noise_size(state: State, graph: LinearGraph) -> NoiseSize | None:
    """Return the noise in the units analysed, once it is known."""
    if NOISE not in state:
        return None
    return NoiseSize(state[NOISE], state["deviations"] ** 2, state["records"], graph.d)


def graph_in_force(graph: LinearGraph, state: State) -> LinearGraph:
    """Return the graph with the penalties in force, and without forbidden edges."""
    if FORBIDDEN in state:
        graph = graph.without(state[FORBIDDEN] > 0)
    size = noise_size(state, graph)
    if size is None:
        return graph
    return replace(graph, at_least=np.maximum(graph.at_least, size.penalty))


def raised_threshold(state: State, graph: LinearGraph) -> Array:
    """Return the threshold by (3) of `secagg.models.graphs.noise_size`, shaped like W.

    It is 0 without noise.
    """
    size = noise_size(state, graph)
    if size is None:
        return np.zeros(graph.shape)
    return size.threshold(job_penalties(size, *graph.penalties))


def with_noise(
    result: Result, state: State, graph: LinearGraph, lags: Sequence[Sequence[str]],
    threshold: float,
) -> Result:  # fmt: skip
    """Return a result with the settings in force and each edge's score; lags: names of columns."""
    size = noise_size(state, graph)
    if size is None:
        return result
    penalty, lag_penalty = graph.penalties
    facts = raised_facts(size, penalty, threshold, lag_penalty=lag_penalty)
    names = [*result.summary["names"], *(name for lag in lags for name in lag)]
    place = {name: i for i, name in enumerate(names)}
    notes = [*result.summary["notes"], raised_note(facts)]
    summary = {**result.summary, "notes": notes, "noise": facts}
    for key in {"edges", "lagged_edges"} & summary.keys():
        summary[key] = [_scored(edge, size, place) for edge in summary[key]]
    arrays = {**result.arrays, "weight_error": size.weight_error[: graph.d]}
    if graph.lags:
        arrays["lagged_weight_error"] = graph.lagged(size.weight_error)
    return Result(summary, arrays)


def _scored(edge: dict[str, Any], size: NoiseSize, place: dict[str, int]) -> dict[str, Any]:
    error = float(size.weight_error[place[edge["from"]], place[edge["to"]]])
    return {**edge, "times_noise": abs(edge["weight"]) / error}
