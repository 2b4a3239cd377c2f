"""Columns that only some sites have: left out of every sum, or missing data at the other sites.

Chajewska and Shrivastava (2023), section 2.1: the global model has the columns that all sites have
(the intersection); section 2.4: a site then adds its own ("stitching"). So a job declares them in
`[partial]`, away from `[columns]`, and a site that lacks one can take part. A method with the fact
`partial_columns` can analyse them, if its `variables` name them: a site that lacks one draws its
values (`secagg.models.sparse_bayes.latent.lacking`) and is part of every sum.

Why there are no sums over the sites that have a column. A sum over one of them is that site's. A
sum over S and one over T show S without T, and T without S, if other sums of the same records have
them together; a number of records is enough. Rules on the smallest number of sites would have to
hold for all differences of such sets, not only for the sets (ADR 35). So the unit of such a column
is the job's guess. What a sum over all sites shows of such a column comes from the sites that have
it. So a job that analyses one is refused if any earlier exact release had other sites
(`secagg.privacy.policy.job_rules.on_cohorts`). A site whose table has the column refuses a job that
says it lacks it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from secagg.errors import JobError
from secagg.jobs.columns import Column, Number
from secagg.jobs.job import Job

_FEWEST_SITES = 3
"""That have a column which is analysed: of two, each knows the other's part of its scale."""


def check_partial(job: Job, sites: Collection[str], *, analysed: bool) -> None:
    """Check the table `[partial]` of a job over these sites. Raises `JobError`.

    A column must not be declared twice, and its sites must be some of the job's but not all. If the
    method names it, it must be a number that enough sites have.

    analysed: whether the method can analyse such columns
    """
    named, every = job.method.settings.get("variables") or (), job.sites.names or sites
    for name, partial in job.partial.items():
        where = f"partial.{name}"
        if job.columns.get(name, partial.column) != partial.column:
            raise JobError(where, "is declared otherwise in [columns]", "Declare it once.")
        if name in job.columns and name not in named:
            raise JobError(where, "is declared in [columns], too", "Declare it once.")
        for site in partial.sites:
            if site not in every:
                raise JobError(f"{where}.sites", f"no site {site!r}", f"Sites: {_list(sites)}.")
        if set(partial.sites) == set(sites):
            raise JobError(where, "every site has it", "Declare it in [columns].")
        if name in named and analysed:
            _check_analysed(job, name, [site for site in partial.sites if site in sites])
        elif name in set(_texts(job.method.settings)):
            lacking = _list([site for site in sites if site not in partial.sites])
            what = f"names column {name!r}, which {lacking} lack" + "s" * (lacking.count(",") == 0)
            advice = "After the run, sites add it to fedngm and fedngr: secagg adapt --columns job."
            raise JobError("method", what, advice)


def _check_analysed(job: Job, name: str, having: Collection[str]) -> None:
    """Check a column that the method analyses. having: the sites of the session that have it."""
    where, rules = f"partial.{name}", job.release
    if not isinstance(job.columns[name], Number):
        what = "has levels, and only the values of a number can be drawn at sites that lack it"
        raise JobError(where, what, "Leave it out of method.variables.")
    least = max(_FEWEST_SITES, rules.min_level_sites or rules.min_sites or 0)
    if len(having) < least:
        what = f"is analysed, and {len(having)} sites have it; at least {least} must"
        advice = "Leave it out of method.variables"
        if len(having) >= _FEWEST_SITES:
            advice += f", or let the sites agree on release.min_level_sites = {len(having)}"
        raise JobError(f"{where}.sites", what, f"{advice}.")


def lacked_by(job: Job, site: str) -> tuple[str, ...]:
    """Return the columns of the job that this site lacks."""
    return tuple(
        name for name in job.columns
        if name in job.partial and site not in job.partial[name].sites
    )  # fmt: skip


def columns_here(job: Job, names: Collection[str]) -> dict[str, Column]:
    """Return the partial columns that a table has. Raises `JobError` if it has none.

    names: of the table's columns
    """
    found = {
        name: partial.column
        for name, partial in job.partial.items()
        if name in names and name not in job.columns
    }
    if not found:
        what = "has no column that the site's table has"
        raise JobError("partial", what, "Declare its own columns in a file: --columns FILE.")
    return found


def _texts(value: Any) -> Iterator[str]:
    """Return all texts in settings, but those that are keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def _list(names: Collection[str]) -> str:
    return ", ".join(names)
