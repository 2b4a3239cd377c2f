"""The file under the ledger: private, whole, appended to, and refused where it is anything else."""

import os
import random
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.privacy.ledgers import CAP, now, numbered, part, seed_of

from secagg.core.randomness import system_random
from secagg.errors import EvidenceError, InternalError, UsageError
from secagg.privacy.ledger.ledger import Ledger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with Ledger.open(path, create=True, now=now) as opened:
        yield opened


def test_the_file_and_its_journal_are_private(path: Path, ledger: Ledger) -> None:
    before = os.umask(0)
    try:
        modes = {}

        def look(_: int) -> bytes:
            ledger._db.execute("PRAGMA cache_spill = 1")
            return system_random(32)

        ledger._db.set_trace_callback(
            lambda _: modes.update(
                {p.name: p.stat().st_mode & 0o777 for p in path.parent.iterdir()}
            )
        )
        ledger.record_release(part(2), random=look)
    finally:
        os.umask(before)
    assert modes == {"ledger": 0o600, "ledger-journal": 0o600}


def test_sqlite_settings_synchronise_every_entry_to_disk(ledger: Ledger) -> None:
    settings = {
        name: ledger._db.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("synchronous", "journal_mode", "foreign_keys", "trusted_schema")
    }
    assert settings == {
        "synchronous": 3, "journal_mode": "delete", "foreign_keys": 1, "trusted_schema": 0,
    }  # fmt: skip


@pytest.mark.parametrize("change", ["UPDATE lines SET dataset = 'x'", "DELETE FROM lines"])
def test_ledger_lines_are_only_appended(ledger: Ledger, change: str) -> None:
    seed_of(ledger, part(2))
    with pytest.raises(sqlite3.IntegrityError):
        ledger._db.execute(change)


def refused(path: Path, error: type[Exception], *, create: bool = False) -> str:
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(error) as caught:
        Ledger.open(path, create=create, now=now).close()
    assert before is None or path.read_bytes() == before  # nothing is repaired by guessing
    return str(caught.value)


def test_files_left_by_a_killed_creation_are_ignored(path: Path) -> None:
    left = path.with_name(f"{path.name}.new.k1ll3d")
    left.write_bytes(b"half a schema")
    with Ledger.open(path, create=True, now=now) as ledger:
        seed_of(ledger, part(2))
    with Ledger.open(path, create=False, now=now) as ledger:
        assert ledger.spent("heart").total() == 1
    assert left.read_bytes() == b"half a schema"


def test_a_missing_ledger_is_created_only_on_request(path: Path) -> None:
    refused(path, UsageError)
    assert not path.exists()
    refused(path / "below", UsageError, create=True)


@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda p: p.mkdir(), UsageError),
        (lambda p: p.symlink_to(p.with_name("real")), UsageError),
        (lambda p: os.mkfifo(p, 0o600), UsageError),
        (lambda p: p.touch(0o600), EvidenceError),
        (lambda p: (p.write_bytes(b"x" * 5000), p.chmod(0o600)), EvidenceError),
    ],
    ids=["folder", "link", "pipe", "empty", "text"],
)
def test_files_that_are_not_ledgers_are_refused(
    path: Path, make: Callable[[Path], object], error: type[Exception], create: bool
) -> None:
    Ledger.open(path.with_name("real"), create=True, now=now).close()
    make(path)
    refused(path, error, create=create)


def test_a_database_of_another_program_is_refused(path: Path) -> None:
    path.touch(0o600)
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE lines (seq)")
    db.close()
    refused(path, EvidenceError)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_ledger_readable_by_others_is_refused(path: Path, ledger: Ledger, mode: int) -> None:
    path.chmod(mode)
    refused(path, UsageError)


@pytest.mark.parametrize(
    ("line", "changes"),
    [
        ("version 2", ["PRAGMA user_version = 2"]),
        ("version 0", ["PRAGMA user_version = 0"]),
        ("", ["DROP TRIGGER never_removed"]),
        ("", ["DROP TABLE lines"]),
        ("", ["CREATE VIEW other AS SELECT 1"]),
        ("line 2", ["UPDATE lines SET time = time + 1 WHERE seq = 2"]),
        ("line 1", ["UPDATE lines SET content = replace(content, '0.0', '0.1')"]),
        ("line 3", ["UPDATE lines SET seed = x'00' WHERE seq = 3"]),
        ("line 1", ["DELETE FROM lines WHERE seq = 1"]),
        ("line 2", ["DELETE FROM lines WHERE seq = 2"]),
        ("line 1", ["UPDATE lines SET content = x'ff' WHERE seq = 1"]),
        ("", ["UPDATE lines SET dataset = CAST(x'ff' AS TEXT) WHERE seq = 1"]),
        ("SQLite", ["PRAGMA foreign_keys = OFF", "UPDATE lines SET belongs = 9"]),
    ],
)
def test_changed_ledgers_are_detected(
    path: Path, ledger: Ledger, changes: list[str], line: str
) -> None:
    for number in range(3):
        seed_of(ledger, numbered(number, 9))
    ledger.close()
    db = sqlite3.connect(path)
    triggers = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    with db:
        for change in changes:
            lines = change.startswith(("UPDATE", "DELETE"))
            for name, _ in triggers if lines else ():
                db.execute(f"DROP TRIGGER {name}")
            db.execute(change)
            for _, sql in triggers if lines else ():
                db.execute(sql)
    db.close()
    assert line in refused(path, EvidenceError)


def everything(ledger: Ledger) -> str:
    return repr([(line, line.seed) for line in ledger._where("TRUE")])


def test_a_damaged_byte_is_detected_or_changes_nothing(path: Path, ledger: Ledger) -> None:
    for number in range(3):
        seed_of(ledger, numbered(number, 9))
    ledger.set_caps("heart", [CAP])
    ledger.settle("north", "5e55", 0, "abc")
    whole = everything(ledger)
    ledger.close()
    data = path.read_bytes()
    chance = random.Random(7)
    used = [at for at in range(len(data)) if data[at]]
    found = 0
    for at in (*range(0, 100, 3), *chance.sample(used, 200), *chance.sample(range(len(data)), 30)):
        damaged = bytearray(data)
        damaged[at] ^= chance.randrange(1, 256)
        path.write_bytes(damaged)
        try:
            with Ledger.open(path, create=False, now=now) as opened:
                assert everything(opened) == whole, at
        except EvidenceError:
            found += 1
    assert found > 150
    path.write_bytes(data[: len(data) // 2])
    refused(path, EvidenceError)


def test_a_damaged_index_that_hides_spending_is_detected(path: Path, ledger: Ledger) -> None:
    seed_of(ledger, part(2))
    query = "SELECT rootpage FROM sqlite_master WHERE name = 'by_dataset'"
    (page,) = ledger._db.execute(query).fetchone()
    (size,) = ledger._db.execute("PRAGMA page_size").fetchone()
    ledger.close()
    data = bytearray(path.read_bytes())
    at = data.index(b"heart", (page - 1) * size, page * size)
    data[at : at + 5] = b"chest"
    path.write_bytes(data)
    refused(path, EvidenceError)


def test_no_entry_is_made_on_a_full_disk(ledger: Ledger) -> None:
    pages = ledger._db.execute("PRAGMA page_count").fetchone()[0]
    ledger._db.execute(f"PRAGMA max_page_count = {pages}")
    got_in: dict[int, bytes] = {}
    with pytest.raises(UsageError):
        for number in range(100):
            got_in[number] = seed_of(ledger, numbered(number, 1000))
    assert 0 < len(got_in) == ledger.spent("heart").total()
    ledger._db.execute(f"PRAGMA max_page_count = {pages + 10}")
    assert seed_of(ledger, numbered(0, 1000)) == got_in[0]
    seed_of(ledger, numbered(len(got_in), 1000))


def test_a_ledger_in_use_is_a_clear_error(
    path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secagg.privacy.ledger.store._LOCK_SECONDS", 0.05)
    with Ledger.open(path, create=False, now=now) as other:
        ledger._db.execute("BEGIN IMMEDIATE")
        with pytest.raises(UsageError):
            seed_of(other, part(2))
        ledger._db.execute("ROLLBACK")
        seed_of(other, part(2))


def test_a_ledger_belongs_to_one_process(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getpid", lambda: 1)  # as after a fork
    for use in (lambda: seed_of(ledger, part(2)), lambda: ledger.spent("heart")):
        with pytest.raises(InternalError):
            use()


def test_paths_with_unusual_characters_work(tmp_path: Path) -> None:
    odd = tmp_path / "ä b?mode=memory#%41"
    with Ledger.open(odd, create=True, now=now) as ledger:
        seed_of(ledger, part(2))
    assert odd.is_file()
    with Ledger.open(odd, create=False, now=now) as ledger:
        assert ledger.spent("heart").total() == 1
