"""Many runs of one job under differential privacy, as its adversary sees them: for audits.

What runs is a session of the real code: job, calibration, parties, guards, ledgers, schema,
clipping, codec, noise, coordinator. Four things are different, each without effect on what a run's
releases are:

1. All runs are one: a method's fields (and the count of records) are made `runs` times as long, the
   contribution is repeated, and the noise, which is drawn for each number independently, makes
   every repetition a release of its own. One vector of a million numbers takes the fast sampler
   where a short one takes the exact one; they agree to 2^-179 a draw
   (`secagg.privacy.sampling.sampler`). The calibration is that of the job itself.
2. The protocol is `plain`, so that contributions can be taken from the wire. Every protocol returns
   the same integers (tests/contracts/secure_sum.py).
3. In methods of several rounds the messages are fixed beforehand, the same in all runs: what a
   coordinator may ask, chosen to be the worst.
4. Randomness is replayable, and the same on both data sets: the pairs of releases are coupled,
   which `secagg.audits.epsilon_lower_bound` allows and gains by.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import (
    ANY_MESSAGE,
    Body,
    Disclosure,
    DisclosureKind,
    Method,
    PublicFacts,
    RecordCount,
    Result,
    ResultTable,
    SiteRecords,
    Spec,
    Stage,
    State,
    Update,
)
from secagg.contracts.noise import Placement
from secagg.core import encoding, ring
from secagg.core.frames import peek_header
from secagg.core.identity import Role
from secagg.core.randomness import RandomBytes, replayable_random
from secagg.core.ring import RingVector
from secagg.jobs.job import parse_job
from secagg.privacy.accounting.calibration import Calibrated
from secagg.protocols.plain import Plain
from secagg.runtime import site_steps
from secagg.runtime.engines.memory import MemoryEngine
from secagg.runtime.fixed_point import decode
from secagg.runtime.planned_job import Planned, plan_job
from secagg.runtime.rounds import CONSENT, StagePlans, cohort_update
from secagg.runtime.session import Session, open_session
from secagg.runtime.sum_plan import plan_sum

Floats = NDArray[np.float64]
Table = Mapping[str, NDArray[Any]]
Extra = Mapping[str, Sequence[Sequence[float]]]
"""Records of the person in question, by site."""
SITES = ("east", "north", "south", "west")
ROWS = 120  # a site: so many that the noised count is not refused as too small


def private_job(
    variables: int,
    placement: Placement = Placement.SUM,
    method: Mapping[str, Any] | None = None,
    max_rows: int = 4 * ROWS,
    ledgers: Path | None = None,
    min_sites: int = len(SITES),
    **privacy: Any,
) -> dict[str, Any]:
    """Return a job over columns v0, v1, ... with bounds -1 and 1, so that nothing is scaled."""
    settings = {"placement": placement, "epsilon": 1.0, "delta": 1e-6} | privacy
    return {
        "title": "A job to be audited",
        "sites": {"max_rows": max_rows, "ledgers": ledgers},
        "columns": {
            f"v{j}": {"type": "continuous", "low": -1, "high": 1} for j in range(variables)
        },
        "method": method or {"name": "moments"},
        "release": {"min_sites": min_sites, "min_records": 1},
        "privacy": settings,
    }


def tables(variables: int, extra: Extra, spread: float = 0.3) -> dict[str, Table]:
    """Return every site's records, and before them the `extra` ones (nan: missing).

    spread: the others lie between -spread and spread
    Column `person` says whose they are: the extra ones are all of one person.
    """
    rng = np.random.default_rng(4)
    found: dict[str, Table] = {}
    for i, site in enumerate(SITES):
        added = np.asarray(extra.get(site, ())).reshape(-1, variables)
        records = np.vstack([added, rng.uniform(-spread, spread, (ROWS, variables))])
        others = 1.0 + i * ROWS + np.arange(ROWS)
        person = np.concatenate([np.zeros(len(added)), others])
        found[site] = {f"v{j}": records[:, j] for j in range(variables)} | {"person": person}
    return found


@dataclass(frozen=True)
class Repeated:
    """A method whose fields are `runs` times as long, and whose coordinator knows what to ask.

    points: for each round, the coefficients that the message holds; () for an empty message
    """

    method: Method
    runs: int
    points: tuple[tuple[float, ...], ...]

    name: ClassVar[str] = "repeated"
    title: ClassVar[str] = "Many runs at once"
    disclosure: ClassVar[Disclosure] = Disclosure(DisclosureKind.POOLED, "all sums", ANY_MESSAGE)

    def tables(self, public: PublicFacts) -> tuple[ResultTable, ...]:
        return (ResultTable(self.title),)

    def stages(self, public: PublicFacts) -> tuple[Stage, ...]:
        return tuple(_long(stage, self.runs) for stage in self.method.stages(public))

    def initial_state(self, public: PublicFacts) -> State:
        (stage,) = self.method.stages(public)
        return {"stage": stage.name, "rounds": 0}

    def next_request(self, state: State) -> tuple[str, Body] | None:
        if state["rounds"] == len(self.points):
            return None
        point = self.points[state["rounds"]]
        return state["stage"], {"beta": np.array(point)} if point else {}

    def contribute(
        self,
        stage: str,
        rows: SiteRecords,
        message: Body,
        memory: State,
        public: PublicFacts,
        random: RandomBytes,
    ) -> tuple[Update, State]:
        update, memory = self.method.contribute(stage, rows, message, memory, public, random)
        return _repeat(update, self.runs), memory

    def aggregate(self, state: State, total: Update, sites: int) -> State:
        return {**state, "rounds": state["rounds"] + 1}

    def result(self, state: State, public: PublicFacts, counted: RecordCount) -> Result:
        return Result({})


def _long(stage: Stage, runs: int) -> Stage:
    return replace(stage, spec=tuple(replace(f, shape=(runs * f.size,)) for f in stage.spec))


def _repeat(update: Update, runs: int) -> Update:
    return {name: np.tile(x.reshape(-1), runs) for name, x in update.items()}


@dataclass
class Runs:
    """What was sent in so many runs: for each round, each site's answers (more than one if asked
    again)."""

    planned: Planned
    runs: int
    sent: list[tuple[str, dict[str, list[RingVector]]]] = field(default_factory=list)

    @property
    def private(self) -> Calibrated:
        assert self.planned.private is not None
        return self.planned.private

    def view(self, colluding: Collection[str] = ()) -> Floats:
        """Return one row a run: all that is released, less what the colluding sites sent.

        The coordinator has the sums, and they know their parts of it. Of answers to the same
        question the mean is taken.
        """
        columns: list[Floats] = []
        for stage, answers in self.sent:
            plan = self.planned.plans.of(stage)
            known = [vectors for site, vectors in answers.items() if site not in colluding]
            sums = [ring.total(v, plan.length, plan.ring_bits) for v in zip(*known, strict=True)]
            fields = [decode(plan, total)[0] for total in sums]
            for name in fields[0]:
                mean = np.mean([values[name] for values in fields], axis=0)
                columns.append(mean.reshape(self.runs, -1))
        return np.hstack(columns)


def play(
    raw: Mapping[str, Any],
    data: Mapping[str, Table],
    runs: int,
    seed: int,
    points: Sequence[tuple[float, ...]] = ((),),
    answers: int = 1,
    lost: Collection[str] = (),
) -> Runs:
    """Play one session that is `runs` runs; see the module's text.

    points: see `Repeated`
    answers: how often each party is asked the same, as after a crash from which it comes back
    lost: sites that drop out of the round that counts records
    """
    planned = plan_job(parse_job(dict(raw)), data)
    planned = _lengthen(planned, runs, tuple(points))
    played = Runs(planned, runs)

    def listen(sender: str, recipient: str, frame: bytes) -> Sequence[bytes]:
        if session.roster.parties[sender].role is not Role.SITE:
            return [frame]
        if sender in lost and peek_header(frame) == (0, "submit"):  # it had consented
            return []
        _, _, content = encoding.loads(frame)
        body = encoding.loads(content)
        if "values" in body:  # and else it refuses, as the coordinator will say
            played.sent[-1][1].setdefault(sender, []).append(body["values"])
        return [frame]

    session = open_session(planned, replayable_random(seed), listen)
    with patch.object(site_steps, "cohort_update", _count(runs)):
        _loop(session, played, answers)
    session.close()
    return played


def _count(runs: int) -> Any:
    def count(rows: SiteRecords, public: PublicFacts, spec: Spec, minimum: int) -> Update:
        return _repeat(cohort_update(rows, public, spec, minimum), runs)

    return count


def _lengthen(planned: Planned, runs: int, points: tuple[tuple[float, ...], ...]) -> Planned:
    """Make the plan one of `runs` runs, with the noise that was calibrated for one."""
    noise = {
        name: replace(one, weights=one.weights * runs) for name, one in planned.public.noise.items()
    }
    public = replace(planned.public, noise=noise)
    stages = {name: _long(stage, runs) for name, stage in planned.plans.stages.items()}
    plans = {
        name: plan_sum(stage.spec, len(public.sites), ring.RING_BITS, public.noise[name])
        for name, stage in stages.items()
    }
    method = Repeated(planned.method, runs, points)
    plans_of = StagePlans(stages, plans)
    return replace(planned, public=public, method=method, protocol=Plain(), plans=plans_of)


def _loop(session: Session, played: Runs, answers: int) -> None:
    step, engine = session.coordinator.start(), session.engine
    assert isinstance(engine, MemoryEngine)
    while not step.done:
        if step.requests and step.state.phase != CONSENT.name:
            played.sent.append((step.state.stage, {}))
        saved, frames = dict(engine.states), []
        for _ in range(answers):
            engine.states = dict(saved)
            frames = engine.exchange(step.requests)
        step = session.coordinator.advance(step.state, frames)
