"""Sections 5 and 6: what is guaranteed, and what is not protected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from secagg.compliance.evidence import AllEvidence, RunEvidence, well_formed
from secagg.compliance.sections.people import answers
from secagg.compliance.statements import Evidence, Section, Statement, Status, Table
from secagg.core.identity import COORDINATOR
from secagg.reports import dp_mechanisms, dp_plain_language, limitations
from secagg.reports.numbers import counted, listing


def guarantee(evidence: AllEvidence) -> Section:
    """Return section 5."""
    found, shown = list[Statement](), list[Table]()
    for run in evidence.runs:
        found += _of_run(run)
        if run.claims.noised:
            terms = dp_mechanisms.terms(run.claims, run.facts["job"]["privacy"])
            shown.append(
                Table(f"The guarantee of run {run.name}, term by term", ("Term", "Value"), terms,
                      evidence=(run.at("privacy"),))
            )  # fmt: skip
            head, *rows = dp_mechanisms.mechanisms(run.claims)
            cells = [(name, *values) for name, values in rows]
            shown.append(
                Table(f"The noise of run {run.name}, by stage", (head[0], *head[1]), cells,
                      tuple(range(1, len(head[1]) + 1)), (run.at("privacy/mechanisms"),))
            )  # fmt: skip
    with well_formed("ledgers.json"):
        found += _ledgers(evidence)
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
        for topic, text in dp_plain_language.plain_words(claims, len(run.facts["cohort"])):
            found.append(Statement(topic.lower(), text, status, (run.at("privacy"),), run.name))
    return found


def _ledgers(evidence: AllEvidence) -> list[Statement]:
    """Return what the ledgers say of all runs on each data set."""
    if evidence.ledgers is None:
        text = (
            "No ledger is attached, so nothing here says which other runs used the same records. "
            "Nor does it say what all of them cost together."
        )
        return [Statement("all runs together", text, Status.MISSING)]
    by_dataset = dict[tuple[str, str], list[Mapping[str, Any]]]()
    for row in evidence.ledgers:
        if row["kind"] == "entry":
            by_dataset.setdefault((row["party"], row["dataset"]), []).append(row)
    found = list[Statement]()
    known = {run.facts["session"] for run in evidence.runs}
    in_ledgers = {str(row["session"]) for row in evidence.ledgers}
    if absent := [run.name for run in evidence.runs if run.facts["session"] not in in_ledgers]:
        text = f"The ledgers have no line of {counted(len(absent), 'run')}: {listing(absent)}."
        place = (Evidence("ledgers.json"),)
        found.append(Statement("runs without a line", text, Status.MISSING, place))
    for (party, dataset), rows in sorted(by_dataset.items()):
        sessions = dict.fromkeys(str(row["session"]) for row in rows)
        other = [s for s in sessions if s not in known]
        exact = sum(row["cost"]["epsilon_add_remove"] is None for row in rows)
        words = f"The ledger of {party} has {counted(len(rows), 'release')} of {dataset}"
        words += f" in {counted(len(sessions), 'run')}"
        words += f", of which {len(other)} are not in this report" if other else ""
        words += f"; {exact} of them exact, so no ε bounds them together." if exact else "."
        status = Status.PERSON if other or exact else Status.ATTACHED
        found.append(
            Statement(f"ledger of {party}" if party != COORDINATOR else "coordinator's ledger",
                      words, status, (Evidence("ledgers.json"),))
        )  # fmt: skip
    return found


def unprotected(evidence: AllEvidence) -> Section:
    """Return section 6."""
    found = [
        Statement(topic.lower(), " ".join(texts), Status.PERSON, (run.at(""),), run.name)
        for run in evidence.runs
        for topic, texts in limitations.unprotected(run.facts, run.claims)
    ]
    return Section(6, "What is not protected", "Deployments Registry tier 3", tuple(found))
