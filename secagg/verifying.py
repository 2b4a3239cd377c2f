"""`secagg verify`: is a run folder what was written?

Checked, in this order: the log's chain, line by line; that no line was cut off the end; that
run.json and the log's first line tell the same session; that every other file is the one that was
written; and, for each release, that the sites named really signed their part (with the keys in the
roster) and were as many as the strictest of them asked for.

Not protected: a folder that its owner wrote anew from the first line, unless `head` (printed at the
end of the run) was kept elsewhere and is passed in.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from secagg.errors import EvidenceError, PeerError, UsageError
from secagg.evidence import file_digest
from secagg.identity import PublicIdentity, Role, Roster
from secagg.party import signed_threshold
from secagg.runlog import read_log


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
    facts = _read_facts(folder)
    entries = read_log(folder / "log.jsonl")
    _check_end(facts, entries, head)
    _check_opening(facts, entries[0])
    files = _check_files(folder, facts, entries[-1])
    signatures = 0
    releases = [entry for entry in entries if entry["event"] == "release"]
    roster, session = _roster(facts), bytes.fromhex(facts["session"])
    for entry in releases:
        signatures += _check_release(entry, roster, session)
    return Verified(len(entries), entries[-1]["hash"], files, len(releases), signatures)


def _read_facts(folder: Path) -> dict[str, Any]:
    path = folder / "run.json"
    if not folder.is_dir():
        raise UsageError(str(folder), "no such folder")
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(facts, dict):
            raise ValueError
        _ = facts["log"]["lines"], facts["log"]["head"], facts["files"], facts["roster"]
    except OSError:
        raise EvidenceError(str(path), "is missing", "Is this a run folder?") from None
    except (ValueError, KeyError, TypeError):
        raise EvidenceError(str(path), "is not as secagg writes it") from None
    return facts


def _check_end(facts: Mapping[str, Any], entries: list[dict[str, Any]], head: str | None) -> None:
    lines, written_head = facts["log"]["lines"], facts["log"]["head"]
    if len(entries) < lines:
        raise EvidenceError(
            f"log.jsonl line {len(entries) + 1}",
            f"the log is cut off: {lines} lines were written, {len(entries)} are left",
        )
    if len(entries) > lines:
        raise EvidenceError(f"log.jsonl line {lines + 1}", "lines were added after the run ended")
    for wanted, whose in ((written_head, "run.json names"), (head, "you gave")):
        if wanted is not None and not _same(entries[-1]["hash"], wanted):
            raise EvidenceError("log.jsonl", f"its head is not the one that {whose}")


def _check_opening(facts: Mapping[str, Any], opening: Mapping[str, Any]) -> None:
    for key in ("session", "secagg", "job", "roster", "plan", "randomness"):
        if facts.get(key) != opening.get(key):
            raise EvidenceError("run.json", f"{key!r} differs from line 1 of the log")


def _check_files(
    folder: Path, facts: Mapping[str, Any], last: Mapping[str, Any]
) -> tuple[str, ...]:
    if last.get("event") != "result":
        raise EvidenceError("log.jsonl", "its last line does not record the result")
    for name, digest in {**facts["files"], **last["files"]}.items():
        if not (folder / name).is_file():
            raise EvidenceError(name, "is missing")
        if not _same(file_digest(folder / name), str(digest)):
            raise EvidenceError(name, "was changed after the run")
    if set(facts["files"]) != {*last["files"], "report.html"}:
        raise EvidenceError("run.json", "lists other files than the run wrote")
    return tuple(sorted(facts["files"]))


def _roster(facts: Mapping[str, Any]) -> Roster:
    try:
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
    except (KeyError, ValueError, TypeError):
        raise EvidenceError("run.json", "its roster is not as secagg writes it") from None


def _check_release(entry: Mapping[str, Any], roster: Roster, session: bytes) -> int:
    where = f"log.jsonl line {entry['seq'] + 1}"
    sites = entry["contributors"]
    try:
        thresholds = [
            signed_threshold(
                site,
                [bytes.fromhex(part) for part in entry["claims"][site]],
                entry["round"],
                roster,
                session,
            )
            for site in sites
        ]
    except (PeerError, KeyError, ValueError):
        raise EvidenceError(where, "a site's signature in this release does not hold") from None
    if len(set(sites)) != len(sites) or len(sites) < max(thresholds, default=1):
        raise EvidenceError(where, "the release covers fewer sites than one of them asked for")
    return len(thresholds)


def _same(a: str, b: str) -> bool:
    return hmac.compare_digest(a.encode(), b.encode())
