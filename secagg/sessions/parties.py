"""Build the parties of one session, each with what it holds."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

from secagg.contracts import SiteRecords
from secagg.core.identity import Identity, Role, Roster
from secagg.core.randomness import RandomBytes
from secagg.jobs.data_sources import SiteSource, as_policy, ledger_folder
from secagg.jobs.design_matrix import read_rows, reread_rows
from secagg.jobs.expert_edges import read_edges
from secagg.sessions.coordinator import Coordinator
from secagg.sessions.party import Party, SiteContext
from secagg.sessions.planned_job import Planned
from secagg.sessions.rounds import COHORT
from secagg.sessions.session_ledgers import CoordinatorLedger, make_guard


def open_coordinator_ledger(
    planned: Planned, session: bytes, folder: Path | None = None
) -> CoordinatorLedger:
    """Return the coordinator's ledger for a session; it is on disk if all ledgers of sites are.

    folder: of the ledger, if it is not the job's
    """
    job, on_disk = planned.job, all(s.ledger is not None for s in planned.sources.values())
    if folder is None and on_disk:
        folder = ledger_folder(job)
    return CoordinatorLedger.of(
        job, planned.facts, planned.private, planned.plans.stages, session, folder
    )


def make_party(
    planned: Planned,
    identity: Identity,
    roster: Roster,
    session: bytes,
    random: RandomBytes,
    method_random: RandomBytes,
    stand_in: SiteRecords | None = None,
) -> Party:
    """Return one party; a site has its own policy and its records from `planned.sources`.

    method_random: for the draws of a site's method
    stand_in: rows to use instead of the site's records; then there is no guard
    """
    policy, site = as_policy(planned.job.release), None
    if identity.role is Role.SITE:
        source = planned.sources[identity.name]
        policy, guard = source.policy.release, None
        if stand_in is None:
            stages = [s for name, s in planned.plans.stages.items() if name != COHORT]
            guard = make_guard(
                planned.job, planned.facts, stages, planned.private, source, roster, session,
                random,
                lambda question: reread_rows(
                    question, source.read(), source.name, planned.job.privacy.person
                ),
            )  # fmt: skip
        load = functools.partial(read_records, planned, source, stand_in)
        site = SiteContext(planned.method, planned.public, load, guard, method_random)
    return Party(
        identity, roster, session, planned.protocol, planned.plans, policy, random, site,
        planned.named,
    )  # fmt: skip


def make_coordinator(
    planned: Planned,
    identity: Identity,
    roster: Roster,
    session: bytes,
    random: RandomBytes,
    ledger: CoordinatorLedger | None = None,
) -> Coordinator:
    """Return the coordinator; without a ledger it knows of no earlier sums."""
    return Coordinator(
        identity, roster, session, planned.protocol, planned.method, planned.public, planned.plans,
        as_policy(planned.job.release), random, () if ledger is None else ledger.earlier,
        planned.named,
    )  # fmt: skip


def read_records(
    planned: Planned, source: SiteSource, stand_in: SiteRecords | None = None
) -> SiteRecords:
    """Read and return a site's complete records, scaled; or `stand_in`. Raises `DataError`."""
    if stand_in is not None:
        return stand_in
    table, privacy = source.read(), planned.job.privacy
    rows = read_rows(
        planned.job.columns, table, planned.public, source.name,
        privacy.person, privacy.records_used, source.table.place,
    )  # fmt: skip
    if source.edges is None:
        return rows
    edges = read_edges(source.edges, source.name, list(map(str, table.columns)))
    remark = f"{source.name}: its graph, where a method asks for one, is that of its experts"
    return replace(rows, expert_edges=edges, remarks=(*rows.remarks, remark))
