"""The report as plain data (report.json): a function of the evidence and of nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from secagg.compliance.components import components
from secagg.compliance.evidence import AllEvidence, digests
from secagg.compliance.first_page import first_page
from secagg.compliance.registry_entry import registry_entries
from secagg.compliance.sections.adversarial import adversarial
from secagg.compliance.sections.guarantees import guarantee, unprotected
from secagg.compliance.sections.output_checks import output_checks
from secagg.compliance.sections.parties import messages, threat_model
from secagg.compliance.sections.people import data, scope
from secagg.compliance.sections.proof import integrity, reproducibility
from secagg.compliance.sections.worth import residual, utility
from secagg.core.version import __version__
from secagg.evidence.integrity import Verified

SCHEMA = "secagg-report-1"


def build(evidence: AllEvidence, verified: Mapping[str, Verified]) -> dict[str, Any]:
    """Return the report. verified: its runs, from `secagg.compliance.sections.proof.verify_runs`"""
    sections = (
        scope(evidence), data(evidence), threat_model(evidence), messages(evidence),
        guarantee(evidence), unprotected(evidence), output_checks(evidence),
        adversarial(evidence), utility(evidence), residual(evidence), reproducibility(evidence),
        integrity(evidence, verified),
    )  # fmt: skip
    return {
        "schema": SCHEMA,
        "secagg": __version__,
        "evidence": digests(evidence.folder),
        "first_page": first_page(evidence, sections),
        "sections": [section.plain() for section in sections],
        "registry": registry_entries(evidence),
        "components": components(evidence),
        "pdf": "",
    }
