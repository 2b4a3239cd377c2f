"""Write the files of a finished session, with the events that bind them.

A run that is resumed here writes only what is missing: the sites may have countersigned the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from secagg.contracts import Result
from secagg.core.hash_chain_log import RunLog
from secagg.runs.run_files import write_report, write_result


def is_result_logged(log: RunLog) -> bool:
    """Return whether the result and the facts are written."""
    return _logged(log, "result") is not None


def write_end(
    folder: Path,
    result: Result,
    facts: Mapping[str, Any],
    log: RunLog,
    record: Callable[[Mapping[str, Any]], None],
) -> str:
    """Write result, facts and report; return the digest of result.json. Raises `OSError`.

    record: writes an event to the log
    """
    if _logged(log, "result") is None:
        record(write_result(folder, result, facts))
    if _logged(log, "report") is None:
        record(write_report(folder, result, facts, log))
    written = _logged(log, "result")
    assert written is not None  # it was recorded above
    return str(written["files"]["result.json"])


def report_remarks(log: RunLog) -> tuple[str, ...]:
    """Return a remark if the report could not be drawn."""
    why = (_logged(log, "report") or {}).get("why")
    return (
        () if why is None else (f"The report could not be drawn; the result is complete ({why}).",)
    )


def _logged(log: RunLog, event: str) -> dict[str, Any] | None:
    return next((entry for entry in log.events if entry["event"] == event), None)
