"""`secagg verify`: is a run folder what was written?

Checked, in this order: the log's chain, line by line; that no line was cut off the end; that
run.json and every other file are what the log says was written; and, for each release, that the
sites named really signed their part (with the keys in the roster) and were as many as the strictest
of them asked for.

Not protected: a folder that its owner wrote anew from the first line, unless `head` (printed at the
end of the run) was kept elsewhere and is passed in. The head that report.html shows will do: it
covers all but the report's own line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from secagg.errors import EvidenceError, PeerError, UsageError
from secagg.evidence import facts_digest, file_digest
from secagg.identity import PublicIdentity, Role, Roster
from secagg.party import signed_threshold
from secagg.runlog import read_log

_FILES = ("arrays.npz", "report.html", "result.json")


@dataclass(frozen=True)
class Verified:
    """What was checked, for display."""

    lines: int
    head: str
    files: tuple[str, ...]
    releases: int
    signatures: int


def verify_folder(folder: Path, head: str | None = None) -> Verified:
    """Check a run folder. Raises `EvidenceError` naming the line or file that is not right."""
    if not folder.is_dir():
        raise UsageError(str(folder), "no such folder")
    facts = _read_facts(folder / "run.json")
    entries = read_log(folder / "log.jsonl")
    _check_end(facts["log"], entries, head)
    try:
        _check_facts(facts, entries[0], entries[-2])
        files = _check_files(folder, entries)
        roster, session = _roster(facts), bytes.fromhex(facts["session"])
    except _MISSHAPEN:
        raise EvidenceError(str(folder), "its log or run.json is not as secagg writes it") from None
    releases = [entry for entry in entries if entry.get("event") == "release"]
    signatures = sum(_check_release(entry, roster, session) for entry in releases)
    return Verified(len(entries), entries[-1]["hash"], files, len(releases), signatures)


_MISSHAPEN = (LookupError, TypeError, ValueError, AttributeError)
"""What reading data of any other form than ours can raise."""


def _read_facts(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        log = facts["log"]
        if not (isinstance(log["lines"], int) and isinstance(log["head"], str)):
            raise ValueError
    except OSError:
        raise EvidenceError(str(path), "is missing", "Is this a run folder?") from None
    except (*_MISSHAPEN, RecursionError):
        raise EvidenceError(str(path), "is not as secagg writes it") from None
    return dict(facts)


def _check_end(written: Mapping[str, Any], entries: list[dict[str, Any]], head: str | None) -> None:
    lines = written["lines"]
    if len(entries) < lines:
        raise EvidenceError(
            f"log.jsonl line {len(entries) + 1}",
            f"the log is cut off: {lines} lines were written, {len(entries)} are left",
        )
    if len(entries) > lines:
        raise EvidenceError(f"log.jsonl line {lines + 1}", "lines were added after the run ended")
    if [entry.get("event") for entry in entries[-2:]] != ["result", "report"]:
        raise EvidenceError("log.jsonl", "its last lines do not record the result and the report")
    if entries[-1]["hash"] != written["head"]:
        raise EvidenceError("log.jsonl", "its head is not the one that run.json names")
    if head is not None and head not in (entry["hash"] for entry in entries[-2:]):
        raise EvidenceError("log.jsonl", "its head is not the one that you gave")


def _check_facts(
    facts: Mapping[str, Any], opening: Mapping[str, Any], result: Mapping[str, Any]
) -> None:
    for key in ("session", "secagg", "job", "roster", "plan", "randomness"):
        if facts[key] != opening[key]:
            raise EvidenceError("run.json", f"{key!r} differs from line 1 of the log")
    if facts_digest(facts) != result["facts"]:
        raise EvidenceError("run.json", "was changed after the run")


def _check_files(folder: Path, entries: list[dict[str, Any]]) -> tuple[str, ...]:
    written = {**entries[-2]["files"], **entries[-1]["files"]}
    for name in _FILES:
        if not (folder / name).is_file():
            raise EvidenceError(name, "is missing")
        if file_digest(folder / name) != written[name]:
            raise EvidenceError(name, "was changed after the run")
    return _FILES


def _roster(facts: Mapping[str, Any]) -> Roster:
    return Roster(
        {
            p["name"]: PublicIdentity(
                p["name"],
                Role(p["role"]),
                bytes.fromhex(p["verify_key"]),
                bytes.fromhex(p["seal_key"]),
            )
            for p in facts["roster"]
        }
    )


def _check_release(entry: Mapping[str, Any], roster: Roster, session: bytes) -> int:
    where = f"log.jsonl line {entry['seq'] + 1}"
    try:
        sites, round_ = entry["contributors"], entry["round"]
        claims = [[bytes.fromhex(part) for part in entry["claims"][site]] for site in sites]
        thresholds = [
            signed_threshold(site, claim, round_, roster, session)
            for site, claim in zip(sites, claims, strict=True)
        ]
    except (PeerError, *_MISSHAPEN):
        raise EvidenceError(where, "a site's signature in this release does not hold") from None
    if len(set(sites)) != len(sites) or len(sites) < max(thresholds, default=1):
        raise EvidenceError(where, "the release covers fewer sites than one of them asked for")
    return len(thresholds)
