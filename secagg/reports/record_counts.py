"""Who knows how many records there were, in a run whose sums are exact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from secagg.contracts import DisclosureKind
from secagg.reports.disclosure import disclosure_kind
from secagg.reports.results import blocks


def of_records(facts: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """Return who knows the numbers of records, in all and at each site."""
    known = (
        "Both are sums over all sites, which the first release of the run opened: the coordinator "
        "knows them, and tells every site how many are complete. "
    )
    if disclosure_kind(facts) is not DisclosureKind.POOLED:
        known += (
            "No sum is the number of a single site, but what all sums together determine depends "
            "on how records are split over sites."
        )
    else:
        known += "No sum tells how they are split over sites."
    if any("n" in own for block in blocks(facts, summary) for own in block.alone.values()):
        known += (
            " The numbers beside single sites on this page (n) are from no sum: only a simulation "
            "can show them."
        )
    return known
