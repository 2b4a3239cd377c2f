"""Runs that stopped by an error and went on: the log says why they stopped, and since when."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.crashes.folders import Killed, dying, folders
from support.crashes.nursery import nursery, quick_starts
from support.crashes.resumed import APART, check
from support.runs.jobs import write_job

from secagg.core.hash_chain_log import RunLog
from secagg.errors import JobError, PolicyRefusal, ProtocolAbort, RecordsRefusal
from secagg.runs.run import resume, run
from secagg.sessions.engines.loopback import LoopbackEngine
from secagg.sessions.journal import Journal

__all__ = ["folders", "nursery", "quick_starts"]  # fixtures


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return write_job(tmp_path)


@pytest.mark.usefixtures("quick_starts")
def test_a_site_lost_after_the_first_release_can_return(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = LoopbackEngine.exchange
    calls: list[int] = []

    def exchange(self: LoopbackEngine, requests: Mapping[str, bytes]) -> Any:
        calls.append(len(requests))
        if len(calls) == 3:
            self._launcher.processes["west"].kill()
        return real(self, requests)

    out = job.parent / "out"
    with monkeypatch.context() as patch:
        patch.setattr(LoopbackEngine, "exchange", exchange)
        with pytest.raises(ProtocolAbort, match="west") as why:
            run(job, out=out, overrides=APART | {"engine.restart": "false"})
    assert f"secagg resume {out}" in why.value.advice and "--deadline" not in why.value.advice
    done = resume(out, deadline=60.0)
    run(job, out=job.parent / "memory")
    check(out, job.parent / "memory", 1, "missing", "stopped")
    missing, stopped, resumed = done.facts["trouble"]
    assert done.folder == out and missing["parties"] == ["west"]
    assert {"round": 1, "code": "abort", "where": "round 1", "deadline": 30.0}.items() <= (
        stopped.items()
    )
    assert "west" in stopped["what"] and resumed["deadline"] == 60.0


@pytest.mark.usefixtures("quick_starts")
def test_a_site_that_was_too_slow_gets_more_time(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = LoopbackEngine.exchange

    def exchange(self: LoopbackEngine, requests: Mapping[str, bytes]) -> Any:
        os.kill(self._launcher.processes["west"].pid, signal.SIGSTOP)
        return real(self, requests)

    out = job.parent / "out"
    with monkeypatch.context() as patch:
        patch.setattr(LoopbackEngine, "exchange", exchange)
        with pytest.raises(PolicyRefusal, match=r"west .* 5 s.*--deadline") as why:
            run(job, out=out, overrides=APART | {"engine.deadline": "5"})
    assert f"'secagg resume {out}'" in why.value.advice
    resume(out, deadline=60.0)
    run(job, out=job.parent / "memory")
    check(out, job.parent / "memory", 1, "missing", "stopped")
    assert "no reply from west" in (out / "report.html").read_text()


@pytest.mark.usefixtures("folders")
def test_a_run_continues_after_a_cell_is_corrected(job: Path) -> None:
    path, out = job.parent / "data/north.csv", job.parent / "out"
    text = path.read_text()
    path.write_text(text.replace(",male", ",mael"))
    with pytest.raises(RecordsRefusal):
        run(job, out=out, overrides=APART)
    with pytest.raises(JobError):
        run(job, out=out, overrides=APART)
    path.write_text(text)
    resume(out)
    run(job, out=job.parent / "memory")
    check(out, job.parent / "memory", 1, "stopped")
    assert b"mael" not in b"".join(p.read_bytes() for p in out.iterdir())


@pytest.mark.parametrize(
    ("kind", "number", "after", "recorded"),
    [
        (Journal, 1, False, False),  # the journal's second entry is the first with the reason added
        (Journal, 1, True, True),
        (RunLog, 1, False, True),  # the log's second line is the reason
        (RunLog, 1, True, True),
    ],
)
@pytest.mark.usefixtures("folders")
def test_a_kill_while_recording_the_reason_leaves_it_at_most_once(
    job: Path, kind: Any, number: int, after: bool, recorded: bool
) -> None:
    """The reason is in the log once, or, if it was not in the journal yet, never."""
    path, out = job.parent / "data/north.csv", job.parent / "out"
    text = path.read_text()
    path.write_text(text.replace(",male", ",mael"))
    with pytest.raises(Killed), dying(kind, "write", number, after=after):
        run(job, out=out, overrides=APART)
    path.write_text(text)
    resume(out)
    run(job, out=job.parent / "memory")
    check(out, job.parent / "memory", 1, *["stopped"] * recorded)


@pytest.mark.usefixtures("folders")
def test_a_run_continues_after_a_rule_or_the_job_is_changed(job: Path) -> None:
    rule, out = job.parent / "data/north.policy.toml", job.parent / "out"
    rule.write_text("min_sites = 4\n")
    with pytest.raises(PolicyRefusal) as caught:
        run(job, out=out, overrides=APART)
    assert caught.value.where == "north" and f"'secagg resume {out}'" in caught.value.advice
    rule.unlink()
    resume(out)
    run(job, out=job.parent / "memory")
    check(out, job.parent / "memory", 1, "stopped")
