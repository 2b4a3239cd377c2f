"""Sections 9 and 10: what the result is worth, and the risks that remain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from secagg.compliance.evidence import AllEvidence, RunEvidence, well_formed
from secagg.compliance.sections.people import answers
from secagg.compliance.statements import Evidence, Section, Statement, Status, Table
from secagg.evidence.claims.hazards import hazards
from secagg.evidence.numbers import listing, significant
from secagg.experiments.experiment import EPSILON
from secagg.reports import summary as first_page
from secagg.reports.expected_utility import expected
from secagg.reports.experiments.page import number_rows, recommendation_lines


def utility(evidence: AllEvidence) -> Section:
    """Return section 9."""
    found, shown = list[Statement](), list[Table]()
    for run in evidence.runs:
        found += _of_run(run)
    for name, experiment in evidence.experiments.items():
        with well_formed(f"experiments/{name}"):
            found += _of_experiment(name, experiment, evidence)
            shown.append(_table(name, experiment))
    if not evidence.experiments:
        text = (
            "No experiment is attached, so nothing here compares the result with one without "
            "noise. `secagg experiment` does, over records at hand."
        )
        found.append(Statement("experiment", text, Status.MISSING))
    return Section(
        9, "Utility", "GDPR 35(7)(b), proportionality; NIST SP 800-226, bias",
        (*found, *answers(evidence, "judgement", ("utility",))), tuple(shown),
    )  # fmt: skip


def _of_run(run: RunEvidence) -> list[Statement]:
    if not run.claims.noised:
        text = (
            "The sums are exact, so the result is that of all records in one place, up to rounding."
        )
        return [run.says("exactness", text, Status.ATTACHED, "plan")]
    places = ("feasibility", run.at("", "result.json"))
    return [
        run.says("expected error", text, Status.PERSON, *places)
        for text in expected(run.facts, run.summary)
    ]


def _of_experiment(
    name: str, experiment: Mapping[str, Any], evidence: AllEvidence
) -> list[Statement]:
    job, runs = experiment["job"], evidence.runs
    same = [
        run for run in runs
        if (run.facts["method"]["name"], sorted(run.facts["job"]["columns"]))
        == (job["method"], sorted(job["columns"]))
    ]  # fmt: skip
    who, stated = evidence.stated_by(f"experiments/{name}")
    which = f"those of {listing([run.name for run in same])}" if same else "those of no run here"
    text = (
        f"“{experiment['title']}” ran the job “{job['title']}” ({job['method']}), with changed "
        f"settings. Its method and its columns are {which}. {who}"
    )
    place = Evidence(f"experiments/{name}", "job")
    status = Status.PERSON if same else Status.MISSING
    found = [Statement("job of the experiment", text, status, (place,))]
    place = Evidence(f"experiments/{name}", "recommendations")
    found += [
        Statement("experiment", line, stated, (place,)) for line in recommendation_lines(experiment)
    ]
    found += [_below(name, experiment, run) for run in same if _is_below(experiment, run)]
    return [*found, _tuning(name, experiment)]


def _is_below(experiment: Mapping[str, Any], run: RunEvidence) -> bool:
    smallest = [r["smallest"] for r in experiment["recommendations"] if r["smallest"] is not None]
    along_epsilon = experiment["across"] == EPSILON
    return (
        along_epsilon and bool(smallest) and run.claims.holds
        and run.claims.guarantee["epsilon"] < min(smallest)
    )  # fmt: skip


def _below(name: str, experiment: Mapping[str, Any], run: RunEvidence) -> Statement:
    epsilon = significant(run.claims.guarantee["epsilon"])
    text = (
        f"The run's ε, {epsilon}, is smaller than every ε at which “{experiment['title']}” reached "
        "its goal. So the result may be less exact than that goal."
    )
    places = (Evidence(f"experiments/{name}", "recommendations"), run.at("privacy/epsilon"))
    return run.says("ε against the experiment", text, Status.PERSON, *places)


def _table(name: str, experiment: Mapping[str, Any]) -> Table:
    head, rows = number_rows(experiment, costs=False)
    return Table(
        f"{experiment['title']}: means over {experiment['repeat']} runs", tuple(head), rows,
        tuple(range(1, len(head))), (Evidence(f"experiments/{name}", "curves"),),
    )  # fmt: skip


def _tuning(name: str, experiment: Mapping[str, Any]) -> Statement:
    place = Evidence(f"experiments/{name}", "public")
    if experiment["public"]:
        text = "The experiment's records are said to be public or simulated, so it cost nothing."
        return Statement("tuning", text, Status.PERSON, (place,))
    text = (
        "The experiment read private records outside every ledger. If settings were chosen from "
        "it, the guarantee does not cover that choice. This report has its numbers, some of them "
        "without noise, so the guarantee of a run does not cover readers of this report."
    )
    return Statement("tuning", text, Status.MISSING, (place,))


def residual(evidence: AllEvidence) -> Section:
    """Return section 10."""
    found = list[Statement]()
    for run in evidence.runs:
        for title, text in warnings_of(run):
            found.append(run.says("warning", f"{title}. {text}", Status.MISSING, ""))
        if run.claims.holds:
            found += [run.state(claim) for claim in hazards(run.claims, run.summary)]
    return Section(
        10, "Residual risks and hazards", "GDPR 35(7)(c), (d); NIST SP 800-226, hazards",
        (*answers(evidence, "judgement", ("residual", "groups")), *found),
    )  # fmt: skip


def warnings_of(run: RunEvidence) -> list[tuple[str, str]]:
    """Return the warnings of the run's own report: (title, text). There, it is `this page`."""
    return [
        (banner.title, banner.text.replace("his page", "he report of the run"))
        for banner in first_page.banners(run.facts, run.summary, run.claims)
    ]
