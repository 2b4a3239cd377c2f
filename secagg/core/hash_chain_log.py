"""The log of a run: a JSON Lines file in which each line contains the hash of the line before.

Line i is canonical JSON (sorted keys, no spaces). It has three special keys: `seq` is i, `prev` is
the hash of line i - 1 (64 zeros in the first line), and `hash` is the SHA-256 of line i without the
key `hash`. If a line is changed, deleted, exchanged or inserted, the hashes no longer match at that
line. If lines are missing at the end, the last hash differs from the log head in run.json.

Not protected: the owner of the folder can replace the whole log. To detect this too, store the log
head, which is printed at the end of a run, in another place. Then check it with
`secagg verify DIR --head HASH`. When a run ends, the sites also countersign the log head
(`secagg.sessions.countersignatures`). The file is private: only the owner can read it.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from secagg.errors import EvidenceError

GENESIS_HASH = "0" * 64


@dataclass
class RunLog:
    """A log file. An event is a line of the log."""

    path: Path
    clock: Callable[[], str]
    head: str = GENESIS_HASH
    lines: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def reopen(cls, path: Path, clock: Callable[[], str]) -> RunLog:
        """Return the log of an interrupted run, so that the run can continue to write.

        Removes an incomplete last line. Raises `EvidenceError` if the hashes do not match.
        """
        if path.exists():
            complete = path.read_bytes().rpartition(b"\n")[0]
            os.truncate(path, len(complete) + bool(complete))
        entries = read_log(path) if path.exists() else []
        return cls(
            path, clock, entries[-1]["hash"] if entries else GENESIS_HASH, len(entries), entries
        )

    def write(self, event: Mapping[str, Any], *, sync: bool = True) -> None:
        """Append one event, a JSON object with the key "event".

        sync: whether the line, and every line before it, is on disk when this returns. If not, the
            line is lost if the computer fails before the next such call, but not if secagg does
        If writing fails or is interrupted, the incomplete line is removed, and the log stays valid.
        """
        entry = {**event, "seq": self.lines, "time": self.clock(), "prev": self.head}
        entry["hash"] = entry_hash(entry)
        line = canonical_json(entry) + b"\n"
        if not self.lines:
            self.path.touch(mode=0o600)
        with self.path.open("ab", buffering=0) as file:
            before = file.tell()
            try:
                if file.write(line) < len(line):  # the disk is full
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                if sync:
                    os.fsync(file.fileno())
            except BaseException:
                file.truncate(before)
                raise
        self.head = entry["hash"]
        self.lines += 1
        self.events.append(entry)


def canonical_json(value: Any) -> bytes:
    """Return the canonical JSON text: sorted keys, no spaces, UTF-8."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode()


def entry_hash(entry: Mapping[str, Any]) -> str:
    """Return the hash of a log entry without its key `hash`."""
    return hashlib.sha256(
        canonical_json({k: v for k, v in entry.items() if k != "hash"})
    ).hexdigest()


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the entries of a log. Raises `EvidenceError` naming the first invalid line."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise EvidenceError(str(path), f"cannot be read ({error.strerror})") from None
    return parse_log(path.name, data)


def parse_log(name: str, data: bytes) -> list[dict[str, Any]]:
    """Return the entries in the bytes of a log. Raises as `read_log`."""
    entries: list[dict[str, Any]] = []
    head = GENESIS_HASH
    if data and not data.endswith(b"\n"):
        last = data.count(b"\n") + 1
        raise EvidenceError(f"{name} line {last}", "the line is incomplete")
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):
        where = f"{name} line {number}"
        try:
            entry = json.loads(line)
            is_canonical = line == canonical_json(entry)
        except (ValueError, RecursionError):
            raise EvidenceError(where, "the line is not JSON") from None
        if not isinstance(entry, dict) or not is_canonical:
            raise EvidenceError(where, "the line does not have the form that secagg writes")
        _check_entry(entry, where, number, head)
        head = entry["hash"]
        entries.append(entry)
    return entries


def _check_entry(entry: dict[str, Any], where: str, number: int, head: str) -> None:
    if not hmac.compare_digest(str(entry.get("hash")).encode(), entry_hash(entry).encode()):
        raise EvidenceError(where, "the line was changed: its hash does not match its text")
    if entry.get("seq") != number - 1:
        raise EvidenceError(
            where, f"the line has number {entry.get('seq')!r}: lines were deleted or swapped"
        )
    if entry.get("prev") != head:
        raise EvidenceError(where, "the line does not contain the hash of the line before it")
