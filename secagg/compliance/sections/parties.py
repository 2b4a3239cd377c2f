"""Sections 3 and 4: who must be trusted with what, and every message that left a site."""

from __future__ import annotations

from secagg.compliance.evidence import AllEvidence, RunEvidence
from secagg.compliance.sections.people import answers
from secagg.compliance.statements import Section, Statement, Status, Table
from secagg.contracts import DisclosureKind
from secagg.evidence.claims.claim import as_sentence
from secagg.evidence.claims.disclosure import determined, disclosure_kind
from secagg.evidence.claims.parties import where_it_ran, who_saw
from secagg.evidence.claims.rules import consent
from secagg.evidence.numbers import count, counted, listing
from secagg.reports import tables


def threat_model(evidence: AllEvidence) -> Section:
    """Return section 3."""
    found = [statement for run in evidence.runs for statement in _of_run(run)]
    return Section(
        3, "Threat model and trust", "ISO 27559 6.2; NIST SP 800-226, trust model",
        (*answers(evidence, "trust"), *found),
    )  # fmt: skip


def _of_run(run: RunEvidence) -> list[Statement]:
    facts, claims = run.facts, run.claims
    apart = Status.ATTACHED if "pinned_roster" in facts["engine"] else Status.PERSON
    generated = "Keys, masks and noise came from the operating system's generator."
    status = Status.MISSING if claims.void else Status.ATTACHED
    key = f"The coordinator's public key is {tables.coordinator_key(facts)}."
    collusion = as_sentence(facts["protocol"]["in_numbers"])
    return [
        *(
            run.says(
                f"what the {role} sees",
                f"{'The' if role == 'coordinator' else 'Each'} {role} sees {what}.",
                Status.ATTACHED,
                f"protocol/sees/{role}",
            )
            for role, what in claims.sees.items()
        ),
        run.says("collusion", collusion, Status.PERSON, "protocol/in_numbers"),
        run.says("where it ran", as_sentence(where_it_ran(facts)), apart, "engine"),
        run.says("randomness", claims.void or generated, status, "randomness"),
        run.says("keys", key, Status.ATTACHED, "roster"),
    ]


def messages(evidence: AllEvidence) -> Section:
    """Return section 4."""
    found, shown = list[Statement](), list[Table]()
    for run in evidence.runs:
        facts, claims = run.facts, run.claims
        numbers = tables.numbers_released(facts, claims)
        text = f"{who_saw(facts, claims)} The sums had {counted(numbers, 'number')} in all."
        found += [
            run.says("opened sums", text, Status.ATTACHED, run.line("release")),
            _together(run),
            run.says("consent", consent(facts), Status.ATTACHED, run.line("consent")),
        ]
        shown += [_phases(run), _stages(run)]
    return Section(
        4, "Every message that left a site", "EHDS; GDPR 30, 32", tuple(found), tuple(shown)
    )


def _together(run: RunEvidence) -> Statement:
    kind = disclosure_kind(run.facts)
    status = {
        DisclosureKind.POOLED: Status.ATTACHED,
        DisclosureKind.SITES: Status.PERSON,
        DisclosureKind.SOLVABLE: Status.MISSING,
    }[kind]
    text = determined(run.facts["method"]["disclosure"]["text"], noised=run.claims.noised)
    return run.says("all sums together", text, status, "method/disclosure/text")


def _phases(run: RunEvidence) -> Table:
    rows = [
        (p["phase"], "to" if p["kind"] == "request" else "from", p["role"], count(p["messages"]),
         count(p["bytes"]))
        for p in run.facts["phases"]
    ]  # fmt: skip
    return Table(
        f"Messages of run {run.name}. All go through the coordinator: requests to a party, replies "
        "from it",
        ("Phase", "Direction", "Party", "Messages", "Bytes"), rows, (3, 4), (run.at("phases"),),
    )  # fmt: skip


def _stages(run: RunEvidence) -> Table:
    stages = tables.stages(run.facts, run.summary, run.claims)
    rows = [
        (s.name, s.sees, count(s.values), count(s.releases), listing(run.facts["cohort"]))
        for s in stages
    ]
    return Table(
        f"Sums of run {run.name}",
        ("Stage", "Each sum contains", "Numbers in it", "Opened", "Over the sites"), rows, (2, 3),
        (run.at("plan"), run.at("releases")),
    )  # fmt: skip
