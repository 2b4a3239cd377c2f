"""A job with its plan: the public bounds show that no sum overflows, before data is read."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from secagg.contracts import (
    Kind,
    Method,
    MethodFacts,
    MomentsOnly,
    PublicFacts,
    SecureSum,
    SingleRecords,
    Stage,
    Windows,
    facts_of,
)
from secagg.contracts.noise import Clip, Placement
from secagg.core.hash_chain_log import canonical_json
from secagg.core.identity import COORDINATOR, Role, Roster, alike
from secagg.core.version import __version__
from secagg.errors import CapabilityError, DataError, JobError, PolicyRefusal
from secagg.jobs.data_sources import Data, SiteSource, find_sites
from secagg.jobs.design_matrix import public_facts
from secagg.jobs.job import Job
from secagg.jobs.partial_columns import check_partial
from secagg.jobs.privacy import expected_in_scaled_units
from secagg.jobs.registry import make_method, make_protocol, settings_of
from secagg.privacy.accounting.calibration import Calibrated, calibrate
from secagg.privacy.accounting.terms import Terms
from secagg.privacy.policy.named_sites import NamedSites
from secagg.privacy.policy.site_policy import ANY_MODULE
from secagg.sessions.countersignatures import EVIDENCE
from secagg.sessions.rounds import StagePlans, declared_stages, of_unit, plan_stages
from secagg.sessions.site_moments import site_moments_stage


@dataclass(frozen=True)
class Planned:
    """A job whose sums were shown to fit, from public bounds."""

    job: Job
    sources: dict[str, SiteSource]
    public: PublicFacts
    method: Method
    protocol: SecureSum
    plans: StagePlans
    private: Calibrated | None = None
    """the mechanisms for differential privacy, if the job requests it"""

    @cached_property
    def facts(self) -> MethodFacts:
        """The facts of the method."""
        return facts_of(self.method)

    @property
    def named(self) -> NamedSites | None:
        """The sites that the job names; None if it names none."""
        return named_sites(self.job)

    @property
    def job_sites(self) -> int:
        """The number of sites that thresholds are for (`secagg.contracts.Context.job_sites`)."""
        return len(self.job.sites.names or self.public.sites)

    @property
    def in_numbers(self) -> str:
        """How many sites may collude and be missing, in the smallest session that is allowed."""
        text, named = self.protocol.guarantee_text(self.job_sites), self.named
        if named is None:
            return text
        if named.fewest == self.job_sites:
            return f"{text}; every sum of this job covers all {self.job_sites} sites"
        return (
            f"{text}; a session may leave out sites in whole groups, down to {named.fewest} of "
            f"{self.job_sites}, and withstands as many colluding sites"
        )


def plan_job(job: Job, data: Data | None = None) -> Planned:
    """Find the sites by name and check that every sum fits. Raises `UsageError`."""
    if job.engine.name == "processes":
        _check_processes(job, data)
    sources = find_sites(job, data)
    return plan_sites(job, tuple(sources), sources)


def plan_sites(job: Job, names: tuple[str, ...], sources: Mapping[str, SiteSource]) -> Planned:
    """Check that every sum over these sites fits; `sources` are those that this process reads."""
    method, protocol = make_method(job.method), make_protocol(job.protocol)
    others = (COORDINATOR, *(name for name, _ in protocol.parties()))
    if pair := alike((*others, *names)):
        what = f"a site cannot have the name {pair[1]!r}, beside {pair[0]!r}"
        raise DataError("sites", what, "Rename it.")
    facts = facts_of(method)
    if job.simulation.site_alone and facts.site_result is not None:
        what = f"method {method.name!r} needs several sites, and one site alone has no result"
        advice = "Remove this setting: each site's own result has its own estimates."
        raise JobError("simulation.site_alone", what, advice)
    check_partial(job, names, analysed=facts.partial_columns)
    if job.public is not None and not facts.public_records:
        what = f"method {method.name!r} has no use for public records"
        raise JobError("public", what, "Leave out the table [public], or use fedngm.")
    protocol.guarantee_text(len(job.sites.names or names))  # or it has no thresholds for so many
    _check_named_code(facts, sources)
    expected_in_scaled_units(job.privacy.expected_columns, public_facts(job, names).variables)
    public = replace(public_facts(job, names), site_moments=_uses_site_moments(job, method, facts))
    stages = declared_stages(method, public)
    if public.site_moments:
        stages = (of_unit(site_moments_stage(public, job.privacy.count_share), public),)
    _check_person_norm(job, stages, public.clip)
    private = _calibrate(job, method, facts, stages, protocol, len(job.sites.names or names))
    if private is not None:
        noise = {name: mechanism.noise for name, mechanism in private.mechanisms.items()}
        public = replace(public, noise=noise)
    plans = plan_stages(method, public, protocol.capabilities.ring_bits)
    return Planned(job, dict(sources), public, method, protocol, plans, private)


def _check_named_code(facts: MethodFacts, sources: Mapping[str, SiteSource]) -> None:
    """Refuse code that a site's policy does not list, before it is imported: `PolicyRefusal`."""
    for name, source in sources.items():
        allowed = source.policy.modules
        for path in facts.named_code if ANY_MODULE not in allowed else ():
            if path not in allowed:
                what = f"the job names the code {path!r}, which this site's policy does not list"
                advice = "If its author is trusted: add it to `modules` in the site's policy."
                raise PolicyRefusal(name, what, advice)


def _uses_site_moments(job: Job, method: Method, facts: MethodFacts) -> bool:
    """Return whether sites work with noisy moments. Raises `CapabilityError` if they cannot."""
    reads = facts.reads
    own_noise = (
        not reads.noise_at_site
        if isinstance(reads, MomentsOnly)
        else not reads.moments_with_other_settings
    )
    if job.privacy.placement is Placement.NONE or own_noise:
        return False
    where = "privacy.placement"
    if job.privacy.placement is not Placement.SITE:
        what = f"{job.privacy.placement.value!r} is noise in sums, whose rounds build on each other"
        raise CapabilityError(where, f"{what} in method {method.name!r}", "Use 'site'.")
    if isinstance(reads, SingleRecords):
        what = f"noise at the site is for methods that need moments only, and {method.name!r}"
        advice = method.placements.instead or (
            "Change this setting, or take another method: `secagg list methods --privacy` shows "
            "where noise is possible. Without [privacy], no noise protects single records."
        )
        raise CapabilityError(where, f"{what} {reads.reason}", advice)
    return True


def _check_person_norm(job: Job, stages: Sequence[Stage], clip: Clip | None) -> None:
    """Refuse a limit that would scale records down without less noise, or scale none down.

    A limit without effect would also be a question of its own, so the site would draw new noise
    and be charged again. Raises `JobError`.
    """
    if clip is None or clip.person_square is None:
        return
    where, records = "privacy.person_norm", clip.records_per_person
    if not any(field.kind is Kind.PSD and s.sensitivity for s in stages for field in s.spec):
        what = f"is for noise in moments, and method {job.method.name!r} clips single records"
        raise JobError(where, what, "Remove it, or lower records_per_person.")
    largest = records * clip.squared_norm
    if clip.person_square >= largest:
        reach = f"{math.sqrt(largest):.4g}"
        several = f"{records} records" if records > 1 else "one record"
        what = (
            f"{job.privacy.person_norm:g} has no effect: the norm of a record is at most "
            f"{clip.norm:.4g}, so {several} of a person reach at most {reach}"
        )
        raise JobError(where, what, f"Set it below {reach}, or remove it.")


def _terms(job: Job, windows: Windows) -> Terms | None:
    """Return the terms of the guarantee, whose unit is an event if records are windows.

    Raises `JobError` if a column is not part of the windows: it might have the values of other
    steps, so an event might be in more records than the method knows.
    """
    terms = job.privacy.terms()
    if terms is None or terms.person is not None:
        return terms
    if windows.steps > 1 and windows.columns is not None:
        used = windows.columns | {name.partition("=")[0] for name in windows.columns}
        for column in job.columns:
            if column not in used:
                what = f"{column!r} is neither in method.variables nor in method.lags"
                raise JobError("columns", what, "Remove it, or set privacy.person to the series.")
    return replace(terms, records=windows.steps)


def _calibrate(
    job: Job, method: Method, facts: MethodFacts, stages: Sequence[Stage], protocol: SecureSum,
    sites: int,
) -> Calibrated | None:  # fmt: skip
    terms = _terms(job, facts.windows)
    if terms is None:
        return None
    if job.simulation.site_alone:
        advice = "Add --set simulation.site_alone=false."
        raise JobError("simulation.site_alone", "prints each site's results without noise", advice)
    if job.release.min_sites is None or job.release.min_records is None:
        unset = "min_sites" if job.release.min_sites is None else "min_records"
        raise JobError(f"release.{unset}", "is not set, and the noise depends on it", "Set it.")
    # A party that sees one contribution sees it with only that site's share of the noise. (If all
    # other sites collude, this share is all of the noise; and they can subtract their own
    # contributions from the sum anyway.)
    if (
        terms.placement is not Placement.SITE
        and protocol.capabilities.hides_from_coordinator
        and protocol.max_colluding(sites) < terms.colluding < sites - 1
    ):
        raise CapabilityError(
            "privacy.colluding",
            f"is {terms.colluding}, and protocol {protocol.name!r}: "
            f"{protocol.guarantee_text(sites)}",
            "Lower it, or use another protocol or placement 'site'.",
        )
    min_sites = job.release.min_sites
    expected = max(job.privacy.expected_records or 0, min_sites * job.release.min_records)
    hides = protocol.capabilities.hides_from_coordinator
    return calibrate(terms, stages, min_sites, expected, hides, method.placements)


def _check_processes(job: Job, data: Data | None) -> None:
    """Refuse settings that need all records in one process. Raises `JobError`."""
    if data is not None:
        advice = 'Leave out `data`, or use engine "memory".'
        raise JobError("data", "engine 'processes' reads records from files only", advice)
    if job.simulation.site_alone:
        advice = 'Add --set simulation.site_alone=false, or use engine "memory".'
        raise JobError(
            "simulation.site_alone", "needs the records of all sites in one process", advice
        )


def roles(planned: Planned) -> dict[str, Role]:
    """Return every party of the session except the coordinator, with its role."""
    return dict.fromkeys(planned.public.sites, Role.SITE) | dict(planned.protocol.parties())


def named_sites(job: Job) -> NamedSites | None:
    """Return the sites that the job names, and which of them may be left out; None without names.

    Raises `JobError` if the protocol has no thresholds for this number of sites.
    """
    names, together = job.sites.names, job.release.min_sites
    if names is None:
        return None
    least = max(2, make_protocol(job.protocol).least_sites(len(names)), together or 2)
    return NamedSites.of(names, together if job.sites.lost == "leave_out" else None, least)


def roster_fault(
    roster: Roster, sites: Collection[str], protocol: SecureSum, *, others: bool = False
) -> str:
    """Return why a roster does not have the parties of a session; nothing if it does.

    sites: of the session; others: whether further parties may be in it, as in a pinned roster
    """
    needed = {COORDINATOR: Role.COORDINATOR, **dict.fromkeys(sites, Role.SITE)}
    needed |= dict(protocol.parties())
    for name, role in needed.items():
        party = roster.parties.get(name)
        if party is None or party.role is not role:
            return f"has no {role.value} {name!r}"
    further = sorted(roster.parties.keys() - needed.keys())
    return "" if others or not further else f"has {further[0]!r}, which the job does not name"


def may_be_sites(sites: Collection[str], job: Job) -> bool:
    """Return whether a session of a job over a network may have these sites."""
    named = named_sites(job)
    return named is not None and not named.fault(sites)


def session_of(planned: Planned, roster: Roster, nonce: bytes) -> bytes:
    """Return the name of the session in which these parties agree to this plan."""
    return session_name(roster, nonce, agreement(planned))


def agreement(planned: Planned) -> dict[str, Any]:
    """Return the agreement of the parties, before data is read, as plain data for JSON."""
    return {
        "secagg": __version__,
        "evidence": EVIDENCE,
        "job": planned.job.agreed,
        "method": {"name": planned.method.name, "settings": settings_of(planned.method)},
        "protocol": {"name": planned.protocol.name, "settings": settings_of(planned.protocol)},
        "plan": plan_facts(planned.plans),
        **_tolerance(planned),
    }


def _tolerance(planned: Planned) -> dict[str, Any]:
    """Return what each session of a job that names its sites withstands; nothing without names."""
    named = planned.named
    if named is None:
        return {}
    count = len(named.names)
    tolerance = {
        "named": count, "colluding": planned.protocol.max_colluding(count),
        "fewest": named.fewest, "groups": [list(group) for group in named.groups],
    }  # fmt: skip
    return {"tolerance": tolerance}


def plan_facts(plans: StagePlans) -> list[dict[str, Any]]:
    """Return the bounds of each stage, and the numbers of bits that its sums need."""
    return [
        {
            "stage": name,
            "sees": plans.stages[name].sees,
            "max_rounds": plans.stages[name].max_rounds,
            "sites": plan.sites,
            "ring_bits": plan.ring_bits,
            "sum_bits": plan.sum_bits,
            "values": plan.length,
            **_where_noise_is(plans.stages[name]),
            "fields": [
                {"name": p.field.name, "kind": p.field.kind.value, "values": p.field.size,
                 "bound": p.field.bound, "fraction_bits": p.field.fraction_bits,
                 "sum_bits": p.sum_bits, "noise_tail": p.tail}
                for p in plan.fields
            ],
        }
        for name, plan in plans.plans.items()
    ]  # fmt: skip


def _where_noise_is(stage: Stage) -> dict[str, Any]:
    """Return how a stage is private if not by noise in its sum; nothing for all others."""
    if not stage.reads_records:
        return {"reads_records": False}
    return {} if stage.training is None else {"trains_at_sites": True}


def session_name(roster: Roster, nonce: bytes, agreed: Mapping[str, Any]) -> bytes:
    """Return the session's name; `agreed` is an `agreement`, or one read from a log."""
    return roster.session(nonce, hashlib.sha256(canonical_json(agreed)).digest())
