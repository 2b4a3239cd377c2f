"""The hash-chained log of a run: JSON Lines, each line bound to all lines before it.

Line i is canonical JSON (sorted keys, no spaces) with `seq` = i, `prev` = the hash of line i - 1
(64 zeros for the first) and `hash` = SHA-256 of the same line without `hash`. Changing, dropping,
swapping or inserting a line breaks the chain at that line; cutting lines off the end is seen by
comparing with the head that run.json shows.

Not protected: whoever owns the folder can write a whole new chain. Keep the head printed at the end
of a run somewhere else (`secagg verify DIR --head HASH`), and this too is seen.
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
    """Appends events to a file; each is on disk when `write` returns."""

    path: Path
    clock: Callable[[], str]
    head: str = GENESIS_HASH
    lines: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def reopen(cls, path: Path, clock: Callable[[], str]) -> RunLog:
        """Return the log that a run was writing when it was interrupted, to be continued.

        A last line that was cut off in the writing is taken back. Raises `EvidenceError`.
        """
        if path.exists():
            whole = path.read_bytes().rpartition(b"\n")[0]
            os.truncate(path, len(whole) + bool(whole))
        entries = read_log(path) if path.exists() else []
        return cls(
            path, clock, entries[-1]["hash"] if entries else GENESIS_HASH, len(entries), entries
        )

    def write(self, event: Mapping[str, Any]) -> None:
        """Append one event (JSON-able; must have the key "event").

        When the disk fails or the user interrupts, the line is taken back: the chain stays whole.
        """
        entry = {**event, "seq": self.lines, "time": self.clock(), "prev": self.head}
        entry["hash"] = entry_hash(entry)
        line = canonical(entry) + b"\n"
        with self.path.open("ab", buffering=0) as file:
            before = file.tell()
            try:
                if file.write(line) < len(line):  # what an almost full disk does
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(file.fileno())
            except BaseException:
                file.truncate(before)
                raise
        self.head = entry["hash"]
        self.lines += 1
        self.events.append(entry)


def canonical(value: Any) -> bytes:
    """Return the one JSON text that is hashed: sorted keys, no spaces, UTF-8."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode()


def entry_hash(entry: Mapping[str, Any]) -> str:
    """Return the hash of a log entry, over everything but `hash` itself."""
    return hashlib.sha256(canonical({k: v for k, v in entry.items() if k != "hash"})).hexdigest()


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the entries of an intact chain. Raises `EvidenceError` naming the first bad line."""
    entries: list[dict[str, Any]] = []
    head = GENESIS_HASH
    try:
        data = path.read_bytes()
    except OSError as error:
        raise EvidenceError(str(path), f"cannot be read ({error.strerror})") from None
    if data and not data.endswith(b"\n"):
        last = data.count(b"\n") + 1
        raise EvidenceError(f"{path.name} line {last}", "the line is cut off")
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):
        where = f"{path.name} line {number}"
        try:
            entry = json.loads(line)
            same = line == canonical(entry)
        except (ValueError, RecursionError):
            raise EvidenceError(where, "the line is not JSON") from None
        if not isinstance(entry, dict) or not same:
            raise EvidenceError(where, "the line is not as secagg writes it")
        _check_entry(entry, where, number, head)
        head = entry["hash"]
        entries.append(entry)
    return entries


def _check_entry(entry: dict[str, Any], where: str, number: int, head: str) -> None:
    if not hmac.compare_digest(str(entry.get("hash")).encode(), entry_hash(entry).encode()):
        raise EvidenceError(where, "the line was changed: its hash does not match its text")
    if entry.get("seq") != number - 1:
        raise EvidenceError(
            where, f"the line says that {entry.get('seq')!r} lines precede it: dropped or swapped"
        )
    if entry.get("prev") != head:
        raise EvidenceError(where, "the line does not follow the one before it")
