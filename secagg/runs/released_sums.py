"""The file sums.bin of a run folder: every released sum with its salt, as the coordinator got it.

`secagg verify` recomputes the result from it. Each sum is bound by its digest in the log
(`secagg.runtime.evidence`), so the file needs no digest of its own, and a folder without the file
is still consistent.

The file reveals what the coordinator saw, and no more: all sums of the run in full, also those that
the result does not show (for example the number of records with each pair of levels, and each round
of an iterative method). Under differential privacy these sums contain the noise. A person who
shares the result need not share this file.

Each item has its length in 8 little-endian bytes, and then the encoding of [round, stage, salt,
sum]. An item is written before the event of its release.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from secagg.core import encoding
from secagg.core.private_files import RESTART_ADVICE, open_private
from secagg.core.ring import RingVector
from secagg.errors import EvidenceError, PeerError

SUMS_FILE: Final = "sums.bin"
_PREFIX: Final = 8


@dataclass(frozen=True)
class ReleasedSum:
    """One released sum."""

    round: int
    stage: str
    salt: bytes
    total: RingVector


@dataclass(frozen=True)
class SumsFile:
    """The file; sync: whether an item is on disk when `append` returns."""

    path: Path
    sync: bool

    def append(self, item: ReleasedSum) -> None:
        """Write one sum at the end. Raises `OSError`."""
        data = encoding.dumps([item.round, item.stage, item.salt, item.total])
        with open_private(self.path, os.O_APPEND) as file:
            file.write(len(data).to_bytes(_PREFIX, "little") + data)
            file.flush()
            if self.sync:
                os.fsync(file.fileno())

    def keep(self, count: int) -> None:
        """Keep the first `count` sums. A run that was interrupted may have written one more.

        Raises `EvidenceError` if there are fewer.
        """
        ends = [0, *_ends(self.path.read_bytes() if self.path.exists() else b"")]
        if len(ends) <= count:
            raise EvidenceError(str(self.path), "has lost part of it", RESTART_ADVICE)
        if self.path.exists():
            os.truncate(self.path, ends[count])


def read_sums(path: Path) -> Iterator[ReleasedSum]:
    """Return the sums in the file one by one. Raises `EvidenceError` where it is malformed."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise EvidenceError(path.name, f"cannot be read ({error.strerror})") from None
    start = 0
    for end in _ends(data):
        try:
            match encoding.loads(memoryview(data)[start + _PREFIX : end]):
                case [int(round_), str(stage), bytes(salt), total]:
                    yield ReleasedSum(round_, stage, salt, total)
                case _:
                    raise PeerError(path.name, "not a sum")
        except PeerError:
            raise EvidenceError(path.name, "is malformed") from None
        start = end
    if start != len(data):
        raise EvidenceError(path.name, "is malformed")


def _ends(data: bytes) -> Iterator[int]:
    """Return where each complete item ends."""
    end = 0
    while len(data) >= end + _PREFIX:
        end += _PREFIX + int.from_bytes(data[end : end + _PREFIX], "little")
        if end > len(data):
            return
        yield end
