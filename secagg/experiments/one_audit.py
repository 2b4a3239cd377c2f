"""One cell of an experiment: the attacks of `secagg audit` on one run."""

from __future__ import annotations

from collections.abc import Sequence

from secagg.audits.audit import Attacked, audit_job
from secagg.audits.by_rounds import audit_by_rounds
from secagg.audits.contract import Finding, Verdict
from secagg.experiments.reference import Reference
from secagg.experiments.runner.types import Numbers, Settings
from secagg.jobs.job import Job
from secagg.reports.experiments.attacks import CONTROL

ROUNDS = "rounds"
AFTER = ", first "
"""Before the number of sums, in the name of what an attack found after some sums of a run."""


def compute(settings: Settings) -> Numbers:
    """Return what each attack found: its number, that of its control, and their limits.

    settings: as for `secagg.experiments.one_run`; `names` of attacks, with commas; `set_aside`;
        `rounds`, with commas: also after so many sums
    An attack that does not apply has no numbers. For a lower bound on epsilon, `claim` is the
    epsilon that the job claims, and value and control are divided by it.
    """
    shared = ("reference", "place", "measure", "records")
    reference = Reference.of(*(str(settings[name]) for name in shared))
    reference.check(str(settings["digest"]))
    seed, share = int(settings["seed"]), float(settings["set_aside"])
    tables = reference.draw(seed).tables
    job = Job.model_validate_json(str(settings["job"]))
    names = str(settings["names"]).split(",")
    rounds = [int(each) for each in str(settings.get(ROUNDS, "")).split(",") if each]
    if not rounds:
        audit = audit_job(job, tables, attacks=names, seed=seed, set_aside=share)
        return _found(audit.attacked)
    found = audit_by_rounds(job, tables, attacks=names, rounds=rounds, seed=seed, set_aside=share)
    parts = {
        f"{name}{AFTER}{r}": {**numbers, ROUNDS: float(r)}
        for r, attacked in found.items()
        for name, numbers in _found(attacked).items()
        if numbers
    }
    return {**_found(found[max(found)]), **parts}


def _found(attacked: Sequence[Attacked]) -> dict[str, dict[str, float]]:
    return {f"{row.label} ({row.who.value})": _numbers(row) for row in attacked}


def _numbers(row: Attacked) -> dict[str, float]:
    """Return what decides the verdict, which is computed where it is shown."""
    if row.verdict is Verdict.NOT_APPLICABLE:
        return {}
    if row.finding is None or row.limit is None:
        return {"unfinished": 1.0}
    numbers = {**_finding(row.finding, ""), "failed": float(bool(row.finding.failed))}
    if "claim" in row.finding.details:
        numbers["claim"] = float(row.finding.details["claim"])
    numbers |= {"limit": row.limit.number, "errors": float(row.limit.errors)}
    planted = row.outcome.control_limit
    if row.control is not None and planted is not None:
        numbers |= _finding(row.control, CONTROL) | {"control_limit": planted.number}
    return numbers


def _finding(found: Finding, prefix: str) -> dict[str, float]:
    names = ("value", "low", "high", "baseline")
    numbers = {f"{prefix}{name}": float(getattr(found, name)) for name in names}
    return numbers | {f"{prefix}bound": float(bool(found.bound))}
