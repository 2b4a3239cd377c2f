"""Whether all sums of a run, taken together, tell more than of the pooled records.

A secure sum hides a site in one round. Where sites remember earlier rounds, or contribute what each
found alone, the sums of all rounds are equations in single sites' statistics. What they determine
is in the method's own words, its `leaves`; here is only of which methods a person has to read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

POOLED = frozenset({"moments", "logistic", "gradient"})
"""Methods whose sums, all together, determine pooled statistics and nothing of a single site.

Each one's docstring says why. Of a method that is not named here nothing is taken for granted.
"""

HEADLINE = "All sums together may tell of single sites"
SOLVABLE = "All sums together can be solved for single sites' own regressions"


def tells_of_sites(method: str) -> bool:
    """Say whether all sums of the method of this name may tell of single sites."""
    return method not in POOLED


def solvable(method: str, settings: Mapping[str, Any]) -> bool:
    """Say whether one who only looks can solve all sums for what single sites found.

    It need not depart from the method for that: `tests/attacks/test_fedlin.py`.
    """
    return method == "fedlin_hm1" or (method == "fedlin_hm2" and settings.get("points", 0) > 0)


def headline(method: str, settings: Mapping[str, Any]) -> str:
    """Return what to read first of all sums of a method; empty if they tell what is pooled only."""
    if not tells_of_sites(method):
        return ""
    return SOLVABLE if solvable(method, settings) else HEADLINE
