"""`secagg.run`: a job from start to result, its evidence written as it goes.

The loop is the whole driver: each step's events go to disk, then its requests to the parties, then
the coordinator advances. Everything is written into a folder beside the wanted one and renamed at
the end: a run that ends is complete, and one that fails leaves nothing behind but, if sums had
been released already, their log.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from secagg import evidence
from secagg.alone import fit_each_alone
from secagg.contracts import Result, State
from secagg.coordinator import Step
from secagg.engines.memory import Delivery, Tamper
from secagg.errors import JobError, SecaggError
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
    been released before, the log of these is kept beside it, as `OUT.failed-SESSION`.
    """
    planned = plan_job(read_job(job, overrides), data)
    target = None if out is None else Path(out)
    if target is not None:
        _check_target(target, overwrite)
    with _scratch_beside(target) as scratch:
        folder = Path(scratch) / "run"
        folder.mkdir()
        log = RunLog(folder / "log.jsonl", _now)
        try:
            finished = _run_into(planned, log, random, tamper, progress)
        except BaseException as error:
            if target is not None and any(event["event"] == "release" for event in log.events):
                _keep_log(log, folder, target, error)
            raise
        if target is None:
            return finished
        evidence.write_folder(folder, finished.result, finished.facts, log)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            target.rename(Path(scratch) / "earlier")  # deleted with the scratch folder
        folder.rename(target)
    return Run(finished.result, finished.facts, finished.events, target, finished.transcript)


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
    random: RandomBytes,
    tamper: Tamper | None,
    progress: Progress | None,
) -> Run:
    session = open_session(planned, random, tamper)
    started, began = _now(), time.process_time()

    def write(event: Mapping[str, Any]) -> None:
        log.write(event)
        if progress is not None:
            progress(event)

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
    facts["seconds"] = {
        "total": time.process_time() - began,
        **evidence.seconds_by_role(session),
    }
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
    if not target.exists():
        return
    if not overwrite:
        raise JobError(str(target), "exists already", "Choose another --out, or add --overwrite.")
    if not (target / "run.json").is_file():
        raise JobError(str(target), "is not a run folder, so it is not overwritten")


def _scratch_beside(target: Path | None) -> tempfile.TemporaryDirectory[str]:
    """Return a folder to write into, from where renaming to `target` is one step on one disk.

    It lies in the nearest folder above `target` that exists: a run that fails makes none.
    """
    parent = None if target is None else next(p for p in target.absolute().parents if p.exists())
    try:
        return tempfile.TemporaryDirectory(prefix=".secagg-", suffix=".partial", dir=parent)
    except OSError as error:
        raise JobError(str(parent), f"cannot be written to ({error.strerror})") from None


def _keep_log(log: RunLog, folder: Path, target: Path, error: BaseException) -> None:
    """Keep the log of a run that failed after a release: what was released stays on record."""
    log.write({"event": "failed", "code": getattr(error, "code", "interrupted")})
    kept = target.with_name(f"{target.name}.failed-{log.events[0]['session'][:8]}")
    target.parent.mkdir(parents=True, exist_ok=True)
    folder.rename(kept)
    if isinstance(error, SecaggError):
        error.mend = f"{error.mend} Sums released before are on record in {kept}.".strip()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
