"""Steps that all federated sparse Bayesian models share.

See `secagg.models.sparse_bayes.sums` for a round and `secagg.models.sparse_bayes.spike_slab` for
the model. Round 0 sums the sites' numbers of records and, for pooled deviations, squared deviations
from the sites' own means. The sampler's rounds follow. A subclass defines what a site does in a
round, and how the coordinator draws theta if that differs from the paper.

Randomness. The coordinator's draws come from `seed`, which all parties know, because the draws are
sent to all sites anyway. A site's draws come from its own generator, seeded each round with 128
secret bits of `random`. If the site's draws were known, the sums would be equations in the sites'
X'X and X'y without any noise. (The generator is numpy's, which is not cryptographic. The site sends
only functions of its draws and records, and these are visible only in a sum over sites.)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import (
    COLLECTED_DRAWS,
    NO_WINDOWS,
    Body,
    ChosenWeights,
    EqualWeights,
    Field,
    Kind,
    MethodFacts,
    MomentsOnly,
    NoisyMatrix,
    PublicFacts,
    Regression,
    Result,
    SingleRecords,
    SiteRecords,
    Spec,
    Stage,
    State,
    Update,
)
from secagg.core.arrays import Array
from secagg.core.randomness import RandomBytes
from secagg.errors import JobError, PeerError
from secagg.models.common.checks import check_halves, check_numbers
from secagg.models.common.message_checks import check_facts, read_message
from secagg.models.common.units import SQUARES_BITS, centred, deviations, guessed_spread, records_in
from secagg.models.common.variables import halves
from secagg.models.numerics.gaussian_draws import clip_variance
from secagg.models.sparse_bayes import spike_slab
from secagg.models.sparse_bayes.collapsed_slabs import choose_slabs
from secagg.models.sparse_bayes.settings import SparseSettings
from secagg.models.sparse_bayes.spike_slab import Common, SpikeSlab
from secagg.models.sparse_bayes.sums import analysed, paper_spec

RECORDS, DRAWS = "records", "draws"
_MIN_SETTING = 1e-9  # smallest value of a positive setting
_MAX_MESSAGE_VALUES = 2**22  # in a round: 32 MiB from each site
_MIN_VARIANCE = 2.0 ** (4 - SQUARES_BITS)  # 16 steps of the sum of squares
RECORDED = ("theta", "t", "eta", "inclusion")
"""The coordinator's draws that a run records, shape (chains, regressions, coefficients) each."""
SHARED_FIELDS = tuple(field.name for field in fields(Common))


def recorded_draws(state: State) -> dict[str, Array]:
    """Return the recorded draws of a run, each (draws, chains, regressions, coefficients)."""
    return {name: np.array([draw[name] for draw in state[COLLECTED_DRAWS]]) for name in RECORDED}


class Round(NamedTuple):
    """What all sites know in a round: the common theta and t, and whether it is warmup.

    shared: what `SparseModel.begin_shared_state` began
    """

    theta: Array
    t: Array
    number: int
    warmup: bool
    shared: State


@dataclass(frozen=True, kw_only=True)
class SparseModel(SparseSettings, ABC):
    """The steps of the sampler."""

    @property
    def facts(self) -> MethodFacts:
        """Draws at each site, from its moments unless `needs_records` says otherwise."""
        reason = self.needs_records
        return MethodFacts(
            derivation=type(self).__module__,
            weights=ChosenWeights(
                f"A site's draws depend on the common draws sent, and it {reason}."
            )
            if reason
            else EqualWeights("A site's draws depend on its moments and on chance."),
            reads=SingleRecords(reason=reason, repeatable=False, moments_with_other_settings=True)
            if reason
            else MomentsOnly(knows_noise=True),
            windows=NO_WINDOWS,
            named_code=(),
            network=False,
            regression=self.regression,
            edge_rule=self.edge_rule,
            site_result=self.site_result,
            contribute_batched=self.contribute_batched,
            partial_columns=self.takes_partial,
        )

    @property
    def takes_partial(self) -> bool:
        """Whether sites may lack columns."""
        return False

    @property
    def regression(self) -> Regression | None:
        """The regression that the result is, if it is one."""
        return None

    @property
    def edge_rule(self) -> str | None:
        """Why no weight of an edge is predicted, if the result is a graph."""
        return None

    @property
    def needs_records(self) -> str:
        """Why moments are not enough; "" if they are."""
        return ""

    @property
    def replicas(self) -> int:
        """Number of chains that are run, whether recorded or not."""
        return self.chains

    def recorded_chains(self, shared: State) -> NDArray[np.int64]:
        """Return which of them are recorded."""
        return np.arange(self.chains)

    @abstractmethod
    def site_result(self, memory: State, public: PublicFacts) -> Result | None:
        """Return a site's own result. memory: after its last `contribute`."""

    @abstractmethod
    def columns(self, public: PublicFacts) -> NDArray[np.int64]:
        """Return the positions of the columns analysed."""

    @abstractmethod
    def shape(self, public: PublicFacts) -> tuple[int, int]:
        """Return the number of regressions, each with its own slabs, and of coefficients in one."""

    @abstractmethod
    def begin_memory(self, z: Array, public: PublicFacts) -> State:
        """Return a site's first memory, from its centred, scaled records (n_k, p)."""

    def begin_lacking(self, z: Array, lacked: NDArray[np.int64]) -> State:
        """Return what a memory has besides if the site lacks these columns, which are 0 in z."""
        raise NotImplementedError

    def begin_noisy(self, noisy: NoisyMatrix, public: PublicFacts) -> State:
        """Return what a site's memory has besides, under noise once at the site."""
        return {}

    def begin_shared_state(self, public: PublicFacts) -> State:
        """Return arrays that all parties share, besides theta and t."""
        return {}

    def draw_round(
        self, now: Common, total: Update, shared: State, number: int, sites: int, records: int,
        rng: np.random.Generator,
    ) -> tuple[Common, State]:  # fmt: skip
        """Return the coordinator's draws after the sums of round `number`, and these arrays."""
        return self.draw_common(now, total, sites, self.constants(records), rng), shared

    @abstractmethod
    def run_sweeps(
        self,
        sites: Sequence[State],
        records: Sequence[int],
        now: Round,
        rngs: Sequence[np.random.Generator],
        public: PublicFacts,
    ) -> list[tuple[Update, State]]:
        """Return, for each of these sites, its contribution to a round's sums and its new memory.

        A site's numbers must not depend on which other sites are in the same call.
        """

    def run_moves(
        self,
        sites: Sequence[State],
        records: Sequence[int],
        now: Round,
        rngs: Sequence[np.random.Generator],
        public: PublicFacts,
    ) -> list[tuple[Update, State]]:
        """Return the same for a round of another stage than `DRAWS`."""
        raise NotImplementedError

    def round_spec(self, public: PublicFacts) -> Spec:
        """Return the fields of one of the sampler's rounds."""
        return paper_spec((self.replicas, *self.shape(public)), self.lambda_floor)

    def describe_sum(self) -> str:
        """Describe the sum of a round."""
        return (
            "for each chain, sums over sites of 1, d and d^2 over lambda^2, d being a site's own "
            "coefficient less the common one"
        )

    def draw_common(
        self,
        now: Common,
        total: Update,
        sites: int,
        prior: SpikeSlab,
        rng: np.random.Generator,
    ) -> Common:
        """Return the coordinator's draws after a round's sums."""
        sums = (total["one"], total["d"] * np.sqrt(now.t), total["dd"] * now.t)
        return spike_slab.paper(now, *sums, sites, prior, rng)

    def draw_slabs_first(
        self,
        now: Common,
        total: Update,
        sites: int,
        prior: SpikeSlab,
        rng: np.random.Generator,
    ) -> Common:
        """Return the draws of the paper's step after a joint draw of slabs and theta."""
        one, d, dd = total["one"], total["d"] * np.sqrt(now.t), total["dd"] * now.t
        chosen, d, dd = choose_slabs(now, one, d, dd, prior, rng)
        return spike_slab.paper(chosen, one, d, dd, sites, prior, rng)

    def stages(self, public: PublicFacts) -> tuple[Stage, ...]:
        self._check()
        half = halves(public, self.columns(public))
        check_halves(half, [public.variables[i].name for i in self.columns(public)])
        rows = float(public.max_rows)
        count = [Field("records", (1,), rows, 0, Kind.COUNT)]
        sees = "the number of records"
        if self.scale == "pooled":
            count.append(Field("squares", (len(half),), rows, SQUARES_BITS, Kind.WEIGHT))
            sees += ", and each column's sum of squared deviations from its sites' means"
        sampled = Stage(DRAWS, self._checked_spec(public), self.rounds, self.describe_sum())
        sampled = replace(sampled, ends_early=False)
        return Stage(RECORDS, tuple(count), 1, sees), sampled

    def initial_state(self, public: PublicFacts) -> State:
        shape = (self.replicas, *self.shape(public))
        rng = self._generator(0)
        return {
            "status": "counting",
            "round": 0,
            "columns": [public.variables[i].name for i in self.columns(public)],
            "scale": halves(public, self.columns(public)),
            "guessed": guessed_spread(public, self.columns(public)),
            "common": asdict(spike_slab.begin_common(shape, rng)),
            "shared": self.begin_shared_state(public),
            COLLECTED_DRAWS: list[State](),
        }

    def next_request(self, state: State) -> tuple[str, Body] | None:
        if state["status"] == "counting":
            return RECORDS, {}
        if state["status"] != "running":
            return None
        common = state["common"]
        sent = {"theta": common["theta"], "t": common["t"], "scale": state["scale"]}
        return DRAWS, {**sent, **state["shared"], "records": state["records"]}

    def contribute(
        self,
        stage: str,
        rows: SiteRecords,
        message: Body,
        memory: State,
        public: PublicFacts,
        random: RandomBytes,
    ) -> tuple[Update, State]:
        return self.contribute_batched(stage, [rows], message, [memory], public, [random])[0]

    def contribute_batched(
        self,
        stage: str,
        rows: Sequence[SiteRecords],
        message: Body,
        memories: Sequence[State],
        public: PublicFacts,
        randoms: Sequence[RandomBytes],
    ) -> list[tuple[Update, State]]:
        chosen = self.columns(public)
        if stage == RECORDS:
            told = guessed_spread(public, chosen) == 0
            return [(self._count(each.values[:, chosen] * told), memory)
                    for each, memory in zip(rows, memories, strict=True)]  # fmt: skip
        shape = (self.replicas, *self.shape(public))
        first = self.begin_shared_state(public)
        news = {"theta": shape, "t": shape, **{name: each.shape for name, each in first.items()}}
        sent, facts = read_message(message, news, {"scale": (len(chosen),)})
        if np.any(sent["t"] <= 0):
            raise PeerError("message", "the coordinator's t must be above 0")
        counts, sites = [len(each.values) for each in rows], []
        for each, memory in zip(rows, memories, strict=True):
            check_facts(memory, facts, len(each.values))
            sites.append(memory or self._first_memory(each, facts, public))
        number = sites[0]["round"]
        shared = {name: sent[name] for name in first}
        t, warmup = clip_variance(sent["t"]), number < self.discarded
        now = Round(sent["theta"], t, number, warmup, shared)
        rngs = [np.random.default_rng(int.from_bytes(random(16), "little")) for random in randoms]
        if stage != DRAWS:
            return self.run_moves(sites, counts, now, rngs, public)
        return [
            (update, {**memory, "round": number + 1})
            for update, memory in self.run_sweeps(sites, counts, now, rngs, public)
        ]

    def aggregate(self, state: State, total: Update, sites: int) -> State:
        if state["status"] == "counting":
            return self._after_count(state, total)
        rng = self._generator(state["round"] + 1)
        now, number, records = Common(**state["common"]), state["round"], state["records"]
        drawn, shared = self.draw_round(now, total, state["shared"], number, sites, records, rng)
        common = {name: getattr(drawn, name) for name in SHARED_FIELDS}
        done, saved = number + 1, state[COLLECTED_DRAWS]
        if done > self.discarded and (done - self.discarded) % self.thin == 0:
            recorded = self.recorded_chains(shared)
            saved = [*saved, {name: common[name][recorded] for name in RECORDED}]
        status = "done" if done == self.rounds else "running"
        return {**state, "status": status, "round": done, "common": common, "shared": shared,
                COLLECTED_DRAWS: saved}  # fmt: skip

    def _checked_spec(self, public: PublicFacts) -> Spec:
        """Return a round's fields. Raises `JobError` if they have too many numbers."""
        spec = self.round_spec(public)
        values = sum(field.size for field in spec)
        if values > _MAX_MESSAGE_VALUES:
            raise JobError(
                "method",
                f"a round with these columns and chains has {values:.2g} numbers",
                f"Use fewer columns or chains (at most {_MAX_MESSAGE_VALUES:.2g} numbers), or step "
                "'paper'.",
            )
        return spec

    def _check(self) -> None:
        names = ("spike_ratio", "slab_shape", "slab_scale", "rho_a", "rho_b", "noise_shape",
                 "noise_scale", "lambda_floor")  # fmt: skip
        check_numbers(self, dict.fromkeys(names, _MIN_SETTING))
        for name in names:
            if getattr(self, name) > 1 / _MIN_SETTING:
                raise JobError(f"method.{name}", f"must be at most {1 / _MIN_SETTING:g}")
        check_numbers(self, {"chains": 1, "rounds": 8, "sweeps": 1, "thin": 1, "seed": 0})
        if self.spike_ratio >= 1:
            raise JobError(
                "method.spike_ratio", "must be below 1, because the spike is narrower than the slab"
            )
        if not 0 <= self.discarded <= self.rounds - 4 * self.thin:
            raise JobError(
                "method.warmup",
                f"{self.rounds} rounds with {self.discarded} of warmup keep fewer than 4 draws",
                "Use more method.rounds, or a smaller method.warmup or method.thin.",
            )
        for name in self.shares:
            if not 0 < getattr(self, name) < 1:
                raise JobError(f"method.{name}", f"{getattr(self, name)} is not between 0 and 1")

    def _count(self, values: Array) -> Update:
        update = {"records": np.array([float(len(values))])}
        if self.scale == "pooled":
            u = centred(values)
            update["squares"] = np.sum(u * u, axis=0)
        return update

    def _first_memory(self, rows: SiteRecords, facts: State, public: PublicFacts) -> State:
        chosen = self.columns(public)
        z, unit = analysed(rows.values[:, chosen], facts, public, own=self.scale == "site")
        site = {**facts, "round": 0, "here": len(z), "unit": unit, **self.begin_memory(z, public)}
        lacked = [public.variables[i].column in rows.lacking for i in chosen]
        if any(lacked):
            site |= self.begin_lacking(z, np.flatnonzero(lacked))
        if rows.noisy is None:
            return site
        return {**site, **self.begin_noisy(rows.noisy.select(chosen), public)}

    def _after_count(self, state: State, total: Update) -> State:
        records, scale = records_in(total), state["scale"]
        if self.scale == "pooled":
            variance = np.fmax(total["squares"] / records, state["guessed"] ** 2)
            scale = 1 / deviations(variance, _MIN_VARIANCE, state["columns"])
        return {**state, "status": "running", "records": records, "scale": scale}

    def _generator(self, number: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, number])
