"""The folder of an audit or an experiment: does it hold together, and who signed it?

All that follows from the numbers in audit.json is computed again (`secagg.audits.audit_file`), and
the page is drawn again from it. An experiment's page is drawn again from summary.json.

Not protected: invented numbers. Run it again (`secagg.compliance.again`), or ask for a signature.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from secagg.audits.audit_file import read_audit
from secagg.compliance.again import files_for, measure_audit, measure_experiment
from secagg.compliance.evidence import read_json
from secagg.compliance.report_folder import compare_page
from secagg.compliance.signatures import FOLDER, Signed, read_signatures
from secagg.errors import EvidenceError
from secagg.evidence.run_files import file_digest
from secagg.evidence.run_folder import MALFORMED_ERRORS
from secagg.experiments.summary import SCHEMA, check_summary
from secagg.reports.audits.page import audit_page
from secagg.reports.experiments.page import experiment_page

AUDIT, EXPERIMENT = "audit.json", "summary.json"


@dataclass(frozen=True)
class VerifiedMeasurement:
    """What was checked.

    file: audit.json or summary.json; digest: its SHA-256; signed: by whom
    again: what was run anew, or why not; empty if it was not asked for
    """

    file: str
    digest: str
    title: str
    numbers: int
    signed: tuple[Signed, ...]
    again: str = ""


def verify_measurement(folder: Path, again: Sequence[Path] | None = None) -> VerifiedMeasurement:
    """Check the folder of an audit or an experiment.

    again: also run it anew, with the records of these jobs, these runs or these experiments
    Raises `EvidenceError` that names what does not follow.
    """
    file = AUDIT if (folder / AUDIT).exists() else EXPERIMENT
    content: Any = read_json(folder / file)
    try:
        checked = _audit if file == AUDIT else _experiment
        numbers, done = checked(folder, content, again)
    except MALFORMED_ERRORS as error:
        raise EvidenceError(file, "is malformed") from error
    digest = file_digest(folder / file)
    signed = read_signatures(folder / FOLDER, FOLDER, bytes.fromhex(digest), ())
    return VerifiedMeasurement(file, digest, str(content["title"]), numbers, signed, done)


def _audit(folder: Path, content: Any, again: Sequence[Path] | None) -> tuple[int, str]:
    """Return how many attacks an audit has, and what was done again."""
    audit = content | read_audit(content, AUDIT)
    compare_page(folder / "audit.html", audit_page(audit))
    done = ""
    if again is not None:
        jobs, _, runs = files_for(again)
        done = measure_audit(audit, AUDIT, runs, jobs)
    return len(audit["attacks"]), done


def _experiment(folder: Path, content: Any, again: Sequence[Path] | None) -> tuple[int, str]:
    """Return how many points an experiment has, and what was done again."""
    if content["schema"] != SCHEMA:
        raise EvidenceError(EXPERIMENT, f"has schema {content['schema']}, and {SCHEMA} is read")
    check_summary(content, EXPERIMENT)
    compare_page(folder / "report.html", experiment_page(content))
    points = sum(len(curve["points"]) for curve in content["curves"])
    done = "" if again is None else measure_experiment(content, EXPERIMENT, files_for(again)[1])
    return points, done
