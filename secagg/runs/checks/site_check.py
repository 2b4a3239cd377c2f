"""Check a site's records against a job, at the site, before anything is sent.

In a run, a site that cannot use its records for an exact job refuses, and the refusal counts
(`max_refusals` of the site's policy). This check finds the same problems, all at once. It sends
nothing and writes nothing, except the draft of a policy if one is requested. What it shows is for
the site's own eyes.

A run with noise goes on whatever the records hold, because a refusal would reveal something about
them (`secagg.jobs.design_matrix`). The same mistakes then spoil the result and spend the budget. So
the check judges records of a job with noise by the rules on mistakes of a job without
(`_mistakes`). Rules that protect records, such as smallest counts, do not apply: the noise does.

The draft of a policy comes from the job and not from the records. A draft from the records would
pin bounds that reveal them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from secagg.contracts import SiteRecords
from secagg.contracts.noise import Placement
from secagg.core.printable import printable
from secagg.errors import DataError, JobError, UsageError
from secagg.evidence.numbers import counted
from secagg.jobs.column_check import ColumnCheck, check_column
from secagg.jobs.data_sources import SiteSource
from secagg.jobs.design_matrix import declarations, read_rows, reread_rows
from secagg.jobs.headers_and_copies import check_headers
from secagg.jobs.job import Job
from secagg.jobs.person_ids import NOBODY, person_numbers
from secagg.privacy.ledger.records import Decision
from secagg.privacy.policy.exact_numbers import most_in_rounds
from secagg.privacy.policy.job_rules import PolicyRequest, before_data
from secagg.privacy.policy.questions import Question
from secagg.privacy.policy.record_rules import (
    OwnRecords,
    check_clipped,
    own_records,
    with_data,
)
from secagg.privacy.policy.record_sets import ReadQuestion, compare_records
from secagg.privacy.policy.site_policy import SitePolicy
from secagg.runs.checks.earlier_draws import moments_drawn_before
from secagg.runs.checks.expected_refusals import budget_refusals
from secagg.runs.checks.lost_rule import lost_rule_remarks
from secagg.sessions.planned_job import Planned
from secagg.sessions.rounds import COHORT
from secagg.sessions.session_ledgers import open_ledger, request_before_data


@dataclass(frozen=True)
class SiteCheck:
    """One site.

    rows: number of rows of the table; complete: of them, those without a missing or unreadable
        value in a declared column, and with the name of their person if the job names persons
    persons: number of persons whose records would be used; None if no column names persons
    surplus: number of complete rows that are not used, because their person has more than
        `privacy.records_per_person`
    problem: why the records cannot be read
    mistakes: what is wrong with the records, where a run would go on because it has noise
    refusals: what the site would refuse in a run, as "rule: reason"
    remarks: what the site is warned of
    """

    site: str
    rows: int = 0
    complete: int = 0
    surplus: int = 0
    columns: tuple[ColumnCheck, ...] = ()
    problem: str = ""
    refusals: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    persons: int | None = None
    mistakes: tuple[str, ...] = ()

    @property
    def passes(self) -> bool:
        """Whether the site would take part with usable records, as far as it can know before."""
        return not self.problem and not self.mistakes and not self.refusals

    def plain(self) -> dict[str, Any]:
        """Return the check as plain data for JSON."""
        columns = [vars(column) for column in self.columns]
        return {**vars(self), "columns": columns, "passes": self.passes}


def check_sites(
    planned: Planned, site: str | None = None, key: bytes | None = None
) -> list[SiteCheck]:
    """Return the check of one site, or of every site whose records are here.

    key: the coordinator's public key, if it is known
    Raises `UsageError` if there is no site with this name.
    """
    if site is not None and site not in planned.sources:
        known = ", ".join(planned.sources)
        raise UsageError("--site", f"there is no site {site!r}", f"The sites are {known}.")
    names = planned.sources if site is None else [site]
    return [_check(planned, planned.sources[name], key) for name in names]


def _check(planned: Planned, source: SiteSource, key: bytes | None) -> SiteCheck:
    job, public = planned.job, planned.public
    exists = source.ledger is not None and source.ledger.exists()
    with closing(open_ledger(source.ledger if exists else None)) as ledger:
        stages = [stage for name, stage in planned.plans.stages.items() if name != COHORT]
        private = planned.private
        request = request_before_data(
            job, planned.facts, stages, source, ledger, public.sites, key or b"", private
        )
        asked = ledger.questions(source.dataset, "")
    decisions = [
        d for d in before_data(source.policy, request)
        if key is not None or d.rule != "keys.coordinators"
    ]  # fmt: skip
    of_budget, unless = budget_refusals(planned, source, moments_drawn_before(planned))
    over = () if unless else tuple(f"budget: {why}" for why in of_budget)
    known = tuple(f"{source.name}, by its budget{unless}: {why}" for why in of_budget if unless)
    known += _counts(source.policy, request)
    known += tuple(lost_rule_remarks(job))
    columns: tuple[ColumnCheck, ...] = ()
    rows = complete = 0
    try:
        table = source.read()
        rows = len(table)
        checked = [
            check_column(table, name, column, source.table.place)
            for name, column in job.columns.items()
            if name not in public.lacked_by(source.name)
        ]
        columns = tuple(column for column, _ in checked)
        complete = int(np.all([present for _, present in checked], axis=0).sum())
        check_headers(job, {source.name: source})
        privacy = job.privacy
        read = read_rows(
            job.columns, table, public, source.name,
            privacy.person, privacy.records_used, source.table.place,
        )  # fmt: skip
    except DataError as error:
        refusals, remarks = (
            (*_refusals(decisions), *over),
            (*_of_columns(source.name, columns), *known),
        )
        return SiteCheck(source.name, rows, complete, 0, columns, error.line(), refusals, remarks)

    complete = len(read.values) + read.surplus
    mistakes: tuple[str, ...] = ()
    if planned.private is not None:
        mistakes = _mistakes(planned, source, table, read)
    else:

        def reread(question: Question) -> SiteRecords:
            return reread_rows(question, table, source.name, privacy.person)

        policy, question = source.policy, request.question
        own = own_records(read, public)
        decisions += with_data(policy, request, own)
        known += _rounds_that_fit(policy, request, own)
        if question is not None:
            new = ReadQuestion(question, read.held(public))
            decisions += compare_records(new, asked, reread, *policy.on_record_sets)
    refusals = (*_refusals(decisions), *over)
    remarks = (
        *read.remarks, *_unnamed(table, privacy.person), *_of_columns(source.name, columns), *known,
    )  # fmt: skip
    persons = None if privacy.person is None else read.persons_count
    return SiteCheck(
        source.name, rows, complete, read.surplus, columns, "", refusals, remarks, persons, mistakes
    )


def _mistakes(
    planned: Planned, source: SiteSource, table: pd.DataFrame, read: SiteRecords
) -> tuple[str, ...]:
    """Return what would make a job without noise refuse these records as wrong.

    read: the records, as the job with noise reads them
    """
    job, public, found = planned.job, planned.public, list[str]()
    try:
        read_rows(job.columns, table, replace(public, clip=None), source.name,
                  place=source.table.place)  # fmt: skip
    except DataError as error:
        found.append(error.line())
    shares = dict(zip(public.columns, read.clipped_share.tolist(), strict=True))
    fits, text = check_clipped(source.policy.max_clipped_share, shares)
    if not fits:
        found.append(text)
    if not len(read.values):
        found.append("no record is complete")
    return tuple(found)


def _unnamed(table: pd.DataFrame, person: str | None) -> tuple[str, ...]:
    """Return how many rows do not name their person, which no other column shows."""
    if person is None:
        return ()
    unnamed = int(np.sum(person_numbers(table[person]) == NOBODY))
    if not unnamed:
        return ()
    return (
        f"column {person!r} is empty in {counted(unnamed, 'row')}: without a name, a record "
        "is incomplete",
    )


def _rounds_that_fit(
    policy: SitePolicy, request: PolicyRequest, own: OwnRecords
) -> tuple[str, ...]:
    """Return a remark if the limit on exact numbers may end the run before its last round."""
    if policy.max_exact_share is None or request.question is None or not request.numbers.all:
        return ()
    jobs = [replace(request.question, rows=own.rows), *request.asked]
    sites, n = policy.min_sites or len(request.cohort), own.records
    left = most_in_rounds(policy.max_exact_share, jobs, n, sites * n, sites)
    assert left is not None
    left -= request.released_numbers
    if request.numbers.all <= left:
        return ()
    return (
        f"all rounds of this job have up to {request.numbers.all} exact numbers, and this site's "
        f"limit leaves {max(left, 0)}. If the method needs them all, the run stops early without a "
        "result: set fewer rounds",
    )


def _counts(policy: SitePolicy, request: PolicyRequest) -> tuple[str, ...]:
    """Return how near an exact job is to the limits on refusals, if it is not far from them."""
    if request.question is None or not request.unreleased:
        return ()
    return (
        f"in the last {policy.refusal_days:g} days, {request.refusals} of at most "
        f"{policy.max_refusals} exact jobs were refused because of the records, and "
        f"{request.unreleased} of at most {policy.max_unreleased} ended before a result",
    )


def _of_columns(site: str, columns: Sequence[ColumnCheck]) -> tuple[str, ...]:
    return tuple(f"{site}, {remark}" for column in columns for remark in column.remarks)


def _refusals(decisions: list[Decision]) -> tuple[str, ...]:
    return tuple(f"{d.rule}: {d.text}" for d in decisions if not d.allowed)


def draft_policy(job: Job, source: SiteSource) -> Path:
    """Write a first draft of a site's policy, from the job alone, and return its path.

    Raises `JobError` if the site's records are not in a folder, or if it has a policy.
    """
    if job.sites.folder is None:
        raise JobError("--draft", "needs sites.folder", "A policy lies next to a site's file.")
    path = job.sites.folder / f"{source.name}.policy.toml"
    lines = [
        f"# A first draft, from the job {printable(job.title)}. No record was read for it.",
        "# Change what does not fit, and delete what is not needed.",
        f"dataset = {_text(source.dataset)}",
        *([] if job.privacy.person is None else [f"person = {_text(job.privacy.person)}"]),
        f"min_sites = {max(job.release.min_sites or 3, 3)}",
        f"min_records = {job.release.min_records or 10}",
        f"methods = [{_text(job.method.name)}]",
        f"protocols = [{_text(job.protocol.name)}]",
        "",
        "[columns]",
        *(f"{_key(name)} = {_inline(declared)}" for name, declared in _pinned(job).items()),
        "",
        *_draft_of_budget(job),
    ]
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write("\n".join(lines))
    except FileExistsError:
        raise JobError(str(path), "exists", "Edit it, or move it elsewhere first.") from None
    except OSError as error:
        raise UsageError(str(path), f"cannot be written ({error.strerror})") from None
    return path


def _draft_of_budget(job: Job) -> list[str]:
    """Return the smallest budget with which a job with noise can run: once, for all time."""
    privacy = job.privacy
    if privacy.placement is Placement.NONE:
        return []
    asked = {"epsilon": privacy.epsilon, "delta": privacy.delta}
    each = [f"{prefix}{key} = {asked[key]}" for prefix in ("", "period_") for key in asked]
    each.append(f"adjacency = [{_text(privacy.adjacency.value)}]")
    return ["[budget]  # for one run of this job; a larger period_epsilon allows more", *each, ""]


def _pinned(job: Job) -> Mapping[str, Mapping[str, Any]]:
    plain = declarations(job.columns)
    return {
        n: {k: v for k, v in plain[n].items() if (k, v) != ("transform", "none")} for n in plain
    }


def _key(name: str) -> str:
    bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if bare else _text(name)


def _inline(declared: Mapping[str, Any]) -> str:
    # JSON strings, numbers and lists are TOML too.
    return f"{{ {', '.join(f'{k} = {_text(v)}' for k, v in declared.items())} }}"


def _text(value: Any) -> str:
    """Return JSON, which TOML can read: without surrogates, which stand for characters there."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
