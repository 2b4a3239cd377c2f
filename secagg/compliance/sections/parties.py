"""Sections 3 and 4: who must be trusted with what, and every message that left a site."""

from __future__ import annotations

from secagg.compliance.evidence import AllEvidence, RunEvidence
from secagg.compliance.sections.people import answers
from secagg.compliance.statements import Section, Statement, Status, Table
from secagg.contracts import DisclosureKind
from secagg.evidence.claims.claim import Claim, as_sentence
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
    found = [
        Statement(
            f"what the {role} sees", f"{'The' if role == 'coordinator' else 'Each'} {role} sees "
            f"{what}.", Status.ATTACHED, (run.at(f"protocol/sees/{role}"),), run.name,
        )
        for role, what in claims.sees.items()
    ]  # fmt: skip
    found.append(
        Statement(
            "collusion", as_sentence(facts["protocol"]["in_numbers"]), Status.PERSON,
            (run.at("protocol/in_numbers"),), run.name,
        )
    )  # fmt: skip
    found.append(
        Statement(
            "where it ran", as_sentence(where_it_ran(facts)),
            Status.ATTACHED if "pinned_roster" in facts["engine"] else Status.PERSON,
            (run.at("engine"),), run.name,
        )
    )  # fmt: skip
    text = claims.void or "Keys, masks and noise came from the operating system's generator."
    status = Status.MISSING if claims.void else Status.ATTACHED
    found.append(run.state(Claim("randomness", text, status, "randomness")))
    key = f"The coordinator's public key is {tables.coordinator_key(facts)}."
    found.append(Statement("keys", key, Status.ATTACHED, (run.at("roster"),), run.name))
    return found


def messages(evidence: AllEvidence) -> Section:
    """Return section 4."""
    found, shown = list[Statement](), list[Table]()
    for run in evidence.runs:
        facts, claims = run.facts, run.claims
        numbers = tables.numbers_released(facts, claims)
        text = f"{who_saw(facts, claims)} The sums had {counted(numbers, 'number')} in all."
        found.append(
            Statement("opened sums", text, Status.ATTACHED, (run.line("release"),), run.name)
        )
        found.append(_together(run))
        consented = consent(facts)
        found.append(
            Statement("consent", consented, Status.ATTACHED, (run.line("consent"),), run.name)
        )
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
    place = run.at("method/disclosure/text")
    return Statement("all sums together", text, status, (place,), run.name)


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
