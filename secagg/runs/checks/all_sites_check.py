"""Check what only all sites' files together show: copies, and levels that are rare over all sites.

A run finds a rare level in its first sum, which has then been released. Where one person has all
files, as in a simulation, the same is found here before anything is sent. A site alone cannot know
the counts of the others.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from secagg.contracts import PublicFacts, SiteRecords
from secagg.errors import DataError
from secagg.jobs.columns import Number
from secagg.jobs.data_sources import as_policy
from secagg.jobs.design_matrix import read_rows
from secagg.jobs.headers_and_copies import check_files
from secagg.jobs.job import Job
from secagg.privacy.policy.cell_counts import count_refusals
from secagg.privacy.policy.record_rules import share_remark
from secagg.sessions.planned_job import Planned
from secagg.sessions.rounds import cohort_stage, cohort_update

WHO = "coordinator"


@dataclass(frozen=True)
class AllSitesCheck:
    """All sites together.

    problem: why a run would stop before its first message
    mistakes: why its result would be wrong, if it would go on because it has noise
    refusals: why the coordinator's program would end a run after the first sum
    remarks: about files that are probably there by mistake
    """

    problem: str = ""
    refusals: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    mistakes: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        """Return the check as plain data for JSON."""
        return dict(vars(self))


def check_folder(planned: Planned) -> AllSitesCheck:
    """Return the check of all sites together; without counts if a site cannot be read."""
    try:
        remarks = tuple(check_files(planned.job, planned.sources, before_run=True))
    except DataError as error:
        if planned.private is not None:  # a run goes on: `secagg.jobs.headers_and_copies`
            return AllSitesCheck(mistakes=(error.line(),))
        return AllSitesCheck(problem=error.line())
    if planned.private is not None:
        return AllSitesCheck(remarks=remarks)
    try:
        refusals, shares = _of_records(planned)
        return AllSitesCheck(refusals=refusals, remarks=(*remarks, *shares))
    except DataError:  # the site's own check says why
        return AllSitesCheck(remarks=remarks)


def _of_records(planned: Planned) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return refusals because of small counts, and remarks.

    These are about a site with almost all records, and about levels that no site has.
    """
    job, public, rules = planned.job, planned.public, as_policy(planned.job.release)
    spec = cohort_stage(public).spec
    own: dict[str, int] = {}
    totals = {field.name: np.zeros(field.shape) for field in spec}
    levels = Counter[tuple[str, str]]()
    for source in planned.sources.values():
        privacy = job.privacy
        read = read_rows(
            job.columns, source.read(), public, source.name,
            privacy.person, privacy.records_used, source.table.place,
        )  # fmt: skip
        own[source.name] = read.persons_count
        levels.update(_levels(job, public, read))
        for name, counts in cohort_update(read, public, spec, 0).items():
            totals[name] += counts
    records = sum(own.values())
    remarks = [share_remark(site, count, records) for site, count in own.items()]
    remarks += [
        f"no site has the level {level!r} of column {name!r}, so most methods end after the first "
        "sum: take it out of [columns] now, because sites keep to the levels of the first exact run"
        for (name, level), number in levels.items()
        if not number
    ]
    found = count_refusals(WHO, rules, public.variables, records, totals)
    return tuple(refusal.line() for refusal in found), tuple(filter(None, remarks))


def _levels(job: Job, public: PublicFacts, read: SiteRecords) -> dict[tuple[str, str], int]:
    """Return the number of complete records with each level, by column and level."""
    found = dict[tuple[str, str], int]()
    for name, column in job.columns.items():
        if isinstance(column, Number):
            continue
        own = [i for i, variable in enumerate(public.variables) if variable.column == name]
        others = (read.values[:, own] > 0).sum(axis=0).tolist()  # 1 is scaled to a positive number
        counts = [len(read.values) - sum(others), *others]
        found |= {(name, level): n for level, n in zip(column.levels, counts, strict=True)}
    return found
