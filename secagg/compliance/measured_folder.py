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
from secagg.compliance.evidence import read_json, well_formed
from secagg.compliance.report_folder import compare_page
from secagg.compliance.signatures import FOLDER, Signed, read_signatures
from secagg.errors import EvidenceError
from secagg.experiments.summary import SCHEMA, check_summary
from secagg.reports.audits.page import audit_page
from secagg.reports.experiments.page import experiment_page
from secagg.runs.run_files import file_digest

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
    done = ""
    if file == AUDIT:
        content |= read_audit(content, AUDIT)
        compare_page(folder / "audit.html", audit_page(content))
        numbers = len(content["attacks"])
        if again is not None:
            jobs, _, runs = files_for(again)
            done = measure_audit(content, AUDIT, runs, jobs)
    else:
        with well_formed(""):
            if content["schema"] != SCHEMA:
                raise EvidenceError(EXPERIMENT, f"has not schema {SCHEMA}")
            check_summary(content, EXPERIMENT)
            compare_page(folder / "report.html", experiment_page(content))
            numbers = sum(len(curve["points"]) for curve in content["curves"])
        if again is not None:
            done = measure_experiment(content, EXPERIMENT, files_for(again)[1])
    digest = file_digest(folder / file)
    signed = read_signatures(folder / FOLDER, FOLDER, bytes.fromhex(digest), ())
    return VerifiedMeasurement(file, digest, str(content["title"]), numbers, signed, done)
