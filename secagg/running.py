"""`secagg.run`: a job from start to result, its evidence written as it goes.

The loop is the whole driver: each step's events go to disk, then its requests to the parties, then
the coordinator advances. Everything is written into a folder beside the wanted one and renamed at
the end: a run that ends is complete, and one that fails leaves nothing behind but, if sums had
been released already, their log. Nothing that stood at the wanted place is lost on the way.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from secagg import evidence
from secagg.alone import fit_each_alone
from secagg.contracts import Result, State
from secagg.coordinator import Step
from secagg.engines.memory import Delivery, Tamper
from secagg.errors import JobError, SecaggError, UsageError
from secagg.job import Job, load_job, parse_job
from secagg.randomness import RandomBytes, system_random
from secagg.runlog import RunLog
from secagg.session import Planned, Session, open_session, plan_job
from secagg.sites import Data

Progress = Callable[[Mapping[str, Any]], None]
"""Called with each log event as it is written."""


@dataclass(frozen=True)
class Run:
    """A finished run.

    result: what the method found; facts: what run.json holds; events: the log
    folder: where it was written, or None
    transcript: every frame that was delivered
    """

    result: Result
    facts: dict[str, Any]
    events: list[dict[str, Any]]
    folder: Path | None
    transcript: list[Delivery] = field(repr=False)


def run(
    job: Job | Mapping[str, Any] | str | Path,
    data: Data | None = None,
    *,
    out: str | Path | None = None,
    overwrite: bool = False,
    overrides: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    tamper: Tamper | None = None,
    random: RandomBytes = system_random,
) -> Run:
    """Run a job in this process and return its result.

    job: a `Job`, its plain data, or the path of a TOML file
    data: records by site name (DataFrames or mappings of columns) instead of the job's sites
    out: folder to write the run into; without it nothing is written
    overwrite: replace `out` if it holds an earlier run
    overrides: dotted job keys to TOML values, as `--set` on the command line
    progress: called with each event; tamper: see `secagg.engines.memory`
    random: anything but the operating system's generator makes the run protect nothing; it says so

    Raises `UsageError`, `PolicyRefusal`, `ProtocolAbort`; then `out` is left as it was. If sums had
    been released before, the log of these is kept beside it, as `OUT.failed-SESSION`. If something
    appeared at `out` meanwhile, the whole finished run is kept beside it, as `OUT.SESSION`.
    """
    planned = plan_job(read_job(job, overrides), data)
    target = None if out is None else Path(out).absolute()
    if target is not None:
        _check_target(target, overwrite)
    with _scratch_beside(target) as scratch:
        folder = Path(scratch) / "run"
        folder.mkdir()
        log = RunLog(folder / "log.jsonl", _now)

        def write(event: Mapping[str, Any]) -> None:
            with _writing(target or folder):
                log.write(event)
            if progress is not None:
                progress(event)

        try:
            finished = _run_into(planned, log, write, random, tamper)
            if target is not None:
                with _writing(target):
                    evidence.write_folder(folder, finished.result, finished.facts, log)
                    _place(folder, target, overwrite, finished.facts["session"][:8])
        except BaseException as error:
            released = any(event["event"] == "release" for event in log.events)
            if target is not None and released and folder.exists():
                _keep_log(log, folder, target, error)
            raise
    place = None if out is None else Path(out)
    return Run(finished.result, finished.facts, finished.events, place, finished.transcript)


def read_job(
    job: Job | Mapping[str, Any] | str | Path, overrides: Mapping[str, str] | None = None
) -> Job:
    """Return the job from any of the forms `run` takes. Raises `JobError`."""
    if isinstance(job, str | Path):
        return load_job(Path(job), dict(overrides or {}))
    if overrides:
        raise JobError("overrides", "go with a job file", "Change the job itself.")
    return job if isinstance(job, Job) else parse_job(dict(job))


def _run_into(
    planned: Planned,
    log: RunLog,
    write: Progress,
    random: RandomBytes,
    tamper: Tamper | None,
) -> Run:
    session = open_session(planned, random, tamper)
    started, began = _now(), time.process_time()
    write(evidence.opening(session, replayable=random is not system_random))
    try:
        state = _loop(session, write)
    except SecaggError as error:
        # In one process the party's own words are at hand; on a network only the code arrives.
        own = session.engine.errors.get(error.where)
        raise (error if own is None or own.code != error.code else own) from None
    result = planned.method.result(state["method"], planned.public)
    summary = {"title": planned.job.title, **result.summary, **evidence.counts(planned, state)}
    if planned.job.simulation.site_alone:
        summary["simulation"] = {"site_alone": fit_each_alone(session.sides)}
    result = Result(summary, result.arrays)
    facts = evidence.facts(session, state, log.events, (started, _now()))
    facts["seconds"] = evidence.processor_seconds(session, time.process_time() - began)
    return Run(result, facts, log.events, None, session.engine.transcript)


def _loop(session: Session, write: Callable[[Mapping[str, Any]], None]) -> State:
    """Step until done: log, send, advance."""
    step: Step = session.coordinator.start()
    while True:
        for event in step.events:
            write(event)
        if step.done:
            return step.state
        frames = session.engine.exchange(step.requests)
        step = session.coordinator.advance(step.state, frames)


def _check_target(target: Path, overwrite: bool) -> None:
    """Refuse a place that is taken or cannot be: later, sums would have been released for nothing.

    A link is never followed or replaced, even one that leads nowhere.
    """
    try:
        with suppress(FileNotFoundError):
            target.with_name(f"{target.name}.earlier-{'0' * 8}").lstat()  # the longest name we give
        target.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise JobError(str(target), f"cannot be written to ({error.strerror})") from None
    if not overwrite:
        raise JobError(str(target), "exists already", "Choose another --out, or add --overwrite.")
    if target.is_symlink() or not (target / "run.json").is_file():
        raise JobError(str(target), "is not a run folder, so it is not overwritten")


def _scratch_beside(target: Path | None) -> tempfile.TemporaryDirectory[str]:
    """Return a folder to write into, from where renaming to `target` is one step on one disk.

    It lies in the nearest folder above `target` that exists: a run that fails makes none.
    """
    parent = None if target is None else next(p for p in target.parents if os.path.lexists(p))
    try:
        return tempfile.TemporaryDirectory(prefix=".secagg-", suffix=".partial", dir=parent)
    except OSError as error:
        raise JobError(str(parent), f"cannot be written to ({error.strerror})") from None


@contextmanager
def _writing(place: Path) -> Iterator[None]:
    """Turn a failure of the disk into the one line that names the place."""
    try:
        yield
    except OSError as error:
        what = f"cannot be written ({error.strerror or error})"
        raise UsageError(str(place), what, "Make room or choose another --out.") from error


def _place(folder: Path, target: Path, overwrite: bool, session: str) -> None:
    """Rename the finished run to `target`; an earlier run there is deleted last, after that.

    Whatever goes wrong before, the earlier run is put back. What appeared at `target` during the
    run is not ours to touch: then the finished run is kept beside it, and `JobError` says where.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    earlier = target.with_name(f"{target.name}.earlier-{session}")
    try:
        if overwrite and os.path.lexists(target):
            _check_target(target, overwrite)
            target.rename(earlier)
        if os.path.lexists(target):
            raise JobError(str(target), "appeared during the run, and is left as it is")
        folder.rename(target)  # had it appeared just now: fails unless it is an empty folder
    except BaseException as error:
        if os.path.lexists(earlier) and not os.path.lexists(target):
            earlier.rename(target)
        if isinstance(error, JobError):
            beside = target.with_name(f"{target.name}.{session}")
            folder.rename(beside)
            error.mend = f"The finished run is in {beside}."
        raise
    shutil.rmtree(earlier, ignore_errors=True)  # what cannot be deleted stays, under that name


def _keep_log(log: RunLog, folder: Path, target: Path, error: BaseException) -> None:
    """Keep the log of a run that failed after a release: what was released stays on record."""
    for path in set(folder.iterdir()) - {log.path}:
        path.unlink()
    with suppress(OSError):  # on a full disk; the lines of the releases are safe already
        log.write({"event": "failed", "code": getattr(error, "code", "interrupted")})
    with suppress(OSError):
        target.parent.mkdir(parents=True, exist_ok=True)
    nearest = next(parent for parent in target.parents if parent.is_dir())
    kept = nearest / f"{target.name}.failed-{log.events[0]['session'][:8]}"
    folder.rename(kept)
    if isinstance(error, SecaggError):
        error.mend = f"{error.mend} Sums released before are on record in {kept}.".strip()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
