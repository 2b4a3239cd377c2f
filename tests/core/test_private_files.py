"""Private files: written completely or not at all, unreadable for others, locked."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from secagg.core.private_files import (
    AppendOnlyFile,
    exclusive_lock,
    read_checked,
    write_checked,
    write_private,
)
from secagg.errors import EvidenceError, InternalError, UsageError


@pytest.fixture(autouse=True)
def careless() -> Iterator[None]:
    """Set a umask under which new files are readable and writable for everybody."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_written_files_are_complete_and_private(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    for data in (b"first", b"", b"second"):
        write_private(path, data)
        assert path.read_bytes() == data
        assert path.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["keys"]


@pytest.mark.parametrize("part", ["fsync", "replace"])
def test_a_failed_write_keeps_the_earlier_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    path = tmp_path / "state"
    write_private(path, b"before")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(*((os, part) if part == "fsync" else (Path, part)), full)
    with pytest.raises(OSError, match="No space"):
        write_private(path, b"after")
    assert path.read_bytes() == b"before"


def test_a_file_is_synchronised_before_it_is_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda f: (order.append("sync"), fsync(f))[1])
    monkeypatch.setattr(Path, "replace", lambda a, b: (order.append("name"), replace(a, b))[1])
    write_private(tmp_path / "state", b"x")
    assert order == ["sync", "name", "sync"]  # the bytes, the name, and the folder it is in
    write_private(tmp_path / "state", b"y", sync=False)
    assert order[3:] == ["name"]


def test_damaged_files_are_detected(tmp_path: Path) -> None:
    path = tmp_path / "state"
    write_checked(path, {"round": 1})
    assert read_checked(path) == {"round": 1}
    whole = path.read_bytes()
    damaged = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(whole))]
    for data in (*damaged, b"", whole[:-1], whole + b"\0"):
        path.write_bytes(data)
        with pytest.raises(EvidenceError):
            read_checked(path)
    path.unlink()
    with pytest.raises(EvidenceError):
        read_checked(path)


def test_only_one_process_holds_a_lock(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with exclusive_lock(lock), pytest.raises(UsageError), exclusive_lock(lock):
        pass
    with exclusive_lock(lock):
        assert lock.stat().st_mode & 0o777 == 0o600


def test_a_killed_process_holds_no_lock(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path\n"
        "from secagg.core.private_files import exclusive_lock\n"
        "with exclusive_lock(Path(sys.argv[1])):\n    print('held', flush=True); time.sleep(60)"
    )
    lock = tmp_path / "lock"
    with subprocess.Popen([sys.executable, "-c", script, lock], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(UsageError), exclusive_lock(lock, 0.05):
            pass
        other.kill()
        with exclusive_lock(lock, 10.0):
            pass


def test_a_growing_list_is_read_up_to_a_given_length(tmp_path: Path) -> None:
    path = tmp_path / "list"
    grown = AppendOnlyFile(path)
    marks = [grown.append(range(n), lambda item: [item]) for n in (0, 2, 3, 3, 7)]
    assert path.stat().st_mode & 0o777 == 0o600
    for n, mark in zip((0, 2, 3, 3, 7), marks, strict=True):
        assert AppendOnlyFile(path).read(mark) == [[i] for i in range(n)]
    back = AppendOnlyFile(path)
    back.read(marks[2])  # killed after that; what follows is written anew
    mark = back.append((0, 1, 2, "other"), str)
    assert mark != marks[3] and path.stat().st_size == mark[1]  # no rest of the longer list
    assert AppendOnlyFile(path).read(marks[2]) == [[0], [1], [2]]
    with pytest.raises(EvidenceError):
        AppendOnlyFile(path).read(marks[4])
    with pytest.raises(InternalError):
        grown.append((1,), str)


def test_appended_items_are_synchronised_to_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_size))
    grown = AppendOnlyFile(tmp_path / "list")
    assert [grown.append(range(n), int)[1] for n in (2, 5)] == synced


def test_a_growing_list_is_private_and_follows_no_links(tmp_path: Path) -> None:
    path, other = tmp_path / "list", tmp_path / "other"
    path.write_bytes(b"stale")
    path.chmod(0o644)
    grown = AppendOnlyFile(path)
    grown.append([1, 2], int)
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_bytes(b"")
    with pytest.raises(EvidenceError):
        grown.append([1, 2, 3], int)
    other.write_bytes(b"not ours")
    path.unlink()
    path.symlink_to(other)
    with pytest.raises(OSError, match="symbolic"):
        AppendOnlyFile(path).append([1], int)
    assert other.read_bytes() == b"not ours"
