"""The hash chain: it detects every change to the log, and names the first line of the change."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secagg.core.hash_chain_log import GENESIS_HASH, RunLog, canonical_json, entry_hash, read_log
from secagg.errors import EvidenceError

EVENTS = [
    {"event": "e", "n": i, "text": "é\u2028\n", "x": 0.1 * i, "list": [i, None]} for i in range(5)
]


def write(folder: Path) -> Path:
    path = folder / "log.jsonl"
    log = RunLog(path, iter(f"2020-01-01T00:00:0{i}" for i in range(9)).__next__)
    for event in EVENTS:
        log.write(event)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path)


def bad(path: Path, lines: list[bytes]) -> EvidenceError:
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    with pytest.raises(EvidenceError) as caught:
        read_log(path)
    assert caught.value.exit_code == 6
    return caught.value


def rehashed(line: bytes, **changed: Any) -> bytes:
    entry = {**json.loads(line), **changed}
    return canonical_json({**entry, "hash": entry_hash(entry)})


def test_an_intact_log_verifies(path: Path) -> None:
    entries = read_log(path)
    assert [{k: e[k] for k in EVENTS[0]} for e in entries] == EVENTS
    assert [e["seq"] for e in entries] == [0, 1, 2, 3, 4]
    assert entries[0]["prev"] == GENESIS_HASH
    assert path.read_bytes().count(b"\n") == 5


def test_each_event_is_on_disk_when_write_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the disk, not only in the system's cache; synchronised after the whole line."""
    log = RunLog(tmp_path / "log.jsonl", lambda: "now")
    sizes: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda _: sizes.append(log.path.stat().st_size))
    for i, event in enumerate(EVENTS, start=1):
        log.write(event)
        entries = read_log(log.path)
        assert len(entries) == log.lines == i and log.head == entries[-1]["hash"]
        assert log.events == entries
        assert len(sizes) == i and sizes[-1] == log.path.stat().st_size


def test_a_line_that_is_not_synced_is_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it outlives the process, and the next synced line takes it to the disk."""
    log = RunLog(tmp_path / "log.jsonl", lambda: "now")
    sizes: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda _: sizes.append(log.path.stat().st_size))
    log.write(EVENTS[0], sync=False)
    assert read_log(log.path) == log.events and sizes == []
    log.write(EVENTS[1])
    assert sizes == [log.path.stat().st_size]


class FullDisk:
    """A file that takes a part of each line and no more."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def write(self, data: bytes) -> int:
        return self.file.write(data[:10])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def __enter__(self) -> FullDisk:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()


@pytest.mark.parametrize("fails", ["write", "fsync", "interrupted fsync"])
def test_a_partly_written_line_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """The next line, written when there is room again, follows the last whole one."""
    log = RunLog(tmp_path / "log.jsonl", lambda: "now")
    log.write({"event": "a"})
    real = Path.open

    def fsync(_: int) -> None:
        raise KeyboardInterrupt if fails == "interrupted fsync" else OSError(28, "No space left")

    with monkeypatch.context() as patch:
        if fails == "write":
            patch.setattr(Path, "open", lambda *a, **k: FullDisk(real(*a, **k)))
        else:
            patch.setattr(os, "fsync", fsync)
        with pytest.raises((OSError, KeyboardInterrupt)):
            log.write({"event": "b"})
    assert [e["event"] for e in read_log(log.path)] == ["a"] and log.lines == 1
    log.write({"event": "c"})
    assert [e["event"] for e in read_log(log.path)] == ["a", "c"]
    assert log.events == read_log(log.path)


def test_an_event_cannot_set_its_own_position(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "log.jsonl", lambda: "now")
    log.write({"event": "x", "seq": 9, "prev": "zzz", "hash": "zzz", "time": "never"})
    (entry,) = read_log(log.path)
    assert (entry["seq"], entry["prev"], entry["time"]) == (0, GENESIS_HASH, "now")


@pytest.mark.parametrize("i", range(5))
def test_changed_deleted_and_inserted_lines_are_detected(path: Path, i: int) -> None:
    """The error names the first line that does not fit."""
    lines = path.read_bytes().splitlines()
    changed = lines[i].replace(b'"n":%d' % i, b'"n":%d' % (i + 1))
    assert bad(path, [*lines[:i], changed, *lines[i + 1 :]]).where == f"log.jsonl line {i + 1}"
    for junk in (b"", b"{}", b"null", b"[]", b"junk", b'"x"', b"\xff", lines[i - 1]):
        assert bad(path, [*lines[:i], junk, *lines[i:]]).where == f"log.jsonl line {i + 1}"
    if i < 4:  # the chain shows these in the next line; a missing last line needs the run's facts
        assert bad(path, [*lines[:i], *lines[i + 1 :]]).where == f"log.jsonl line {i + 1}"
        recomputed = rehashed(lines[i], n=99)
        error = bad(path, [*lines[:i], recomputed, *lines[i + 1 :]])
        assert error.where == f"log.jsonl line {i + 2}"
        inserted = rehashed(lines[i], seq=i + 1, prev=json.loads(lines[i])["hash"])
        error = bad(path, [*lines[: i + 1], inserted, *lines[i + 1 :]])
        assert error.where == f"log.jsonl line {i + 3}"


@pytest.mark.parametrize(("i", "j"), [(0, 1), (1, 3), (3, 4)])
def test_swapped_lines_are_detected(path: Path, i: int, j: int) -> None:
    lines = path.read_bytes().splitlines()
    lines[i], lines[j] = lines[j], lines[i]
    assert bad(path, lines).where == f"log.jsonl line {i + 1}"


@pytest.mark.parametrize("keep", [1, 10, -1, -2, -100])
def test_a_truncated_line_is_detected(path: Path, keep: int) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:keep])
    with pytest.raises(EvidenceError) as caught:
        read_log(path)
    whole_lines = data[:keep].count(b"\n")
    assert caught.value.where == f"log.jsonl line {whole_lines + 1}"


@pytest.mark.parametrize(
    "rewrite",
    [
        lambda line: json.dumps(json.loads(line)).encode(),  # spaces, escapes
        lambda line: line.replace(b'"event"', b'"\\u0065vent"'),
        lambda line: line[:-1] + b',"seq":0}',
        lambda line: b" " + line,
        lambda line: line + b"\r",
        lambda line: line.replace(b'"n":0', b'"n":0.0'),
        lambda line: line.replace(b'"n":0', b'"n":"\\ud800"'),
        lambda line: line.replace(b'"n":0', b'"n":' + b"[" * 100_000 + b"]" * 100_000),
        lambda line: line.replace(b'"n":0', b'"n":' + b"9" * 5000),
        lambda line: line.decode().encode("utf-16"),
    ],
)
def test_another_notation_of_the_same_event_is_detected(path: Path, rewrite: Any) -> None:
    lines = path.read_bytes().splitlines()
    lines[0] = rewrite(lines[0])
    assert bad(path, lines).where == "log.jsonl line 1"


@pytest.mark.parametrize(
    "changed",
    [*({"seq": seq} for seq in (0, 2, -1, "1", None, [1], 10**300, 0.5)),
     *({key: wrong} for key in ("prev", "hash") for wrong in (None, 0, "", GENESIS_HASH)),
     {"seq": ...}, {"prev": ...}, {"hash": ...}],
    ids=str,
)  # fmt: skip
def test_invalid_numbers_and_links_are_detected(path: Path, changed: dict[str, Any]) -> None:
    """An ellipsis removes the key."""
    lines = path.read_bytes().splitlines()
    entry = {k: v for k, v in (json.loads(lines[1]) | changed).items() if v is not ...}
    forged = entry if "hash" in changed else {**entry, "hash": entry_hash(entry)}
    where = bad(path, [lines[0], canonical_json(forged), *lines[2:]]).where
    assert where == "log.jsonl line 2"


def test_an_incomplete_last_line_is_removed(path: Path) -> None:
    """A process was killed while it wrote the line."""
    log = RunLog.reopen(path, lambda: "now")
    content = path.read_bytes()
    for rest in (b'{"event":"ro', b""):
        path.write_bytes(content + rest)
        again = RunLog.reopen(path, lambda: "now")
        assert path.read_bytes() == content
        assert (again.head, again.lines, again.events) == (log.head, 5, log.events)
    path.write_bytes(b'{"event"')
    assert RunLog.reopen(path, lambda: "now").lines == 0 and path.read_bytes() == b""
    path.write_bytes(content.replace(b'"n":1', b'"n":2'))
    with pytest.raises(EvidenceError):
        RunLog.reopen(path, lambda: "now")


def test_a_missing_log_is_an_error_and_an_empty_log_is_read(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError):
        read_log(tmp_path / "log.jsonl")
    (tmp_path / "log.jsonl").write_bytes(b"")
    assert read_log(tmp_path / "log.jsonl") == []


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 255))
def test_every_changed_byte_is_detected(
    tmp_path_factory: pytest.TempPathFactory, at: int, change: int
) -> None:
    folder = tmp_path_factory.mktemp("log")
    path = write(folder)
    data = bytearray(path.read_bytes())
    data[at % len(data)] ^= change
    path.write_bytes(bytes(data))
    with pytest.raises(EvidenceError):
        read_log(path)
