"""One cell of an experiment: the attacks of `secagg audit` on one run."""

from __future__ import annotations

from secagg.audits.audit import audit_job
from secagg.experiments.reference import Reference
from secagg.experiments.runner.types import Numbers, Settings
from secagg.jobs.job import Job


def compute(settings: Settings) -> Numbers:
    """Return what each attack found: its number, that of its control, and its limit.

    settings: as for `secagg.experiments.one_run`; `names` of attacks, with commas; `set_aside`
    An attack that does not apply is left out.
    """
    shared = ("reference", "place", "measure", "records")
    reference = Reference.of(*(str(settings[name]) for name in shared))
    reference.check(str(settings["digest"]))
    drawn = reference.draw(int(settings["seed"]))
    job = Job.model_validate_json(str(settings["job"]))
    audit = audit_job(
        job, drawn.tables, attacks=str(settings["names"]).split(","), seed=int(settings["seed"]),
        set_aside=float(settings["set_aside"]),
    )  # fmt: skip
    found = dict[str, dict[str, float]]()
    for row in audit.attacked:
        if row.finding is None:
            continue
        numbers = {"value": row.finding.value, "leak": float(row.verdict == "leak")}
        if row.control is not None:
            numbers["control"] = row.control.value
        if row.limit is not None:
            numbers["limit"] = row.limit.number
        found[f"{row.label} ({row.who.value})"] = numbers
    return found
