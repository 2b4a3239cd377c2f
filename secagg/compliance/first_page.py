"""The first page: what an officer asks first, as plain data.

Runs for which the page has the same words share one entry. Runs with the weakest guarantee come
first, so that nobody reads a strong one as that of all runs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from secagg.compliance.evidence import AllEvidence, RunEvidence, in_order
from secagg.compliance.first_questions import still_open
from secagg.compliance.plain_guarantees import (
    SAME,
    how_to_read,
    plain_guarantee,
    short_guarantee,
    strongest,
)
from secagg.compliance.sections.adversarial import tried
from secagg.compliance.sections.ledgers import all_runs_together
from secagg.compliance.sections.worth import warnings_of
from secagg.compliance.statements import Section, Status
from secagg.contracts.reporting import ASKED_ONCE
from secagg.evidence.claims import limitations
from secagg.evidence.claims.privacy import contribution_hidden
from secagg.evidence.claims.rules import opened
from secagg.evidence.numbers import count, listing

_GAPS = (
    "A dishonest coordinator", "One record", "One person", "One event", "Colluding sites",
    "Dishonest data", "The result",
)  # fmt: skip

_IN_ORDER = ("site", "aggregator", "coordinator")
_RESULT = "numbers that were computed from the sums"


def first_page(evidence: AllEvidence, sections: tuple[Section, ...]) -> dict[str, Any]:
    """Return the first page. sections: all sections of the report"""
    runs, together = evidence.runs, _together(evidence)
    alike = len({run.claims.noised for run in runs}) == 1
    points = plain_guarantee if len(runs) == 1 else short_guarantee
    titles = list(dict.fromkeys(run.facts["title"] for run in runs))
    counts = {
        section.title: dict(Counter(s.status.value for s in section.statements))
        for section in sections
    }
    weakest_first = sorted(runs, key=_strength)
    return {
        "title": titles[0] if len(titles) == 1 else f"{len(runs)} runs: {listing(titles)}",
        "purpose": evidence.form.purpose.purpose,
        "permit": evidence.form.purpose.permit,
        "runs": [
            {
                "run": run.name,
                "title": run.facts["title"],
                "records": _records(run),
                "sites": list(run.facts["cohort"]),
                "date": run.facts["finished"][:10],
            }
            for run in runs
        ],
        "claim": strongest(runs, together),
        "together": together,
        "warnings": _warnings(runs),
        "guarantees": _shared(weakest_first, lambda run: {"points": points(run)}),
        "how_to_read": how_to_read(runs) if len(runs) > 1 else "",
        "opened": _shared(weakest_first, lambda run: {"text": opened(run.facts)}),
        "who_sees": _shared(
            weakest_first,  # of several runs, those with and without noise share the drawing
            lambda r: _who_sees(r, r.claims.sees if alike else r.facts["protocol"]["sees"]),
        ),
        "hidden": _shared(
            weakest_first, lambda run: {"text": contribution_hidden(run.facts, run.claims).text}
        ),
        "tried": tried(evidence),
        "not_protected": _not_protected(weakest_first),
        "open": still_open(evidence, sections),
        "statuses": counts,
        "total": {s.value: sum(c.get(s.value, 0) for c in counts.values()) for s in Status},
    }


def _together(evidence: AllEvidence) -> str:
    """Return what the ledgers say of all runs on these records; "" if nothing."""
    runs = evidence.runs
    if not all(run.claims.holds for run in runs):
        return ""
    kinds = {tuple(run.claims.guarantee.get(key) for key in SAME) for run in runs}
    same = len(kinds) == 1
    return all_runs_together(evidence, runs[0].claims.guarantee["adjacency"]) if same else ""


def _strength(run: RunEvidence) -> float:
    """Return a number that is larger for a stronger guarantee."""
    return -float(run.claims.guarantee["epsilon"]) if run.claims.holds else -math.inf


def _records(run: RunEvidence) -> str:
    return f"{'about ' if run.claims.noised else ''}{count(run.records)} records"


def _shared(
    runs: Sequence[RunEvidence], of_run: Callable[[RunEvidence], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return what a function says of each run, with the names of the runs that share it."""
    found = list[dict[str, Any]]()
    for run in runs:
        said = of_run(run)
        same = next((each for each in found if said.items() <= each.items()), None)
        if same is None:
            found.append({"runs": [run.name], **said})
        else:
            same["runs"].append(run.name)
    order = [run.name for run in sorted(runs, key=in_order)]
    for each in found:
        each["runs"].sort(key=order.index)
    return found


def _where(run: RunEvidence) -> str:
    gaps = limitations.unprotected(run.facts, run.claims)
    return next(claim.text for claim in gaps if claim.topic == "One computer")


def _warnings(runs: Sequence[RunEvidence]) -> list[dict[str, Any]]:
    found = dict[tuple[str, str], list[str]]()
    for run in runs:
        where = ("Where it ran", _where(run))
        if "pinned_roster" not in run.facts["engine"]:
            where = ("One person could read all records", where[1])
        for title, text in (where, *warnings_of(run)):
            found.setdefault((title, text), []).append(run.name)
    return [{"runs": names, "title": title, "text": text} for (title, text), names in found.items()]


def _who_sees(run: RunEvidence, sees: Mapping[str, str]) -> dict[str, Any]:
    """Return who saw what, in the order in which numbers pass: from the sites to everybody."""
    order = [*_IN_ORDER, *(role for role in sees if role not in _IN_ORDER)]
    roles = [{"role": role, "sees": sees[role]} for role in order if role in sees]
    withstands = run.facts["protocol"]["in_numbers"] if run.claims.hides_sites else ""
    return {
        "withstands": withstands,
        "roles": [*roles, {"role": "reader", "sees": _of_readers(run)}],
    }


def _of_readers(run: RunEvidence) -> str:
    """Return what readers of the result saw; a simulation may also show each site's own result."""
    alone = (run.facts["job"].get("simulation") or {}).get("site_alone")
    return f"{_RESULT}{', and results of each site alone' if alone else ''}"


def _not_protected(runs: Sequence[RunEvidence]) -> list[dict[str, Any]]:
    """Return the gaps of all runs by topic, each text once."""
    found = list[dict[str, Any]]()
    for topic in _GAPS:
        texts = dict[str, list[str]]()
        for run in runs:
            if text := _gap(topic, run):
                texts.setdefault(text, []).append(run.name)
        if texts:
            each = [{"runs": names, "text": text} for text, names in texts.items()]
            found.append({"topic": topic, "texts": each})
    return found


def _gap(topic: str, run: RunEvidence) -> str:
    """Return a gap of section 6 in short; "" if the run does not have it."""
    gaps = {claim.topic: claim for claim in limitations.unprotected(run.facts, run.claims)}
    gap = gaps.get(topic)
    if gap is None or gap.text.startswith(ASKED_ONCE):  # that text states a protection, not a gap
        return ""
    if topic == "A dishonest coordinator":
        return f"{gap.in_short} Section 6 says what one could learn."
    return gap.in_short
