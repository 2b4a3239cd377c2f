"""Runs that were killed, and go on: the same bits, one whole log, nothing lost."""

import functools
import itertools
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.crashes.folders import FolderEngine, Killed, dying, folders
from support.crashes.killed import killed
from support.crashes.nursery import Nursery, nursery, quick_starts
from support.crashes.resumed import APART, check
from support.protocols.keys import quick_keys
from support.runs.jobs import write_job
from typer.testing import CliRunner

from secagg.cli.main import app
from secagg.contracts import COLLECTED_DRAWS
from secagg.core.hash_chain_log import RunLog, read_log
from secagg.core.identity import Role, Roster
from secagg.core.private_files import exclusive_lock, read_checked
from secagg.errors import EvidenceError, JobError, UsageError
from secagg.evidence.integrity import verify_folder
from secagg.jobs.job import Job
from secagg.jobs.registry import PROTOCOLS
from secagg.runs.output_folder import find_unfinished
from secagg.runs.run import resume, run
from secagg.sessions.journal import Journal
from secagg.sessions.planned_job import plan_sites, session_of

__all__ = ["folders", "nursery", "quick_keys", "quick_starts"]  # fixtures


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return write_job(tmp_path)


def named(protocol: str) -> dict[str, str]:
    small = ", key_bits = 2048" if "paillier" in protocol else ""
    return {"protocol": f'{{ name = "{protocol}"{small} }}'}


def kill_run(
    job: Path, number: int, *, after: bool, nursery: Nursery | None = None, **more: str
) -> Path:
    """Kill a run at its n-th journal entry; return its `out`."""
    out = job.parent / "out"
    told = [job, out, APART | more]
    assert killed(nursery, run=told, what="journal", number=number, after=after)
    wait_until_alone(job.parent / "out.partial")
    return out


def die(job: Path, number: int) -> Path:
    """The same without processes, for tests that use `folders`."""
    out = job.parent / "out"
    with pytest.raises(Killed), dying(Journal, "write", number, after=True):
        run(job, out=out, overrides=APART)
    return out


def wait_until_alone(place: Path) -> None:
    """Parties end by themselves when their coordinator has died."""
    for folder in (place / "parties").iterdir():
        with exclusive_lock(folder / "lock", 20.0):
            pass


# --- the coordinator is killed -------------------------------------------------------------------


def test_a_killed_run_is_resumed_from_the_command_line(job: Path) -> None:
    out = kill_run(job, 3, after=True)
    assert not out.exists()
    done = CliRunner().invoke(app, ["resume", str(out)], catch_exceptions=False)
    assert done.exit_code == 0 and "resumed in round 1" in done.stderr
    run(job, out=job.parent / "memory")
    check(out, job.parent / "memory", 1)
    assert verify_folder(out).head in done.stdout


def test_a_run_killed_between_any_two_phases_is_resumed(job: Path, quick_starts: Nursery) -> None:
    """The run, and then each process that resumes it, dies some steps further than the last.

    With real processes and SIGKILL; the next test dies after each step, and under every protocol.
    """
    out = kill_run(job, 1, after=True, nursery=quick_starts)
    resumed = 1
    while killed(quick_starts, resume=out, what="journal", number=3, after=True):
        wait_until_alone(job.parent / "out.partial")
        resumed += 1
    run(job, out=job.parent / "memory")
    check(out, job.parent / "memory", resumed)
    assert resumed >= 3  # a killed process wrote four entries of those of consent and two rounds


@pytest.mark.parametrize(
    ("protocol", "after"), [("plain", False), *((name, True) for name in PROTOCOLS)]
)
@pytest.mark.parametrize(
    ("kind", "method"), [(Journal, "write"), (RunLog, "write"), (FolderEngine, "exchange")]
)
@pytest.mark.usefixtures("folders", "quick_keys")
def test_a_run_killed_at_any_write_is_resumed(
    job: Path, protocol: str, kind: Any, method: str, after: bool
) -> None:
    """Around every entry of the journal, every line of the log, every phase: a run for each.

    Before one is after another, as far as files tell; so with one protocol only.
    """
    memory = job.parent / "memory"
    run(job, out=memory, overrides=named(protocol))
    for number in itertools.count():
        out = job.parent / f"out-{number}"
        try:
            with dying(kind, method, number, after=after):
                run(job, out=out, overrides=APART | named(protocol))
            break
        except Killed:
            pass
        if method == "write" and number == 0 and not after and kind is Journal:
            with pytest.raises(UsageError):
                resume(out)  # nothing was asked yet
            continue
        resume(out)
        check(out, memory, 1)
    assert number >= 4  # two rounds, each of a phase and a release


@pytest.mark.usefixtures("folders")
def test_draws_collected_before_a_kill_are_in_the_result(job: Path) -> None:
    out, rounds = job.parent / "out", 8
    sampler = f'{{ name = "sparse_regression", outcome = "age", rounds = {rounds}, chains = 2 }}'
    with pytest.raises(Killed), dying(Journal, "write", 17, after=True):
        run(job, out=out, overrides=APART | {"method": sampler})
    place, _ = find_unfinished(out)
    setup = read_checked(place / "setup")
    roster, nonce = Roster.from_plain(setup["roster"]), setup["nonce"]
    planned = plan_sites(Job.model_validate_json(setup["job"]), roster.with_role(Role.SITE), {})
    journal = Journal(place / "journal", session_of(planned, roster, nonce))
    before = [draw["theta"] for draw in journal.read().step.state.method[COLLECTED_DRAWS]]
    assert 1 <= len(before) < rounds // 2  # killed after warmup, before the end
    draws = resume(out).result.arrays["draws_theta"]
    assert len(draws) == rounds // 2
    for kept, drawn in zip(before, draws, strict=False):
        assert np.array_equal(kept[:, 0], drawn)


@pytest.mark.usefixtures("folders")
def test_a_kill_after_moving_the_finished_run_loses_nothing(job: Path, tmp_path: Path) -> None:
    """Only its unfinished copy is left to delete."""
    out = die(job, 3)
    shutil.copytree(tmp_path / "out.partial", tmp_path / "copy")
    resume(out)
    shutil.move(tmp_path / "copy", tmp_path / "out.partial")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(UsageError):
        resume(out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert not (tmp_path / "out.partial").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.usefixtures("quick_starts")  # of what goes on
def test_an_interrupted_run_says_how_to_resume(job: Path, number: signal.Signals) -> None:
    """Ctrl-C, or a polite request to end: everything ends, one line says how the run can go on.

    One site's table is a pipe that nobody writes into, so that the phase is under way until then.
    """
    out, table = job.parent / "out", job.parent / "data/west.csv"
    cells = table.read_bytes()
    table.unlink()
    os.mkfifo(table)
    command = [sys.executable, "-m", "secagg.cli", "run", job, "--engine", "processes"]
    with subprocess.Popen(
        [*command, "--out", out],
        stderr=subprocess.PIPE,
        text=True,
        # as a job of `... &` inherits it, an interrupt is ignored; no thread runs here
        preexec_fn=functools.partial(signal.signal, number, signal.SIG_DFL),  # noqa: PLW1509
    ) as running:
        assert running.stderr is not None
        while "asked" not in (line := running.stderr.readline()):
            assert line
        running.send_signal(number)
        rest = running.stderr.read().strip()
    assert running.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[number]
    assert rest.startswith("secagg: command: ") and rest.count("\n") == 0
    assert f"{out}.partial" in rest and f"'secagg resume {out}'" in rest
    table.unlink()
    table.write_bytes(cells)
    wait_until_alone(job.parent / "out.partial")
    resume(out)
    run(job, out=job.parent / "memory")
    check(out, job.parent / "memory", 1)


# --- what is not resumed -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["out", "out.partial"])
def test_resuming_a_folder_without_a_run_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        resume(tmp_path / name)
    (tmp_path / name).mkdir()
    with pytest.raises(UsageError):
        resume(tmp_path / name)
    assert list((tmp_path / name).iterdir()) == []


@pytest.mark.parametrize("name", ["out", "out.partial"])
def test_an_unfinished_run_is_found_under_each_of_its_names(tmp_path: Path, name: str) -> None:
    target, place = tmp_path / name, tmp_path / f"{name}.partial"
    place.mkdir()
    (place / "journal").touch()
    assert find_unfinished(target) == find_unfinished(place) == (place, target)


def test_another_users_run_is_not_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out.partial").mkdir()
    (tmp_path / "out.partial/journal").touch()
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(UsageError, match="user"):
        resume(tmp_path / "out")


@pytest.mark.usefixtures("folders")
def test_a_tampered_run_is_neither_resumed_nor_deleted(job: Path) -> None:
    """Journal, log, setup and key, one after the other; put back, the run goes on."""
    out = die(job, 4)
    place = job.parent / "out.partial"
    stale = job.parent / "stale"
    shutil.copytree(place, stale)
    with pytest.raises(UsageError):
        verify_folder(place)
    with pytest.raises(UsageError):
        resume(out, deadline=0.0)
    with exclusive_lock(place / "lock"):
        with pytest.raises(UsageError, match="another process"):
            resume(out)
        with pytest.raises(UsageError, match="another process"):
            run(job, out=out, overwrite=True, overrides=APART)
    for name in ("journal", "log.jsonl", "setup"):
        whole = (place / name).read_bytes()
        (place / name).write_bytes(whole.replace(b"round", b"rouns", 1).replace(b"sec", b"sek", 1))
        before = {p: p.read_bytes() for p in place.rglob("*") if p.is_file()}
        with pytest.raises((EvidenceError, UsageError)) as caught:
            resume(out)
        assert caught.value.exit_code in (2, 6) and caught.value.advice
        assert {p: p.read_bytes() for p in place.rglob("*") if p.is_file()} == before
        (place / name).write_bytes(whole)
    resume(out)
    run(job, out=job.parent / "memory")
    check(out, job.parent / "memory", 1)


@pytest.mark.usefixtures("folders")
def test_a_new_run_replaces_an_unfinished_one_only_on_request(job: Path) -> None:
    out = die(job, 3)
    with pytest.raises(JobError) as caught:
        run(job, out=out)  # whatever the engine
    assert "secagg resume" in caught.value.advice
    assert (job.parent / "out.partial").exists()
    run(job, out=out, overwrite=True)
    assert not (job.parent / "out.partial").exists()
    (kept,) = job.parent.glob("out.failed-*")
    assert [path.name for path in kept.iterdir()] == ["log.jsonl"]
    assert verify_folder(kept).releases == 1
    assert [e["event"] for e in read_log(kept / "log.jsonl")][-1] == "failed"
    verify_folder(out)


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_files_that_are_not_unfinished_runs_are_kept(job: Path, kind: str) -> None:
    place = job.parent / "out.partial"
    if kind == "file":
        place.write_text("mine")
    elif kind == "folder":
        place.mkdir()
        (place / "thesis.tex").write_text("mine")
    else:
        place.symlink_to(job.parent / "data")
    for overwrite in (False, True):
        with pytest.raises(JobError):
            run(job, out=job.parent / "out", overwrite=overwrite, overrides=APART)
    assert place.is_symlink() or place.is_file() or (place / "thesis.tex").read_text() == "mine"
    assert (job.parent / "data/north.csv").exists()
