"""Whether a job's rule `sites.lost = "leave_out"` can help at all, from public numbers."""

from __future__ import annotations

from secagg.jobs.job import Job


def lost_rule_remarks(job: Job, sites: int) -> list[str]:
    """Return a remark if no site could be left out: before the first sum, or after it.

    After the first sum, both the sites that are lost and those that are left must be at least
    `release.min_sites`: the difference of the two sums is a sum over the lost sites.
    """
    needed = job.release.min_sites
    if job.sites.lost != "leave_out" or needed is None or sites >= 2 * needed:
        return []
    rule = f"sites.lost = 'leave_out' with {sites} sites and release.min_sites = {needed}"
    if sites <= needed:
        return [f"{rule} can never leave out a site: the run needs all of them"]
    return [
        f"{rule} can leave out a site only before the first sum. After it, {needed} sites must be "
        f"lost together and {needed} must be left"
    ]
