"""Section 7: the checks of statistical disclosure control on what was released.

The limits are those of output checkers of research data centres (SDC handbook; SACRO; DataSHIELD's
filters; the rule of ten of the ABS): at least 10 records at each site and in each cell of a table,
at most one parameter for three records, at least 10 residual degrees of freedom, no smallest or
largest values. A cell is a level of a column, or a pair of levels of two columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from secagg.compliance.evidence import AllEvidence, RunEvidence
from secagg.compliance.statements import Section, Statement, Status
from secagg.contracts import TableKind
from secagg.evidence.claims.rules import NOT_OF_A_SITE
from secagg.evidence.numbers import count, counted, significant
from secagg.jobs.data_sources import as_policy
from secagg.jobs.job import Release
from secagg.reports import results

MIN_RECORDS, MAX_PARAMETER_SHARE, MIN_FREEDOM = 10, 0.33, 10


def output_checks(evidence: AllEvidence) -> Section:
    """Return section 7."""
    found = [statement for run in evidence.runs for statement in _of_run(run)]
    return Section(7, "Output checks", "SDC handbook; SACRO; DataSHIELD; rule of ten", tuple(found))


def _of_run(run: RunEvidence) -> list[Statement]:
    facts, found = run.facts, [
        _smallest_site(run), *_cells(run), _dominance(run), _extremes(run),
    ]  # fmt: skip
    records = float(run.records)
    for block in results.blocks(facts, run.summary):
        name = block.title
        match block.kind:
            case TableKind.REGRESSION:
                found += _parameters(run, name, len(block.summary["terms"]), records)
            case TableKind.POSTERIOR:
                found += _parameters(run, name, len(block.summary["coefficients"]) + 1, records)
            case TableKind.GRAPH | TableKind.POSTERIOR_GRAPH:
                found.append(_edges(run, name, block.summary))
            case TableKind.COUNTS if not run.claims.noised:
                found.append(_smallest_cell(run, name, block.summary))
    return found


def _smallest_site(run: RunEvidence) -> Statement:
    if run.claims.noised:
        text = f"How many records a site has was not checked: {NOT_OF_A_SITE}."
        return run.says("records at a site", text, Status.ATTACHED, "privacy")
    asked = run.facts["job"]["release"]["min_records"]
    good = asked >= MIN_RECORDS
    text = (
        f"Every site in a sum has at least {count(asked)} complete records "
        f"({'at least' if good else 'fewer than'} the {MIN_RECORDS} that output checkers ask for)."
    )
    status = Status.ATTACHED if good else Status.PERSON
    return run.says("records at a site", text, status, "job/release/min_records")


def _cells(run: RunEvidence) -> list[Statement]:
    """Return what was checked of small cells, before the method's first sum was opened."""
    if run.claims.noised:
        return []
    plan = run.facts["plan"]
    places = (run.at("plan"), run.at("job/release"))
    rules = as_policy(Release.model_validate(run.facts["job"]["release"]))
    records, sites = rules.min_cell_records or 1, rules.min_level_sites or 1
    few_sites = run.says(
        "levels and columns at few sites",
        f"Each level of a column occurs, and each column varies, at no site or at {sites} or more. "
        "So the sums for one level or column are not those of a single site.",
        Status.ATTACHED if sites > 1 else Status.PERSON,
        *places,
    )
    if not any(field["name"] == "levels" for stage in plan for field in stage["fields"]):
        text = "No column has levels, so no cell has few records."
        return [run.says("cells", text, Status.ATTACHED, *places), few_sites]
    good = records >= MIN_RECORDS
    cells = (
        "Over all sites, each level of a column and each pair of levels has no records, or at "
        f"least {records} ({'at least' if good else 'fewer than'} the {MIN_RECORDS} that output "
        "checkers ask for). The coordinator's program counts them first, and ends the run "
        "otherwise; a dishonest coordinator could go on. The sums also show which cells have no "
        "record."
    )
    status = Status.ATTACHED if good else Status.PERSON
    return [run.says("cells", cells, status, *places), few_sites]


def _smallest_cell(run: RunEvidence, name: str, summary: Mapping[str, Any]) -> Statement:
    cells = [np.array(table["counts"]) for table in summary["tables"]]
    smallest = min((int(each[each > 0].min()) for each in cells if np.any(each > 0)), default=0)
    good = smallest >= MIN_RECORDS
    text = (
        f"{name}: the smallest cell with records has {count(smallest)} "
        f"({'at least' if good else 'fewer than'} the {MIN_RECORDS} that output checkers ask for). "
        "Cells without records are shown as 0."
    )
    status = Status.ATTACHED if good else Status.PERSON
    return run.says("cells of tables", text, status, run.at("", "result.json"))


def _parameters(
    run: RunEvidence, name: str, parameters: int, records: float
) -> list[Statement]:  # fmt: skip
    share, freedom = parameters / max(records, 1.0), round(records) - parameters
    where = (run.at("", "result.json"),)
    ok = share <= MAX_PARAMETER_SHARE
    text = (
        f"{name}: {counted(parameters, 'parameter')} for about {count(round(records))} records, "
        f"a share of {significant(share, 2)}; the limit is {MAX_PARAMETER_SHARE}."
    )
    enough = freedom >= MIN_FREEDOM
    rest = (
        f"{name}: {count(freedom)} residual degrees of freedom; at least {MIN_FREEDOM} are needed."
    )
    return [
        run.says("parameters", text, Status.ATTACHED if ok else Status.PERSON, *where),
        run.says(
            "degrees of freedom", rest, Status.ATTACHED if enough else Status.PERSON, *where,
        ),
    ]  # fmt: skip


def _edges(run: RunEvidence, name: str, summary: Mapping[str, Any]) -> Statement:
    variables = len(summary["names"])
    text = (
        f"{name}: the edges between {counted(variables, 'variable')} come from sums over "
        f"{counted(len(run.facts['cohort']), 'site')}, not from the contribution of one. How many "
        "records support an edge cannot be seen from sums."
    )
    return run.says("edges", text, Status.PERSON, run.at("", "result.json"))


def _dominance(run: RunEvidence) -> Statement:
    text = (
        "Whether one site has most of the records, or one record most of a sum, cannot be seen "
        "from sums. Public bounds limit the share of a record."
    )
    return run.says("dominance", text, Status.PERSON, "job/columns")


def _extremes(run: RunEvidence) -> Statement:
    kinds = {field["kind"] for stage in run.facts["plan"] for field in stage["fields"]}
    text = (
        "No stage asks for a smallest or largest value, a median or another quantile: every "
        f"released number is a sum over sites ({', '.join(sorted(kinds))})."
    )
    return run.says("no extremes", text, Status.ATTACHED, "plan")
