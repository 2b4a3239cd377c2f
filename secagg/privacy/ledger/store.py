"""The file of a ledger: a SQLite file to which lines are appended, each with a hash.

Writing uses SQLite's rollback journal with synchronous = EXTRA (sqlite.org: "Atomic Commit In
SQLite"). When a `transaction` ends, its lines and the folder entry of the file are on disk. If the
process is killed before, the file contains none of these lines when it is opened again. With BEGIN
IMMEDIATE there is one writer at a time, so nothing changes between a writer's reading and writing.

Line i contains the SHA-256 of its own content and of the hash of line i - 1. The hashes are checked
when the file is opened. So damage that SQLite does not notice, such as a changed digit, is found.

====================================  ==========================================================
file                                  result of opening it
====================================  ==========================================================
missing, `create` false               `UsageError`
missing, `create` true                made under another name, then linked, so it is never half
                                      complete; if several processes try, only one makes it
empty, or of another program          `EvidenceError`: an empty file never counts as a new ledger
of another version                    `EvidenceError`
damaged, or lines changed             `EvidenceError`
folder, symbolic link, device         `UsageError`
others may read or write it           `UsageError`
with a killed writer's journal        SQLite removes that writer's lines
with SITE.ledger.new.XXXX next to it  the other file is ignored: a process that makes the ledger,
                                      or was killed meanwhile, left it; the owner may delete it
====================================  ==========================================================

Not protected:

* The owner and the superuser can restore an older copy or write a completely new file.
* A computer or disk may report "written" too early. (Loss of power was not simulated.)
* On some network file systems locks do not work.
* After a file is deleted, the disk may still contain its old blocks.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from secagg.core import canonical_encoding
from secagg.errors import EvidenceError, InternalError, SecaggError, UsageError

_APPLICATION: Final = 0x5345434C
_VERSION: Final = 1
_GENESIS_HASH: Final = bytes(32)
_LOCK_SECONDS: Final = 60.0
"""Seconds to wait for other processes. Each of them needs only milliseconds."""

_SCHEMA: Final = (
    """CREATE TABLE lines (
    seq INTEGER PRIMARY KEY,
    time INTEGER NOT NULL,     -- microseconds since 1970, UTC
    kind TEXT NOT NULL CHECK (kind IN ('entry', 'use', 'cohort', 'caps', 'decision')),
    dataset TEXT NOT NULL,
    session TEXT,
    round INTEGER,
    key TEXT UNIQUE,           -- of an entry: what its noise was drawn for
    belongs INTEGER REFERENCES lines (seq),
    seed BLOB NOT NULL,        -- of an entry's noise; secret
    content TEXT NOT NULL,     -- JSON
    hash BLOB NOT NULL,        -- of the line and of the hash before it
    CHECK ((kind = 'entry') = (key IS NOT NULL))
)""",
    "CREATE INDEX by_dataset ON lines (dataset, kind, time)",
    "CREATE INDEX by_session ON lines (session, round)",
    """CREATE TRIGGER never_changed BEFORE UPDATE ON lines
BEGIN SELECT RAISE(ABORT, 'lines are only appended'); END""",
    """CREATE TRIGGER never_removed BEFORE DELETE ON lines
BEGIN SELECT RAISE(ABORT, 'lines are only appended'); END""",
)

_COLUMNS: Final = "seq, time, kind, dataset, session, round, key, belongs, seed, content"

Value = str | int | bytes | None


@dataclass(frozen=True)
class Line:
    """One line, with the columns of the schema. `seq` is 0 until the line is appended."""

    time: int
    kind: str
    dataset: str
    session: str | None = None
    round: int | None = None
    key: str | None = None
    belongs: int | None = None
    seed: bytes = field(default=b"", repr=False)
    content: dict[str, Any] = field(default_factory=dict)
    seq: int = 0

    @property
    def when(self) -> datetime:
        """`time`, in UTC."""
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self.time)

    def without_seed(self) -> Line:
        """Return the line without its seed, which is secret."""
        return replace(self, seed=b"")


def microseconds(time: datetime) -> int:
    """Return a time as `Line.time` has it. Raises `InternalError` for a time without a zone."""
    if time.tzinfo is None:
        raise InternalError("ledger", "a time without a zone")
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def open_file(path: Path, *, create: bool) -> sqlite3.Connection:
    """Return a connection to the checked file. Raises `UsageError` and `EvidenceError`."""
    if create and not os.path.lexists(path):
        _create(path)
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        raise UsageError(str(path), "there is no ledger") from None
    except OSError as error:
        raise UsageError(str(path), f"cannot be read ({error.strerror})") from None
    if not stat.S_ISREG(mode):
        raise UsageError(str(path), "is not a file (a folder, a link or a device)")
    if mode & 0o077:
        what = "holds secret seeds of noise, and other users can read or write it"
        raise UsageError(str(path), what, "Run chmod 600 on it.")
    with _secagg_errors(str(path)):
        db = _connect(f"{path.absolute().as_uri()}?mode=rw")
        try:
            _check(db, str(path))
        except BaseException:
            db.close()
            raise
    return db


def open_memory() -> sqlite3.Connection:
    """Return a connection to an empty ledger that ends with the process."""
    db = _connect(":memory:")
    _write_schema(db)
    return db


@contextmanager
def transaction(db: sqlite3.Connection, where: str) -> Iterator[None]:
    """Run a `with` block and make either all of its changes or none.

    When the block ends, the changes are on disk. There is one writer at a time. Raises `UsageError`
    if the file cannot be written at the moment, and `EvidenceError` if the file is damaged.
    """
    with _secagg_errors(where):
        db.execute("BEGIN IMMEDIATE")
        try:
            yield
            db.execute("COMMIT")
        finally:
            if db.in_transaction:
                with suppress(sqlite3.Error):  # if this fails, the next process does it on opening
                    db.execute("ROLLBACK")


def append(db: sqlite3.Connection, line: Line) -> None:
    last = db.execute("SELECT seq, hash FROM lines ORDER BY seq DESC LIMIT 1").fetchone()
    seq, before = (last[0] + 1, last[1]) if last else (1, _GENESIS_HASH)
    content = json.dumps(line.content, sort_keys=True, allow_nan=False)
    row: list[Value] = [
        seq, line.time, line.kind, line.dataset, line.session, line.round, line.key, line.belongs,
        line.seed, content,
    ]  # fmt: skip
    marks = ", ".join("?" * (len(row) + 1))
    db.execute(f"INSERT INTO lines VALUES ({marks})", (*row, _hash(before, row)))  # noqa: S608  # question marks


def lines(
    db: sqlite3.Connection, where: str, condition: str, values: Sequence[Value]
) -> list[Line]:
    """Return the lines that satisfy an SQL condition, in order. Raises as `transaction` does."""
    with _secagg_errors(where):
        rows = db.execute(f"SELECT {_COLUMNS} FROM lines WHERE {condition} ORDER BY seq", values)  # noqa: S608  # secagg's own conditions
        return [_line(row) for row in rows]


def _line(row: Sequence[Any]) -> Line:
    seq, *fields, content = row  # as in _COLUMNS
    fields += [json.loads(content), seq]
    return Line(*fields)


@contextmanager
def _secagg_errors(where: str) -> Iterator[None]:
    """Turn SQLite's exceptions into errors of secagg."""
    try:
        yield
    except UnicodeDecodeError as error:  # SQLite's error message quotes a damaged name
        raise _damaged(where, "it holds invalid text") from error
    except sqlite3.Error as error:
        raise _translated(error, where) from error


def _translated(error: sqlite3.Error, where: str) -> SecaggError:
    # None: raised by Python's sqlite3 module, for example for text that is not UTF-8
    code: int | None = getattr(error, "sqlite_errorcode", None)
    match None if code is None else code & 0xFF:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return UsageError(where, "is in use by another process", "Wait until it has ended.")
        case sqlite3.SQLITE_CONSTRAINT | sqlite3.SQLITE_MISUSE:
            return InternalError(where, f"rejects a line of secagg ({error})")
        case sqlite3.SQLITE_ERROR | sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return _damaged(where, str(error))
        case None if isinstance(error, sqlite3.OperationalError):
            return _damaged(where, str(error))
        case None:
            return InternalError(where, f"is used wrongly by secagg ({error})")
        case _:
            return UsageError(
                where,
                f"cannot be read or written ({error})",
                "Free disk space, or give secagg write access to the folder.",
            )


def _damaged(where: str, what: str) -> EvidenceError:
    return EvidenceError(
        where,
        f"is damaged, or not a ledger ({what})",
        "Restore a copy made after the last release, or treat the whole budget as spent.",
    )


def _connect(name: str) -> sqlite3.Connection:
    """Return a connection that never begins a transaction by itself."""
    db = sqlite3.connect(name, uri=True, timeout=_LOCK_SECONDS, isolation_level=None)
    try:
        for setting in (
            "journal_mode = DELETE",
            "synchronous = EXTRA",
            "foreign_keys = ON",
            "cell_size_check = ON",
            "trusted_schema = OFF",
        ):
            db.execute(f"PRAGMA {setting}")
    except BaseException:
        db.close()
        raise
    return db


def _write_schema(db: sqlite3.Connection) -> None:
    db.execute("BEGIN IMMEDIATE")
    for statement in _SCHEMA:
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {_APPLICATION}")
    db.execute(f"PRAGMA user_version = {_VERSION}")
    db.execute("COMMIT")


def _create(path: Path) -> None:
    """Make an empty ledger. If another process makes one meanwhile, leave that one."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.new.")  # mode 0600
        os.close(handle)
        new = Path(name)
        try:
            with _secagg_errors(str(path)), closing(_connect(new.absolute().as_uri())) as db:
                _write_schema(db)
            with suppress(FileExistsError):
                os.link(new, path)  # unlike a rename, it never replaces a ledger
        finally:
            new.unlink()
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise UsageError(str(path), f"cannot be made ({error.strerror})") from None


def _check(db: sqlite3.Connection, where: str) -> None:
    """Raise `EvidenceError` unless this is an undamaged ledger of this version."""
    if _value(db, "PRAGMA application_id") != _APPLICATION:
        raise _damaged(where, "empty, or made by another program")
    version = _value(db, "PRAGMA user_version")
    if version != _VERSION:
        what = f"has version {version!r}; this secagg reads version {_VERSION}"
        raise EvidenceError(where, what, "Use the secagg that wrote it.")
    db.execute("BEGIN")  # all checks then see the same lines, whatever others append meanwhile
    schema = {row[0] for row in db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}
    if schema != set(_SCHEMA):
        raise _damaged(where, "its tables are not those of a ledger")
    if _value(db, "PRAGMA integrity_check") != "ok" or _value(db, "PRAGMA foreign_key_check"):
        raise _damaged(where, "SQLite finds it inconsistent")
    before = _GENESIS_HASH
    rows = db.execute(f"SELECT {_COLUMNS}, hash FROM lines ORDER BY seq")  # noqa: S608  # names above
    for seq, (*row, digest) in enumerate(rows, start=1):
        if digest != _hash(before, row):
            raise _damaged(where, f"line {seq} was changed")
        before = digest
    db.execute("COMMIT")


def _hash(before: bytes, row: list[Value]) -> bytes:
    return hashlib.sha256(canonical_encoding.dumps([before, row])).digest()


def _value(db: sqlite3.Connection, query: str) -> Value:
    row: tuple[Value, ...] | None = db.execute(query).fetchone()
    return row[0] if row else None
