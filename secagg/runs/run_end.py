"""Write the files of a finished session, with the events that bind them.

A run writes its files in this order: each sum, when it is released
(`secagg.evidence.released_sums`); the result and the facts; the report; the countersignatures,
which are in the log; and run.json again, with the log's head. A report that cannot be drawn is left
out, and the run has its result.

A run that is resumed here writes only what is missing: the sites may have countersigned the rest.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from secagg.contracts import Result
from secagg.core.hash_chain_log import RunLog
from secagg.core.private_files import RESTART_ADVICE, write_private
from secagg.errors import EvidenceError
from secagg.evidence.run_files import facts_digest, file_digest, without_log_facts, write_json
from secagg.evidence.transcript_file import MESSAGES_FILE


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


def write_result(folder: Path, result: Result, run_facts: Mapping[str, Any]) -> dict[str, Any]:
    """Write result, arrays and facts; return the event that binds them. Raises `OSError`."""
    recorded, arrays = without_log_facts(run_facts), io.BytesIO()
    np.savez(arrays, allow_pickle=False, **result.arrays)
    write_json(folder / "result.json", result.summary)
    write_private(folder / "arrays.npz", arrays.getvalue())
    write_json(folder / "run.json", recorded)
    names = ["result.json", "arrays.npz"]
    if (folder / MESSAGES_FILE).exists():
        names.append(MESSAGES_FILE)
    digests = {name: file_digest(folder / name) for name in names}
    return {"event": "result", "files": digests, "facts": facts_digest(recorded)}


def write_report(
    folder: Path, result: Result, run_facts: Mapping[str, Any], log: RunLog
) -> dict[str, Any]:
    """Write the report; return the event that binds it. Raises `OSError`.

    The report shows the log's head before this event, because the event holds the report's digest.
    If the report cannot be drawn, the event says why and names no file.
    """
    from secagg.reports.page import render  # noqa: PLC0415  # only runs that are written need it

    try:
        page = render({**run_facts, "log": {"lines": log.lines, "head": log.head}}, result)
    except Exception as error:  # any error: the run's result must not be lost with its report
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        return {"event": "report", "files": {}, "why": what}
    write_private(folder / "report.html", page.encode())
    return {"event": "report", "files": {"report.html": file_digest(folder / "report.html")}}


def read_facts(folder: Path) -> dict[str, Any]:
    """Return the facts that `write_result` wrote, when a run is resumed after that.

    Raises `EvidenceError`.
    """
    try:
        recorded = json.loads((folder / "run.json").read_bytes())
        return {key: value for key, value in recorded.items() if key != "log"}
    except (OSError, ValueError, AttributeError, RecursionError):
        where = str(folder / "run.json")
        raise EvidenceError(where, "is missing or damaged", RESTART_ADVICE) from None


def finish_folder(folder: Path, run_facts: dict[str, Any], log: RunLog) -> None:
    """Write run.json with the log's final head, which `run_facts` gets, too. Raises `OSError`."""
    run_facts["log"] = {"lines": log.lines, "head": log.head}
    write_json(folder / "run.json", without_log_facts(run_facts) | {"log": run_facts["log"]})


def report_remarks(log: RunLog) -> tuple[str, ...]:
    """Return a remark if the report could not be drawn."""
    why = (_logged(log, "report") or {}).get("why")
    return (
        () if why is None else (f"The report could not be drawn; the result is complete ({why}).",)
    )


def _logged(log: RunLog, event: str) -> dict[str, Any] | None:
    return next((entry for entry in log.events if entry["event"] == event), None)
