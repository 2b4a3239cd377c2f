"""`secagg.run`: a job from start to result, its evidence written as it goes.

The loop is the whole driver, whatever the engine: each step is kept in the journal, if there is
one; its events go to disk, then its requests to the parties, then the coordinator advances. Where a
run lies meanwhile, and what stays of one that fails, is in `secagg.runs.run_folder`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from secagg.contracts import Result
from secagg.core.frames import Delivery
from secagg.core.hash_chain_log import RunLog
from secagg.core.identity import COORDINATOR, Identity
from secagg.core.key_file import read_key
from secagg.core.private_files import exclusive_lock
from secagg.core.randomness import RandomBytes, system_random
from secagg.core.threads import single_threaded_blas
from secagg.errors import SecaggError, UsageError
from secagg.jobs.data_sources import Data, as_policy
from secagg.jobs.job import Job, read_job
from secagg.privacy.policy.release_rules import check_invitation
from secagg.runs import facts as run_facts
from secagg.runs.run_files import write_folder
from secagg.runs.run_folder import (
    check_target,
    check_unfinished,
    discard_unfinished,
    find_unfinished,
    fresh_copy,
    keep_log,
    move_into_place,
    resumable,
    scratch_beside,
    unfinished,
    utc_now,
    writing,
)
from secagg.runs.site_baselines import fit_each_site_only
from secagg.runtime.coordinator import Step
from secagg.runtime.coordinator_state import CoordinatorState
from secagg.runtime.engines.loopback import LoopbackEngine
from secagg.runtime.engines.memory import MemoryEngine, Tamper
from secagg.runtime.journal import Entry, still_to_log
from secagg.runtime.planned_job import Planned, plan_job
from secagg.runtime.process_session import Progress, resume_session, start_session
from secagg.runtime.session import Session, open_session
from secagg.runtime.site_results import keep_own


@dataclass(frozen=True)
class Run:
    """A finished run.

    result: what the method found; events: the log
    facts: what run.json holds, with the log's releases and troubles (`secagg.runs.run_files`)
    folder: where it was written, or None
    transcript: every frame that was delivered
    remarks: what sites in this process were told of their own records; in no file
    own: what the method leaves at the sites in this process, by site
        (`secagg.runtime.site_results`)
    """

    result: Result
    facts: dict[str, Any]
    events: list[dict[str, Any]]
    folder: Path | None
    transcript: list[Delivery] = field(repr=False)
    remarks: tuple[str, ...] = ()
    own: Mapping[str, Result] = field(default_factory=dict, repr=False)


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
    key: str | Path | None = None,
) -> Run:
    """Run a job on this computer and return its result.

    job: a `Job`, its plain data, or the path of a TOML file
    data: records by site name (DataFrames or mappings of columns) instead of the job's sites
    out: folder to write the run into; without it nothing is written
    overwrite: replace `out` if it holds an earlier run
    overrides: dotted job keys to TOML values, as `--set` on the command line
    progress: called with each log event as it is written; with engine "processes" also with events
        that are not logged: `starting` for each party that has started, `asked` before each phase
    tamper: see `secagg.runtime.engines.memory`
    random: anything but the operating system's generator makes the run protect nothing; it says so
    key: file with the coordinator's own keys (`secagg key`), which sites' policies may ask for
    Engine "processes" takes none of `data`, `tamper` and `random`.

    Raises `UsageError`, `PolicyRefusal`, `ProtocolAbort`; then `out` is left as it was. If sums had
    been released before, the log of these is kept beside it, as `OUT.failed-SESSION`. If something
    appeared at `out` meanwhile, the whole finished run is kept beside it, as `OUT.SESSION`.
    With engine "processes" a run that fails or is killed stays in `OUT.partial`, for `resume`.
    """
    planned = plan_job(read_job(job, overrides), data)
    own = None if key is None else read_key(Path(key), COORDINATOR)
    target = None if out is None else Path(out).absolute()
    if target is not None:
        check_target(target, overwrite)
    if planned.job.engine.name == "processes":
        if tamper is not None or random is not system_random:
            raise UsageError("engine", "processes draw from the operating system, on a real line")
        finished = _run_in_processes(planned, target, overwrite, progress, own)
        return replace(finished, folder=None if out is None else Path(out))
    if target is not None:
        discard_unfinished(target, overwrite, only_check=True)
    with scratch_beside(target) as scratch:
        folder = Path(scratch) / "run"
        folder.mkdir()
        log = RunLog(folder / "log.jsonl", utc_now)
        try:
            session = open_session(planned, random, tamper, coordinator=own)
            finished = _play(session, log, None, progress, target or folder)
            if target is not None:
                with writing(target):
                    write_folder(folder, finished.result, finished.facts, log)
                    move_into_place(folder, target, overwrite, finished.facts["session"][:8])
        except BaseException as error:
            released = any(event["event"] == "release" for event in log.events)
            if target is not None and released and folder.exists():
                kept = keep_log(log, folder, target, getattr(error, "code", "interrupted"))
                more = f"Sums released before are on record in {kept}."
                if isinstance(error, SecaggError):
                    error.mend = f"{error.mend} {more}".strip()
                else:
                    error.add_note(more)  # for who interrupts
            elif not released:
                error.add_note("No sum was released, and nothing is kept.")
            raise
    if target is not None:
        with suppress(UsageError):  # somebody resumes it just now
            discard_unfinished(target, overwrite)
    return replace(finished, folder=None if out is None else Path(out))


def resume(
    folder: str | Path, *, deadline: float | None = None, progress: Progress | None = None
) -> Run:
    """Continue a run with engine "processes" that failed or was killed, and return its result.

    folder: the `out` of that run; deadline: seconds for each phase, instead of the job's

    Nothing that was answered is computed again. The log goes on with one more event, `resumed`; if
    the run had stopped by an error, the one before it, `stopped`, says why.
    Raises as `run`, and `EvidenceError` if what was kept is damaged or does not belong together.
    """
    if deadline is not None and not deadline > 0:
        raise UsageError("deadline", f"must be above 0 seconds (got {deadline:g})")
    folder = Path(folder)
    place, target = find_unfinished(folder)
    with (
        exclusive_lock(place / "lock"),
        resumable(place, target),
        resume_session(place, deadline, progress) as up,
    ):
        session, overwrite = up
        assert session.journal is not None and not isinstance(session.engine, MemoryEngine)
        check_unfinished(place, target, session.session)
        log = RunLog.reopen(place / "log.jsonl", utc_now)
        entry = session.journal.read()
        step = still_to_log(entry, log)
        in_force = session.engine.deadline
        about = {"event": "resumed", "round": step.state.round, "deadline": in_force}
        first = replace(entry, step=replace(step, events=(*step.events, about)))
        finished = _play(session, log, first, progress, place)
        finished = _finish(finished, log, place, target, overwrite)
        return replace(finished, folder=folder if folder.absolute() == target else target)


def _run_in_processes(
    planned: Planned,
    target: Path | None,
    overwrite: bool,
    progress: Progress | None,
    own: Identity | None,
) -> Run:
    shared = as_policy(planned.job.release)  # what would be refused is refused before all the work
    check_invitation(shared, COORDINATOR, planned.public.sites, None)
    with unfinished(target, overwrite) as place:
        log = RunLog(place / "log.jsonl", utc_now)
        with start_session(planned, place, overwrite, progress, own) as session:
            finished = _play(session, log, None, progress, place)
        return finished if target is None else _finish(finished, log, place, target, overwrite)


def _finish(finished: Run, log: RunLog, place: Path, target: Path, overwrite: bool) -> Run:
    """Write the files into a new folder and move it to its place; until then, a resume can."""
    folder = place / "run"
    try:
        with writing(target):
            copy = fresh_copy(log, folder)
            write_folder(folder, finished.result, finished.facts, copy)
            move_into_place(folder, target, overwrite, finished.facts["session"][:8])
    finally:
        if not folder.exists():
            (place / "journal").unlink()
    return replace(finished, events=copy.events)


def _play(
    session: Session,
    log: RunLog,
    entry: Entry | None,
    progress: Progress | None,
    place: Path,
) -> Run:
    """Play a session to its end, from its beginning or from where the journal stands."""
    began = time.process_time()
    engine, planned = session.engine, session.planned
    if entry is None:
        replayable = session.coordinator.random is not system_random
        if session.book is not None:
            session.book.check_budget()
        step = session.coordinator.start()
        opening = run_facts.opening(session, replayable=replayable)
        entry = Entry(replace(step, events=(opening, *step.events)), 0, log.head, [], 0.0)
    engine.transcript[:] = entry.delivered
    earlier = entry.seconds - began

    def keep(step: Step) -> Entry:
        spent = earlier + time.process_time()
        entry = Entry(step, log.lines, log.head, list(engine.transcript), spent)
        if session.journal is not None:
            with writing(place):
                session.journal.write(entry)
        return entry

    def write(event: Mapping[str, Any]) -> None:
        with writing(place):
            log.write(event)
        if progress is not None:
            progress(event)

    try:
        with closing(session):
            state = _loop(session, entry.step, keep, write, progress)
    except SecaggError as error:
        # In one process the party's own words are at hand; otherwise only the code arrives.
        errors = engine.errors if isinstance(engine, MemoryEngine) else {}
        own = errors.get(error.where)
        told = error if own is None or own.code != error.code else own
        raise told from told.__cause__  # of a bug of ours, where it is
    with single_threaded_blas():
        result = planned.method.result(
            state.method, planned.public, run_facts.counted(planned, state)
        )
    summary = {"title": planned.job.title, **result.summary, **run_facts.counts(planned, state)}
    if planned.job.simulation.site_alone:
        summary["simulation"] = {"site_alone": fit_each_site_only(session.sides)}
    result = Result(summary, result.arrays)
    facts = run_facts.facts(session, state, log.events, (log.events[0]["time"], utc_now()))
    facts["seconds"] = run_facts.processor_seconds(session, earlier + time.process_time())
    read = [side.rows for site, side in session.sides.items() if site in state.cohort]
    remarks = tuple(remark for rows in read for remark in rows.remarks)
    left, complaints = _own_results(engine, planned, session.session, state.cohort)
    remarks += complaints
    return Run(result, facts, log.events, None, engine.transcript, remarks, left)


def _own_results(
    engine: MemoryEngine | LoopbackEngine, planned: Planned, session: bytes, cohort: Sequence[str]
) -> tuple[dict[str, Result], tuple[str, ...]]:
    """Write what each site has of its own where it belongs; return it, and what went wrong."""
    if not isinstance(engine, MemoryEngine):  # each site's process has done so
        return {}, ()
    own = {name: result for name, result in engine.own.items() if name in cohort}
    said = [keep_own(planned.sources[name], session, planned.job, one) for name, one in own.items()]
    return own, tuple(why for why in said if why is not None)


def _loop(
    session: Session,
    step: Step,
    keep: Callable[[Step], Entry],
    write: Progress,
    progress: Progress | None,
) -> CoordinatorState:
    """Step until done: keep, log, send, advance."""
    while True:
        entry = keep(step)
        for event in step.events:
            write(event)
        if step.done:
            return step.state
        if step.requests and session.journal is not None and progress is not None:
            about = {"round": step.state.round, "phase": step.state.phase}
            progress({"event": "asked", **about, "parties": sorted(step.requests)})
        frames = session.engine.exchange(step.requests)
        restarts = _restarts(session, step.state)
        try:
            following = session.coordinator.advance(step.state, frames)
            if session.book is not None and following.state.total is not None:
                # Before anything of it is on the disk: an opened sum without entry is not kept.
                session.book.record_release(following.events[-1], following.state.total)
        except SecaggError as error:
            _put_on_record(error, session, entry, restarts, write)
            raise
        step = replace(following, events=(*restarts, *following.events))


def _restarts(session: Session, state: CoordinatorState) -> list[dict[str, Any]]:
    """Return an event for each time that the engine had to start a party again."""
    if isinstance(session.engine, MemoryEngine):
        return []
    return [
        {"event": "restarted", "round": state.round, "phase": state.phase, "party": party}
        for party in session.engine.restarted
    ]


def _put_on_record(
    error: SecaggError,
    session: Session,
    entry: Entry,
    restarts: list[dict[str, Any]],
    write: Progress,
) -> None:
    """Log why a run that may be resumed stops: only what the coordinator knows, as it says it.

    The step stays the one to be repeated. It only gets further events, in the journal and then in
    the log, so that the two belong together wherever this is interrupted.
    """
    engine, state = session.engine, entry.step.state
    if session.journal is None or isinstance(engine, MemoryEngine):
        return
    about = {"round": state.round, "phase": state.phase}
    events = list(restarts)
    if engine.silent:
        events.append({"event": "missing", **about, "parties": engine.silent})
    why = {"code": error.code, "where": error.where, "what": error.what}
    events.append({"event": "stopped", **about, **why, "deadline": engine.deadline})
    step = replace(entry.step, events=(*entry.step.events, *events))
    with suppress(OSError, UsageError):  # a full disk must not hide the first error
        session.journal.write(replace(entry, step=step))
        for event in events:
            write(event)
    if late := [name for name in engine.silent if engine.is_running(name)]:
        more = (
            f"{', '.join(late)} gave no answer within {engine.deadline:g} s: a longer --deadline "
        )
        error.mend = f"{error.mend} {more}with 'secagg resume' gives it more time.".strip()
