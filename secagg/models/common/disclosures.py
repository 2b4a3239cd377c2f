"""Statements on what sums reveal that several methods share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CENTRES_WITHIN_SITES: Final[Mapping[str, str]] = {
    "centre": "always subtracts each site's own means"
}
"""`unknown_settings` of methods without the setting `centre`, which method moments has."""


def means_by_subtraction(other: str = 'of method moments with centre = "pooled"') -> str:
    """Return what a second run reveals if one of the two runs centres the data within sites.

    other: the second run
    """
    return (
        f"For example, the difference between this result and the result of a run {other} over the "
        "same records shows how the sites' means differ."
    )
