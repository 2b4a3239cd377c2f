"""Where the parties of a run were, and what each saw, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from secagg.evidence.claims.privacy import PrivacyClaims
from secagg.evidence.claims.rules import opened
from secagg.evidence.numbers import counted

Facts = Mapping[str, Any]


def who_saw(facts: Facts, claims: PrivacyClaims) -> str:
    """Return who saw what, in how many sums over how many sites."""
    parts = [
        f"{'the coordinator' if role == 'coordinator' else f'each {role}'} saw {what}"
        for role, what in claims.sees.items()
    ]
    return f"In {opened(facts)}: {'; '.join(parts)}."


def where_it_ran(facts: Facts) -> str:
    """Return where the parties of this run were."""
    engine = facts["engine"]
    if engine["name"] == "memory":
        return "one computer, all parties in one process"
    processes = counted(engine["processes"], "process", "processes")
    text = f"one computer, {processes}, one for each party"
    if pinned := engine.get("pinned_roster"):
        text = (
            f"each party at its own place, over {engine['name'].upper()}; roster with the "
            f"fingerprint {pinned}"
        )
    if engine["resumed"]:
        text += f"; interrupted and resumed {counted(engine['resumed'], 'time')}"
    return text


def dropped(facts: Facts) -> Sequence[str]:
    """Return the sites in the roster whose data is in no sum."""
    cohort = set(facts["cohort"])
    return [p["name"] for p in facts["roster"] if p["role"] == "site" and p["name"] not in cohort]
