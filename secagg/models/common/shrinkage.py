"""One flag for estimates that a penalty shrinks towards 0, and the sentence that says so.

A summary with such estimates has the key `shrunk`, which names them, and a note. So readers of
result, report and terminal do not take them for unbiased estimates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def shrunk_note(what: str, advice: str) -> str:
    """Return the note. what: the estimates, in the plural; advice: where unbiased ones are."""
    return f"The {what} are penalised, so they are shrunk towards 0. {advice}"


def marked_shrunk(summary: Mapping[str, Any], what: str, advice: str) -> dict[str, Any]:
    """Return a result's summary with the flag and the note; arguments as for `shrunk_note`."""
    notes = [*summary["notes"], shrunk_note(what, advice)]
    return {**summary, "shrunk": what, "notes": notes}
