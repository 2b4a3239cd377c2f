"""The report as plain data (report.json): a function of the evidence and of nothing else."""

from __future__ import annotations

from collections import Counter
from typing import Any

from secagg.compliance.components import components
from secagg.compliance.evidence import AllEvidence, digests
from secagg.compliance.registry_entry import registry_entries
from secagg.compliance.sections.adversarial import adversarial, tried
from secagg.compliance.sections.guarantees import guarantee, strongest, unprotected
from secagg.compliance.sections.output_checks import output_checks
from secagg.compliance.sections.parties import messages, threat_model
from secagg.compliance.sections.people import data, scope
from secagg.compliance.sections.proof import integrity, reproducibility, verify_runs
from secagg.compliance.sections.worth import residual, utility
from secagg.compliance.statements import Section, Status
from secagg.core.version import __version__
from secagg.reports.dp_plain_language import explain_epsilon
from secagg.reports.numbers import count, listing

SCHEMA = "secagg-report-1"


def build(evidence: AllEvidence) -> dict[str, Any]:
    """Return the report. Raises `EvidenceError` if a run's folder was changed."""
    verified = verify_runs(evidence)
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
        "first_page": _first_page(evidence, sections),
        "sections": [section.plain() for section in sections],
        "registry": registry_entries(evidence),
        "components": components(evidence),
    }


def _first_page(evidence: AllEvidence, sections: tuple[Section, ...]) -> dict[str, Any]:
    runs = evidence.runs
    titles = list(dict.fromkeys(run.facts["title"] for run in runs))
    counts = {
        section.title: dict(Counter(s.status.value for s in section.statements))
        for section in sections
    }
    return {
        "title": titles[0] if len(titles) == 1 else f"{len(runs)} runs: {listing(titles)}",
        "purpose": evidence.form.purpose.purpose,
        "permit": evidence.form.purpose.permit,
        "claim": strongest(runs),
        "strength": explain_epsilon(runs[0].claims) if len(runs) == 1 else "",
        "who_sees": [
            {"run": run.name, "sites": len(run.facts["cohort"]),
             "roles": [{"role": role, "sees": sees} for role, sees in run.claims.sees.items()]}
            for run in runs
        ],
        "tried": tried(evidence),
        "not_protected": _not_protected(sections),
        "records": [f"{count(run.records)} records at {len(run.facts['cohort'])} sites"
                    for run in runs],
        "statuses": counts,
        "total": {s.value: sum(c.get(s.value, 0) for c in counts.values()) for s in Status},
    }  # fmt: skip


_FIRST_PAGE_TOPICS = (
    "a dishonest coordinator", "one record", "one person", "one event", "colluding sites",
    "one computer", "dishonest data", "the result",
)  # fmt: skip


def _not_protected(sections: tuple[Section, ...]) -> list[dict[str, str]]:
    """Return the gaps that a reader must know first, each once."""
    (section,) = (each for each in sections if each.number == 6)
    first = dict[str, str]()
    for statement in section.statements:
        if statement.topic in _FIRST_PAGE_TOPICS:
            first.setdefault(statement.topic, statement.text)
    return [{"topic": topic, "text": text} for topic, text in first.items()]
