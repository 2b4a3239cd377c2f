"""The journal: a step comes back as it was, and only to the log that it belongs to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secagg.contracts import COLLECTED_DRAWS
from secagg.core.frames import Delivery
from secagg.core.hash_chain_log import RunLog
from secagg.errors import EvidenceError
from secagg.runtime.coordinator import Step
from secagg.runtime.coordinator_state import CoordinatorState, Status
from secagg.runtime.journal import Entry, Journal, still_to_log

EVENTS = tuple({"event": "round", "round": i, "sites": ["a", "b"]} for i in range(3))
STATE = CoordinatorState(
    Status.RELEASED, ("a", "b"), {}, round=1, total=np.arange(3, dtype=np.uint64),
    claims={"a": [b"x", b"y"]}, contributors=("a", "b"),
)  # fmt: skip
SENT = [Delivery(0, "submit", "coordinator", "a", 12)]


@pytest.fixture
def log(tmp_path: Path) -> RunLog:
    log = RunLog(tmp_path / "log.jsonl", lambda: "now")
    log.write({"event": "session"})
    return log


def entry(log: RunLog, **changed: Any) -> Entry:
    step = Step(STATE, {"a": b"request"}, EVENTS)
    return replace(Entry(step, log.lines, log.head, SENT, 1.5), **changed)


def journal(log: RunLog, session: bytes = b"session") -> Journal:
    return Journal(log.path.with_name("journal"), session)


def test_a_step_comes_back(log: RunLog) -> None:
    written = entry(log)
    journal(log).write(written)
    read = journal(log).read()
    np.testing.assert_array_equal(read.step.state.total, STATE.total)
    assert replace(read.step.state, total=None) == replace(STATE, total=None)
    assert replace(read, step=replace(read.step, state=STATE)) == written
    assert journal(log).path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("logged", range(4))
def test_events_are_neither_repeated_nor_lost(log: RunLog, logged: int) -> None:
    """The coordinator was killed when `logged` of the step's three events had been written."""
    journal(log).write(entry(log))
    for event in EVENTS[:logged]:
        log.write(event)
    step = still_to_log(journal(log).read(), RunLog.reopen(log.path, log.clock))
    assert step.events == EVENTS[logged:]


def test_every_changed_byte_is_found(log: RunLog) -> None:
    journal(log).write(entry(log))
    path = journal(log).path
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(EvidenceError, match="damaged"):
            journal(log).read()
    for damaged in (b"", whole[:-1], whole + b"x"):
        path.write_bytes(damaged)
        with pytest.raises(EvidenceError, match="damaged"):
            journal(log).read()
    path.unlink()
    with pytest.raises(EvidenceError, match="damaged"):
        journal(log).read()


def test_what_grows_is_appended_and_comes_back(log: RunLog) -> None:
    """A coordinator that goes on after a crash appends where the journal stands."""
    kept, sizes = journal(log), []
    for n in (0, 1, 1, 4):
        sent = [Delivery(i, "submit", "coordinator", "a", i) for i in range(n)]
        draws = [{"theta": np.full(3, float(i))} for i in range(n)]
        step = Step(replace(STATE, method={COLLECTED_DRAWS: draws, "round": n}), {}, ())
        kept.write(entry(log, step=step, delivered=sent))
        for reader in (kept, journal(log)):
            read = reader.read()
            assert read.delivered == sent
            found = [draw["theta"].tolist() for draw in read.step.state.method[COLLECTED_DRAWS]]
            assert found == [[float(i)] * 3 for i in range(n)]
            assert read.step.state.method["round"] == n
        kept = reader
        sizes.append([path.stat().st_size if n else 0 for path in beside(log)])
    assert sizes[1] == sizes[2] < sizes[3]
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in beside(log))


def test_what_grows_may_be_ahead_but_not_damaged(log: RunLog) -> None:
    state = replace(STATE, method={COLLECTED_DRAWS: [1.0, 2.0]})
    journal(log).write(entry(log, step=Step(state, {}, ())))
    for path in beside(log):
        whole = path.read_bytes()
        path.write_bytes(whole + b"killed before the journal was written")
        assert journal(log).read().step.state.method[COLLECTED_DRAWS] == [1.0, 2.0]
        for damaged in (b"", whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1])):
            path.write_bytes(damaged)
            with pytest.raises(EvidenceError, match="damaged"):
                journal(log).read()
        path.write_bytes(whole)
        path.unlink()
        with pytest.raises(EvidenceError, match="damaged"):
            journal(log).read()
        path.write_bytes(whole)


def beside(log: RunLog) -> list[Path]:
    path = journal(log).path
    return [path.with_name(f"journal.{name}") for name in ("delivered", "collected")]


def test_another_sessions_journal(log: RunLog) -> None:
    journal(log, b"other").write(entry(log))
    with pytest.raises(EvidenceError, match="another session"):
        journal(log).read()


def test_a_journal_of_another_version(log: RunLog, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("secagg.runtime.journal._FORMAT", 2)
        journal(log).write(entry(log))
    with pytest.raises(EvidenceError, match="another session or version"):
        journal(log).read()


def test_an_older_journal(log: RunLog) -> None:
    """A copy of an earlier journal was put back: the log has gone on since."""
    stale = entry(log)
    for event in (*EVENTS, {"event": "release"}):
        log.write(event)
    with pytest.raises(EvidenceError, match="one of them is older"):
        still_to_log(stale, log)


def test_an_older_log(log: RunLog) -> None:
    before = log.path.read_bytes()
    log.write({"event": "release"})
    newer = entry(log)
    log.path.write_bytes(before)
    with pytest.raises(EvidenceError, match="one of them is older"):
        still_to_log(newer, RunLog.reopen(log.path, log.clock))


@pytest.mark.parametrize("event", [{"event": "round", "round": 7}, EVENTS[1]])
def test_a_log_that_went_on_otherwise(log: RunLog, event: dict[str, Any]) -> None:
    kept = entry(log)
    log.write(event)
    with pytest.raises(EvidenceError, match="one of them is older"):
        still_to_log(kept, log)


def test_a_log_rewritten_as_a_whole(log: RunLog) -> None:
    """Its chain is intact, but its lines are not those that the journal followed."""
    kept = entry(log)
    log.path.unlink()
    other = RunLog(log.path, log.clock)
    other.write({"event": "session", "job": "another"})
    with pytest.raises(EvidenceError, match="one of them is older"):
        still_to_log(kept, other)


def test_a_line_cut_off_in_the_writing_is_taken_back(log: RunLog) -> None:
    whole = log.path.read_bytes()
    for tail in (b'{"event":"ro', b""):
        log.path.write_bytes(whole + tail)
        again = RunLog.reopen(log.path, log.clock)
        assert log.path.read_bytes() == whole
        assert (again.head, again.lines, again.events) == (log.head, 1, log.events)
    log.path.write_bytes(b'{"event"')
    assert RunLog.reopen(log.path, log.clock).lines == 0 and log.path.read_bytes() == b""


def test_a_changed_log_is_not_continued(log: RunLog) -> None:
    log.path.write_bytes(log.path.read_bytes().replace(b"session", b"sessiom"))
    with pytest.raises(EvidenceError, match="line 1"):
        RunLog.reopen(log.path, log.clock)
