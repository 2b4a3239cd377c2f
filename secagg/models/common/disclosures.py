"""What several methods say of their sums in the same words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CENTRES_WITHIN_SITES: Final[Mapping[str, str]] = {
    "centre": "always subtracts each site's own means"
}
"""`unknown_settings` of methods that have no setting `centre`, as `moments` does."""


def means_by_subtraction(other: str = 'of method moments with centre = "pooled"') -> str:
    """Return what a further run adds where one of the two is of records about their sites' means.

    other: which run
    """
    return (
        f"For example, a run {other} over the same records shows by subtraction how the sites' "
        "means scatter."
    )
