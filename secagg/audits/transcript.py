"""Whether all sums of a run, taken together, tell more than of the pooled records.

A secure sum hides a site in one round. Where sites remember earlier rounds, or contribute what each
found alone, the sums of all rounds are equations in single sites' statistics. What they determine
is in the method's own words, its `leaves`; here is only of which methods a person has to read them.
"""

from __future__ import annotations

POOLED = frozenset({"moments", "logistic", "gradient"})
"""Methods whose sums, all together, determine pooled statistics and nothing of a single site.

Each one's docstring says why. Of a method that is not named here nothing is taken for granted.
"""

HEADLINE = "All sums together may tell of single sites"


def tells_of_sites(method: str) -> bool:
    """Say whether all sums of the method of this name may tell of single sites."""
    return method not in POOLED
