"""Whether a job's rule `sites.lost = "leave_out"` can help at all, from public numbers."""

from __future__ import annotations

from secagg.jobs.job import Job
from secagg.runtime.planned_job import least_sites


def lost_rule_remarks(job: Job) -> list[str]:
    """Return a remark if no site could be left out: before the first sum, or after it.

    After the first sum, the sites that are lost must be at least `release.min_sites`, too: the
    difference of the two sums is a sum over them.
    """
    together = job.release.min_sites
    if job.sites.lost != "leave_out" or job.sites.names is None or together is None:
        return []
    sites, least = len(job.sites.names), least_sites(job)
    rule = f"sites.lost = 'leave_out' with {sites} sites, of which {least} must be left,"
    if sites <= least:
        return [f"{rule} can never leave out a site"]
    if sites - least < together:
        return [
            f"{rule} can leave out a site only before the first sum. After it, release.min_sites = "
            f"{together} sites must be lost together"
        ]
    return []
