"""`secagg plan`: what a run would do and send, from public numbers, before any record is read.

The sites are known by the names of their files. Where the job splits one table (a simulation), the
site column itself is read to find the names, and nothing else of the table.
Bits come from the same proof that a run uses. Messages and bytes are measured, not estimated: the
session is played once with contributions of zeros in place of the sites' records, one round for
each stage, and the frames are counted. Sizes depend on shapes only, so a real round sends the same
(but for the few bytes by which the integers in it are longer).
Policies and ledgers that are at hand are asked whether they would refuse; nothing is written there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from secagg.contracts import (
    ASKED_ONCE,
    Body,
    Disclosure,
    DisclosureKind,
    Method,
    PublicFacts,
    RecordCount,
    Result,
    ResultTable,
    SiteRecords,
    Stage,
    State,
    Update,
)
from secagg.contracts.noise import Placement
from secagg.core.frames import Delivery
from secagg.core.identity import COORDINATOR
from secagg.core.randomness import RandomBytes, system_random
from secagg.errors import PolicyRefusal
from secagg.jobs.data_sources import Data, SiteSource, as_policy
from secagg.jobs.job import Job, read_job
from secagg.privacy.accounting.budget import Cap
from secagg.privacy.accounting.calibration import EXACT
from secagg.privacy.accounting.guarantee import sentence
from secagg.privacy.ledger.ledger import Ledger
from secagg.privacy.policy.evaluation import before_data
from secagg.privacy.policy.release_rules import ReleasePolicy, check_cohort, check_invitation
from secagg.privacy.policy.site_policy import policy_of
from secagg.reports.disclosure import headline
from secagg.reports.summary import EXACT_BEFORE
from secagg.runs.budgets import exact_releases, under
from secagg.runs.facts import method_facts, privacy_facts
from secagg.runs.feasibility_facts import prospect
from secagg.runtime.parties import open_coordinator_ledger
from secagg.runtime.planned_job import Planned, plan_facts, plan_job
from secagg.runtime.rounds import COHORT, CONSENT
from secagg.runtime.session import open_session
from secagg.runtime.session_ledgers import ALL_SITES, contribution_request, open_ledger

_WARN_BYTES = 10**9
"""Bytes that one site sends in a run, beyond which a plan warns."""


@dataclass(frozen=True)
class _Zeros:
    """Stands in for a method: the same stages, one round each, contributions of zeros."""

    method: Method

    name: ClassVar[str] = "zeros"
    title: ClassVar[str] = "zeros"
    disclosure: ClassVar[Disclosure] = Disclosure(DisclosureKind.POOLED, "nothing", ASKED_ONCE)

    def tables(self, public: PublicFacts) -> tuple[ResultTable, ...]:
        return (ResultTable(self.title),)

    def stages(self, public: PublicFacts) -> tuple[Stage, ...]:
        return self.method.stages(public)

    def initial_state(self, public: PublicFacts) -> State:
        first = self.method.next_request(self.method.initial_state(public))
        sent = {} if first is None else {first[0]: first[1]}
        return {"left": [[s.name, sent.get(s.name, {})] for s in self.stages(public)]}

    def next_request(self, state: State) -> tuple[str, Body] | None:
        if not state["left"]:
            return None
        stage, message = state["left"][0]
        return stage, message

    def contribute(
        self,
        stage: str,
        rows: SiteRecords,
        message: Body,
        memory: State,
        public: PublicFacts,
        random: RandomBytes,
    ) -> tuple[Update, State]:
        (spec,) = (s.spec for s in self.stages(public) if s.name == stage)
        return {field.name: np.zeros(field.shape) for field in spec}, memory

    def aggregate(self, state: State, total: Update, sites: int) -> State:
        return {"left": state["left"][1:]}

    def result(self, state: State, public: PublicFacts, counted: RecordCount) -> Result:
        return Result({})


def plan(
    job: Job | Mapping[str, Any] | str | Path,
    data: Data | None = None,
    *,
    overrides: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return what a job would send and release, as `secagg plan --json` prints it.

    job, data, overrides: as `secagg.run` takes them
    Raises `UsageError` for a job that cannot be run.
    """
    return plan_run(plan_job(read_job(job, overrides), data))


def plan_run(planned: Planned, key: bytes | None = None) -> dict[str, Any]:
    """Return bounds, bits, messages and bytes of a job, as plain data, and who would refuse it.

    key: the public key that the coordinator will ask with, if it has one
    """
    counts = _dry_run(planned)
    stages = plan_facts(planned.plans)
    for stage, (messages, size, sends) in zip(stages, counts, strict=False):  # last: the set-up
        stage |= {"messages_a_round": messages, "bytes_a_round": size}
        may_end = planned.plans.stages[stage["stage"]].ends_early and stage["max_rounds"] > 1
        all_run = planned.private is not None or not may_end
        stage |= {"bytes_at_most": stage["max_rounds"] * size, "all_run": all_run}
        stage |= {"a_site_sends_at_most": stage["max_rounds"] * sends}
    setup = counts[-1]
    sent_by_site = setup[2] + sum(stage["a_site_sends_at_most"] for stage in stages)
    return {
        "title": planned.job.title,
        "method": planned.method.name,
        "disclosure": method_facts(planned)["disclosure"],
        "protocol": planned.protocol.name,
        "in_numbers": planned.protocol.guarantee_text(len(planned.public.sites)),
        "sites": list(planned.public.sites),
        "release": planned.job.release.model_dump(),
        "own_rules": {
            name: source.policy.model_dump(mode="json", exclude_defaults=True)
            for name, source in planned.sources.items()
            if source.policy != policy_of(as_policy(planned.job.release))
        },
        "refusals": _refusals(planned, key),
        "budgets": _budgets(planned),
        "differential_privacy": _guarantee(planned),
        "warnings": _warnings(planned) + _much(sent_by_site),
        "a_site_sends_at_most": sent_by_site,
        "setup": {"messages": setup[0], "bytes": setup[1]},
        "stages": stages,
    }


def _guarantee(planned: Planned) -> dict[str, Any]:
    """Return what would be guaranteed if all sites take part, and whether the result will do."""
    facts = privacy_facts(planned, len(planned.public.sites))
    if facts is None:
        return {
            "placement": "none",
            "sentence": "No differential privacy: no noise is added, so there is no epsilon.",
        }
    return {**facts, "sentence": sentence(facts), "feasibility": prospect(planned, facts)}


def _warnings(planned: Planned) -> list[str]:
    """Return what a run would give away for ever, or what of its guarantee is gone already."""
    if planned.private is None:
        exact = (
            "Exact sums spend every budget of differential privacy on these records, for ever: no "
            "noise makes up for them later"
        )
        told = headline(planned.method.disclosure.kind)
        return [told, exact] if told else [exact]
    kept = {source.name: (source.ledger, source.dataset) for source in planned.sources.values()}
    kept[COORDINATOR] = open_coordinator_ledger(planned, b"").path, ALL_SITES
    found = []
    for party, (path, dataset) in kept.items():
        if path is not None and path.exists():
            with closing(open_ledger(path)) as ledger:
                found += [party] if exact_releases(ledger.spent(dataset)) else []
    return [f"{EXACT_BEFORE}, by the ledger of {', '.join(found)}"] if found else []


def _much(size: int) -> list[str]:
    """Return a warning if a site would send a lot in all rounds together."""
    if size <= _WARN_BYTES:
        return []
    return [
        f"A site would send up to {size / 1e9:.3g} GB in all rounds together: fewer columns, "
        "chains or rounds send less"
    ]


def _refusals(planned: Planned, key: bytes | None) -> list[str]:
    """Return why this job would be refused as it stands: who would, by whose rule.

    Sites' policies and ledgers are asked where they are at hand. What depends on records, and on
    what is released meanwhile, only the run shows.
    """
    names, release = planned.public.sites, as_policy(planned.job.release)
    book = open_coordinator_ledger(planned, b"")
    found = _said_by(check_invitation, release, COORDINATOR, names, None) or _said_by(
        check_cohort, release, COORDINATOR, names, book.earlier
    )
    if book.path is not None and book.path.exists():
        with closing(open_ledger(book.path)) as ledger:
            found += _said_by(_check_budget, planned, ledger, ALL_SITES)
    for source in planned.sources.values():
        with closing(_opened(source)) as ledger:
            found += [f"{source.name}, {why}" for why in _of_site(planned, source, ledger, key)]
    return found


def _said_by(check: Callable[..., None], *about: Any) -> list[str]:
    """Return what a check says if it refuses."""
    try:
        check(*about)
    except PolicyRefusal as error:
        return [error.line()]
    return []


def _of_site(
    planned: Planned, source: SiteSource, ledger: Ledger, key: bytes | None
) -> Iterator[str]:
    job, policy, shared = planned.job, source.policy, policy_of(as_policy(planned.job.release))
    stages = [stage for name, stage in planned.plans.stages.items() if name != COHORT]
    asked = replace(
        contribution_request(job, stages, source.name, key or b"", job.privacy.terms()),
        cohort=planned.public.sites,
        earlier=tuple(known.sites for known in ledger.cohorts(source.dataset)),
    )
    by_job = {d.text for d in before_data(shared, asked) if not d.allowed and d.rule != "cohorts"}
    refusing = {d.rule: d.text for d in before_data(policy, asked) if not d.allowed}
    for rule, text in refusing.items():
        if rule == "cohorts":
            if "min_sites" not in refusing:  # otherwise it follows
                yield f"by its ledger: {text}"
        elif rule == "keys.coordinators" and key is None:
            yield "by its policy: keys: it answers only to some coordinators; run with --key"
        elif text not in by_job:  # which the coordinator says
            yield f"by its policy: {rule}: {text}"
    for why in _said_by(_check_budget, planned, ledger, source.dataset, _caps(source)):
        again = ""
        if job.privacy.placement is Placement.SITE:  # the records tell, which are not read here
            again = ", unless it is what was released before"
        yield f"by its budget{again}: {why}"


def _check_budget(planned: Planned, ledger: Ledger, dataset: str, caps: Sequence[Cap] = ()) -> None:
    """Ask a ledger for all that the run would cost."""
    private = planned.private
    mechanisms = [] if private is None else private.mechanisms.values()
    costs = [m.cost() for m in mechanisms for _ in range(m.rounds)] or [EXACT]
    adjacency = None if private is None else private.terms.adjacency
    ledger.check_costs(dataset, costs, caps, planned.job.privacy.delta or 0.0, adjacency)


def _budgets(planned: Planned) -> list[dict[str, Any]]:
    """Return, for each cap of each site, what is spent and what one more job may claim."""
    found = []
    for source in planned.sources.values():
        name, dataset = source.name, source.dataset
        with closing(_opened(source)) as ledger:
            found += [
                {"site": name, "dataset": dataset, **under(cap, ledger, dataset)}
                for cap in (*ledger.caps(dataset), *_caps(source))
            ]
    return found


def _caps(source: SiteSource) -> tuple[Cap, ...]:
    return () if source.policy.budget is None else source.policy.budget.caps


def _opened(source: SiteSource) -> Ledger:
    """Return a site's ledger; an empty one where there is none yet, since a plan makes no file."""
    there = source.ledger is not None and source.ledger.exists()
    return open_ledger(source.ledger if there else None)


def _dry_run(planned: Planned) -> list[tuple[int, int, int]]:
    """Return (messages, bytes, most bytes that one site sends) of a round of each stage in order.

    The last ones are of the set-up.
    """
    zeros = _Zeros(planned.method)
    lenient = policy_of(ReleasePolicy(min_sites=2, min_records=1))
    sources = {n: replace(s, policy=lenient) for n, s in planned.sources.items()}
    release = planned.job.release.model_copy(update={"min_sites": 2, "min_records": 1})
    job = planned.job.model_copy(update={"release": release})
    public = replace(planned.public, noise={})  # which could make the zeros look like no records
    played = replace(planned, method=zeros, sources=sources, job=job, public=public)
    session = open_session(played, system_random, stand_in=_no_rows(public))
    step = session.coordinator.start()
    while not step.done:
        frames = session.engine.exchange(step.requests)
        step = session.coordinator.advance(step.state, frames)
    setup = {phase.name for phase in (CONSENT, *planned.protocol.setup)}
    table: Mapping[bool, dict[int, list[Delivery]]] = {True: {}, False: {}}
    for delivery in session.engine.transcript:
        table[delivery.phase in setup].setdefault(delivery.round, []).append(delivery)
    rounds = [table[False].get(i, []) for i in range(len(planned.plans.plans))]
    setups = [delivery for found in table[True].values() for delivery in found]
    return [_counts(found, planned.public.sites) for found in (*rounds, setups)]


def _counts(found: Sequence[Delivery], sites: Sequence[str]) -> tuple[int, int, int]:
    sent = {name: sum(d.size for d in found if d.sender == name) for name in sites}
    return len(found), sum(d.size for d in found), max(sent.values())


def _no_rows(public: PublicFacts) -> SiteRecords:
    """Return one record of zeros in place of a site's data."""
    return SiteRecords(np.zeros((1, len(public.variables))), 0, np.zeros(len(public.columns)))
