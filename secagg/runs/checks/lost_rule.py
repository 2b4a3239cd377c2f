"""Whether a job's rule `sites.lost = "leave_out"` can help at all, from public numbers."""

from __future__ import annotations

from secagg.jobs.job import Job
from secagg.sessions.planned_job import named_sites


def lost_rule_remarks(job: Job) -> list[str]:
    """Return the groups in which sites may be left out, or that no site can be left out."""
    named, together = named_sites(job), job.release.min_sites
    if named is None or job.sites.lost != "leave_out" or together is None:
        return []
    sites = len(named.names)
    rule = f"sites.lost = 'leave_out' with {sites} sites and release.min_sites = {together}"
    if named.fewest == sites:
        return [
            f"{rule} can never leave out a site: they are left out in groups of at least "
            f"{together}, and {named.least} sites must be left"
        ]
    groups = " | ".join(", ".join(group) for group in named.groups)
    return [
        f"{rule}: a site that is lost is left out with its whole group, and {named.fewest} sites "
        f"must be left: {groups}"
    ]
