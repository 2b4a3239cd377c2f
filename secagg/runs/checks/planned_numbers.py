"""How many exact numbers a job will release, and how many records a site needs for them.

`secagg.privacy.policy.exact_numbers` has the rule. Everything here is public, or from a ledger on
this computer; no record is read.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

from secagg.jobs.data_sources import SiteSource
from secagg.jobs.design_matrix import declarations
from secagg.privacy.policy.exact_numbers import (
    PlannedNumbers,
    columns_of,
    fewest_records,
    moment_numbers,
)
from secagg.privacy.policy.questions import Question
from secagg.sessions.planned_job import Planned
from secagg.sessions.rounds import COHORT
from secagg.sessions.session_ledgers import open_ledger
from secagg.sessions.session_ledgers import planned_numbers as job_numbers


def planned_numbers(planned: Planned) -> dict[str, Any] | None:
    """Return the exact numbers of a job as plain data; None under differential privacy.

    `moments`: of the job's columns; `rounds`: of all rounds of a method that needs more than
    moments, and `first_rounds`: of those that must fit the limits of sites at the beginning.
    `sites`: for each site with such a limit, the records that it needs to begin, and for all rounds
    """
    if planned.private is not None:
        return None
    stages = [stage for name, stage in planned.plans.stages.items() if name != COHORT]
    numbers = job_numbers(planned.job, planned.facts, stages)
    return {
        "moments": moment_numbers([_question(planned)]),
        "first_rounds": numbers.least,
        "rounds": numbers.all,
        "sites": [
            _at(planned, source, numbers)
            for source in planned.sources.values()
            if source.policy.max_exact_share is not None
        ],
    }


def _question(planned: Planned) -> Question:
    """Return what the job asks, as far as it is known before data is read."""
    return Question(declarations(planned.job.columns), planned.job.sites.max_rows, 0)


def _at(planned: Planned, source: SiteSource, numbers: PlannedNumbers) -> dict[str, Any]:
    """Return the records that a site with a limit needs, given its earlier releases."""
    exists = source.ledger is not None and source.ledger.exists()
    with closing(open_ledger(source.ledger if exists else None)) as ledger:
        asked = [Question.of(q.question) for q in ledger.questions(source.dataset, "")]
        earlier = ledger.numbers(source.dataset, "").other_jobs(numbers.job)
    jobs = [_question(planned), *asked]
    share, sites = source.policy.max_exact_share, source.policy.min_sites
    assert share is not None
    before = earlier + moment_numbers(jobs)

    def records(rounds: int) -> int:
        return fewest_records(
            before + rounds, share, columns_of(jobs), sites or len(planned.public.sites)
        )

    return {
        "site": source.name, "max_exact_share": share, "earlier_rounds": earlier,
        "records_to_begin": records(numbers.least), "records_for_all": records(numbers.all),
    }  # fmt: skip
