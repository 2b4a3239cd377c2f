"""Rounds of federated sparse directed graphs: fields, bounds, memories, and a round's steps.

In a round a site makes the moves of the last round that the coordinator chose, sweeps
(`secagg.models.sparse_bayes.laplace_graph`), and contributes to the sums from which the coordinator
draws the next theta and t, and to the scores of the alternatives of this round
(`secagg.models.sparse_bayes.metropolis.alternatives`). The coordinator

1. chooses alternatives (`secagg.models.sparse_bayes.joint.common_moves`);
2. exchanges the powers of tempered copies (`secagg.models.sparse_bayes.joint.tempering`);
3. draws slabs and theta (`secagg.models.sparse_bayes.collapsed_slabs`), then step `paper` of
   `secagg.models.sparse_bayes.spike_slab`;
4. proposes the alternatives of the next round.

The sums of step 3 depend on differences d between the sites' graphs and the common one only, which
the moves of step 1 keep. Chains are copies at all powers: `chains` times `copies` of them, the
copies of one chain side by side.

Sweeps of sites with equally many records are computed together, but each operation acts on one
chain of one site alone. So no bit depends on the other sites.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import Field, Kind, NoisyMatrix, PublicFacts, Spec, State, Update
from secagg.core.arrays import Array
from secagg.errors import JobError, PeerError
from secagg.models.sparse_bayes.base import SHARED_FIELDS, Round, SparseModel
from secagg.models.sparse_bayes.horseshoe import SiteDraw
from secagg.models.sparse_bayes.joint.common_moves import (
    Alternative,
    choose,
    exchange_places,
    in_pairs,
    propose,
)
from secagg.models.sparse_bayes.joint.orders import (
    common_of,
    flipped_order,
    flipped_places,
    gathered,
    neighbours,
    places,
    propose_flips,
    rows_in_pairs,
    scattered,
)
from secagg.models.sparse_bayes.joint.tempering import (
    MIN_HEAT,
    exchanged,
    first_heats,
    of_rank,
    partners,
    ranks,
)
from secagg.models.sparse_bayes.laplace_graph import (
    GraphDraw,
    columns_of,
    draw_graph_noise,
    entry_positions,
    joined_noise,
    matrices,
    redrawn_scales,
    rotation_pairs,
    sweep_graph,
)
from secagg.models.sparse_bayes.latent.graph import (
    begin_latent_graph,
    draw_latent_graph,
    latent_columns,
)
from secagg.models.sparse_bayes.metropolis.alternatives import (
    largest_score,
    pairs_of,
    score_alternatives,
)
from secagg.models.sparse_bayes.metropolis.differences import draw_row, log_prior_row, log_row, row_law
from secagg.models.sparse_bayes.metropolis.entries import ErrorLaw, adapted, is_stable
from secagg.models.sparse_bayes.normal_graph import partial_correlations, scatter_columns
from secagg.models.sparse_bayes.site_posterior import add_draw, begin_sums
from secagg.models.sparse_bayes.spike_slab import Common
from secagg.models.sparse_bayes.sums import paper_update

_SCORE_BITS = 24
_MOST_COPIES = 64
_NEVER = -1e9  # logarithm of a weight
_SUMS = ("one", "d", "dd")
_STATE = ("theta", "b", "v", "other_theta", "other_v", "reach")
HELD = ("d", "m", "b", "v")
"""What a site's memory has during a path (`secagg.models.sparse_bayes.directed_paths`)."""
_COPIES = 6  # of a chain with Laplace errors


@dataclass(frozen=True, kw_only=True)
class DirectedRounds(SparseModel):
    """The sampler of directed graphs."""

    errors: Literal["laplace", "gaussian"] = "laplace"
    """Distribution of the errors. `"laplace"`, as in the paper, determines directions.
    `"gaussian"`, the Gaussian surrogate, does not: it finds which pairs of columns are connected,
    and needs moments only, so it can have noise once at the site."""
    ordered: bool = False
    """If true, the columns are in causal order: each acts only on later ones (of `variables`). Then
    there are no cycles, and effects are determined with normal errors, too."""
    cycles: bool = True
    """If false, the graph has no cycles."""
    temperatures: int | None = None
    """Number of copies of each chain. In all but the first the records count less, so that chains
    pass between graphs that explain the records about equally well. 1: no such copies. If it is not
    set: 6 with Laplace errors and an unknown order, otherwise 1."""

    @property
    def copies(self) -> int:
        """Number of copies of each chain."""
        if self.temperatures is not None:
            return self.temperatures
        return _COPIES if self.errors == "laplace" and not self.ordered else 1

    @property
    def replicas(self) -> int:
        return self.chains * self.copies

    def recorded_chains(self, shared: State) -> NDArray[np.int64]:
        return of_rank(shared["heat"], self.chains)[:, 0]

    @property
    def acyclic(self) -> bool:
        return self.ordered or not self.cycles

    def pairs(self, p: int, number: int) -> NDArray[np.int64]:
        return pairs_of(p, number) if self.cycles else neighbours(p, number)

    def entries(self, p: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return row and column of each entry of the graph."""
        return entry_positions(p, ordered=self.ordered)

    def round_spec(self, public: PublicFacts) -> Spec:
        if not 1 <= self.copies <= _MOST_COPIES:
            raise JobError("method.temperatures", f"must be between 1 and {_MOST_COPIES}")
        if public.site_moments and self.copies > 1:
            what = "must be 1 under noise once at the site"
            raise JobError("method.temperatures", what, "Noise does not count less in the copies.")
        p = len(self.columns(public))
        sites, pairs = len(public.sites), len(self.pairs(p, 0))
        bound = largest_score(p, public.max_rows, self.noise) * (1 + sites)
        shape = (self.replicas, 2, 2**pairs)
        scores = Field("scores", shape, bound, _SCORE_BITS, Kind.BOUNDED, strict=True)
        more = []
        if not self.cycles:
            more = [Field("jump", (self.replicas, pairs), 1e6, _SCORE_BITS, Kind.BOUNDED, strict=True)]
        return (*super().round_spec(public), scores, *more)

    def describe_sum(self) -> str:
        return (
            f"{super().describe_sum()}; and the logarithm of the likelihood of the sites' graphs, "
            "and of alternatives to them"
        )

    def begin_shared_state(self, public: PublicFacts) -> State:
        """Return the powers beta, and no alternatives, as there is no round before the first."""
        entries = self.shape(public)[1]
        p = len(self.columns(public))
        pairs = np.zeros((self.replicas, len(self.pairs(p, 0))))
        order = {}
        if not self.cycles:
            rng = np.random.default_rng([self.seed, 0, 7])
            order["order"] = np.argsort(rng.random((self.replicas, p)), axis=1).astype(float)
        return {
            **order,
            "heat": first_heats(self.chains, self.copies),
            "other": np.zeros((self.replicas, entries)),
            "weight": pairs + _NEVER,
            "reversal": pairs,
            "taken": pairs.copy(),
        }

    def initial_state(self, public: PublicFacts) -> State:
        state = super().initial_state(public)
        if self.cycles:
            return state
        at = places(state["shared"]["order"].astype(np.int64))
        now = Common(*(v[:, 0] for v in state["common"].values()))
        now = common_of(Common(*(v if v.ndim == 1 else gathered(v, at) for v in vars(now).values())), at, now.theta.shape[-1])
        return {**state, "common": {name: v[:, None] for name, v in vars(now).items()}}

    def begin_memory(self, z: Array, public: PublicFacts) -> State:
        """Return the records, one per column, and first draws: an empty graph."""
        p = z.shape[1]
        many = len(self.entries(p)[0])
        entries, rows = (self.replicas, many), (self.replicas, p)
        recorded = {"theta": many, "b": p, "moves_taken": many, "turns_taken": p}
        columns = np.ascontiguousarray(z.T)
        if self.errors == "gaussian":
            columns = scatter_columns(z)
            recorded["partial"] = p * (p - 1) // 2
        return {
            "Y": columns,
            "theta": np.zeros(entries),
            "b": np.ones(rows),
            "v": np.ones(entries),
            "other_theta": np.zeros(entries),
            "other_v": np.ones(entries),
            "reach": np.full(entries, 1 / np.sqrt(max(len(z), 1))),  # sd of a slope, by power
            "own": begin_sums({name: (self.chains, size) for name, size in recorded.items()}),
        }

    def begin_noisy(self, noisy: NoisyMatrix, public: PublicFacts) -> State:
        """Return first draws of the exact moments."""
        return {"latent": begin_latent_graph(noisy, (self.replicas, self.shape(public)[1]))}

    def run_sweeps(
        self,
        sites: Sequence[State],
        records: Sequence[int],
        now: Round,
        rngs: Sequence[np.random.Generator],
        public: PublicFacts,
    ) -> list[tuple[Update, State]]:
        self._check_shared(now.shared)
        return in_groups(
            sites, records, rngs,
            lambda chosen, own, n: self._run_group(chosen, own, n, now, len(public.sites)),
        )  # fmt: skip

    def draw_round(
        self, now: Common, total: Update, shared: State, number: int, sites: int, records: int,
        rng: np.random.Generator,
    ) -> tuple[Common, State]:  # fmt: skip
        prior = self.constants(records)
        drawn = Common(*(getattr(now, name)[:, 0] for name in SHARED_FIELDS))
        sums = {name: total[name][:, 0] for name in _SUMS}
        size = drawn.theta.shape[-1]
        p = columns_of(size, ordered=self.ordered)
        pairs, other = self.pairs(p, number), _alternative(shared)
        scores = total["scores"]
        if not self.cycles:
            order = shared["order"].astype(np.int64)
            at = places(order)
            drawn = Common(*(v if v.ndim == 1 else gathered(v, at) for v in vars(drawn).values()))
            sums = {name: gathered(values, at) for name, values in sums.items()}
            turned = flipped_places(order, pairs, other.reversal)
            other = replace(
                other, theta=gathered(other.theta, turned), weight=other.weight + total["jump"]
            )
        drawn, sums, taken = choose(drawn, sums, other, scores[:, 0], pairs, prior, rng, p=p)
        at = (taken @ 2 ** np.arange(len(pairs)))[:, None]
        own, others = (np.take_along_axis(scores[:, i], at, axis=1)[:, 0] for i in range(2))
        heat = exchanged(
            shared["heat"], self.chains, number, own, others, rng, warmup=number < self.discarded
        )
        moved = Common(*(getattr(drawn, name)[:, None] for name in SHARED_FIELDS))
        total = {name: values[:, None] for name, values in sums.items()}
        drawn = self.draw_slabs_first(moved, total, sites, prior, rng)
        moved = Common(*(getattr(drawn, name)[:, 0] for name in SHARED_FIELDS))
        found = {"heat": heat, "taken": taken.astype(np.float64)}
        if not self.cycles:
            turns = taken & other.reversal
            at, order = flipped_places(order, pairs, turns), flipped_order(order, pairs, turns)
            found["order"] = order.astype(float)
            moved = common_of(moved, at, size)
            drawn = Common(*(v[:, None] for v in vars(moved).values()))
        return drawn, {**found, **self.proposed(moved, p, number + 1, records, found, rng)}

    def proposed(
        self, now: Common, p: int, number: int, records: int, shared: State, rng: np.random.Generator
    ) -> State:
        """Return the alternatives of round `number` to the graphs of now, (chains, entries)."""
        pairs = self.pairs(p, number)
        if not self.cycles:
            order = shared["order"].astype(np.int64)
            graphs = matrices(gathered(now.theta, places(order)), p)
            made = propose_flips(graphs, pairs, records, rng)
            turned = flipped_places(order, pairs, made.reversal)
            theta = scattered(made.theta, turned, now.theta.shape[-1])
            return {"other": theta, "weight": made.weight, "reversal": made.reversal.astype(float)}
        made = propose(matrices(now.theta, p), pairs, records, rng, ordered=self.ordered)
        reversal = made.reversal.astype(np.float64)
        return {"other": made.theta, "weight": made.weight, "reversal": reversal}

    def at_start(self, sites: Sequence[State], now: Round) -> GraphDraw:
        """Return the draws with which a round begins, of one site's chains after another's."""
        p = sites[0]["Y"].shape[0]

        def repeated(values: Array) -> Array:
            return np.concatenate([values] * len(sites))

        theta, t = repeated(now.theta[:, 0]), repeated(now.t[:, 0])
        held = {name: np.concatenate([site[name] for site in sites]) for name in _STATE}
        # t is a placeholder: a sweep does not read w.
        draw = GraphDraw(held["theta"], held["b"], t, held["v"])
        if "d" in sites[0]:
            return replace(draw, theta=theta + np.concatenate([site["d"] for site in sites]))
        taken = repeated(now.shared["taken"]) > 0
        before = self.pairs(p, max(now.number - 1, 0))  # the first round has no choices yet
        if self.cycles:
            changed = in_pairs(before, taken, p, ordered=self.ordered)
        else:
            order = repeated(now.shared["order"]).astype(np.int64)
            changed = rows_in_pairs(order, before, taken)
        moved = np.where(changed, held["other_theta"], draw.theta)
        # a graph without likelihood here is not made; by its score no such graph is chosen
        changed &= is_stable(matrices(moved, p))[:, None]
        return replace(
            draw,
            theta=np.where(changed, held["other_theta"], draw.theta),
            v=np.where(changed, held["other_v"], draw.v),
        )

    def _check_shared(self, shared: State) -> None:
        """Raise `PeerError` for powers out of range, which could isolate what a site sends."""
        if np.any(shared["heat"] < MIN_HEAT / 2) or np.any(shared["heat"] > 1):
            raise PeerError("message", "the coordinator's powers are not between 0 and 1")
        if any(not np.all(np.isin(shared[name], (0.0, 1.0))) for name in ("taken", "reversal")):
            raise PeerError("message", "the coordinator's choices are not 0 or 1")

    def _run_group(
        self,
        sites: Sequence[State],
        rngs: Sequence[np.random.Generator],
        n: int,
        now: Round,
        all_sites: int,
    ) -> list[tuple[Update, State]]:
        """Return contributions and memories of sites with the same number of records."""
        many, p = len(sites), sites[0]["Y"].shape[0]

        def repeated(values: Array) -> Array:
            return np.concatenate([values] * many)

        heat = now.shared["heat"]
        theta, t = repeated(now.theta[:, 0]), repeated(now.t[:, 0])
        law = ErrorLaw(1 if self.errors == "laplace" else 2, n, repeated(heat))
        draw, first_reach = self.at_start(sites, now), np.concatenate([s["reach"] for s in sites])
        if "latent" in sites[0]:
            law = replace(law, records=max(n, p + 1))
            latent, draw = self._move_latent(sites[0], draw, theta, t, law, now, rngs[0])
            exact = {"latent": latent}
            Y = latent_columns(latent, 1 / sites[0]["unit"])
        else:
            exact = {}
            Y = np.repeat(np.array([site["Y"] for site in sites]), self.replicas, axis=0)
        size = theta.shape[-1]
        if not self.cycles:
            order = repeated(now.shared["order"]).astype(np.int64)
            at = places(order)
            Y = np.take_along_axis(Y, order[:, :, None], axis=1)
            full_draw, full_theta, full_t, full_reach = draw, theta, t, first_reach
            theta, t = gathered(theta, at), gathered(t, at)
            draw = GraphDraw(*(gathered(v, order if v.shape[1] == p else at) for v in vars(draw).values()))
            slots = self._slots(now.shared["heat"], len(rngs))
            first_reach = gathered(first_reach[slots], at)
        draw, reach, taken_moves = self._sweep(Y, draw, first_reach, theta, t, law, now, rngs)
        last = SiteDraw(draw.theta, draw.b, draw.w, draw.v)
        sums, _ = paper_update(last, theta, t, self.lambda_floor)
        pairs = self.pairs(p, now.number)
        reversal = repeated(now.shared["reversal"]) > 0
        other = repeated(now.shared["other"])
        if self.cycles:
            swapped = exchange_places(pairs, reversal, p, ordered=self.ordered)
            other = other + np.take_along_axis(draw.theta - theta, swapped, axis=1)
            other_v = np.take_along_axis(draw.v, swapped, axis=1)
            graph, turned_graph = matrices(draw.theta, p), matrices(other, p)
        else:
            turned = flipped_places(order, pairs, reversal)
            other, jump = self._redrawn(Y, draw, theta, gathered(other, turned), pairs, reversal, law, rngs, now.number)
            other = scattered(other, turned, size)
            other_v = scattered(draw.v, turned, size, 1.0)
            graph = matrices(draw.theta, p)
            turned_graph = matrices(other, p)
            turned_graph = np.take_along_axis(turned_graph, order[:, :, None], axis=1)
            turned_graph = np.take_along_axis(turned_graph, order[:, None, :], axis=2)
        partner = heat[partners(heat, self.chains, now.number)]
        scores = score_alternatives(
            Y,
            graph,
            turned_graph,
            pairs,
            repeated(np.stack([heat, partner], axis=1)),
            self.noise,
            law,
            -all_sites * largest_score(p, law.records, self.noise),
        )
        if not self.cycles:
            sums = {name: scattered(v, at, size) for name, v in sums.items()}
            taken_moves = {"moves_taken": scattered(taken_moves["moves_taken"], at, size), "turns_taken": taken_moves["turns_taken"]}
            back = np.argsort(order, axis=1)
            draw = GraphDraw(*(gathered(v, back) if v.shape[1] == p else scattered(v, at, size, 0.0 if name == "theta" else 1.0) for name, v in vars(draw).items()))
            kept_reach = full_reach.copy()
            kept_reach[slots[:, None], at] = reach
            reach = kept_reach
        news = {"theta": draw.theta, "b": draw.b, **taken_moves}
        if self.errors == "gaussian":
            news["partial"] = partial_correlations(matrices(draw.theta, p), draw.b**2)
        parts = (draw.theta, draw.b, draw.v, other, other_v, reach)
        memory = dict(zip(_STATE, parts, strict=True))
        update = {**{name: values[:, None] for name, values in sums.items()}, "scores": scores}
        if not self.cycles:
            update["jump"] = jump
        cold, answers = self.recorded_chains(now.shared), []
        for k, site in enumerate(sites):
            at = slice(k * self.replicas, (k + 1) * self.replicas)
            own = site["own"]
            if not now.warmup:
                recorded = {name: values[at][cold] for name, values in news.items()}
                own = add_draw(own, recorded, now.number - self.discarded, self.recorded_rounds)
            mine = {name: values[at] for name, values in memory.items()}
            sent = {name: values[at] for name, values in update.items()}
            kept = {name: value for name, value in site.items() if name not in ("d", "m")}
            answers.append((sent, {**kept, **mine, **exact, "own": own}))
        return answers

    def _sweep(
        self,
        Y: Array,
        draw: GraphDraw,
        reach: Array,
        theta: Array,
        t: Array,
        law: ErrorLaw,
        now: Round,
        rngs: Sequence[np.random.Generator],
    ) -> tuple[GraphDraw, Array, Update]:
        """Return draws after the sweeps of a round, adapted reach, and shares of moves accepted.

        reach: one for each power: row l of a chain is that of its copy with power number l
        """
        p, heat = Y.shape[-2], now.shared["heat"]
        slots = self._slots(heat, len(rngs)) if self.cycles else np.arange(len(reach))
        one, reach = replace(law, heat=heat), reach.copy()
        moves, turns = np.zeros(theta.shape), np.zeros(draw.b.shape)
        for i in range(self.sweeps):
            number = now.number * self.sweeps + i
            drawn = [
                draw_graph_noise(self.replicas, p, one, self.noise, rng, ordered=self.acyclic)
                for rng in rngs
            ]
            noise = joined_noise(drawn)
            pairs = rotation_pairs(p, number, ordered=self.acyclic)
            draw, moved, turned = sweep_graph(
                Y, draw, reach[slots], theta, t, self.noise, law, noise, pairs
            )
            if now.warmup:
                reach[slots] = adapted(reach[slots], moved, number + 1)
            moves, turns = moves + moved / self.sweeps, turns + turned / self.sweeps
        return draw, reach, {"moves_taken": moves, "turns_taken": turns}

    def _redrawn(self, Y, draw, theta, other, pairs, reversal, law, rngs, number):
        """Return all sites' alternatives (chains, E) and the logarithms of their weights."""
        p = Y.shape[1]
        d = draw.theta - theta
        made, jump = other + d, np.zeros(reversal.shape)
        if number // 2 % 2:
            return made, jump
        rows, columns = entry_positions(p, ordered=True)
        heat, b_s = law.powers, self.noise.scale
        for i, (j, h) in enumerate(pairs):
            flags = reversal[:, i]
            short = np.flatnonzero(rows == j)  # of columns before both
            long = np.flatnonzero((rows == h) & (columns < j))
            e = np.flatnonzero((rows == h) & (columns == j))
            # entries, and columns that act, of the new rows and of the old ones
            before = np.arange(j)
            parts = [
                (np.concatenate([short, e]), np.append(before, h), j, True),
                (long, before, h, True),
                (short, before, j, False),
                (np.concatenate([long, e]), np.append(before, j), h, False),
            ]
            weight = np.zeros(len(flags))
            for entries, acting, row, new in parts:
                if not len(entries):
                    continue
                centre, w = (other if new else theta)[:, entries], draw.w[:, entries]
                mean, root = row_law(Y[:, row], Y[:, acting], centre, w, heat, b_s, law.degree)
                if new:
                    z = np.concatenate(
                        [rng.standard_normal((self.replicas, len(entries))) for rng in rngs]
                    )
                    value = draw_row(mean, root, z)
                    made[:, entries] = np.where(flags[:, None], value, made[:, entries])
                else:
                    value = draw.theta[:, entries]
                gain = log_prior_row(value - centre, w) - log_row(value, mean, root)
                weight += gain if new else -gain
            jump[:, i] = np.where(flags, np.clip(weight, -1e5, 1e5), 0.0)
        return made, jump

    def _slots(self, heat: Array, sites: int) -> NDArray[np.int64]:
        first = np.arange(self.replicas) // self.copies * self.copies
        slots = first + ranks(heat, self.chains).ravel()
        return (np.arange(sites)[:, None] * self.replicas + slots).ravel()

    def _move_latent(
        self,
        site: State,
        draw: GraphDraw,
        theta: Array,
        t: Array,
        law: ErrorLaw,
        now: Round,
        rng: np.random.Generator,
    ) -> tuple[State, GraphDraw]:
        """Return the exact moments, and the draws moved with them, before a round's sweeps."""
        latent, factors = site["latent"], 1 / site["unit"]
        draw = redrawn_scales(latent_columns(latent, factors), draw, self.noise, law, rng)
        warmup = now.number + 1 if now.warmup else 0
        return draw_latent_graph(
            latent, factors, law.contrasts, draw, theta, t, self.noise, rng, warmup=warmup
        )


def in_groups(
    sites: Sequence[State],
    records: Sequence[int],
    rngs: Sequence[np.random.Generator],
    answer: Callable[
        [Sequence[State], Sequence[np.random.Generator], int], Sequence[tuple[Update, State]]
    ],
) -> list[tuple[Update, State]]:
    """Return each site's answer. Sites with as many records are computed together.

    answer: of such sites, given their memories, generators and number of records
    """
    groups: dict[tuple[int, int], list[int]] = {}
    for i, (site, n) in enumerate(zip(sites, records, strict=True)):
        groups.setdefault((n, i if "latent" in site else -1), []).append(i)
    found: dict[int, tuple[Update, State]] = {}
    for (n, _), members in groups.items():
        answers = answer([sites[i] for i in members], [rngs[i] for i in members], n)
        found |= dict(zip(members, answers, strict=True))
    return [found[i] for i in range(len(sites))]


def _alternative(shared: State) -> Alternative:
    return Alternative(shared["other"], shared["reversal"] > 0, shared["weight"])
