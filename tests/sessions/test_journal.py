"""The journal: it returns the same step, and only for the log that it belongs to."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secagg.contracts import COLLECTED_DRAWS
from secagg.core.frames import Delivery
from secagg.core.hash_chain_log import RunLog
from secagg.errors import EvidenceError
from secagg.sessions.coordinator import Step
from secagg.sessions.coordinator_state import CoordinatorState, Status
from secagg.sessions.journal import Entry, Journal, still_to_log

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


def test_a_written_step_is_read_back(log: RunLog) -> None:
    written = entry(log)
    journal(log).write(written)
    read = journal(log).read()
    np.testing.assert_array_equal(read.step.state.total, STATE.total)
    assert replace(read.step.state, total=None) == replace(STATE, total=None)
    assert replace(read, step=replace(read.step, state=STATE)) == written
    assert journal(log).path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("logged", range(4))
def test_after_a_crash_no_events_are_repeated_or_lost(log: RunLog, logged: int) -> None:
    """The coordinator was killed when `logged` of the step's three events had been written."""
    journal(log).write(entry(log))
    for event in EVENTS[:logged]:
        log.write(event)
    step = still_to_log(journal(log).read(), RunLog.reopen(log.path, log.clock))
    assert step.events == EVENTS[logged:]


def test_every_changed_byte_is_detected(log: RunLog) -> None:
    journal(log).write(entry(log))
    path = journal(log).path
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(EvidenceError):
            journal(log).read()
    for damaged in (b"", whole[:-1], whole + b"x"):
        path.write_bytes(damaged)
        with pytest.raises(EvidenceError):
            journal(log).read()
    path.unlink()
    with pytest.raises(EvidenceError):
        journal(log).read()


def test_growing_lists_are_appended_and_read_back(log: RunLog) -> None:
    """A coordinator that resumes appends where the journal ends."""
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
        sizes.append([path.stat().st_size if n else 0 for path in growing_files(log)])
    assert sizes[1] == sizes[2] < sizes[3]
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in growing_files(log))


def test_growing_files_may_be_longer_but_not_damaged(log: RunLog) -> None:
    state = replace(STATE, method={COLLECTED_DRAWS: [1.0, 2.0]})
    journal(log).write(entry(log, step=Step(state, {}, ())))
    for path in growing_files(log):
        whole = path.read_bytes()
        path.write_bytes(whole + b"killed before the journal was written")
        assert journal(log).read().step.state.method[COLLECTED_DRAWS] == [1.0, 2.0]
        for damaged in (b"", whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1])):
            path.write_bytes(damaged)
            with pytest.raises(EvidenceError):
                journal(log).read()
        path.write_bytes(whole)
        path.unlink()
        with pytest.raises(EvidenceError):
            journal(log).read()
        path.write_bytes(whole)


def growing_files(log: RunLog) -> list[Path]:
    path = journal(log).path
    return [path.with_name(f"journal.{name}") for name in ("delivered", "collected")]


def test_a_journal_of_another_session_or_version_is_refused(
    log: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal(log, b"other").write(entry(log))
    with pytest.raises(EvidenceError):
        journal(log).read()
    with monkeypatch.context() as patch:
        patch.setattr("secagg.sessions.journal._FORMAT", 2)
        journal(log).write(entry(log))
    with pytest.raises(EvidenceError):
        journal(log).read()


@pytest.mark.parametrize(
    "later", [(*EVENTS, {"event": "release"}), ({"event": "round", "round": 7},), (EVENTS[1],)]
)
def test_a_log_with_other_events_than_the_step_is_refused(
    log: RunLog, later: tuple[dict[str, Any], ...]
) -> None:
    """An earlier journal was restored, or the log was continued differently."""
    saved = entry(log)
    for event in later:
        log.write(event)
    with pytest.raises(EvidenceError):
        still_to_log(saved, log)


def test_an_older_log_is_refused(log: RunLog) -> None:
    before = log.path.read_bytes()
    log.write({"event": "release"})
    newer = entry(log)
    log.path.write_bytes(before)
    with pytest.raises(EvidenceError):
        still_to_log(newer, RunLog.reopen(log.path, log.clock))


def test_a_rewritten_log_is_refused(log: RunLog) -> None:
    """Its chain is intact, but its lines are not those before the step."""
    saved = entry(log)
    log.path.unlink()
    other = RunLog(log.path, log.clock)
    other.write({"event": "session", "job": "another"})
    with pytest.raises(EvidenceError):
        still_to_log(saved, other)
