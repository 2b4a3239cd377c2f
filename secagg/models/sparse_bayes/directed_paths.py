"""Rounds in which the common graph and all sites' graphs of a directed graph move together.

After each round of `secagg.models.sparse_bayes.directed_rounds` a path of
`secagg.models.sparse_bayes.joint.paths` has `path_steps` rounds, and one before them. In that one a
site makes the moves that the coordinator chose, holds d of (1) there, and draws constants and
scales; in each it answers with its likelihood at the place that the coordinator sent, and slopes
(`secagg.models.sparse_bayes.metropolis.slopes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from secagg.contracts import Body, Field, Kind, PublicFacts, Spec, Stage, State, Update
from secagg.core.arrays import Array
from secagg.errors import JobError
from secagg.models.sparse_bayes.base import SHARED_FIELDS, Round
from secagg.models.sparse_bayes.directed_rounds import HELD, DirectedRounds
from secagg.models.sparse_bayes.joint.direction_means import MOST_COLUMNS, first_means, learned
from secagg.models.sparse_bayes.joint.paths import (
    adapted_steps,
    advance,
    begin_path,
    first_steps,
)
from secagg.models.sparse_bayes.joint.tempering import ranks
from secagg.models.sparse_bayes.laplace_graph import columns_of, entry_positions, matrices
from secagg.models.sparse_bayes.latent.site_groups import (
    columns_of_group,
    in_groups,
    law_of_group,
)
from secagg.models.sparse_bayes.metropolis.alternatives import largest_score
from secagg.models.sparse_bayes.metropolis.slopes import (
    draw_location_and_scale,
    log_likelihood_and_slopes,
)
from secagg.models.sparse_bayes.spike_slab import Common

PATHS = "paths"
_BITS = 24
_STEEPEST = 16.0  # slope in theta, over the largest number of records
_STEPS = 6  # of a path with Laplace errors
_MOST_STEPS = 64


@dataclass(frozen=True, kw_only=True)
class DirectedPaths(DirectedRounds):
    """The sampler of directed graphs, with paths."""

    path_steps: int | None = None
    """Number of steps of a path on which all graphs move together after each of the `rounds`. Each
    is a short round of its own. 0: no paths. If it is not set: 6 with Laplace errors and an unknown
    order, otherwise 0."""

    @property
    def steps(self) -> int:
        """Number of steps of a path."""
        if self.path_steps is not None:
            return self.path_steps
        return _STEPS if self.errors == "laplace" and not self.order_known else 0

    def stages(self, public: PublicFacts) -> tuple[Stage, ...]:
        found = super().stages(public)
        if not 0 <= self.steps <= _MOST_STEPS:
            raise JobError("method.path_steps", f"must be between 0 and {_MOST_STEPS}")
        if not self.steps:
            return found
        if public.site_moments:
            raise JobError(
                "method.path_steps", "must be 0 under noise once at the site",
                "The exact moments would have to move, too.",
            )  # fmt: skip
        sees = (
            "the logarithm of the likelihood of the sites' graphs, and its slopes, at graphs that "
            "the coordinator moved"
        )
        rounds = (self.rounds - 1) * (self.steps + 1)
        return (*found, Stage(PATHS, self._path_spec(public), rounds, sees, ends_early=False))

    def next_request(self, state: State) -> tuple[str, Body] | None:
        found = super().next_request(state)
        if found is None or "path" not in state:
            return found
        path = state["path"]
        return PATHS, {**found[1], "theta": path["theta"][:, None]}

    def aggregate(self, state: State, total: Update, sites: int) -> State:
        if "path" in state:
            return self._after_step(state, total)
        found = super().aggregate(state, total, sites)
        if state["status"] != "running" or found["status"] != "running" or not self.steps:
            return found
        rng = self._generator_of_path(found["round"])
        now, rank = _drawn(found), ranks(found["shared"]["heat"], self.chains).ravel()
        first = first_steps(self.copies, now.theta.shape[1], found["records"])
        steps = state.get("steps", first)
        path = begin_path(now, steps, rank, rng)
        path["momentum"] *= self._present(found["shared"])
        return {**found, "steps": steps, "path": path}

    def run_moves(
        self,
        sites: Sequence[State],
        records: Sequence[int],
        now: Round,
        rngs: Sequence[np.random.Generator],
        public: PublicFacts,
    ) -> list[tuple[Update, State]]:
        self._check_shared(now.shared, public)
        return in_groups(
            sites, records, rngs,
            lambda chosen, own, n: self._answer_group(chosen, own, n, now, public),
        )  # fmt: skip

    def _answer_group(
        self,
        sites: Sequence[State],
        rngs: Sequence[np.random.Generator],
        n: int,
        now: Round,
        public: PublicFacts,
    ) -> list[tuple[Update, State]]:
        """Return contributions and memories of sites with the same number of records."""
        many, p, known = len(sites), sites[0]["Y"].shape[0], self.known_from(now.shared)
        theta, heat = (
            np.concatenate([values] * many) for values in (now.theta[:, 0], now.shared["heat"])
        )
        law = law_of_group(sites, 1 if self.errors == "laplace" else 2, n, heat)
        Y = columns_of_group(sites, self.replicas)
        if "d" in sites[0]:
            held = {name: np.concatenate([site[name] for site in sites]) for name in HELD}
        else:
            draw = self.at_start(sites, now)
            held = {"d": draw.theta - theta, "v": draw.v}
        graph = matrices(theta + held["d"], p, known)
        parts = [slice(k * self.replicas, (k + 1) * self.replicas) for k in range(many)]
        if "m" not in held:
            drawn = [
                draw_location_and_scale(
                    Y[at], graph[at], self.noise, replace(law, heat=heat[at]), rng
                )
                for at, rng in zip(parts, rngs, strict=True)
            ]
            held["m"], held["b"] = (np.concatenate(each) for each in zip(*drawn, strict=True))
        largest = largest_score(p, public.max_rows, self.noise)
        found, slopes = log_likelihood_and_slopes(
            Y, graph, held["m"], held["b"], law,
            least=-len(public.sites) * largest, steepest=_STEEPEST * public.max_rows,
        )  # fmt: skip
        sums = {
            "likelihood": np.minimum(found, largest),
            "slope": slopes[:, *entry_positions(p, ordered=known)],
        }
        if (orders := self.orders(now.shared, many)) is not None:
            sums["slope"] = sums["slope"] * orders.present()
        answers = []
        for at, site in zip(parts, sites, strict=True):
            mine = {name: values[at] for name, values in held.items()}
            answers.append(({name: values[at] for name, values in sums.items()}, {**site, **mine}))
        return answers

    def _path_spec(self, public: PublicFacts) -> Spec:
        """Return the fields of a round of a path."""
        shape = (self.replicas, self.shape(public)[1])
        likely = largest_score(len(self.columns(public)), public.max_rows, self.noise)
        steep = _STEEPEST * public.max_rows
        return (
            Field("likelihood", shape[:1], likely * (1 + len(public.sites)), _BITS, Kind.BOUNDED,
                  strict=True),
            Field("slope", shape, steep, _BITS, Kind.BOUNDED, strict=True),
        )  # fmt: skip

    def _after_step(self, state: State, total: Update) -> State:
        """Return the state after a round of a path."""
        now, heat, prior = _drawn(state), state["shared"]["heat"], self.constants(state["records"])
        done, present = state["path"]["step"] == self.steps, self._present(state["shared"])
        total = {**total, "slope": total["slope"] * present}
        path, log_chance = advance(state["path"], now, total, heat, prior, steps=self.steps)
        if not done:
            return {**state, "path": path}
        number, rng = state["round"], self._generator_of_path(-state["round"])
        warmup = number <= self.discarded
        taken = np.log1p(-rng.random(len(heat))) < log_chance
        moved = replace(now, theta=np.where(taken[:, None], path["theta"], now.theta))
        steps = state["steps"]
        if warmup:
            rank = ranks(heat, self.chains).ravel()
            steps = adapted_steps(steps, rank, path, np.exp(log_chance), number, present)
        p = columns_of(now.theta.shape[-1], ordered=self.known_from(state["shared"]))
        shared, means = state["shared"], state.get("means")
        if (orders := self.orders(shared)) is not None and warmup and p <= MOST_COLUMNS:
            means = learned(means or first_means(p), orders, moved.theta, moved.g)
        proposed = self.proposed(moved, p, number, state["records"], shared, rng, means)
        shared = {**shared, **proposed}
        common = {name: getattr(moved, name)[:, None] for name in SHARED_FIELDS}
        left = {name: value for name, value in state.items() if name != "path"}
        if means is not None:
            left["means"] = means
        return {**left, "steps": steps, "shared": shared, "common": common}

    def _present(self, shared: State) -> Array | float:
        """Return 1 for each entry that is on a path, 0 for those that a graph does not have."""
        orders = self.orders(shared)
        return 1.0 if orders is None else orders.present()

    def _generator_of_path(self, number: int) -> np.random.Generator:
        """Return generators that differ from those of rounds."""
        return np.random.default_rng([self.seed, abs(number), 1 + (number < 0)])


def _drawn(state: State) -> Common:
    """Return the coordinator's draw without the axis of regressions."""
    common = Common(**state["common"])
    return Common(*(getattr(common, name)[:, 0] for name in SHARED_FIELDS))
