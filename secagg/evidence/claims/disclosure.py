"""Warnings about what all sums of a run together disclose.

In one round, a secure sum hides each site's contribution. If sites remember earlier rounds, or
contribute their own estimates, then the sums of all rounds are equations in the statistics of
single sites. Each method declares what its sums determine (`secagg.contracts.Disclosure`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from secagg.contracts import DisclosureKind

MAY_REVEAL = "The sums together may reveal single sites"
SOLVABLE = "The sums together can be solved for the contributions of single sites"

UNCHECKED = (
    "secagg does not check what the sums of this run and of other runs over the same sites "
    "determine together"
)


def disclosure_kind(facts: Mapping[str, Any]) -> DisclosureKind:
    """Return what the run's method declares."""
    return DisclosureKind(facts["method"]["disclosure"]["kind"])


def headline(kind: DisclosureKind, *, noised: bool = False) -> str:
    """Return a warning about all sums of a method; empty if they determine pooled values only."""
    if kind is DisclosureKind.POOLED:
        return ""
    title = MAY_REVEAL if kind is DisclosureKind.SITES else SOLVABLE
    return f"{title}, except for what the noise hides" if noised else title


def determined(text: str, *, noised: bool) -> str:
    """Return what a method's sums together determine. text: of its disclosure"""
    with_noise = ", up to their noise" if noised else ""
    return f"The method's sums together determine{with_noise}: {text}"


def other_runs(disclosure: Mapping[str, Any]) -> str:
    """Return what exact sums of several runs over the same sites may tell together."""
    return f"{UNCHECKED}. {disclosure['other_runs']}".strip()


def record_counts(facts: Mapping[str, Any], *, single_sites: bool) -> str:
    """Return who knows the numbers of records, in all and at each site, in a run without noise.

    single_sites: whether the page shows numbers of single sites
    """
    text = (
        "Both numbers are sums over all sites. The first release of the run opened them, so the "
        "coordinator knows them; it tells every site the number of complete records. "
    )
    if disclosure_kind(facts) is DisclosureKind.POOLED:
        text += (
            "No sum shows how many records each site has, unless the values of a column tell the "
            "sites apart."
        )
    else:
        text += (
            "No single sum shows how many records a site has, but what all sums together determine "
            "depends on these numbers."
        )
    if single_sites:
        text += (
            " The numbers of records of single sites on this page (n) do not come from a sum: only "
            "a simulation can show them."
        )
    return text
