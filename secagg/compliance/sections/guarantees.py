"""Sections 5 and 6: what is guaranteed, and what is not protected."""

from __future__ import annotations

from secagg.compliance.evidence import AllEvidence, RunEvidence
from secagg.compliance.sections.ledgers import ledger_statements
from secagg.compliance.sections.people import answers
from secagg.compliance.statements import Section, Statement, Status, Table
from secagg.evidence.claims import guarantee as guarantees
from secagg.evidence.claims import limitations, noise


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
    if not claims.noised:
        hidden = "Secure sums hide each site's contribution" if claims.hides_sites else ""
        text = (
            f"{claims.sentence} {hidden}{'; they do not hide' if hidden else 'Nothing hides'} what "
            "the sums say about the records together."
        )
        return [Statement("one record", text, Status.PERSON, (run.at("privacy"),), run.name)]
    status = Status.ATTACHED if claims.holds else Status.MISSING
    found = [Statement("one record", claims.sentence, status, (run.at("privacy"),), run.name)]
    if claims.holds:
        for topic, text in guarantees.plain_words(claims, len(run.facts["cohort"])):
            found.append(Statement(topic.lower(), text, status, (run.at("privacy"),), run.name))
    return found


def unprotected(evidence: AllEvidence) -> Section:
    """Return section 6."""
    found = [
        Statement(topic.lower(), " ".join(texts), Status.PERSON, (run.at(""),), run.name)
        for run in evidence.runs
        for topic, texts in limitations.unprotected(run.facts, run.claims)
    ]
    return Section(6, "What is not protected", "Deployments Registry tier 3", tuple(found))
