"""Columns that only some sites have: left out of every sum, added at each site after the run.

Chajewska and Shrivastava (2023), section 2.1: the global model has the columns that all sites have
(the intersection); section 2.4: a site then adds its own ("stitching"). So a job declares them in
`[partial]`, away from `[columns]`, and a site that lacks one can take part.

Why there are no sums over the sites that have a column. A sum over one of them is that site's. A
sum over S and one over T show S without T, and T without S, if other sums of the same records have
them together; a number of records is enough. Rules on the smallest number of sites would have to
hold for all differences of such sets, not only for the sets (ADR 35).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from secagg.errors import JobError
from secagg.jobs.job import Column, Job


def check_partial(job: Job, sites: Collection[str]) -> None:
    """Check the table `[partial]` of a job over these sites. Raises `JobError`.

    A column must not be declared twice, its sites must be some of the job's but not all, and the
    method must not name it.
    """
    for name, partial in job.partial.items():
        where = f"partial.{name}"
        if name in job.columns:
            raise JobError(where, "is declared in [columns], too", "Declare it once.")
        for site in partial.sites:
            if site not in sites:
                raise JobError(f"{where}.sites", f"no site {site!r}", f"Sites: {_list(sites)}.")
        if set(partial.sites) == set(sites):
            raise JobError(where, "every site has it", "Declare it in [columns].")
        if name in set(_texts(job.method.settings)):
            lacking = _list([site for site in sites if site not in partial.sites])
            what = f"names column {name!r}, which {lacking} lack" + "s" * (lacking.count(",") == 0)
            advice = "After the run, sites add it to fedngm and fedngr: secagg adapt --columns job."
            raise JobError("method", what, advice)


def columns_here(job: Job, names: Collection[str]) -> dict[str, Column]:
    """Return the partial columns that a table has. Raises `JobError` if it has none.

    names: of the table's columns
    """
    found = {name: partial.column for name, partial in job.partial.items() if name in names}
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
