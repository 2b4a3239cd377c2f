"""Private files that survive a crash: written whole or not at all, and by one process at a time.

A file is written beside its place, brought to the disk, and renamed (POSIX: a rename is atomic), so
that a reader finds the earlier bytes or the new ones, never a part. Modes are 0600 in folders of
0700: other users of the computer can neither read nor list them.

Not protected: against the superuser, and against whoever owns the files. Deleting them, as a
finished run does, is not erasure: file systems and disks keep old blocks, backups keep copies.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from secagg.core import encoding
from secagg.errors import EvidenceError, InternalError, PeerError, UsageError

START_AGAIN: Final = "Begin again: secagg run --overwrite keeps the log of what was released."


def write_private(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Replace the file's content; it is on disk when this returns. Raises `OSError`.

    sync: without it the file survives the death of the process, not that of the computer
    """
    new = path.with_name(f"{path.name}.new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        if sync:
            os.fsync(file.fileno())
    new.replace(path)
    if not sync:
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the rename itself
    finally:
        os.close(folder)


def write_checked(path: Path, value: Any, *, sync: bool = True) -> None:
    """Write plain data with a checksum, which finds damage, not forgery. Raises `OSError`."""
    content = encoding.dumps(value)
    write_private(path, encoding.dumps([hashlib.sha256(content).digest(), content]), sync=sync)


def read_checked(path: Path) -> Any:
    """Return what `write_checked` wrote. Raises `EvidenceError`."""
    try:
        match encoding.loads(path.read_bytes()):
            case [bytes(checksum), bytes(content)] if hashlib.sha256(content).digest() == checksum:
                return encoding.loads(content)
    except (OSError, PeerError):
        pass
    raise EvidenceError(str(path), "is missing or damaged", START_AGAIN)


@contextmanager
def exclusive_lock(path: Path, seconds: float = 0.0) -> Iterator[None]:
    """Hold the lock that this file stands for; the system frees it when the process ends.

    seconds: how long to wait for another process to let go. Raises `UsageError`.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        until = time.monotonic() + seconds
        while not _in_use(handle):
            if time.monotonic() >= until:
                what = "is in use by another process"
                raise UsageError(str(path.parent), what, "Let it end, or end it.")
            time.sleep(0.02)
        yield
    finally:
        os.close(handle)


@dataclass
class AppendOnlyFile:
    """A private file that holds a list whose items stay as they are: only new ones are written.

    A file written whole each time would cost the square of a list that grows each time. `keep`
    returns a mark, which is what `read` wants; what was appended after that `keep` is not read, and
    is written over by the next.
    """

    path: Path
    _items: int = field(default=0, init=False)
    _size: int = field(default=0, init=False)
    _digest: Any = field(default_factory=hashlib.sha256, init=False)

    def keep(self, items: Sequence[Any], as_plain: Callable[[Any], Any]) -> list[Any]:
        """Write what is new; it is on disk when this returns. Raises `OSError`, half of it written.

        items: those kept before, unchanged, and new ones; as_plain: what to write of one
        """
        if len(items) < self._items:
            raise InternalError(str(self.path), "a list that only grows has lost items")
        if len(items) > self._items:
            new = encoding.dumps([as_plain(item) for item in items[self._items :]])
            block = len(new).to_bytes(8, "little") + new
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW
            with os.fdopen(os.open(self.path, flags, 0o600), "wb") as file:
                os.fchmod(file.fileno(), 0o600)  # of one that is there already
                if os.fstat(file.fileno()).st_size < self._size:
                    raise EvidenceError(str(self.path), "has lost what was in it", START_AGAIN)
                file.truncate(self._size)
                file.seek(self._size)
                file.write(block)
                file.flush()
                os.fsync(file.fileno())
            self._digest.update(block)
            self._items, self._size = len(items), self._size + len(block)
        return [self._items, self._size, self._digest.digest()]

    def read(self, mark: list[Any]) -> list[Any]:
        """Return the items up to a mark, and go on from there. Raises `EvidenceError`."""
        count, size, digest = mark
        items: list[Any] = []
        try:
            content = self.path.read_bytes()[:size] if size else b""
            found, at = hashlib.sha256(content), 0
            if len(content) == size and found.digest() == digest:
                while at < size:
                    end = at + 8 + int.from_bytes(content[at : at + 8], "little")
                    items += encoding.loads(content[at + 8 : end])
                    at = end
                self._items, self._size, self._digest = count, size, found
                return items
        except OSError:
            pass
        raise EvidenceError(str(self.path), "is missing or damaged", START_AGAIN)


def _in_use(handle: int) -> bool:
    import fcntl  # noqa: PLC0415  # not on every system; a run in one process does without

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
