"""What killed runs and copied folders leave: it is named, and removed only if nobody uses it.

===============================================  ==============================
hidden folder near the new run                   what happens to it
===============================================  ==============================
of a killed run                                  removed and named
of a killed run that released sums               the same; its log is kept
of a run that goes on (its lock is held)         stays, and is not named
without a lock; a link; a file                   stays
that can be resumed (`--out .secagg-x`)          stays, and is named
with a damaged log; whose run is a link          stays, and is named
===============================================  ==============================
"""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.runs.jobs import TOML, as_csv, small_job, tables

from secagg.core.private_files import exclusive_lock
from secagg.errors import UsageError
from secagg.runs.output_folder import scratch_near
from secagg.runs.plan import plan
from secagg.runs.run import run

KILLED = """
import os, signal, sys
from secagg.runs.run import run
def die(event):
    if event["event"] == sys.argv[1]:
        os.kill(os.getpid(), signal.SIGKILL)
run(sys.argv[2], out=sys.argv[3], progress=die)
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    for site, columns in tables().items():
        (tmp_path / "data" / f"{site}.csv").write_text(as_csv(columns), encoding="utf-8")
    path = tmp_path / "job.toml"
    path.write_text(TOML, encoding="utf-8")
    return path


def remarks_of(job: Path, out: Path) -> list[str]:
    said: list[str] = []
    run(job, out=out, progress=lambda e: said.append(e["text"]) if e["event"] == "remark" else None)
    return said


@pytest.mark.attack
@pytest.mark.parametrize("event", ["session", "release"])
def test_what_a_killed_run_left_is_named_and_removed(job: Path, event: str) -> None:
    command = [sys.executable, "-c", KILLED, event, str(job), str(job.parent / "out")]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    (left,) = job.parent.glob(".secagg-*")
    said = remarks_of(job, job.parent / "out")
    assert any(str(left) in line and "removed" in line for line in said)
    assert not left.exists()
    kept = list(job.parent.glob("killed.failed-*"))
    assert len(kept) == (event == "release")
    assert all([path.name for path in each.iterdir()] == ["log.jsonl"] for each in kept)


def test_a_folder_in_use_stays(job: Path) -> None:
    used, bare = job.parent / ".secagg-used.partial", job.parent / ".secagg-bare.partial"
    for folder in (used, bare):
        (folder / "run").mkdir(parents=True)
    other = job.parent / "other"
    other.mkdir()
    link = job.parent / ".secagg-link.partial"
    link.symlink_to(other)
    with exclusive_lock(used / "lock"):
        said = " ".join(remarks_of(job, job.parent / "out"))
    assert used.exists() and bare.exists() and link.is_symlink() and other.exists()
    assert str(bare) in said and str(used) not in said and str(link) not in said
    (used / "lock").chmod(0o600)
    assert str(used) in " ".join(remarks_of(job, job.parent / "second")) and not used.exists()


@pytest.mark.attack
@pytest.mark.parametrize("what", ["resumable", "damaged", "cut off", "link"])
def test_what_somebody_may_need_stays_and_the_run_goes_on(job: Path, what: str) -> None:
    place, other = job.parent / ".secagg-mine.partial", job.parent / "other"
    other.mkdir()
    (other / "precious").write_text("x", encoding="utf-8")
    place.mkdir()
    (place / "lock").touch()
    if what == "resumable":
        (place / "journal").write_text("x", encoding="utf-8")
    elif what == "link":
        (place / "run").symlink_to(other)
        (other / "log.jsonl").write_text('{"event":"release"}\n', encoding="utf-8")
    else:
        (place / "run").mkdir()
        line = '{"event":"release"}' + "\n" * (what == "damaged")
        (place / "run" / "log.jsonl").write_text(line, encoding="utf-8")
    said = [line for line in remarks_of(job, job.parent / "out") if str(place) in line]
    assert len(said) == 1 and "delete it" in said[0]
    assert place.exists() and (other / "precious").exists()
    assert not list(job.parent.glob("killed.failed-*"))


def test_a_lock_is_held_before_others_see_it(tmp_path: Path) -> None:
    with scratch_near(tmp_path / "out") as place, pytest.raises(UsageError, match="in use"):
        assert [path.name for path in place.iterdir()] == ["lock"]
        with exclusive_lock(place / "lock"):
            pass


@pytest.mark.attack
def test_a_copied_folder_names_its_new_ledgers(job: Path) -> None:
    first = plan(job)["new_ledgers"]
    names = ("coordinator", "north", "south", "west")
    assert len(first) == 1 and "not counted" in first[0]
    assert all(f"{name}.ledger" in first[0] for name in names)
    assert [line for line in remarks_of(job, job.parent / "out") if "new ledgers" in line] == first
    assert plan(job)["new_ledgers"] == []
    copied = job.parent / "copied"
    shutil.copytree(job.parent / "data", copied / "data", ignore=shutil.ignore_patterns("ledgers"))
    shutil.copy(job, copied / "job.toml")
    again = plan(copied / "job.toml")["new_ledgers"]
    assert len(again) == 1 and str(copied) in again[0] and "west.ledger" in again[0]
    (job.parent / "data" / "ledgers" / "south.ledger").unlink()
    (line,) = plan(job)["new_ledgers"]
    assert "south.ledger" in line and "north" not in line.partition(": ")[2]


def test_data_in_memory_have_no_ledgers() -> None:
    assert plan(small_job(), tables())["new_ledgers"] == []
