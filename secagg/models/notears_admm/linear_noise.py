"""Linear NOTEARS-ADMM with noise once at the site: its size, what it raises, and each edge's score.

The sites know the variances of the noise in their own moments, so each knows the variances of the
noise in its scatter matrix (`secagg.models.graphs.noise_size`, (1)). The first sum adds them up
over the sites. They are functions of the noisy moments, so they cost nothing, as all rounds. From
the sum, the coordinator raises the penalty of every entry before the first W, and the threshold of
every edge after the last.

`times_noise` of an edge is its absolute weight divided by the standard deviation of its noise, as
if no other column were related to the two. It is a score for comparing edges of one graph. It is
not the probability of an edge, and not a share of repetitions: those need whole runs.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import Field, Kind, PublicFacts, Result, SiteRecords, State, Update
from secagg.core.arrays import Array
from secagg.models.graphs.linear_graph import LinearGraph
from secagg.models.graphs.noise_size import NoiseSize, raised_facts, raised_note, scatter_noise

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


def noise_size(state: State) -> NoiseSize | None:
    """Return the noise in the units analysed, once it is known."""
    if NOISE not in state:
        return None
    return NoiseSize(state[NOISE], state["deviations"] ** 2, state["records"])


def raised_graph(graph: LinearGraph, state: State) -> LinearGraph:
    """Return the graph with the penalties in force."""
    size = noise_size(state)
    return graph if size is None else replace(graph, at_least=size.penalty)


def raised_threshold(state: State, penalty: float) -> Array | None:
    """Return the threshold by (3) of `secagg.models.graphs.noise_size`; None without noise."""
    size = noise_size(state)
    return None if size is None else size.threshold(penalty)


def with_noise(result: Result, state: State, penalty: float, threshold: float) -> Result:
    """Return a result with the settings in force and each edge's score."""
    size = noise_size(state)
    if size is None:
        return result
    facts = raised_facts(size, penalty, threshold, size.threshold(penalty))
    place = {name: i for i, name in enumerate(result.summary["names"])}
    edges = [
        {**edge, "times_noise": abs(edge["weight"]) / _error(size, place, edge)}
        for edge in result.summary["edges"]
    ]
    notes = [*result.summary["notes"], raised_note(facts)]
    summary = {**result.summary, "edges": edges, "notes": notes, "noise": facts}
    return Result(summary, {**result.arrays, "weight_error": size.weight_error})


def _error(size: NoiseSize, place: dict[str, int], edge: dict[str, object]) -> float:
    return float(size.weight_error[place[str(edge["from"])], place[str(edge["to"])]])
