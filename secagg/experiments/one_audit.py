"""One cell of an experiment: the attacks of `secagg audit` on one run."""

from __future__ import annotations

from collections.abc import Sequence

from secagg.audits.audit import Attacked, audit_job
from secagg.audits.by_rounds import audit_by_rounds
from secagg.audits.contract import Verdict
from secagg.experiments.reference import Reference
from secagg.experiments.runner.types import Numbers, Settings
from secagg.jobs.job import Job

ROUNDS = "rounds"
AFTER = ", first "
"""Before the number of sums, in the name of what an attack found after some sums of a run."""


def compute(settings: Settings) -> Numbers:
    """Return what each attack found: its number, that of its control, its limit and its verdict.

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
    if row.verdict is Verdict.NOT_APPLICABLE:
        return {}
    numbers = {
        "leak": float(row.verdict is Verdict.LEAK),
        "inconclusive": float(row.verdict is Verdict.INCONCLUSIVE),
    }
    if row.finding is not None:
        numbers |= {"value": row.finding.value, "low": row.finding.low, "high": row.finding.high}
        if "claim" in row.finding.details:
            numbers["claim"] = float(row.finding.details["claim"])
    if row.control is not None:
        numbers["control"] = row.control.value
    if row.limit is not None:
        numbers |= {"limit": row.limit.number, "errors": float(row.limit.errors)}
    return numbers
