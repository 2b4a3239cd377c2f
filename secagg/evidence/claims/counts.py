"""Counts of incomplete records and of values outside bounds: sites send small counts as 0.

In a run without noise a site sends such a count only if it is at least `min_records`
(`secagg.sessions.rounds`). A sum of 0 therefore does not mean that there are no such records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from secagg.evidence.numbers import count

NONE_COUNTED = "too few to show, or none"


def at_least(number: int) -> str:
    """Write a sum of such counts."""
    return f"at least {count(number)}" if number else NONE_COUNTED


def not_counted(facts: Mapping[str, Any]) -> str:
    """Return the rule, with the number of this run."""
    least = count(facts["job"]["release"]["min_records"])
    return f"a site reports such a count only from {least} up, or from its own min_records"


def records_of(summary: Mapping[str, Any]) -> tuple[int, float]:
    """Return the best estimate of the number of records of a noised run, and its noise's deviation.

    A method that releases the number a second time, with its moments, has combined the two.
    """
    if "n_error" in summary:
        return int(summary["n"]), float(summary["n_error"])
    return int(summary["records"]), float(summary["records_error"])
