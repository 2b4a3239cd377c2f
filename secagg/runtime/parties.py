"""The parties of one session, and what each of them holds."""

from __future__ import annotations

import functools

from secagg.contracts import SiteRecords
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
    stand_in: SiteRecords | None = None,
) -> Party:
    """Return one party; a site with its own policy and records, which `planned.sources` holds.

    own: for the draws of a site's method
    stand_in: rows to use instead of the site's records, which then need no guard
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
        load = functools.partial(read_records, planned, source, stand_in)
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


def read_records(
    planned: Planned, source: SiteSource, stand_in: SiteRecords | None = None
) -> SiteRecords:
    """Return a site's complete records, scaled, read now. Raises `DataError`.

    stand_in: returned in their place, if given
    """
    if stand_in is not None:
        return stand_in
    table, privacy = source.read(), planned.job.privacy
    return read_rows(
        planned.job.columns, table, planned.public, source.name,
        privacy.person, privacy.records_per_person,
    )  # fmt: skip
