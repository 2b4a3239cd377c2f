"""Compare the header of a table with the columns that a job needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from secagg.core.validation import did_you_mean


def header_faults(header: Sequence[str], needed: Iterable[str]) -> dict[str, str]:
    """Return all missing and repeated columns; "" as advice if no other name is similar."""
    needed = tuple(needed)
    others = [name for name in header if name not in needed]
    faults = dict[str, str]()
    for column in needed:
        count = header.count(column)
        if count == 0:
            faults[f"column {column!r} is missing"] = did_you_mean(column, others)
        elif count > 1:
            faults[f"{count} columns are named {column!r}"] = "Rename all but the right one."
    return faults
