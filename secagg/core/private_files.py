"""Private files: only the owner can read them, and their content survives a crash.

A replaced file is never half written: the new content is written to a temporary file, flushed to
disk, and renamed. A rename is atomic (POSIX), so after a crash the file has either the old content
or the new. In an appended file (`AppendOnlyFile`), bytes after the checkpoint are ignored. Files
have mode 0600, so other users of the computer cannot read them. Folders have mode 0700, so other
users cannot list them.

Not protected: the superuser and the owner can read the files. A finished run deletes its private
files, but file systems and disks may keep the old blocks, and backups may keep copies.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

from secagg.core import canonical_encoding
from secagg.errors import EvidenceError, InternalError, PeerError, UsageError

RESTART_ADVICE: Final = "Start again with secagg run --overwrite; it keeps the log of releases."


def open_private(path: Path, flags: int = 0) -> BinaryIO:
    """Open a file for writing; if it is new, only the owner can read it. Raises `OSError`.

    flags: for example `os.O_APPEND` or `os.O_TRUNC`
    """
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o600), "wb")


def write_private(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Replace the content of the file. Raises `OSError`.

    sync: if true, wait until the content is on disk. If false, the content survives a crash of the
        process, but perhaps not a crash of the computer
    """
    new = path.with_name(f"{path.name}.new")
    with open_private(new, os.O_TRUNC) as file:
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
    """Write plain data with a checksum, which detects damage but not forgery. Raises `OSError`."""
    content = canonical_encoding.dumps(value)
    write_private(
        path, canonical_encoding.dumps([hashlib.sha256(content).digest(), content]), sync=sync
    )


def read_checked(path: Path) -> Any:
    """Return the data that `write_checked` wrote.

    Raises `EvidenceError` if the file is missing or damaged.
    """
    try:
        match canonical_encoding.loads(path.read_bytes()):
            case [bytes(checksum), bytes(content)] if hashlib.sha256(content).digest() == checksum:
                return canonical_encoding.loads(content)
    except (OSError, PeerError):
        pass
    raise EvidenceError(str(path), "is missing or damaged", RESTART_ADVICE)


@contextmanager
def exclusive_lock(path: Path, seconds: float = 0.0) -> Iterator[None]:
    """Lock this file against other processes. The lock also ends when the process ends.

    seconds: how long to wait if another process holds the lock
    Raises `UsageError` if the other process still holds the lock after that time.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        deadline = time.monotonic() + seconds
        while not _try_lock(handle):
            if time.monotonic() >= deadline:
                what = "is in use by another process"
                raise UsageError(str(path.parent), what, "Wait until that process has ended.")
            time.sleep(0.02)
        yield
    finally:
        os.close(handle)


@dataclass
class AppendOnlyFile:
    """A private file for a list to which items are only appended.

    Each call of `append` writes the new items only, because writing the whole list in each round
    would take time quadratic in its length. `append` returns a checkpoint, which states how much of
    the file is valid. `read` returns the items up to a checkpoint. The next `append` then
    overwrites any items after it.
    """

    path: Path
    _items: int = field(default=0, init=False)
    _size: int = field(default=0, init=False)
    _digest: Any = field(default_factory=hashlib.sha256, init=False)

    def append(self, items: Sequence[Any], to_plain: Callable[[Any], Any]) -> list[Any]:
        """Write the new items to disk and return a checkpoint.

        If an `OSError` is raised, some bytes may have been written. The next call overwrites them.

        items: the whole list, which begins with the items written before, unchanged
        to_plain: turns an item into plain data
        """
        if len(items) < self._items:
            raise InternalError(str(self.path), "items of an append-only list were removed")
        if len(items) > self._items:
            new = canonical_encoding.dumps([to_plain(item) for item in items[self._items :]])
            block = len(new).to_bytes(8, "little") + new
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW
            with os.fdopen(os.open(self.path, flags, 0o600), "wb") as file:
                os.fchmod(file.fileno(), 0o600)  # the mode above applies to new files only
                if os.fstat(file.fileno()).st_size < self._size:
                    raise EvidenceError(str(self.path), "has lost part of it", RESTART_ADVICE)
                file.truncate(self._size)
                file.seek(self._size)
                file.write(block)
                file.flush()
                os.fsync(file.fileno())
            self._digest.update(block)
            self._items, self._size = len(items), self._size + len(block)
        return [self._items, self._size, self._digest.digest()]

    def read(self, checkpoint: list[Any]) -> list[Any]:
        """Return the items up to a checkpoint. The next `append` continues from there.

        Raises `EvidenceError` if the file is missing or damaged before the checkpoint.
        """
        count, size, digest = checkpoint
        items: list[Any] = []
        try:
            content = self.path.read_bytes()[:size] if size else b""
            hasher, at = hashlib.sha256(content), 0
            if len(content) == size and hasher.digest() == digest:
                while at < size:
                    end = at + 8 + int.from_bytes(content[at : at + 8], "little")
                    items += canonical_encoding.loads(content[at + 8 : end])
                    at = end
                self._items, self._size, self._digest = count, size, hasher
                return items
        except OSError:
            pass
        raise EvidenceError(str(self.path), "is missing or damaged", RESTART_ADVICE)


def _try_lock(handle: int) -> bool:
    import fcntl  # noqa: PLC0415  # missing on some systems; a run in one process needs no lock

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
