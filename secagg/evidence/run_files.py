"""What the files of a run folder contain, and their digests.

result.json has numbers and names, and arrays.npz has the same numbers as arrays. run.json has the
facts of the run. log.jsonl has the events in a hash chain: each release with the sites' signatures,
each failure and resumption, and the digests of the other files. run.json does not repeat the log.
It has the number of releases of each stage, and the log's last hash, which binds all lines of the
log. `log_facts` returns what readers need from the log.

All files are private (`secagg.core.private_files`), and so is the folder.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from secagg.core.hash_chain_log import canonical_json
from secagg.core.private_files import write_private

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
