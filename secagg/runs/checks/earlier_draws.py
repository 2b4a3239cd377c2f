"""Which sites drew the noise of a job before, from their ledgers, without reading a record."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from secagg.contracts.noise import SITE_MOMENTS
from secagg.jobs.data_sources import SiteSource
from secagg.privacy.ledger.ledger import Ledger
from secagg.privacy.policy.contribution import release_query
from secagg.sessions.parties import open_coordinator_ledger
from secagg.sessions.planned_job import Planned
from secagg.sessions.session_ledgers import open_ledger, query_digest
from secagg.sessions.site_moments import site_moments_facts, site_moments_spec


def opened(source: SiteSource) -> Ledger:
    """Return a site's ledger, or an empty one in memory: a plan creates no file."""
    exists = source.ledger is not None and source.ledger.exists()
    return open_ledger(source.ledger if exists else None)


def new_ledgers(planned: Planned) -> list[str]:
    """Return a line on the ledgers that a run would create, for each folder.

    A ledger is missing in the first run, but also when the data were copied without it, or it was
    deleted. Then earlier releases of the same records count no more.
    """
    paths = {source.ledger for source in planned.sources.values()}
    paths.add(open_coordinator_ledger(planned, b"").path)
    new: dict[Path, list[str]] = {}
    for path in sorted(path for path in paths if path is not None and not path.exists()):
        new.setdefault(path.parent, []).append(path.name)
    return [
        f"new ledgers in {folder}: {', '.join(names)}. Earlier releases of these records, if any, "
        "are not counted"
        for folder, names in new.items()
    ]


def moments_drawn_before(planned: Planned) -> list[str]:
    """Return the sites that added the noise of a planned job to their moments before.

    If their records have not changed since, the job uses the same noise and costs nothing. None
    unless the job has noise once at the site.
    """
    if not planned.public.site_moments or planned.private is None:
        return []
    mechanism = planned.private.mechanisms[SITE_MOMENTS]
    query, spec = (
        query_digest(planned.job, planned.facts, planned.private),
        site_moments_spec(planned.public),
    )
    same = {
        "stage": SITE_MOMENTS,
        "query": release_query(query, spec, site_moments_facts(planned.public)),
        "cost": mechanism.cost().plain(),
        "variance": mechanism.noise.variance,
        "adjacency": planned.private.terms.adjacency.value,
    }
    found = []
    for source in planned.sources.values():
        with closing(opened(source)) as ledger:
            entries = [e.content for e in ledger.history(source.dataset) if e.kind == "entry"]
        if any(all(entry.get(name) == value for name, value in same.items()) for entry in entries):
            found.append(source.name)
    return found
