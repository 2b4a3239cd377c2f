"""Sites in this process, which an attack may ask: with other jobs, or with messages of its choice.

`Deployment` is a set of sites that keep their ledgers, in memory. It answers one job after another
by the product's own parties, rules and ledgers. The sites have no policy files, so they follow the
rules of the job. A coordinator could write a job with weaker rules, without noise, or under another
protocol; only a policy file prevents this, and no attack here does it. The coordinator that asks
applies no rules of its own and keeps no ledger. It reads every sum that is opened, the first count
of records included.

The control of an attack on the rules is a deployment that forgets: each job finds empty ledgers.

`session_with_sites` answers messages in place of an honest coordinator's. It returns what every
protocol returns, the sum of the encoded contributions with their noise, and applies no rule. So it
shows what the messages reveal, and not whether a site refuses them.

Guarantees: an attack gets sums and error codes, and no record.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import pandas as pd

from secagg.audits.views import Answer, AskSites
from secagg.contracts import Body, SiteRecords, State, Update
from secagg.core import ring
from secagg.core.frames import read_frame
from secagg.core.identity import COORDINATOR
from secagg.core.randomness import RandomBytes, replayable_random, seeded_random
from secagg.errors import PolicyRefusal, SecaggError
from secagg.jobs.data_sources import as_policy
from secagg.jobs.job import Job, parse_job
from secagg.privacy.ledger.ledger import Ledger
from secagg.privacy.policy.release_rules import ReleasePolicy, check_cohort
from secagg.privacy.sampling.sampler import sample_weighted
from secagg.sessions.fixed_point import add_noise, decode, encode
from secagg.sessions.party import REFUSED
from secagg.sessions.planned_job import Planned, plan_job
from secagg.sessions.session import Session, open_session
from secagg.sessions.session_ledgers import open_ledger

_NO_RULES = ReleasePolicy(2, 1, min_cell_records=1, min_level_sites=1)


@dataclass
class Deployment:
    """Sites that remember which jobs they answered; see the module's text.

    seed: of all draws; remembers: whether they keep their ledgers between jobs
    honest: whether the coordinator keeps its ledger, too, and asks for no sum that would expose a
        group of sites together with earlier ones

    Use a `with` statement, which closes the ledgers.
    """

    job: Job
    tables: Mapping[str, pd.DataFrame]
    seed: int
    remembers: bool = True
    honest: bool = False
    _cohorts: list[frozenset[str]] = field(default_factory=list, init=False)
    _random: RandomBytes = field(init=False)
    _ledgers: dict[str, Ledger] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._random = replayable_random(self.seed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._forget()

    def ask(self, changes: Mapping[str, Any], absent: Collection[str] = ()) -> Answer:
        """Return what the sites answer; see `secagg.audits.views.AskJob`.

        A job that is refused before it reaches the sites has the code "job", or a similar one.
        """
        raw = changed_job(self.job, dict(changes) | {"sites.ledgers": None})
        present = {name: table for name, table in self.tables.items() if name not in absent}
        try:
            planned = plan_job(parse_job(raw), present)
            session = open_session(planned, self._random)
        except SecaggError as error:
            return Answer(refused={COORDINATOR: error.code})
        if self.honest and self.remembers and not self._recorded(planned):
            return Answer(refused={COORDINATOR: PolicyRefusal.code})
        if not self.remembers:
            self._forget()
        for name, site in session.sites.items():
            assert site.guard is not None
            site.guard.open_ledger = functools.partial(self._ledger, name)
        return _play(replace(session, coordinator=replace(session.coordinator, policy=_NO_RULES)))

    def _recorded(self, planned: Planned) -> bool:
        """Enter a cohort in the coordinator's ledger, unless that would expose a group of sites."""
        cohort, policy = frozenset(planned.public.sites), as_policy(planned.job.release)
        try:
            check_cohort(policy, COORDINATOR, tuple(cohort), self._cohorts)
        except PolicyRefusal:
            return False
        self._cohorts.append(cohort)
        return True

    def _ledger(self, name: str) -> Ledger:
        if name not in self._ledgers:
            self._ledgers[name] = open_ledger(None)
        return self._ledgers[name]

    def _forget(self) -> None:
        while self._ledgers:
            self._ledgers.popitem()[1].close()


def changed_job(job: Job, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job as plain data, with dotted keys changed."""
    raw: dict[str, Any] = json.loads(job.model_dump_json(exclude_unset=True))
    for key, value in changes.items():
        *path, last = key.split(".")
        table = raw
        for name in path:
            table = table.setdefault(name, {})
        table[last] = value
    return raw


def _play(session: Session) -> Answer:
    """Run a session to its end, or until a party refuses."""
    refused, sums = dict[str, str](), list[tuple[str, Update]]()
    step = session.coordinator.start()
    try:
        while not step.done:
            frames = session.engine.exchange(step.requests)
            for frame in frames:
                read = read_frame(frame, session.roster, COORDINATOR, session.session)
                if read.header.phase == REFUSED:
                    refused[read.header.sender] = str(read.body["code"])
            step = session.coordinator.advance(step.state, frames)
            if step.state.total is not None:
                plan = session.planned.plans.of(step.state.stage)
                sums.append((str(step.state.stage), decode(plan, step.state.total)[0]))
    except SecaggError as error:
        refused = refused or {COORDINATOR: error.code}
    return Answer(tuple(sums), refused, tuple(session.planned.public.sites))


def session_with_sites(
    planned: Planned, sites: Mapping[str, SiteRecords], random: RandomBytes
) -> AskSites:
    """Start a session with these sites; see the module's text."""
    memories: dict[str, State] = {name: {} for name in sites}
    draws = {name: seeded_random(random(32)) for name in sites}

    def ask(stage: str, message: Body) -> Update:
        plan, noise = planned.plans.of(stage), planned.public.noise.get(stage)
        vectors = []
        for name, rows in sites.items():
            update, memories[name] = planned.method.contribute(
                stage, rows, message, memories[name], planned.public, draws[name]
            )
            vector = encode(plan, update)
            if noise is not None:
                variance = noise.site_variance(len(sites))
                drawn = sample_weighted(variance, noise.weights, plan.noised, draws[name])
                add_noise(plan, vector, drawn)
            vectors.append(vector)
        return decode(plan, ring.total(vectors, plan.length, plan.ring_bits))[0]

    return ask
