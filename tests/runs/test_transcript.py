"""The folder `transcript`: every message as it arrived, bound by the log, on request only."""

import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.runs.jobs import raw_job, tables, write_job
from support.runs.run_folders import bad, facts

from secagg.core.frames import peek_header
from secagg.errors import EvidenceError, UsageError
from secagg.evidence.integrity import verify_folder
from secagg.evidence.run_folder import RunFolder
from secagg.evidence.transcript_file import MESSAGES_FILE, TRANSCRIPT, Message
from secagg.runs.run import resume, run

APART = {"engine.name": '"processes"'}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run(raw_job(), tables(), out=tmp_path / "run", transcript=True)
    return tmp_path / "run"


def about(messages: Sequence[Message]) -> list[tuple[int, str, str, str]]:
    return [(m.round, m.phase, m.sender, m.recipient) for m in messages]


def test_without_a_request_nothing_is_written(tmp_path: Path) -> None:
    done = run(raw_job(), tables(), out=tmp_path / "run")
    assert not (tmp_path / "run" / TRANSCRIPT).exists() and "transcript" not in done.facts


def test_a_request_without_a_folder_is_refused() -> None:
    with pytest.raises(UsageError):
        run(raw_job(), tables(), transcript=True)


def test_it_has_every_message_until_the_result_and_is_private(folder: Path) -> None:
    messages = RunFolder(folder).messages
    assert len(messages) == facts(folder)["transcript"]
    counted = [row["messages"] for row in facts(folder)["phases"]]
    assert len(messages) == sum(counted)
    assert all(peek_header(m.frame) == (m.round, m.phase) for m in messages)
    assert {m.phase for m in messages} == {"consent", "submit"}  # no countersignatures
    assert stat.S_IMODE((folder / MESSAGES_FILE).stat().st_mode) == 0o600
    assert stat.S_IMODE((folder / TRANSCRIPT).stat().st_mode) == 0o700


def test_changed_messages_are_found_and_messages_may_be_taken_away(folder: Path) -> None:
    verify_folder(folder)
    path, content = folder / MESSAGES_FILE, (folder / MESSAGES_FILE).read_bytes()
    path.write_bytes(content[:-1])
    assert bad(folder).where == MESSAGES_FILE
    with pytest.raises(EvidenceError):
        _ = RunFolder(folder).messages
    path.write_bytes(content)
    (folder / TRANSCRIPT / "more").touch()
    assert bad(folder).where == f"{TRANSCRIPT}/more"
    (folder / TRANSCRIPT / "more").unlink()
    path.unlink()
    assert bad(folder).where == MESSAGES_FILE
    path.parent.rmdir()
    path.parent.touch()
    assert bad(folder).where == TRANSCRIPT
    path.parent.unlink()
    verify_folder(folder)


def test_a_folder_that_no_run_wrote_is_found(tmp_path: Path) -> None:
    run(raw_job(), tables(), out=tmp_path / "run")
    (tmp_path / "run" / TRANSCRIPT).mkdir()
    assert bad(tmp_path / "run").where == TRANSCRIPT


@pytest.mark.system
def test_parties_in_processes_and_a_run_that_stops_have_the_same_messages(tmp_path: Path) -> None:
    job, out = write_job(tmp_path), tmp_path / "out"
    run(job, out=tmp_path / "memory", transcript=True, overrides={"sites.ledgers": '"a"'})
    overrides = {**APART, "sites.ledgers": '"b"'}

    def stop(event: Mapping[str, Any]) -> None:
        if event["event"] == "release":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(job, out=out, transcript=True, overrides=overrides, progress=stop)
    resume(out)
    verify_folder(out)
    apart, memory = (sorted(about(RunFolder(f).messages)) for f in (out, tmp_path / "memory"))
    assert apart == memory
