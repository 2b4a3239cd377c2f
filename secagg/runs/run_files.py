"""The files of a run folder, and their contents.

The log holds each release with the sites' signatures, and each failure and resumption; run.json
does not repeat them. It has the number of releases of each stage, and the log's last hash, which
binds all of them. `log_facts` returns what readers need from the log.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from secagg.contracts import Result
from secagg.core.hash_chain_log import RunLog, canonical_json

_TROUBLE = ("missing", "rejected", "restarted", "stopped", "resumed")
"""Events that record a failure, or how the run continued after it."""


def log_facts(events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the log's events that facts and report use: releases and failures."""
    return {
        "releases": [event for event in events if event.get("event") == "release"],
        "trouble": [event for event in events if event.get("event") in _TROUBLE],
    }


def release_counts(releases: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many releases each stage had."""
    return dict(Counter(str(release.get("stage")) for release in releases))


def without_log_facts(run_facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts that run.json holds: all except those that are in the log."""
    in_log = log_facts(())
    return {key: value for key, value in run_facts.items() if key not in in_log}


def write_folder(folder: Path, result: Result, run_facts: dict[str, Any], log: RunLog) -> None:
    """Write result, arrays, report and facts; the log's last two lines bind them all.

    The report shows the head of the log without its last line, because that line holds the report's
    digest. The final head is in run.json only.
    """
    from secagg.reports.page import render  # noqa: PLC0415  # only runs that are written need it

    recorded = without_log_facts(run_facts)
    write_json(folder / "result.json", result.summary)
    np.savez(folder / "arrays.npz", allow_pickle=False, **result.arrays)
    digests = {name: file_digest(folder / name) for name in ("result.json", "arrays.npz")}
    log.write({"event": "result", "files": digests, "facts": facts_digest(recorded)})
    run_facts["log"] = {"lines": log.lines, "head": log.head}
    (folder / "report.html").write_text(render(run_facts, result), encoding="utf-8")
    log.write({"event": "report", "files": {"report.html": file_digest(folder / "report.html")}})
    run_facts["log"] = {"lines": log.lines, "head": log.head}
    write_json(folder / "run.json", recorded | {"log": run_facts["log"]})


def facts_digest(run_facts: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the facts in run.json, without its entry about the log."""
    bound = {key: value for key, value in run_facts.items() if key != "log"}
    return hashlib.sha256(canonical_json(finite(bound))).hexdigest()


def json_bytes(value: Any) -> bytes:
    """Return indented JSON; infinite and undefined numbers become null."""
    text = json.dumps(finite(value), indent=1, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()


def write_json(path: Path, value: Any) -> None:
    """Write `json_bytes` to a file."""
    path.write_bytes(json_bytes(value))


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
