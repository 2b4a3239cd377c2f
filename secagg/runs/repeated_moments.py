"""Which sites added the noise of a planned job to their moments before, by their ledgers.

If their records have not changed since, the job uses the same noise and costs nothing.
"""

from __future__ import annotations

from contextlib import closing

from secagg.contracts.noise import SITE_MOMENTS
from secagg.privacy.policy.guard import release_query
from secagg.runs.expected_refusals import opened
from secagg.runtime.planned_job import Planned
from secagg.runtime.session_ledgers import query_digest
from secagg.runtime.site_moments import site_moments_spec


def moments_drawn_before(planned: Planned) -> list[str]:
    """Return the names of these sites; none unless the job has noise once at the site."""
    if not planned.public.site_moments or planned.private is None:
        return []
    mechanism = planned.private.mechanisms[SITE_MOMENTS]
    query = query_digest(planned.job, planned.private)
    same = {
        "stage": SITE_MOMENTS,
        "query": release_query(query, site_moments_spec(planned.public), {}),
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
