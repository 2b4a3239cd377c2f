"""The files of a run folder."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from secagg.contracts import Result
from secagg.core.hash_chain_log import RunLog, canonical


def write_folder(folder: Path, result: Result, run_facts: dict[str, Any], log: RunLog) -> None:
    """Write result, arrays, report and facts; the log's last two lines bind them all.

    The report shows the head as of the line before the last, since the last holds the report's own
    digest; the final head is in run.json only.
    """
    from secagg.reports.page import render  # noqa: PLC0415  # only runs that are written need it

    write_json(folder / "result.json", result.summary)
    np.savez(folder / "arrays.npz", allow_pickle=False, **result.arrays)
    digests = {name: file_digest(folder / name) for name in ("result.json", "arrays.npz")}
    log.write({"event": "result", "files": digests, "facts": facts_digest(run_facts)})
    run_facts["log"] = {"lines": log.lines, "head": log.head}
    (folder / "report.html").write_text(render(run_facts, result), encoding="utf-8")
    log.write({"event": "report", "files": {"report.html": file_digest(folder / "report.html")}})
    run_facts["log"] = {"lines": log.lines, "head": log.head}
    write_json(folder / "run.json", run_facts)


def facts_digest(run_facts: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the facts in run.json, less what it says of the log."""
    bound = {key: value for key, value in run_facts.items() if key != "log"}
    return hashlib.sha256(canonical(finite(bound))).hexdigest()


def json_bytes(value: Any) -> bytes:
    """Return readable JSON; a number that is not finite becomes null, as JSON has none."""
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
