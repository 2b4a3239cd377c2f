"""Sections 5 and 6: what is guaranteed, and what is not protected."""

from __future__ import annotations

from secagg.compliance.evidence import AllEvidence, RunEvidence
from secagg.compliance.sections.ledgers import ledger_statements
from secagg.compliance.sections.people import answers
from secagg.compliance.statements import Section, Statement, Status, Table
from secagg.evidence.claims import limitations, noise
from secagg.evidence.claims.claim import Claim


def guarantee(evidence: AllEvidence) -> Section:
    """Return section 5."""
    found, shown = list[Statement](), list[Table]()
    for run in evidence.runs:
        found += _of_run(run)
        if run.claims.noised:
            terms = noise.terms(run.claims, run.facts["job"]["privacy"])
            shown.append(
                Table(f"The guarantee of run {run.name}, term by term", ("Term", "Value"), terms,
                      evidence=(run.at("privacy"),))
            )  # fmt: skip
            head, *rows = noise.mechanisms(run.claims)
            cells = [(name, *values) for name, values in rows]
            shown.append(
                Table(f"The noise of run {run.name}, by stage", (head[0], *head[1]), cells,
                      tuple(range(1, len(head[1]) + 1)), (run.at("privacy/mechanisms"),))
            )  # fmt: skip
    of_ledgers, table = ledger_statements(evidence)
    found += of_ledgers
    shown += table
    return Section(
        5, "Guarantee", "NIST SP 800-226; Deployments Registry tiers 2 and 3",
        (*found, *answers(evidence, "judgement", ("epsilon", "tuning"))), tuple(shown),
    )  # fmt: skip


def _of_run(run: RunEvidence) -> list[Statement]:
    claims = run.claims
    status = Status.PERSON if not claims.noised else Status.MISSING
    one = Claim(
        "one record", claims.sentence, Status.ATTACHED if claims.holds else status, "privacy"
    )
    return [run.state(claim) for claim in (one, *(claims.plain_words() if claims.holds else ()))]


def unprotected(evidence: AllEvidence) -> Section:
    """Return section 6."""
    found = [
        run.state(claim)
        for run in evidence.runs
        for claim in limitations.unprotected(run.facts, run.claims)
    ]
    return Section(6, "What is not protected", "Deployments Registry tier 3", tuple(found))
