"""A job as a party plans it at home. The records and rules are its own: the job names no file."""

from __future__ import annotations

from dataclasses import replace

from secagg.core.identity import COORDINATOR
from secagg.errors import DataError, JobError, PolicyRefusal, UsageError
from secagg.jobs.data_sources import (
    ENDINGS,
    SiteSource,
    check_policy,
    file_source,
    noised_columns,
)
from secagg.jobs.expert_edges import EDGES
from secagg.jobs.job import Job
from secagg.jobs.site_tables import FileTable
from secagg.sessions.homes.home import SETTINGS, Home
from secagg.sessions.planned_job import Planned, plan_sites, roles, roster_fault


def plan_at_home(home: Home, job: Job, sites: tuple[str, ...]) -> Planned:
    """Return the plan of a job over these sites, of which one may be this home's.

    Raises `DataError`, `JobError`, `PolicyRefusal` or `UsageError`.
    """
    own = {home.name: own_source(home, job)} if home.name in sites else {}
    return plan_sites(job, sites, own)


def check_party(home: Home, planned: Planned) -> None:
    """Check that this party is one of the job's, and that all of them are pinned here.

    Raises `UsageError` or `PolicyRefusal`.
    """
    parties = (COORDINATOR, *roles(planned))
    if home.name not in parties:
        what = f"is no party of this job, whose parties are {', '.join(parties)}"
        raise UsageError(home.name, what, "Use another home, or add the site to sites.names.")
    fault = roster_fault(home.roster, planned.public.sites, planned.protocol, others=True)
    if fault:
        advice = "Make a new roster, which every party pins."
        raise PolicyRefusal(home.name, f"the pinned roster {fault}", advice)


def named_sites(job: Job) -> tuple[str, ...]:
    """Return the sites of a job whose records are elsewhere. Raises `JobError`."""
    if job.sites.names is None:
        advice = 'List them: [sites] names = ["cork", ...].'
        raise JobError("sites.names", "is not set, and the sites are not on this computer", advice)
    return tuple(sorted(job.sites.names))


def own_source(home: Home, job: Job) -> SiteSource:
    """Return the source of a site's records. Raises `DataError` or `PolicyRefusal`."""
    path, policy = home.records, home.folder / "policy.toml"
    if not path.is_file() or path.suffix.lower() not in ENDINGS:
        what = f"the file of its records is not there, or is no {' or '.join(ENDINGS)} file: {path}"
        advice = f"Restore it, or write its new path after `records =` in {home.folder / SETTINGS}."
        raise DataError(home.name, what, advice)
    for other in home.folder.iterdir():  # a misspelt name would silently disable the rules
        if "policy" in other.name.lower() and other.name != policy.name:
            what = f"has 'policy' in its name, and only {policy.name} is read"
            raise PolicyRefusal(str(other), what, "Rename it, or move it elsewhere.")
    table = FileTable(path, noised_columns(job))
    if not policy.exists():
        what = f"has no {policy.name} in its home, so it refuses every job"
        advice = f"Write its rules into {policy}. The line profile = 10 is a whole file."
        raise PolicyRefusal(home.name, what, advice)
    try:
        source = file_source(home.name, table, job.release, policy)
        check_policy(source)
    except JobError as error:  # a mistake of this site's, not of the job
        raise PolicyRefusal(error.where, error.what, error.advice) from None
    if None in (source.policy.min_sites, source.policy.min_records):
        what = "chooses no profile, and not both min_sites and min_records, so it refuses every job"
        raise PolicyRefusal(str(policy), what, "Choose one of the profiles in this file")
    edges = home.folder / EDGES
    return replace(source, edges=edges) if edges.exists() and edges != path else source
