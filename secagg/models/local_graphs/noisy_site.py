"""What sites send with noise once at the site, and what the result says about it.

Beside its graph, a site sends the graphs of its repetitions with fresh noise and, for an average,
the variances of its weights. `secagg.models.local_graphs.scatter_noise` defines both, and says what
the stability of an edge means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import Field, Kind, NoisyMatrix, PublicFacts, Result, State, Update
from secagg.core.arrays import Array
from secagg.models.common.pooled_moments import Moments
from secagg.models.graphs.noise_size import (
    quantile,
    single_level,
    vote_level,
)
from secagg.models.local_graphs.learners import (
    ABSTAINED,
    EDGES,
    Combine,
    Learner,
    local_adjacency,
    majority_graph,
)
from secagg.models.local_graphs.scatter_noise import SiteNoise, redrawn

REDRAWN, VARIANCE = "redrawn", "variance"
"""Arrays of a contribution: as `EDGES`, for each repetition, (B, p, p); of the weights, (p, p)."""


@dataclass(frozen=True, eq=False)
class NoisySite:
    """A site with noisy moments.

    values: its table, which has the repaired moments, (n, all variables); noisy: before the repair
    chosen: positions of the graph's columns; half: half widths of their bounds; names: theirs
    """

    values: Array
    noisy: NoisyMatrix
    chosen: NDArray[np.int64]
    half: Array
    names: tuple[str, ...]

    def contribution(
        self, learner: Learner, combine: Combine, level: float, redraws: int,
        rng: np.random.Generator,
    ) -> Update:  # fmt: skip
        """Return the arrays of `noisy_fields`, and those of `local_adjacency`."""
        noise = SiteNoise(self.noisy.select(self.chosen), self.half, level)
        rows = self.half * self.values[:, self.chosen]
        update = local_adjacency(learner.fit(rows, self.names, noise), combine)
        if combine == "average":
            update[VARIANCE] = learner.weight_variance(rows, self.names, noise)
        if redraws:
            fits = [learner.fit_moments(self._redrawn(rng), noise) for _ in range(redraws)]
            update[REDRAWN] = np.array([local_adjacency(fit, combine)[EDGES] for fit in fits])
        return update

    def _redrawn(self, rng: np.random.Generator) -> Moments:
        again, at = redrawn(self.values, self.noisy, rng), np.ix_(self.chosen, self.chosen)
        scatter = again.scatter[at] * np.outer(self.half, self.half)
        return Moments(self.names, again.n, self.half * again.mean[self.chosen], scatter)


def noisy_fields(edges: Field, combine: Combine, redraws: int) -> tuple[tuple[Field, ...], str]:
    """Return the fields beside the graph, and what they tell; edges: that of the graph."""
    fields, sees = tuple[Field, ...](), ""
    if redraws:
        fields += (replace(edges, name=REDRAWN, shape=(redraws, *edges.shape)),)
        sees += f"; the same for {redraws} repetitions with fresh noise"
    if combine == "average":
        fields += (replace(edges, name=VARIANCE, kind=Kind.WEIGHT),)
        sees += "; the sum of the variances of these weights, by noise and chance"
    return fields, sees


def level_of_a_site(public: PublicFacts, p: int, learner: Learner) -> float:
    """Return the level at which a site tests one pair, whatever number of sites takes part."""
    level = learner.alpha if learner.algorithm == "pc" else None
    return vote_level(p, range(public.min_sites, len(public.sites) + 1), level)


def average_floor(state: State) -> Array | None:
    """Return the smallest threshold of each edge of an average; None without noise or in a vote."""
    if VARIANCE not in state:
        return None
    z = quantile(single_level(len(state[VARIANCE])))
    found: Array = z * np.sqrt(state[VARIANCE]) / state["sites"]
    return found


def with_stability(
    result: Result, state: State, learner: Learner, combine: Combine, names: Sequence[str]
) -> Result:
    """Return a result with the stability of its edges, and what the noise raised."""
    notes, arrays = [*result.summary["notes"], learner.noise_note()], {**result.arrays}
    edges, facts = result.summary["edges"], dict[str, Any]()
    floor = average_floor(state)
    if floor is not None:
        largest = float(np.maximum(learner.threshold, floor).max())
        facts["threshold"] = {"job": learner.threshold, "largest": largest}
        if largest > learner.threshold:
            notes.append(
                f"The noise raised the threshold of the averages from {learner.threshold:g} to at "
                f"most {largest:.2g}."
            )
    if REDRAWN in state:
        graphs = [
            majority_graph(
                {EDGES: drawn, ABSTAINED: state[ABSTAINED]}, state["sites"], combine,
                learner.threshold, names, floor,
            )
            for drawn in state[REDRAWN]
        ]  # fmt: skip
        has = np.array([graph.directed | graph.undirected for graph in graphs])
        arrays["stability"] = share = has.mean(axis=0)
        arrays["stability_either_way"] = either = (has | has.swapaxes(1, 2)).mean(axis=0)
        at = [(names.index(edge["from"]), names.index(edge["to"])) for edge in edges]
        edges = [
            {**edge, "stability": float(share[i]), "stability_either_way": float(either[i])}
            for edge, i in zip(edges, at, strict=True)
        ]
        facts["redraws"] = len(has)
        notes.append(
            f"Stability of an edge: the share of {len(has)} repetitions with fresh noise whose "
            f"{combine} has it, in this direction or in either. It is not the probability that the "
            "edge is true."
        )
    summary = {**result.summary, "edges": edges, "notes": notes, "noise": facts}
    return Result(summary, arrays)
