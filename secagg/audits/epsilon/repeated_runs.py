"""Many runs of one job under differential privacy, as its adversary sees them.

What runs is a session of the product's own code: parties, guards, ledgers, schema, clipping, codec,
noise, coordinator. Four things are different. None of them changes the distribution of a release:

1. All runs are one session. Each site computes its contribution once, and `RepeatingSteps` repeats
   its numbers before the noise is drawn. The noise of each number is independent, so every
   repetition is a release of its own. The variance is that of the plan, so of one run. A vector of
   a million numbers takes the fast sampler where a short one takes the exact one; they agree to
   2^-179 a draw (`secagg.privacy.sampling.sampler`).
2. The protocol is `plain`, so that contributions can be taken from the wire. Every protocol returns
   the same integers (tests/contracts/secure_sum.py).
   A site that adds noise of its own to a sum does so once for each run: its contribution is
   computed so often, and only its noise is drawn at once.
3. The rounds that the coordinator asks for, and their messages, are fixed beforehand, the same in
   all runs. A coordinator may ask for them, so a guarantee must hold for them.
4. Random numbers are replayable. With the same seed, the releases on two data sets have the same
   noise: they are coupled, which `secagg.audits.epsilon.lower_bound` allows and gains by.

The sites' rules on numbers of records are not those of the job, because the records are made for
the purpose. Rules that decide about noise (`min_sites`, `colluding`) are kept.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.audits.epsilon.scripted_method import ScriptedMethod
from secagg.contracts import (
    Body,
    Stage,
    State,
)
from secagg.contracts.noise import Noise, Placement
from secagg.core import canonical_encoding, ring
from secagg.core.arrays import Array
from secagg.core.frames import peek_header, read_frame
from secagg.core.identity import COORDINATOR, Role
from secagg.core.randomness import RandomBytes, replayable_random
from secagg.core.ring import RingVector
from secagg.jobs.data_sources import Data, find_sites
from secagg.jobs.privacy import Privacy
from secagg.jobs.registry import Named
from secagg.privacy.policy.contribution import ContributionRequest
from secagg.protocols.additive import Additive
from secagg.protocols.plain import Plain
from secagg.sessions.engines.memory import MemoryEngine
from secagg.sessions.fixed_point import decode
from secagg.sessions.party import Party
from secagg.sessions.party_state import PartyState
from secagg.sessions.planned_job import Planned, plan_sites
from secagg.sessions.rounds import COHORT, CONSENT, StagePlans
from secagg.sessions.session import Session, open_session
from secagg.sessions.site_steps import SiteRequest, SiteSteps
from secagg.sessions.sum_plan import SumPlan, plan_sum

Asked = tuple[str, Body]
"""A stage of the method, and a message."""

Script = Sequence[Asked]
"""The rounds of a run after the count."""


@dataclass
class Runs:
    """What was sent in so many runs: by round, each site's answers (several if asked again)."""

    planned: Planned
    runs: int
    sent: list[tuple[str, dict[str, list[RingVector]]]] = field(default_factory=list)

    def view(
        self, known: Collection[str] = (), apart: bool = False, only: str | None = None
    ) -> Array:
        """Return one row a run: the sum of the releases of all sites but the known ones.

        known: sites that tell the adversary what they sent, so that it is subtracted
        apart: the adversary sees each other site's release alone, beside one another
        only: the rounds of this stage; None: all
        The mean is taken of answers to the same question.
        """
        columns: list[Array] = []
        for stage, answers in self.sent:
            if only not in (None, stage):
                continue
            others = [vectors for site, vectors in sorted(answers.items()) if site not in known]
            groups = [[each] for each in others] if apart else [others]
            columns += [self._mean(stage, group) for group in groups]
        return np.hstack(columns)

    def _mean(self, stage: str, sites: list[list[RingVector]]) -> Array:
        """Return the sum of the sites' answers, shape (runs, numbers); the mean over answers."""
        plan = self.planned.plans.of(stage)
        sums = [ring.total(v, plan.length, plan.ring_bits) for v in zip(*sites, strict=True)]
        decoded = [decode(plan, total)[0] for total in sums]
        means = [np.mean([each[name] for each in decoded], axis=0) for name in decoded[0]]
        return np.hstack([each.reshape(self.runs, -1) for each in means])


def play(
    planned: Planned,
    data: Data,
    runs: int,
    seed: int,
    script: Script,
    answers: int = 1,
    lost: Collection[str] = (),
    ledgers: Path | None = None,
) -> Runs:
    """Play one session that is `runs` runs; see the module's text.

    planned: the plan of one run
    data: each site's records, instead of those of the job
    script: what the coordinator asks
    answers: how often each party is asked the same, as after a crash from which it comes back
    lost: sites that drop out of the round that counts records
    ledgers: the folder of the sites' ledgers; None: in memory, and empty
    """
    single, planned = planned, _repeated(planned, data, runs, script, ledgers)
    played = Runs(planned, runs)
    items = planned.plans.message_items(len(planned.public.sites) + 1)

    def listen(sender: str, recipient: str, frame: bytes) -> Sequence[bytes]:
        if session.roster.parties[sender].role is not Role.SITE:
            return [frame]
        if sender in lost and peek_header(frame) == (0, Plain.phases[0].name):  # it had consented
            return []
        body = read_frame(frame, session.roster, COORDINATOR, session.session, items).body
        if "values" in body:  # else it consents or refuses
            played.sent[-1][1].setdefault(sender, []).append(body["values"])
        return [frame]

    session = open_session(planned, replayable_random(seed), listen)
    engine = session.engine
    assert isinstance(engine, MemoryEngine)
    engine.parties = {
        name: RepeatingParty(**_parts(party), single=single.plans, runs=runs)
        for name, party in engine.parties.items()
    }
    try:
        _loop(session, engine, played, answers)
    finally:
        session.close()
    return played


def _loop(session: Session, engine: MemoryEngine, played: Runs, answers: int) -> None:
    step = session.coordinator.start()
    while not step.done:
        if step.requests and step.state.phase != CONSENT.name:
            played.sent.append((str(step.state.stage), {}))
        saved, frames = dict(engine.states), list[bytes]()
        for _ in range(answers):
            engine.states = dict(saved)
            frames = list(engine.exchange(step.requests))
        step = session.coordinator.advance(step.state, frames)


# --- sites that repeat their contributions --------------------------------------------------------


@dataclass(frozen=True)
class RepeatingSteps(SiteSteps):
    """A site's steps, with each number of a contribution repeated before noise is added.

    single: the plans of one run
    """

    single: StagePlans
    runs: int

    def _compute(self, request: SiteRequest, memory: State) -> tuple[RingVector, State]:
        once = SiteSteps(self.me, self.roster, self.single, self.policy, self.random, self.context)
        vector, memory = once._compute(request, memory)
        return _tiled(vector, self.single.of(request.stage), self.runs), memory

    def _train(
        self, request: SiteRequest, contribution: ContributionRequest, memory: State, seed: bytes
    ) -> tuple[RingVector, State]:
        parts = {**_parts(self), "plans": self.single}
        alone = _OneOfManySteps(**{**parts, "runs": self.runs})
        found = [alone._train(request, contribution, memory, seed) for _ in range(self.runs)]
        vectors = [vector for vector, _ in found]
        return _joined(vectors, self.single.of(request.stage)), found[0][1]


@dataclass(frozen=True)
class _OneOfManySteps(RepeatingSteps):
    """A site's steps in one run after another.

    left: noise of the runs to come
    """

    left: list[NDArray[np.int64]] = field(default_factory=list)

    def _train(
        self, request: SiteRequest, contribution: ContributionRequest, memory: State, seed: bytes
    ) -> tuple[RingVector, State]:
        return SiteSteps._train(self, request, contribution, memory, seed)

    def _own_noise(self, variance: int, random: RandomBytes, numbers: int) -> NDArray[np.int64]:
        if not self.left:
            drawn = super()._own_noise(variance, random, self.runs * numbers)
            self.left.extend(drawn.reshape(self.runs, numbers))
        return self.left.pop()


@dataclass(frozen=True)
class RepeatingParty(Party):
    """A party whose site repeats its contributions."""

    single: StagePlans = field(kw_only=True)
    runs: int = field(kw_only=True)

    def _site_steps(
        self, round_: int, body: Body, before: PartyState
    ) -> tuple[SiteSteps, SiteRequest]:
        site, request = super()._site_steps(round_, body, before)
        return RepeatingSteps(**_parts(site), single=self.single, runs=self.runs), request


def _tiled(vector: RingVector, plan: SumPlan, runs: int) -> RingVector:
    """Return the vector with the numbers of each field repeated; the clip counts stay."""
    return _joined([vector] * runs, plan)


def _joined(vectors: Sequence[RingVector], plan: SumPlan) -> RingVector:
    """Return the numbers of each field of all vectors, field by field, and one's clip counts."""
    every, parts, at = np.stack(vectors), list[RingVector](), 0
    for size in (each.field.size for each in plan.fields[:-1]):
        parts.append(every[:, at : at + size].reshape(-1, *every.shape[2:]))
        at += size
    return np.concatenate([*parts, vectors[0][at:]])


def _parts(instance: Any) -> dict[str, Any]:
    return {each.name: getattr(instance, each.name) for each in fields(instance)}


# --- the plan of many runs ------------------------------------------------------------------------


def _repeated(
    planned: Planned, data: Data, runs: int, script: Script, ledgers: Path | None
) -> Planned:
    """Return the plan of `runs` runs, with the noise that was calibrated for one."""
    planned = with_records(planned, data, ledgers)
    encoded = tuple((stage, canonical_encoding.dumps(body).hex()) for stage, body in script)
    noise = {
        name: _long_noise(each, planned.plans.stages[name], runs)
        for name, each in planned.public.noise.items()
    }
    stages = {name: _long_stage(stage, runs) for name, stage in planned.plans.stages.items()}
    plans = {
        name: plan_sum(
            stage.spec,
            len(planned.public.sites),
            ring.RING_BITS,
            None if stage.training else noise.get(name),
        )
        for name, stage in stages.items()
    }
    return replace(
        planned,
        public=replace(planned.public, noise=noise),
        method=ScriptedMethod(planned.method, encoded),
        protocol=Plain(),
        plans=StagePlans(stages, plans),
    )


_FEW_ROUNDS = 8
"""In a script of several kinds of rounds."""

NOISE_STAYS_AT_SITES = (
    "the noise is in moments that each site keeps, and no message has noise of its own; an audit "
    "does not test that draw"
)


def why_not_repeated(planned: Planned) -> str:
    """Return why a private job cannot be played many times at once; "" if it can."""
    stages = [stage for name, stage in planned.plans.stages.items() if name != COHORT]
    if planned.private is None:
        return "the job has no [privacy]"
    if any(stage.training and stage.training.steps > 1 for stage in stages):
        return "sites train alone with noise, so the noise of many runs cannot be drawn at once"
    if planned.public.site_moments:
        return NOISE_STAYS_AT_SITES
    if planned.private.sampled:
        return "records take part by chance, so a contribution cannot be repeated"
    few = len(stages) == 1 or sum(stage.max_rounds for stage in stages) <= _FEW_ROUNDS
    return "" if few else "the method has several kinds of rounds, and many of them"


def with_less_noise(planned: Planned, times: int = 4) -> Planned:
    """Return the same job under a guarantee, with less of its noise: a control.

    planned: without noise; times: how much less variance the noise has
    """
    rounds = sum(stage.max_rounds for stage in planned.plans.stages.values()) - 1  # the count
    # with noise, sites that find something alone need one more round
    once, sites = rounds == 1 and planned.facts.train is None, planned.public.sites
    placement = Placement.SUM if once else Placement.ROUND
    changed = {
        "privacy": Privacy(placement=placement, epsilon=1.0, delta=1e-6),
        "release": planned.job.release.model_copy(update={"min_sites": len(sites)}),
        "protocol": Named(name=Additive.name),
    }
    private = plan_sites(planned.job.model_copy(update=changed), sites, planned.sources)
    noise = {
        name: replace(each, variance=-(-each.variance // times))
        for name, each in private.public.noise.items()
    }
    return replace(private, public=replace(private.public, noise=noise))


def method_stage(planned: Planned) -> str:
    """Return the one kind of round of the job's method."""
    (stage,) = (name for name in planned.plans.stages if name != COHORT)
    return stage


def with_records(planned: Planned, data: Data, ledgers: Path | None = None) -> Planned:
    """Return the plan with other records, and without rules on numbers of records."""
    job = planned.job
    sites = job.sites.model_copy(update={"ledgers": ledgers, "folder": None, "table": None})
    release = job.release.model_copy(update={"min_records": 1, "min_total_records": None})
    job = job.model_copy(update={"sites": sites, "release": release})
    return replace(planned, job=job, sources=find_sites(job, data))


def _long_stage(stage: Stage, runs: int) -> Stage:
    return replace(stage, spec=tuple(replace(f, shape=(runs * f.size,)) for f in stage.spec))


def _long_noise(noise: Noise, stage: Stage, runs: int) -> Noise:
    """Return the noise with the weights of each field repeated."""
    weights, at = list[int](), 0
    for each in stage.spec:
        weights += noise.weights[at : at + each.size] * runs
        at += each.size
    return replace(noise, weights=tuple(weights))
