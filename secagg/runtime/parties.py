"""The parties of one session, and what each of them holds."""

from __future__ import annotations

import functools
from collections.abc import Callable

from secagg.contracts import PublicFacts, SiteRecords
from secagg.core.identity import Identity, Role, Roster
from secagg.core.randomness import RandomBytes
from secagg.jobs.data_sources import SiteSource, as_policy, ledger_folder
from secagg.jobs.design_matrix import read_rows
from secagg.runtime.coordinator import Coordinator
from secagg.runtime.party import Party, SiteContext
from secagg.runtime.planned_job import Planned
from secagg.runtime.rounds import COHORT
from secagg.runtime.session_ledgers import CoordinatorLedger, make_guard


def open_coordinator_ledger(planned: Planned, session: bytes) -> CoordinatorLedger:
    """Return the coordinator's ledger for a session; it outlives the run where the sites' do."""
    job, lasting = planned.job, all(s.ledger is not None for s in planned.sources.values())
    folder = ledger_folder(job) if lasting else None
    return CoordinatorLedger.of(job, planned.private, planned.plans.stages, session, folder)


def make_party(
    planned: Planned,
    identity: Identity,
    roster: Roster,
    session: bytes,
    random: RandomBytes,
    own: RandomBytes,
    stand_in: Callable[[PublicFacts], SiteRecords] | None = None,
) -> Party:
    """Return one party; a site with its own policy and records, which `planned.sources` holds.

    own: for the draws of a site's method
    """
    policy, side = as_policy(planned.job.release), None
    if identity.role is Role.SITE:
        source = planned.sources[identity.name]
        policy, guard = source.policy.release, None
        if stand_in is None:
            stages = [s for name, s in planned.plans.stages.items() if name != COHORT]
            guard = make_guard(
                planned.job, stages, planned.private, source, roster, session, random
            )
        load = _loader(planned, source, stand_in)
        side = SiteContext(planned.method, planned.public, load, guard, own)
    return Party(
        identity, roster, session, planned.protocol, planned.plans, policy, random, side
    )  # fmt: skip


def make_coordinator(
    planned: Planned,
    identity: Identity,
    roster: Roster,
    session: bytes,
    random: RandomBytes,
    book: CoordinatorLedger | None = None,
) -> Coordinator:
    """Return the coordinator, which needs no records; without a book it knows no earlier sums."""
    return Coordinator(
        identity, roster, session, planned.protocol, planned.method, planned.public, planned.plans,
        as_policy(planned.job.release), random, () if book is None else book.earlier,
    )  # fmt: skip


def rows_of(planned: Planned, name: str) -> SiteRecords:
    """Return a site's records, read now. For whoever plans a job and holds the records, too."""
    return _loader(planned, planned.sources[name], None)()


def _loader(
    planned: Planned, source: SiteSource, stand_in: Callable[[PublicFacts], SiteRecords] | None
) -> Callable[[], SiteRecords]:
    if stand_in is not None:
        return functools.partial(stand_in, planned.public)
    privacy = planned.job.privacy
    return lambda: read_rows(
        planned.job.columns, source.read(), planned.public, source.name,
        privacy.person, privacy.records_per_person,
    )  # fmt: skip
