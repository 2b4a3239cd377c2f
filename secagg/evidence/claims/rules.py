"""What the rules of a run required and what its sites signed, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from secagg.evidence.numbers import counted, listing

Facts = Mapping[str, Any]

NOT_OF_A_SITE = (
    "under differential privacy no rule looks at the records of one site, as its decision would be "
    "an answer without noise. Rules on numbers of records apply to the noisy number of all sites"
)


def what_rules_count(person: str | None) -> str:
    """Return what the rules of an exact job count, as a sentence. person: `privacy.person`"""
    if person is None:
        return (
            "The release rules count rows, not persons: set privacy.person if a person may have "
            "several."
        )
    return f"The release rules count persons, by column {person!r}."


def thresholds_met(facts: Facts) -> bool:
    """Return whether each release has every site's signed threshold, and that many sites."""
    return bool(facts["releases"]) and all(
        set(release["contributors"]) == set(release["claims"]) == set(release["thresholds"])
        and len(release["contributors"]) >= max(release["thresholds"].values())
        for release in facts["releases"]
    )


def opened(facts: Facts) -> str:
    """Return how many sums were opened, over how many sites."""
    smallest = min(len(release["contributors"]) for release in facts["releases"])
    noise = " with noise" if facts["privacy"] else ""
    sums = counted(len(facts["releases"]), "sum")
    return f"{sums}{noise}, each over at least {counted(smallest, 'site')}"


def sites_in_a_sum(signed: Sequence[int]) -> str:
    """Return the numbers of sites that sites signed. signed: every threshold of every release"""
    rule = (
        "Each site signed that a sum with its contribution covers at least "
        f"{counted(min(signed), 'site')}"
    )
    if max(signed) > min(signed):
        rule += f"; some required more, and the largest number, {max(signed)}, is binding"
    return f"{rule}."


def consent(facts: Facts) -> str:
    """Return which sites consented, when and why, and which sites did not."""
    signed = facts["consented"]
    sites = [party["name"] for party in facts["roster"] if party["role"] == "site"]
    silent = [name for name in sites if name not in signed]
    grounds = "rules and its budget" if facts["privacy"] else "rules, its records and its budget"
    others = ""
    if silent:
        others = f"; {listing(silent)} did not sign and {'are' if silent[1:] else 'is'} in no sum"
    return (
        "Before the first sum the coordinator asked every site for its consent to this job, these "
        f"bounds and these terms. Each site decided by its {grounds}. Before the first sum of the "
        f"method, each site also considered the count of records. {listing(signed)} signed consent"
        f"{others}. The signatures show that consent came first, because a site's program signs no "
        "consent after a contribution."
    )
