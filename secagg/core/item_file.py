"""Private files to which whole items are appended, so that an interrupted run loses none.

Each item has its length in 8 little-endian bytes, and then its encoding
(`secagg.core.canonical_encoding`).
Nothing here detects a forged item. The reader of a file compares it with digests in a log.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from secagg.core import canonical_encoding
from secagg.core.private_files import RESTART_ADVICE, open_private
from secagg.errors import EvidenceError, PeerError

_PREFIX: Final = 8


@dataclass(frozen=True)
class ItemFile:
    """The file; sync: whether items are on disk when `append` returns."""

    path: Path
    sync: bool

    def append(self, items: Sequence[Any]) -> None:
        """Write items, which are plain data, at the end. Raises `OSError`."""
        blocks = [canonical_encoding.dumps(item) for item in items]
        with open_private(self.path, os.O_APPEND) as file:
            file.write(b"".join(len(b).to_bytes(_PREFIX, "little") + b for b in blocks))
            file.flush()
            if self.sync:
                os.fsync(file.fileno())

    def keep(self, count: int) -> None:
        """Keep the first `count` items. A run that was interrupted may have written more.

        Raises `EvidenceError` if there are fewer.
        """
        ends = [0, *_ends(self.path.read_bytes() if self.path.exists() else b"")]
        if len(ends) <= count:
            raise EvidenceError(str(self.path), "has lost part of it", RESTART_ADVICE)
        if self.path.exists():
            os.truncate(self.path, ends[count])


def read_items(name: str, data: bytes) -> Iterator[Any]:
    """Return the items of a file one by one. Raises `EvidenceError` where it is malformed.

    data: its content, so that what is read is what a caller compared with a digest
    """
    start = 0
    for end in _ends(data):
        try:
            yield canonical_encoding.loads(memoryview(data)[start + _PREFIX : end])
        except PeerError:
            raise EvidenceError(name, "is malformed") from None
        start = end
    if start != len(data):
        raise EvidenceError(name, "is malformed")


def _ends(data: bytes) -> Iterator[int]:
    """Return where each complete item ends."""
    end = 0
    while len(data) >= end + _PREFIX:
        end += _PREFIX + int.from_bytes(data[end : end + _PREFIX], "little")
        if end > len(data):
            return
        yield end
