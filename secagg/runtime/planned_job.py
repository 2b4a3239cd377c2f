"""A job that is planned: its sums are proved to fit before any record is read."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from secagg.contracts import HasSiteResult, Method, PublicFacts, SecureSum, Stage
from secagg.contracts.noise import Placement
from secagg.core.hash_chain_log import canonical_json
from secagg.core.identity import COORDINATOR, Role, Roster
from secagg.core.version import __version__
from secagg.errors import CapabilityError, DataError, JobError
from secagg.jobs.data_sources import Data, SiteSource, find_sites
from secagg.jobs.design_matrix import public_facts
from secagg.jobs.job import Job
from secagg.jobs.registry import make_method, make_protocol, settings_of
from secagg.privacy.accounting.calibration import Calibrated, calibrate
from secagg.runtime.rounds import StagePlans, declared_stages, plan_stages


@dataclass(frozen=True)
class Planned:
    """A job that has been proved to fit, before any record was read."""

    job: Job
    sources: dict[str, SiteSource]
    public: PublicFacts
    method: Method
    protocol: SecureSum
    plans: StagePlans
    private: Calibrated | None = None
    """the mechanisms of differential privacy, where the job asks for it"""


def plan_job(job: Job, data: Data | None = None) -> Planned:
    """Find the sites by name and prove that every sum fits. Raises `UsageError`s."""
    if job.engine.name == "processes":
        _check_apart(job, data)
    sources = find_sites(job, data)
    return plan_sites(job, tuple(sources), sources)


def plan_sites(job: Job, names: tuple[str, ...], sources: Mapping[str, SiteSource]) -> Planned:
    """Prove that every sum over these sites fits; `sources` are those that this process reads."""
    method, protocol = make_method(job.method), make_protocol(job.protocol)
    taken = set(names) & {COORDINATOR, *(name for name, _ in protocol.parties())}
    if taken:
        raise DataError("sites", f"no site may be called {min(taken)!r}", "Rename its file.")
    if job.simulation.site_alone and isinstance(method, HasSiteResult):
        what = f"{method.name} tells what sites have in common, which one site alone does not know"
        advice = "Leave it out: what each site finds for itself is in its own result."
        raise JobError("simulation.site_alone", what, advice)
    public = public_facts(job, names)
    private = _calibrate(job, declared_stages(method, public), protocol, len(names))
    if private is not None:
        noise = {name: mechanism.noise for name, mechanism in private.mechanisms.items()}
        public = replace(public, noise=noise)
    plans = plan_stages(method, public, protocol.capabilities.ring_bits)
    return Planned(job, dict(sources), public, method, protocol, plans, private)


def _calibrate(
    job: Job, stages: Sequence[Stage], protocol: SecureSum, sites: int
) -> Calibrated | None:
    terms = job.privacy.terms()
    if terms is None:
        return None
    if job.simulation.site_alone:
        advice = "Add --set simulation.site_alone=false."
        raise JobError("simulation.site_alone", "shows each site's results without noise", advice)
    if job.release.min_sites is None or job.release.min_records is None:
        unset = "min_sites" if job.release.min_sites is None else "min_records"
        raise JobError(f"release.{unset}", "is not set, and the noise is sized by it", "Set it.")
    # Whoever sees one contribution sees it with that site's share of the noise only. (All but one
    # colluding, that share is all of it, and they can subtract theirs from the sum anyway.)
    if (
        terms.placement is not Placement.SITE
        and protocol.capabilities.hides_from_coordinator
        and protocol.max_colluding(sites) < terms.colluding < sites - 1
    ):
        raise CapabilityError(
            "privacy.colluding",
            f"is {terms.colluding}, and protocol {protocol.name!r}: "
            f"{protocol.guarantee_text(sites)}",
            "Lower it, or take another protocol or placement 'site'.",
        )
    least = job.release.min_sites
    expected = max(job.privacy.expected_records or 0, least * job.release.min_records)
    return calibrate(terms, stages, least, expected, protocol.capabilities.hides_from_coordinator)


def _check_apart(job: Job, data: Data | None) -> None:
    """Refuse what would need all records in one process. Raises `JobError`."""
    advice = 'Leave it out, or take engine "memory".'
    if data is not None:
        raise JobError("data", "is in this process, and a site's process reads its own", advice)
    if job.simulation.site_alone:
        advice = 'Add --set simulation.site_alone=false, or take engine "memory".'
        raise JobError("simulation.site_alone", "reads all sites' records in one process", advice)


def roles(planned: Planned) -> dict[str, Role]:
    """Return every party of the session but the coordinator."""
    return dict.fromkeys(planned.public.sites, Role.SITE) | dict(planned.protocol.parties())


def session_of(planned: Planned, roster: Roster, nonce: bytes) -> bytes:
    """Return the name of the session in which these parties agree to this."""
    return session_name(roster, nonce, agreement(planned))


def agreement(planned: Planned) -> dict[str, Any]:
    """Return, as plain data for JSON, what the parties agree to before any record is read."""
    return {
        "secagg": __version__,
        "job": planned.job.model_dump(mode="json"),
        "method": {"name": planned.method.name, "settings": settings_of(planned.method)},
        "protocol": {"name": planned.protocol.name, "settings": settings_of(planned.protocol)},
        "plan": plan_facts(planned.plans),
    }


def plan_facts(plans: StagePlans) -> list[dict[str, Any]]:
    """Return, for each stage, the bounds and the bits they were proved to fit in."""
    return [
        {
            "stage": name,
            "sees": plans.stages[name].sees,
            "max_rounds": plans.stages[name].max_rounds,
            "sites": plan.sites,
            "ring_bits": plan.ring_bits,
            "sum_bits": plan.sum_bits,
            "values": plan.length,
            "fields": [
                {"name": p.field.name, "kind": p.field.kind.value, "values": p.field.size,
                 "bound": p.field.bound, "fraction_bits": p.field.fraction_bits,
                 "sum_bits": p.sum_bits, "noise_tail": p.tail}
                for p in plan.fields
            ],
        }
        for name, plan in plans.plans.items()
    ]  # fmt: skip


def session_name(roster: Roster, nonce: bytes, agreed: Mapping[str, Any]) -> bytes:
    """Return the session's name; `agreed` is an `agreement`, or the same as read from a log."""
    return roster.session(nonce, hashlib.sha256(canonical_json(agreed)).digest())
