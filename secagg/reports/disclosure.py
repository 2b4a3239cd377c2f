"""What to read first of all sums of a run, by the kind of disclosure that its method declares.

A secure sum hides a site in one round. Where sites remember earlier rounds, or contribute what each
found alone, the sums of all rounds are equations in single sites' statistics. What they determine
is in the method's own words (`secagg.contracts.Disclosure`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from secagg.contracts import DisclosureKind

MAY_REVEAL = "The sums together may reveal single sites"
SOLVABLE = "The sums together can be solved for what single sites contributed"


def disclosure_kind(facts: Mapping[str, Any]) -> DisclosureKind:
    """Return what the run's method declares."""
    return DisclosureKind(facts["method"]["disclosure"]["kind"])


def headline(kind: DisclosureKind) -> str:
    """Return what to read first of all sums of a method; empty if they tell what is pooled only."""
    match kind:
        case DisclosureKind.POOLED:
            return ""
        case DisclosureKind.SITES:
            return MAY_REVEAL
        case DisclosureKind.SOLVABLE:
            return SOLVABLE
