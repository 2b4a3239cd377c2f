"""Sections 11 and 12: how to compute everything again, and why nothing was changed."""

from __future__ import annotations

from collections.abc import Mapping

from secagg.compliance.evidence import AllEvidence, RunEvidence
from secagg.compliance.statements import Section, Statement, Status, Table
from secagg.evidence.integrity import Verified, verify_folder
from secagg.evidence.numbers import counted, listing


def reproducibility(evidence: AllEvidence) -> Section:
    """Return section 11."""
    found, shown = list[Statement](), list[Table]()
    for run in evidence.runs:
        facts = run.facts
        text = (
            f"secagg {facts['secagg']}; session {facts['session']}. Its name is a digest of "
            "roster, nonce, job, method, protocol and bounds. Secret seeds are not recorded, so "
            "noise and keys cannot be computed again."
        )
        found.append(run.says("session", text, Status.ATTACHED, "session", "secagg"))
        rows = sorted(facts["versions"].items())
        shown.append(
            Table(f"Components of run {run.name}", ("Component", "Version"), rows,
                  evidence=(run.at("versions"),))
        )  # fmt: skip
    text = "The machine-readable twin has the components as CycloneDX, under `components`."
    places = tuple(run.at("versions") for run in evidence.runs)
    found.append(Statement("component list", text, Status.ATTACHED, places))
    return Section(11, "Reproducibility", "SLSA provenance; CycloneDX", tuple(found), tuple(shown))


def integrity(evidence: AllEvidence, verified: Mapping[str, Verified]) -> Section:
    """Return section 12. verified: what `verify_runs` returned"""
    found = [_of_run(run, verified[run.name]) for run in evidence.runs]
    text = (
        "`secagg verify` with the folder of this report checks every run, builds every statement "
        "again from the evidence, and names what differs. Without signatures (`secagg sign`), this "
        "shows only that the parts of the folder belong together."
    )
    logs = tuple(run.at("", "log.jsonl") for run in evidence.runs)
    found.append(Statement("how to check", text, Status.ATTACHED, logs))
    return Section(12, "Integrity", "GDPR 5(2), 32(1)(b)", tuple(found))


def verify_runs(evidence: AllEvidence) -> dict[str, Verified]:
    """Verify the folder of every run. Raises `EvidenceError`, which names what was changed."""
    return {run.name: verify_folder(run.folder) for run in evidence.runs}


def _of_run(run: RunEvidence, verified: Verified) -> Statement:
    text = (
        f"The log has {counted(verified.lines, 'line')} in an unbroken chain of digests with the "
        f"head {verified.head}. "
    )
    if verified.countersigned:
        text += f"{listing(verified.countersigned)} countersigned it at its end. "
    if verified.unsigned:
        text += f"{listing(verified.unsigned)} did not. "
    text += (
        "What run.json says of method, protocol, guarantee and feasibility follows from the job. "
        if verified.claims_checked
        else f"Its claims were not checked: {verified.claims_not_checked}. "
    )
    text += (
        "The result was computed again from the released sums, bit for bit."
        if verified.recomputed
        else f"The result was not computed again: {verified.not_recomputed}."
    )
    whole = not verified.unsigned and not verified.unchecked
    status = Status.ATTACHED if whole else Status.PERSON
    return run.says("log", text, status, "log/head", run.line("countersigned"))
