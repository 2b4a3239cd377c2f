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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import Field, Kind, NoisyMatrix, PublicFacts, Spec, State, Update
from secagg.core.arrays import Array
from secagg.errors import JobError, PeerError
from secagg.models.sparse_bayes.base import SHARED_FIELDS, Round, SparseModel
from secagg.models.sparse_bayes.horseshoe import SiteDraw
from secagg.models.sparse_bayes.joint.common_moves import Alternative, choose, in_pairs
from secagg.models.sparse_bayes.joint.order_settings import OrderOfColumns
from secagg.models.sparse_bayes.joint.orders import Orders, first_orders, inner, outer, outer_common
from secagg.models.sparse_bayes.joint.proposals import propose_round, site_alternative
from secagg.models.sparse_bayes.joint.tempering import (
    MIN_HEAT,
    exchanged,
    first_heats,
    of_rank,
    partners,
    rows_by_power,
)
from secagg.models.sparse_bayes.laplace_graph import (
    GraphDraw,
    Order,
    Redraw,
    allowed_entries,
    columns_of,
    draw_graph_noise,
    entry_positions,
    joined_noise,
    matrices,
    rotation_pairs,
    sweep_graph,
)
from secagg.models.sparse_bayes.latent.graph import begin_latent_graph, latent_columns
from secagg.models.sparse_bayes.latent.lacking import check_lacking, first_values, own_scatter
from secagg.models.sparse_bayes.latent.site_groups import (
    columns_of_group,
    in_groups,
    law_of_group,
    move_latent,
    redraw_of_group,
)
from secagg.models.sparse_bayes.metropolis.alternatives import largest_score, score_alternatives
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
class DirectedRounds(OrderOfColumns, SparseModel):
    """The sampler of directed graphs."""

    errors: Literal["laplace", "gaussian"] = "laplace"
    """Distribution of the errors. `"laplace"`, as in the paper, determines directions.
    `"gaussian"`, the Gaussian surrogate, does not: it finds which pairs of columns are connected,
    and needs moments only, so it can have noise once at the site."""
    temperatures: int | None = None
    """Number of copies of each chain. In all but the first the records count less, so that chains
    pass between graphs that explain the records about equally well. 1: no such copies. If it is not
    set: 6 with Laplace errors and an unknown order, otherwise 1."""

    @property
    def copies(self) -> int:
        """Number of copies of each chain."""
        if self.temperatures is not None:
            return self.temperatures
        return _COPIES if self.errors == "laplace" and not self.order_known else 1

    @property
    def replicas(self) -> int:
        return self.chains * self.copies

    def recorded_chains(self, shared: State) -> NDArray[np.int64]:
        return of_rank(shared["heat"], self.chains)[:, 0]

    def entries(self, p: int, known: Order) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return row and column of each entry of the graph."""
        return entry_positions(p, ordered=known)

    def round_spec(self, public: PublicFacts) -> Spec:
        if not 1 <= self.copies <= _MOST_COPIES:
            raise JobError("method.temperatures", f"must be between 1 and {_MOST_COPIES}")
        if public.site_moments and self.copies > 1:
            what = "must be 1 under noise once at the site"
            raise JobError("method.temperatures", what, "Noise does not count less in the copies.")
        self.check_order(public)
        if self.own_eta and not self.cycles:
            raise JobError("method.own_eta", "must be false with cycles = false")
        p = len(self.columns(public))
        allowed = allowed_entries(p, self.possible(public))
        check_lacking(public, self.columns(public), allowed, self.copies, self.scale)
        sites, pairs = len(public.sites), len(self.pairs(p, 0))
        bound = largest_score(p, public.max_rows, self.noise) * (1 + sites)
        shape = (self.replicas, 2, 2**pairs)
        scores = Field("scores", shape, bound, _SCORE_BITS, Kind.BOUNDED, strict=True)
        return (*super().round_spec(public), scores)

    def describe_sum(self) -> str:
        return (
            f"{super().describe_sum()}; and the logarithm of the likelihood of the sites' graphs, "
            "and of alternatives to them"
        )

    def begin_shared_state(self, public: PublicFacts) -> State:
        """Return the powers beta, and no alternatives, as there is no round before the first."""
        entries, p = self.shape(public)[1], len(self.columns(public))
        pairs = np.zeros((self.replicas, len(self.pairs(p, 0))))
        order = {} if self.cycles else {"order": first_orders(self.replicas, p, self.seed)}
        return {
            **self.shared_arrows(public),
            **order,
            "heat": first_heats(self.chains, self.copies),
            "other": np.zeros((self.replicas, entries)),
            "weight": pairs + _NEVER,
            "reversal": pairs,
            "taken": pairs.copy(),
        }

    def initial_state(self, public: PublicFacts) -> State:
        state = super().initial_state(public)
        if (orders := self.orders(state["shared"])) is None:
            return state
        common = {**state["common"], "theta": state["common"]["theta"] * orders.present()[:, None]}
        return {**state, "common": common}

    def begin_memory(self, z: Array, public: PublicFacts) -> State:
        """Return the records, one per column, and first draws: an empty graph."""
        p = z.shape[1]
        many = len(self.entries(p, self.possible(public))[0])
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

    def begin_lacking(self, z: Array, lacked: NDArray[np.int64]) -> State:
        columns = z.T.copy()
        if self.errors == "gaussian":
            columns = own_scatter(scatter_columns(np.delete(z, lacked, axis=1)), lacked)
        values = first_values((self.replicas, len(lacked), columns.shape[1]))
        return {"Y": columns, "lacked": lacked, "values": values}

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
        self._check_shared(now.shared, public)
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
        p = columns_of(drawn.theta.shape[-1], ordered=self.known_from(shared))
        pairs, reversal = self.pairs(p, number), shared["reversal"] > 0
        other = Alternative(shared["other"], reversal, shared["weight"])
        scores, orders = total["scores"], self.orders(shared)
        if orders is not None:
            drawn, sums, other = orders.inner_round(drawn, sums, other, pairs)
        known = self.known_by_position(shared)
        drawn, sums, taken = choose(
            drawn, sums, other, scores[:, 0], pairs, prior, rng, p=p, ordered=known
        )
        at = (taken @ 2 ** np.arange(len(pairs)))[:, None]
        own, others = (np.take_along_axis(scores[:, i], at, axis=1)[:, 0] for i in range(2))
        heat = exchanged(
            shared["heat"], self.chains, number, own, others, rng, warmup=number < self.discarded
        )
        moved = Common(*(getattr(drawn, name)[:, None] for name in SHARED_FIELDS))
        total = {name: values[:, None] for name, values in sums.items()}
        drawn = self.draw_slabs_first(moved, total, sites, prior, rng)
        moved = Common(*(getattr(drawn, name)[:, 0] for name in SHARED_FIELDS))
        if orders is not None:
            moved = outer_common(moved, orders.places_after(pairs, taken & reversal), p)
            drawn = Common(*(getattr(moved, name)[:, None] for name in SHARED_FIELDS))
            shared = {**shared, "order": orders.after(pairs, taken & reversal).columns * 1.0}
        proposed = self.proposed(moved, p, number + 1, records, shared, rng)
        return drawn, {**shared, "heat": heat, **proposed, "taken": taken.astype(np.float64)}

    def proposed(
        self, now: Common, p: int, number: int, records: int, shared: State,
        rng: np.random.Generator, means: State | None = None,
    ) -> State:  # fmt: skip
        """Return the alternatives of round `number` to the graphs of now, (chains, entries)."""
        pairs, known = self.pairs(p, number), self.known_from(shared)
        orders = self.orders(shared)
        made = propose_round(now.theta, p, pairs, records, rng, known, orders, means)
        reversal = made.reversal.astype(np.float64)
        return {"other": made.theta, "weight": made.weight, "reversal": reversal}

    def at_start(self, sites: Sequence[State], now: Round) -> GraphDraw:
        """Return the draws with which a round begins, of one site's chains after another's."""
        p, known = sites[0]["Y"].shape[0], self.known_from(now.shared)

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
        if (orders := self.orders(now.shared, len(sites))) is None:
            changed = in_pairs(before, taken, p, ordered=known)
        else:  # a reversal keeps the two positions of its columns
            changed = orders.in_pairs(before, taken)
        moved = np.where(changed, held["other_theta"], draw.theta)
        # a graph without likelihood here is not made; by its score no such graph is chosen
        changed &= is_stable(matrices(moved, p, known))[:, None]
        return replace(
            draw,
            theta=np.where(changed, held["other_theta"], draw.theta),
            v=np.where(changed, held["other_v"], draw.v),
        )

    def _check_shared(self, shared: State, public: PublicFacts) -> None:
        """Raise `PeerError` for powers out of range, which could isolate what a site sends."""
        self.check_arrows(shared, public)
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
        many, p, known = len(sites), sites[0]["Y"].shape[0], self.known_from(now.shared)

        def repeated(values: Array) -> Array:
            return np.concatenate([values] * many)

        heat = now.shared["heat"]
        theta, t = repeated(now.theta[:, 0]), repeated(now.t[:, 0])
        law = law_of_group(sites, 1 if self.errors == "laplace" else 2, n, repeated(heat))
        draw, first_reach = self.at_start(sites, now), np.concatenate([s["reach"] for s in sites])
        drawn: State = {}
        if "latent" in sites[0]:
            law = replace(law, records=max(n, p + 1))
            latent, draw = move_latent(
                sites[0], draw, theta, t, self.noise, law, rngs[0], known,
                warmup=now.number + 1 if now.warmup else 0,
            )  # fmt: skip
            drawn["latent"], Y = latent, latent_columns(latent, 1 / sites[0]["unit"])
        else:
            Y = columns_of_group(sites, self.replicas)
        redraw = redraw_of_group(sites, known, law, self.noise, rngs[0])
        if (orders := self.orders(now.shared, many)) is not None:
            Y, draw = orders.by_position(Y), orders.inner_draw(draw)
            theta, t = inner(theta, orders.places), inner(t, orders.places)
        draw, reach, taken_moves = self._sweep(
            Y, draw, first_reach, theta, t, law, now, rngs, redraw, orders
        )
        if redraw is not None:
            drawn["values"] = Y[:, sites[0]["lacked"]]
        last = SiteDraw(draw.theta, draw.b, draw.w, draw.v)
        sums, _ = paper_update(last, theta, t, self.lambda_floor)
        pairs = self.pairs(p, now.number)
        reversal, other = (repeated(now.shared[name]) for name in ("reversal", "other"))
        graph = matrices(draw.theta, p, self.known_by_position(now.shared))
        other, other_v, turned = site_alternative(
            other, draw, theta, pairs, reversal > 0, known, orders
        )
        if orders is not None:
            draw = orders.outer_draw(draw)
            sums = {name: outer(values, orders.places, p) for name, values in sums.items()}
        heats = np.stack([heat, heat[partners(heat, self.chains, now.number)]], axis=1)
        least = -all_sites * largest_score(p, law.records, self.noise)
        scores = score_alternatives(
            Y, graph, turned, pairs, repeated(heats), self.noise, law, least
        )
        news = {"theta": draw.theta, "b": draw.b, **taken_moves}
        if self.errors == "gaussian":
            news["partial"] = partial_correlations(matrices(draw.theta, p, known), draw.b**2)
        memory = dict(zip(_STATE, (draw.theta, draw.b, draw.v, other, other_v, reach), strict=True))
        update = {**{name: values[:, None] for name, values in sums.items()}, "scores": scores}
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
            answers.append((sent, {**kept, **mine, **drawn, "own": own}))
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
        redraw: Redraw | None,
        orders: Orders | None,
    ) -> tuple[GraphDraw, Array, Update]:
        """Return draws after the sweeps of a round, adapted reach, and shares of moves accepted.

        reach: one for each power: row l of a chain is that of its copy with power number l
        """
        p, heat, known = Y.shape[-2], now.shared["heat"], self.known_by_position(now.shared)
        one, reach = replace(law, heat=heat), reach.copy()
        places = np.arange(reach.shape[1]) if orders is None else orders.places
        at = (rows_by_power(heat, self.chains, len(rngs))[:, None], places)
        moves, turns = np.zeros(theta.shape), np.zeros(draw.b.shape)
        for i in range(self.sweeps):
            number = now.number * self.sweeps + i
            drawn = [
                draw_graph_noise(self.replicas, p, one, self.noise, rng, ordered=known)
                for rng in rngs
            ]
            noise = joined_noise(drawn)
            pairs = rotation_pairs(p, number, ordered=known)
            draw, moved, turned = sweep_graph(
                Y, draw, reach[*at], theta, t, self.noise, law, noise, pairs, redraw, known
            )
            if now.warmup:
                reach[*at] = adapted(reach[*at], moved, number + 1)
            moves, turns = moves + moved / self.sweeps, turns + turned / self.sweeps
        if orders is not None:
            moves = outer(moves, orders.places, p)
        return draw, reach, {"moves_taken": moves, "turns_taken": turns}
