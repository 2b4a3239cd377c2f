"""`secagg plan`: what a run would do and send, from public numbers, before any record is read.

The file names give the sites, and the headers of the files say whether the declared columns exist.
If the job splits one table (a simulation), only the site column of the table is read. To warn about
copies of a file, the lines of the files are compared on this computer
(`secagg.jobs.headers_and_copies`).

Bits come from the same proof as in a run. Messages and bytes are measured: the session runs once
with contributions of zeros in place of the sites' records, one round for each stage, and the frames
are counted. Sizes depend on shapes only, so a real round sends as much, up to the few bytes by
which its integers are longer.

Available policies and ledgers are checked for refusals, and nothing is written to them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from secagg.contracts import (
    ASKED_ONCE,
    NO_WINDOWS,
    Body,
    Disclosure,
    DisclosureKind,
    EqualWeights,
    Method,
    MethodFacts,
    MomentsOnly,
    PublicFacts,
    RecordCount,
    Result,
    ResultTable,
    SiteRecords,
    Stage,
    State,
    Update,
)
from secagg.contracts.noise import Placements
from secagg.core.frames import Delivery
from secagg.core.identity import COORDINATOR
from secagg.core.randomness import RandomBytes, system_random
from secagg.evidence.claims.disclosure import headline
from secagg.evidence.claims.guarantee import sentence
from secagg.evidence.claims.privacy import exact_sentence
from secagg.evidence.claims.warnings import EXACT_BEFORE, EXACT_STAYS
from secagg.evidence.feasibility.facts import prospect
from secagg.evidence.feasibility.mechanisms import compared
from secagg.evidence.planned_facts import method_facts, privacy_facts
from secagg.evidence.session_result import counted_variance
from secagg.jobs.data_sources import Data, SiteSource, as_policy
from secagg.jobs.headers_and_copies import check_files, check_headers
from secagg.jobs.job import Job, read_job
from secagg.jobs.site_tables import GivenTable
from secagg.privacy.policy.release_rules import ReleasePolicy
from secagg.privacy.policy.site_policy import policy_of
from secagg.runs.budgets import exact_releases
from secagg.runs.checks.earlier_draws import moments_drawn_before, new_ledgers
from secagg.runs.checks.expected_refusals import check_ledger_places, expected_refusals
from secagg.runs.checks.lost_rule import lost_rule_remarks
from secagg.runs.checks.planned_numbers import planned_numbers
from secagg.runs.ledger_facts import own_rules
from secagg.runs.planned_costs import planned_caps, planned_totals, sites_without_budget
from secagg.sessions.parties import open_coordinator_ledger
from secagg.sessions.planned_job import Planned, plan_facts, plan_job
from secagg.sessions.rounds import CONSENT
from secagg.sessions.session import open_session
from secagg.sessions.session_ledgers import ALL_SITES, open_ledger

_MANY_TIMES = 20
"""Records for each one that the release rules need, if the job does not say how many there are."""
_WARN_BYTES = 10**9
"""Bytes that one site sends in a run, beyond which a plan warns."""


@dataclass(frozen=True)
class _Zeros:
    """Replaces a method: the same stages, one round each, contributions of zeros.

    site_moments: as in the public facts of the method, whose stages may depend on it
    """

    method: Method
    site_moments: bool

    name: ClassVar[str] = "zeros"
    placements: ClassVar[Placements] = Placements((), "")
    title: ClassVar[str] = "zeros"
    disclosure: ClassVar[Disclosure] = Disclosure(DisclosureKind.POOLED, "nothing", ASKED_ONCE)
    facts: ClassVar[MethodFacts] = MethodFacts(
        derivation=__name__,
        weights=EqualWeights("Contributions are zeros."), reads=MomentsOnly(noise_at_site=False),
        windows=NO_WINDOWS, named_code=(), network=False, regression=None, edge_rule=None,
    )  # fmt: skip

    def tables(self, public: PublicFacts) -> tuple[ResultTable, ...]:
        return (ResultTable(self.title),)

    def stages(self, public: PublicFacts) -> tuple[Stage, ...]:
        return self.method.stages(replace(public, site_moments=self.site_moments))

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
    """Return bounds, bits, messages, bytes and refusals of a job, as plain data.

    key: the coordinator's public key, if it has one
    """
    check_headers(planned.job, planned.sources)
    check_ledger_places(planned)
    counts = _dry_run(planned)
    stages = plan_facts(planned.plans)
    for stage, (messages, size, sends) in zip(stages, counts, strict=False):  # last: the set-up
        stage |= {"messages_a_round": messages, "bytes_a_round": size}
        may_end_early = planned.plans.stages[stage["stage"]].ends_early and stage["max_rounds"] > 1
        all_run = planned.private is not None or not may_end_early
        stage |= {"bytes_at_most": stage["max_rounds"] * size, "all_run": all_run}
        stage |= {"a_site_sends_at_most": stage["max_rounds"] * sends}
    setup = counts[-1]
    drawn = moments_drawn_before(planned)
    certain, possible = expected_refusals(planned, key)
    sent_by_site = setup[2] + sum(stage["a_site_sends_at_most"] for stage in stages)
    return {
        "title": planned.job.title,
        "method": planned.method.name,
        "disclosure": method_facts(planned)["disclosure"],
        "protocol": planned.protocol.name,
        "in_numbers": planned.in_numbers,
        "sites": list(planned.public.sites),
        "release": planned.job.release.model_dump(),
        "own_rules": {
            name: rules
            for name, source in planned.sources.items()
            if (rules := own_rules(planned, source)) is not None
        },
        "refusals": certain,
        "possible_refusals": possible,
        "budgets": planned_caps(planned),
        "no_budget": sites_without_budget(planned),
        "totals": planned_totals(planned, drawn),
        "moments_drawn_before": drawn,
        "new_ledgers": new_ledgers(planned),
        "differential_privacy": _guarantee(planned),
        "exact_numbers": planned_numbers(planned),
        "warnings": [
            *_warnings(planned),
            *getattr(planned.method, "remarks", lambda _: ())(planned.public),
            *lost_rule_remarks(planned.job),
            *_public_records(planned),
            *_traffic_warning(sent_by_site),
            *(check_files(planned.job, planned.sources) if _all_here(planned) else ()),
        ],
        "a_site_sends_at_most": sent_by_site,
        "setup": {"messages": setup[0], "bytes": setup[1]},
        "stages": stages,
    }


def _all_here(planned: Planned) -> bool:
    """Whether all sites' records are on this computer."""
    return set(planned.sources) == set(planned.public.sites)


def _guarantee(planned: Planned) -> dict[str, Any]:
    """Return the guarantee if all sites take part, and whether the result will be usable."""
    facts = privacy_facts(planned, len(planned.public.sites))
    if facts is None:
        return {
            "placement": "none",
            "sentence": exact_sentence(planned.job.privacy.person),
        }
    return {
        **facts,
        "sentence": sentence(facts),
        "feasibility": prospect(planned, facts),
        "compared": compared(planned),
    }


def _warnings(planned: Planned) -> list[str]:
    """Return what a run would reveal, or which exact sums weaken its guarantee."""
    if planned.private is None:
        disclosed = headline(planned.method.disclosure.kind)
        return [disclosed, EXACT_STAYS] if disclosed else [EXACT_STAYS]
    ledgers = {source.name: (source.ledger, source.dataset) for source in planned.sources.values()}
    ledgers[COORDINATOR] = open_coordinator_ledger(planned, b"").path, ALL_SITES
    parties = []
    for party, (path, dataset) in ledgers.items():
        if path is not None and path.exists():
            with closing(open_ledger(path)) as ledger:
                parties += [party] if exact_releases(ledger.spent(dataset)) else []
    warnings = [f"{EXACT_BEFORE}, by the ledger of {', '.join(parties)}"] if parties else []
    return warnings + _noise_may_end_it(planned)


def _public_records(planned: Planned) -> list[str]:
    """Return how many public records the coordinator adds, if there are any."""
    records = planned.public.public_records
    if records is None:
        return []
    return [
        f"Public records: {len(records)}. The coordinator adds their loss to the training. They "
        "are part of the job, and every party can read them"
    ]


def _noise_may_end_it(planned: Planned) -> list[str]:
    """Return a warning if the noisy number of records may be too small for the release rules."""
    sites = len(planned.public.sites)
    deviation = math.sqrt(counted_variance(planned, sites))
    needed = as_policy(planned.job.release).thresholds(COORDINATOR)[2]
    expected = planned.job.privacy.expected_records
    if expected is None:
        expected = _MANY_TIMES * needed  # nobody says; only very much noise is named
    if expected - 2 * deviation >= needed:
        return []
    return [
        f"The number of records has noise with a standard deviation of {deviation:.0f}, and "
        f"the run needs {needed}. With a smaller noisy number it ends after the budget is spent, "
        "and with noise once at the sites it would end so again: use a larger epsilon or "
        "count_share"
    ]


def _traffic_warning(size: int) -> list[str]:
    """Return a warning if a site would send more than `_WARN_BYTES` in the whole run."""
    if size <= _WARN_BYTES:
        return []
    return [
        f"A site would send up to {size / 1e9:.3g} GB in all rounds together: use fewer columns, "
        "chains or rounds"
    ]


def _dry_run(planned: Planned) -> list[tuple[int, int, int]]:
    """Return (messages, bytes, largest number of bytes that one site sends) of a round.

    One tuple for each stage, in order, then one for the set-up.
    """
    zeros = _Zeros(planned.method, planned.public.site_moments)
    lenient = policy_of(ReleasePolicy(min_sites=2, min_records=1))
    elsewhere = {n: SiteSource(n, GivenTable(n, {}), lenient) for n in planned.public.sites}
    sources = elsewhere | {n: replace(s, policy=lenient) for n, s in planned.sources.items()}
    loose = {
        "min_sites": 2, "min_records": 1, "min_total_records": None,
        "min_cell_records": 1, "min_level_sites": 1,
    }  # fmt: skip
    release = planned.job.release.model_copy(update=loose)
    job = planned.job.model_copy(update={"release": release})
    # Noise could make the zeros look like no records.
    public = replace(planned.public, noise={}, site_moments=False)
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
    setups = [delivery for deliveries in table[True].values() for delivery in deliveries]
    return [_counts(deliveries, planned.public.sites) for deliveries in (*rounds, setups)]


def _counts(deliveries: Sequence[Delivery], sites: Sequence[str]) -> tuple[int, int, int]:
    sent = {name: sum(d.size for d in deliveries if d.sender == name) for name in sites}
    return len(deliveries), sum(d.size for d in deliveries), max(sent.values())


def _no_rows(public: PublicFacts) -> SiteRecords:
    """Return one record of zeros in place of a site's data."""
    return SiteRecords(np.zeros((1, len(public.variables))), 0, np.zeros(len(public.columns)))
