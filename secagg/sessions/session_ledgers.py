"""The guards of the sites and the ledger of the coordinator, in one session.

A site's guard (`secagg.privacy.policy.guard`) has the job as the site's own process read it, and
the site's own policy and ledger. The coordinator's ledger has no seeds of noise. Before the
coordinator uses a released sum, it records the sites and the cost of the sum there. It requests no
sum that would, combined with earlier sums, reveal the sum of fewer sites than the job's
`min_sites`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from secagg.contracts import ChosenWeights, MethodFacts, MomentsOnly, SiteRecords, Stage
from secagg.contracts.noise import SITE_MOMENTS, Placement
from secagg.core import canonical_encoding
from secagg.core.hash_chain_log import canonical_json
from secagg.core.identity import Roster
from secagg.core.randomness import RandomBytes, system_random
from secagg.core.ring import RingVector
from secagg.errors import UsageError
from secagg.jobs.data_sources import SiteSource, as_policy, ledger_name
from secagg.jobs.design_matrix import declarations
from secagg.jobs.job import Job
from secagg.jobs.partial_columns import lacked_by
from secagg.jobs.typical_ranges import reach
from secagg.privacy.accounting.calibration import EXACT, Calibrated
from secagg.privacy.accounting.terms import Terms
from secagg.privacy.ledger.ledger import Ledger
from secagg.privacy.ledger.records import RECORD, Cohort, Release
from secagg.privacy.policy.exact_numbers import NO_NUMBERS, PlannedNumbers, variables_of
from secagg.privacy.policy.guard import Guard
from secagg.privacy.policy.job_rules import PolicyRequest, parameters
from secagg.privacy.policy.questions import Declarations, Question
from secagg.privacy.policy.release_rules import check_cohort
from secagg.sessions.rounds import COHORT

ALL_SITES = "all sites"
"""The dataset name in the coordinator's ledger: the records of all sites."""


def open_ledger(path: Path | None) -> Ledger:
    """Open a party's ledger, and create it if it does not exist; without a path, in memory."""
    if path is None:
        return Ledger.in_memory(_now)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        advice = "Set sites.ledgers to a folder that secagg may write to."
        raise UsageError(
            str(path.parent), f"cannot be created ({error.strerror})", advice
        ) from None
    return Ledger.open(path, create=True, now=_now)


def _now() -> datetime:
    return datetime.now(UTC)


def make_guard(
    job: Job, facts: MethodFacts, stages: Sequence[Stage], private: Calibrated | None,
    source: SiteSource, roster: Roster, session: bytes, random: RandomBytes,
    reread: Callable[[Question], SiteRecords],
) -> Guard:  # fmt: skip
    """Return a site's guard.

    stages: those of the method
    reread: reads the site's records again, as an earlier exact job asked for them
    """
    key, replayable = roster.parties[roster.coordinator].verify_key, random is not system_random
    terms = None if private is None or replayable else private.terms
    request = contribution_request(job, facts, stages, source, key, terms)
    return Guard(
        session.hex(), source.dataset, source.policy, request, private,
        functools.partial(open_ledger, source.ledger), query_digest(job, facts, private),
        bytes.fromhex(job_digest(job)), replayable, reread,
    )  # fmt: skip


def contribution_request(
    job: Job, facts: MethodFacts, stages: Sequence[Stage], source: SiteSource, key: bytes,
    terms: Terms | None,
) -> PolicyRequest:  # fmt: skip
    """Return the request of a job to a site, without the cohort.

    facts, stages: those of the method; key: the coordinator's signing key
    terms: None without noise, or if other parties can draw the same noise again
    """
    lacked, question, rules = lacked_by(job, source.name), None, as_policy(job.release)
    columns = declarations({n: each for n, each in job.columns.items() if n not in lacked})
    if job.privacy.placement is Placement.NONE:
        held = max(stages, key=lambda stage: stage.held_out)
        question = Question(
            columns, job.sites.max_rows, source.policy.min_records or 0,
            held.held_out, held.held_out_rows, _powers(stages), job.privacy.person,
        )  # fmt: skip
    weights = facts.weights
    return PolicyRequest(
        site=source.name,
        coordinator_key=key,
        method=job.method.name,
        columns=columns,
        protocol=job.protocol.name,
        parameters=_parameters(facts, stages, columns),
        cohort=(),
        few_records=min((s.few_records for s in stages if s.few_records), default=0),
        few_sites=min((s.few_sites for s in stages if s.few_sites), default=0),
        counting=True,
        terms=terms,
        question=question,
        person=job.privacy.person,
        min_cell_records=rules.min_cell_records or 1,
        min_level_sites=rules.min_level_sites or 1,
        same_sites=any(name in job.columns for name in job.partial),
        chosen_weights=weights.reason if isinstance(weights, ChosenWeights) else "",
        numbers=NO_NUMBERS if question is None else planned_numbers(job, facts, stages),
    )


def planned_numbers(job: Job, facts: MethodFacts, stages: Sequence[Stage]) -> PlannedNumbers:
    """Return the exact numbers of a job beyond moments. stages: those of the method."""
    asks = canonical_encoding.digest(
        [query_digest(job, facts, None), canonical_json(job.agreed["method"])]
    )
    return PlannedNumbers.of(facts, stages, asks.hex())


def _parameters(facts: MethodFacts, stages: Sequence[Stage], columns: Declarations) -> int:
    """Return the number of parameters; of functions of moments, at most that of the moments."""
    every = parameters(stages)
    if not facts.moments_only:
        return every
    return min(every, sum(map(variables_of, columns.values())) + 1)


def _powers(stages: Sequence[Stage]) -> dict[str, int]:
    """Return the highest power of each variable in any sum."""
    found: dict[str, int] = {}
    for stage in stages:
        for name, power in stage.powers.items():
            found[name] = max(power, found.get(name, 1))
    return found


def request_before_data(
    job: Job, facts: MethodFacts, stages: Sequence[Stage], source: SiteSource, ledger: Ledger,
    sites: tuple[str, ...], key: bytes, private: Calibrated | None,
) -> PolicyRequest:  # fmt: skip
    """Return the request that a site will decide on before a run, as its ledger stands now."""
    answers = ledger.answers(source.dataset, source.policy.refusal_days)
    terms = None if private is None else private.terms
    request = contribution_request(job, facts, stages, source, key, terms)
    return replace(
        request,
        cohort=sites,
        earlier=tuple(known.sites for known in ledger.cohorts(source.dataset)),
        asked=tuple(Question.of(each.question) for each in ledger.questions(source.dataset, "")),
        refusals=len(answers.refused),
        unreleased=len(answers.unreleased - {job_digest(job)}),
        released_numbers=ledger.numbers(source.dataset, "").other_jobs(request.numbers.job),
    )


def job_digest(job: Job) -> str:
    """Return a digest of the agreed job, in hexadecimal: what an exact job asks of the records."""
    return canonical_encoding.digest(canonical_json(job.agreed)).hex()


def query_digest(job: Job, facts: MethodFacts, private: Calibrated | None) -> bytes:
    """Return a digest of all that determines a contribution, except its spec and the message.

    Two jobs with the same digest may have the same noise, so whatever can change a contribution is
    part of it: also the method's settings, such as the tables that are counted. Only a method that
    releases the moments of all columns has no settings that matter here.

    facts: of the method; private: under noise once at the site, whose moments serve all methods,
        the method's name is not part of it either
    """
    # A column's unit is for the reader of a report only.
    columns = [
        [name, column.model_dump(mode="json", exclude={"unit"})]
        for name, column in job.columns.items()
    ]
    privacy = job.privacy
    unit: list[Any] = [privacy.record_norm, privacy.person, privacy.records_per_person]
    if privacy.person_norm is not None:
        unit.append(privacy.person_norm)
    if private is not None and private.terms.unit == "event":
        unit.append(["event", private.terms.records])
    if (k := reach(job)) is not None:  # with another limit of records, noise must be another
        unit.append(["reach", k])
    method: Any = canonical_json(job.agreed["method"])
    if isinstance(facts.reads, MomentsOnly) and facts.reads.released:
        method = job.method.name
    if _once_at_site(private):
        method = ""
    return canonical_encoding.digest([method, columns, unit])


def _once_at_site(private: Calibrated | None) -> bool:
    return private is not None and SITE_MOMENTS in private.mechanisms


@dataclass(eq=False)
class CoordinatorLedger:
    """The coordinator's ledger in one session; it is open from the first release on.

    path: of the ledger; None if releases are not recorded
    earlier: the cohorts of all releases before this session
    recorded: stage and sites of each entry of this session, which may be resumed
    """

    job: Job
    facts: MethodFacts
    private: Calibrated | None
    stages: Mapping[str, Stage]
    session: str
    path: Path | None
    earlier: tuple[frozenset[str], ...]
    recorded: set[tuple[str, frozenset[str]]] = field(default_factory=set)
    _ledger: Ledger | None = field(default=None, init=False)

    @classmethod
    def of(
        cls,
        job: Job,
        facts: MethodFacts,
        private: Calibrated | None,
        stages: Mapping[str, Stage],
        session: bytes,
        folder: Path | None,
    ) -> CoordinatorLedger:
        """Read the coordinator's ledger in this folder, if it exists."""
        path = None if folder is None else folder / ledger_name("coordinator")
        earlier: tuple[frozenset[str], ...] = ()
        recorded: set[tuple[str, frozenset[str]]] = set()
        if path is not None and path.exists():
            with closing(open_ledger(path)) as ledger:
                earlier = tuple(cohort.sites for cohort in ledger.cohorts(ALL_SITES))
                recorded = {
                    (line.content["stage"], frozenset(line.content["cohort"]))
                    for line in ledger.history(ALL_SITES)
                    if line.kind == "entry" and line.session == session.hex()
                }
        return cls(job, facts, private, stages, session.hex(), path, earlier, recorded)

    def check_budget(self) -> None:
        """Check that the whole run fits the coordinator's own caps. Raises `PolicyRefusal`.

        With placement `site` there is no check: noise that a site drew before costs nothing, and
        only the sums show whether that is the case.
        """
        job, private = self.job, self.private
        if self.path is None or not self.path.exists() or job.privacy.placement is Placement.SITE:
            return
        terms = None if private is None else private.terms
        costs = [EXACT]
        if private is not None:
            costs = [m.cost() for m in private.mechanisms.values() for _ in range(m.rounds)]
        delta, adjacency = (0.0, None) if terms is None else (terms.delta, terms.adjacency)
        self._open().check_costs(ALL_SITES, costs, (), delta, adjacency)

    def record_release(self, event: Mapping[str, Any], total: RingVector) -> None:
        """Record a release before its sum is stored or used. Raises `PolicyRefusal`.

        With placement `site`, the same sum with the same noise reveals nothing new and costs
        nothing. If sites drew noise for their moments, the count has the cost of these: it contains
        their noise, so it is the same only if they drew no other. Sums without noise of their own
        cost as much as the first of their stage, or nothing, and cover the same sites. So only the
        first is recorded, as by the sites.
        """
        stage, cohort = self.stages[event["stage"]], tuple(event["contributors"])
        paid = stage.name
        if stage.name == COHORT and _once_at_site(self.private):
            paid = SITE_MOMENTS
        noise = None
        if self.private is not None and paid in self.private.mechanisms:
            noise = self.private.mechanisms[paid].noise
        covered = stage.name, frozenset(cohort)
        if self.path is None or (noise is None and covered in self.recorded):
            return
        privacy = self.job.privacy
        release = Release(
            party="coordinator",
            dataset=ALL_SITES,
            session=self.session,
            round=event["round"],
            stage=stage.name,
            query=query_digest(self.job, self.facts, self.private).hex(),
            placement=privacy.placement,
            cost=EXACT if self.private is None else self.private.cost(paid),
            delta=privacy.delta or 0.0,
            cohort=cohort,
            records=canonical_encoding.digest(total).hex(),
            variance=0 if noise is None else noise.variance,
            fraction_bits=stage.spec[0].fraction_bits,
            adjacency=privacy.adjacency if self.private is not None else None,
            unit=RECORD if self.private is None else self.private.terms.unit,
        )
        self._open().record_release(release, compare=functools.partial(self._compare, cohort))
        self.recorded.add(covered)

    def close(self) -> None:
        """Close the ledger."""
        if self._ledger is not None:
            self._ledger.close()
            self._ledger = None

    def _open(self) -> Ledger:
        if self._ledger is None:
            self._ledger = open_ledger(self.path)
        return self._ledger

    def _compare(self, cohort: Sequence[str], earlier: Sequence[Cohort]) -> None:
        sites = [each.sites for each in earlier]
        check_cohort(as_policy(self.job.release), "coordinator", cohort, sites)
