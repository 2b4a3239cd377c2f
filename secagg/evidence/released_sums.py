"""The file sums.bin of a run folder: every released sum with its salt, as the coordinator got it.

`secagg verify` recomputes the result from this file. Each sum is bound by its digest in the log
(`secagg.sessions.countersignatures`), so the file needs no digest of its own, and a folder without
the file is still consistent.

The file reveals what the coordinator saw, and no more: all sums of the run in full, including those
that the result does not show (for example the number of records with each pair of levels, and each
round of an iterative method). Under differential privacy these sums contain the noise. A person who
shares the result need not share this file.

Each item is [round, stage, salt, sum]. It is written before the event of its release is logged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from secagg.core.item_file import ItemFile, read_items
from secagg.core.ring import RingVector
from secagg.errors import EvidenceError

SUMS_FILE: Final = "sums.bin"


@dataclass(frozen=True)
class ReleasedSum:
    """One released sum."""

    round: int
    stage: str
    salt: bytes
    total: RingVector


def append_sum(file: ItemFile, item: ReleasedSum) -> None:
    """Write one sum at the end. Raises `OSError`."""
    file.append([[item.round, item.stage, item.salt, item.total]])


def read_sums(data: bytes) -> Iterator[ReleasedSum]:
    """Return the sums in the file one by one. Raises `EvidenceError` where it is malformed."""
    for item in read_items(SUMS_FILE, data):
        match item:
            case [int(round_), str(stage), bytes(salt), total]:
                yield ReleasedSum(round_, stage, salt, total)
            case _:
                raise EvidenceError(SUMS_FILE, "is malformed")
