"""The files of a run folder, and their contents.

The log holds each release with the sites' signatures, and each failure and resumption; run.json
does not repeat them. It has the number of releases of each stage, and the log's last hash, which
binds all of them. `log_facts` returns what readers need from the log.

A run writes its files in this order: each sum, when it is released (`secagg.runs.released_sums`);
the result and the facts; the report; the countersignatures, which are in the log; and run.json
again, with the log's head. A report that cannot be drawn is left out, and the run has its result.

All files are private (`secagg.core.private_files`), and so is the folder.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from secagg.contracts import Result
from secagg.core.hash_chain_log import RunLog, canonical_json
from secagg.core.private_files import RESTART_ADVICE, write_private
from secagg.errors import EvidenceError
from secagg.runs.transcript_file import MESSAGES_FILE

TROUBLE = ("missing", "rejected", "restarted", "stopped", "resumed", "began_again")
"""Events that record a failure, or how the run continued after it."""


def log_facts(events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the log's events that facts and report use: releases and failures."""
    return {
        "releases": [event for event in events if event.get("event") == "release"],
        "trouble": [event for event in events if event.get("event") in TROUBLE],
    }


def release_counts(releases: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many releases each stage had."""
    return dict(Counter(str(release.get("stage")) for release in releases))


def without_log_facts(run_facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts that run.json holds: all except those that are in the log."""
    in_log = log_facts(())
    return {key: value for key, value in run_facts.items() if key not in in_log}


def job_digest(job: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a job, in hexadecimal. job: as `Job.agreed`, or in run.json"""
    return hashlib.sha256(json.dumps(job, sort_keys=True).encode()).hexdigest()


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
    except (OSError, ValueError, AttributeError):
        where = str(folder / "run.json")
        raise EvidenceError(where, "is missing or damaged", RESTART_ADVICE) from None


def finish_folder(folder: Path, run_facts: dict[str, Any], log: RunLog) -> None:
    """Write run.json with the log's final head, which `run_facts` gets, too. Raises `OSError`."""
    run_facts["log"] = {"lines": log.lines, "head": log.head}
    write_json(folder / "run.json", without_log_facts(run_facts) | {"log": run_facts["log"]})


def facts_digest(run_facts: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the facts in run.json, without its entry about the log."""
    bound = {key: value for key, value in run_facts.items() if key != "log"}
    return hashlib.sha256(canonical_json(finite(bound))).hexdigest()


def json_bytes(value: Any) -> bytes:
    """Return indented JSON; infinite and undefined numbers become null."""
    text = json.dumps(finite(value), indent=1, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()


def write_json(path: Path, value: Any) -> None:
    """Write `json_bytes` to a private file."""
    write_private(path, json_bytes(value))


def finite(value: Any) -> Any:
    """Return plain data with every infinite or undefined number replaced by None."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
