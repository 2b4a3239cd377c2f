"""`secagg plan`: what a run would do and send, from public numbers, before any record is read.

The sites are known by the names of their files. Where the job splits one table (a simulation), the
site column itself is read to find the names, and nothing else of the table.
Bits come from the same proof that a run uses. Messages and bytes are measured, not estimated: the
session is played once with contributions of zeros in place of the sites' records, one round for
each stage, and the frames are counted. Sizes depend on shapes only, so a real round sends the same
(but for the few bytes by which the integers in it are longer).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from secagg.contracts import Body, Method, Public, Result, Rows, Stage, State, Update
from secagg.errors import PolicyRefusal
from secagg.evidence import privacy_facts
from secagg.models.gradient import Gradient
from secagg.noise import Adjacency, Placement
from secagg.privacy.feasibility import Assumed, Noised, feasibility
from secagg.privacy.gate import ReleasePolicy, check_invitation
from secagg.privacy.guarantee import sentence
from secagg.privacy.policy import policy_of
from secagg.randomness import system_random
from secagg.session import COORDINATOR, Planned, open_session, plan_facts
from secagg.sites import as_policy


@dataclass(frozen=True)
class _Zeros:
    """Stands in for a method: the same stages, one round each, contributions of zeros."""

    method: Method

    name: ClassVar[str] = "zeros"
    leaves: ClassVar[str] = ""

    def stages(self, public: Public) -> tuple[Stage, ...]:
        return self.method.stages(public)

    def start(self, public: Public) -> State:
        first = self.method.message(self.method.start(public))
        sent = {} if first is None else {first[0]: first[1]}
        return {"left": [[s.name, sent.get(s.name, {})] for s in self.stages(public)]}

    def message(self, state: State) -> tuple[str, Body] | None:
        if not state["left"]:
            return None
        stage, message = state["left"][0]
        return stage, message

    def local(
        self, stage: str, rows: Rows, message: Body, memory: State, public: Public
    ) -> tuple[Update, State]:
        (spec,) = (s.spec for s in self.stages(public) if s.name == stage)
        return {field.name: np.zeros(field.shape) for field in spec}, memory

    def server(self, state: State, total: Update, sites: int) -> State:
        return {"left": state["left"][1:]}

    def result(self, state: State, public: Public) -> Result:
        return Result({})


def plan_run(planned: Planned) -> dict[str, Any]:
    """Return bounds, bits, messages and bytes of a job, as plain data."""
    counts = _dry_run(planned)
    stages = plan_facts(planned.plans)
    for i, stage in enumerate(stages):
        stage |= {"messages_a_round": counts[i][0], "bytes_a_round": counts[i][1]}
    setup = counts[-1]
    return {
        "title": planned.job.title,
        "method": planned.method.name,
        "protocol": planned.protocol.name,
        "in_numbers": planned.protocol.in_numbers(len(planned.public.sites)),
        "sites": list(planned.public.sites),
        "release": planned.job.release.model_dump(),
        "own_rules": {
            name: source.policy.model_dump(mode="json", exclude_defaults=True)
            for name, source in planned.sources.items()
            if source.policy != policy_of(as_policy(planned.job.release))
        },
        "refusals": _refusals(planned),
        "differential_privacy": _promise(planned),
        "setup": {"messages": setup[0], "bytes": setup[1]},
        "stages": stages,
    }


def _promise(planned: Planned) -> dict[str, Any]:
    """Return what would be promised if all sites take part, and whether the result will do."""
    facts = privacy_facts(planned, len(planned.public.sites))
    if facts is None:
        return {
            "placement": "none",
            "sentence": "No differential privacy: no noise is added, so there is no epsilon.",
        }
    return {**facts, "sentence": sentence(facts), "feasibility": _feasibility(planned, facts)}


def _feasibility(planned: Planned, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return whether the result will be usable, by the public guess of the number of records."""
    job, method, clip = planned.job, planned.method, planned.public.clip
    assert clip is not None  # wherever noise is, records are clipped
    if job.privacy.expected_records is None:
        return {"verdict": None, "words": "not judged: set privacy.expected_records"}
    used, logistic = set(job.columns), False
    if isinstance(method, Gradient):
        used, logistic = {method.outcome, *method.predictors}, method.family == "binomial"
    kinds = [job.columns[v.column].type for v in planned.public.variables if v.column in used]
    if len(kinds) < 2:
        return {"verdict": None, "words": "not judged: there is no regression on one variable"}
    continuous = kinds.count("continuous")
    _, noised = facts["mechanisms"]  # of the count of records, and of the method's one stage
    adjacency = "add" if facts["adjacency"] == Adjacency.ADD_REMOVE.value else "replace"
    return feasibility(
        Assumed(
            job.privacy.expected_records, continuous, len(kinds) - continuous, clip.square, logistic
        ),
        Noised(
            touch=noised[f"sensitivity_{adjacency}"],
            epsilon=facts["epsilon"],
            delta=facts["delta"],
            placement=Placement(facts["placement"]),
            sites=len(planned.public.sites),
            colluding=facts["colluding"],
            share=1 - job.privacy.count_share,
            rounds=noised["releases"],
        ),
    ).to_dict()


def _refusals(planned: Planned) -> list[str]:
    """Return why the release rules would refuse this job as it stands, knowing no record yet."""
    asked = {COORDINATOR: as_policy(planned.job.release)}
    asked |= {name: source.policy.release for name, source in planned.sources.items()}
    found: list[str] = []
    for who, policy in asked.items():
        try:
            check_invitation(policy, who, planned.public.sites, None)
        except PolicyRefusal as error:
            found.append(error.line())
    return found


def _dry_run(planned: Planned) -> list[tuple[int, int]]:
    """Return (messages, bytes) of one round of each stage in order, then of the set-up."""
    zeros = _Zeros(planned.method)
    lenient = policy_of(ReleasePolicy(min_sites=2, min_records=1))
    sources = {n: replace(s, policy=lenient) for n, s in planned.sources.items()}
    release = planned.job.release.model_copy(update={"min_sites": 2, "min_records": 1})
    job = planned.job.model_copy(update={"release": release})
    public = replace(planned.public, noise={})  # which could make the zeros look like no records
    played = replace(planned, method=zeros, sources=sources, job=job, public=public)
    session = open_session(played, system_random, None, _no_rows)
    step = session.coordinator.start()
    while not step.done:
        frames = session.engine.exchange(step.requests)
        step = session.coordinator.advance(step.state, frames)
    setup = {phase.name for phase in planned.protocol.setup}
    table: Mapping[bool, dict[int, list[int]]] = {True: {}, False: {}}
    for delivery in session.engine.transcript:
        table[delivery.phase in setup].setdefault(delivery.round, []).append(delivery.size)
    rounds = [table[False].get(i, []) for i in range(len(planned.plans.plans))]
    return [(len(sizes), sum(sizes)) for sizes in (*rounds, table[True].get(0, []))]


def _no_rows(public: Public) -> Rows:
    """Return one record of zeros in place of a site's data."""
    return Rows(np.zeros((1, len(public.variables))), 0, np.zeros(len(public.columns)))
