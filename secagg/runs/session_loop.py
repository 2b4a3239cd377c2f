"""Plays a session to its end, and writes its evidence on the way.

The loop drives every engine. For each step: save it in the journal, if there is one; write its
events to disk; send its requests to the parties; advance the coordinator. If the run has a folder,
each released sum is written there, then the result and the report. Then the sites countersign the
log (`secagg.sessions.countersignatures`). A run that is resumed continues at any of these points,
and no site is asked to countersign two different logs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from secagg.contracts import Result
from secagg.core.frames import Delivery, record_nothing
from secagg.core.hash_chain_log import RunLog
from secagg.core.item_file import ItemFile
from secagg.core.randomness import system_random
from secagg.errors import RecordsRefusal, SecaggError, UsageError
from secagg.evidence.released_sums import SUMS_FILE, ReleasedSum, append_sum
from secagg.evidence.run_files import log_facts
from secagg.evidence.session_result import result_of
from secagg.evidence.transcript_file import append_message, transcript_file
from secagg.runs import facts as run_facts
from secagg.runs.output_folder import (
    utc_now,
    writing,
)
from secagg.runs.run_end import is_result_logged, read_facts, report_remarks, write_end
from secagg.runs.site_baselines import fit_each_site_only
from secagg.sessions.coordinator import Step
from secagg.sessions.coordinator_state import CoordinatorState, Status
from secagg.sessions.countersignatures import sum_salt
from secagg.sessions.engines.engine import Progress, RemoteParties
from secagg.sessions.engines.memory import MemoryEngine
from secagg.sessions.engines.site_results import with_noise, write_site_result
from secagg.sessions.journal import Entry
from secagg.sessions.planned_job import Planned
from secagg.sessions.session import Session


@dataclass(frozen=True)
class Run:
    """A finished run.

    result: the method's result
    facts: the content of run.json, with the log's releases and failures (`log_facts`)
    events: the log
    folder: where it was written, or None
    transcript: every frame that was delivered
    remarks: remarks on the records of the sites in this process; never in a file
    own: what the method leaves at the sites in this process, by site
        (`secagg.sessions.engines.site_results`)
    """

    result: Result
    facts: dict[str, Any]
    events: list[dict[str, Any]]
    folder: Path | None
    transcript: list[Delivery] = field(repr=False)
    remarks: tuple[str, ...] = ()
    own: Mapping[str, Result] = field(default_factory=dict, repr=False)


def play_session(
    session: Session,
    log: RunLog,
    entry: Entry | None,
    progress: Progress | None,
    place: Path,
    folder: Path | None = None,
    *,
    transcript: bool = False,
    began_again: Sequence[dict[str, Any]] = (),
) -> Run:
    """Play a session to its end, from its beginning or from the journal's last entry.

    place: the name of the run's folder in error messages
    folder: for the run's files, except run.json, which the caller completes; None: write no files
    transcript: whether to write every message, too (`secagg.evidence.transcript_file`)
    began_again: log events about an earlier session of this run (`secagg.runs.lost_sites`)
    """
    began = time.process_time()
    engine, planned, progress = session.engine, session.planned, _remarks_once(progress)
    if entry is None:
        replayable = session.coordinator.random is not system_random
        if session.ledger is not None:
            session.ledger.check_budget()
        step = session.coordinator.start()
        opening = run_facts.opening(session, replayable=replayable)
        entry = Entry(
            replace(step, events=(opening, *began_again, *step.events)), 0, log.head, [], 0.0
        )
    engine.transcript[:] = entry.delivered
    sums = _sums_file(session, folder, log, entry.step)
    if folder is not None and transcript and not is_result_logged(log):
        _record_messages(session, folder, len(entry.delivered))
    earlier = entry.seconds - began

    def keep(step: Step) -> Entry:
        spent = earlier + time.process_time()
        delivered = [] if session.journal is None else list(engine.transcript)
        entry = Entry(step, log.lines, log.head, delivered, spent)
        if session.journal is not None:
            with writing(place):
                session.journal.write(entry)
        return entry

    def write(event: Mapping[str, Any]) -> None:
        with writing(place):
            # The journal counts lines of the log, so they are on disk before it. Without one, the
            # start of a round gets there with the line after it, which is the round's release.
            log.write(event, sync=session.journal is not None or event["event"] != "round")
        if progress is not None:
            progress(event)

    try:
        with closing(session):
            state = _loop(session, entry.step, keep, write, progress, sums)
    except SecaggError as error:
        shown = _own_error(engine, error)
        raise shown from shown.__cause__  # of an internal error
    engine.record = record_nothing
    result = _result(session, state)
    facts = _final_facts(session, state, log, folder, earlier, transcript=transcript)

    def record(event: Mapping[str, Any]) -> None:
        keep(Step(state, events=(dict(event),)))
        write(event)

    if folder is not None and state.status is Status.DONE:
        with writing(place):
            digest = write_end(folder, result, facts, log, record)
        step = session.coordinator.ask_countersignatures(state, log.head, digest)
        _loop(session, step, keep, write, progress, None)
    remarks = _remarks(session)
    left, complaints = _own_results(engine, planned, session.session, state.cohort)
    remarks += complaints
    remarks += report_remarks(log)
    return Run(result, facts, log.events, None, engine.transcript, remarks, left)


def _own_error(engine: MemoryEngine | RemoteParties, error: SecaggError) -> SecaggError:
    """Return the party's own error, which one process has; otherwise only its code arrives."""
    own = engine.errors.get(error.where) if isinstance(engine, MemoryEngine) else None
    same = own is not None and error.code in (own.code, RecordsRefusal.code)
    return own if own is not None and same else error


def _result(session: Session, state: CoordinatorState) -> Result:
    result = result_of(session.planned, state)
    if not session.planned.job.simulation.site_alone:
        return result
    alone = {"site_alone": fit_each_site_only(session.sites)}
    return replace(result, summary={**result.summary, "simulation": alone})


def _final_facts(
    session: Session,
    state: CoordinatorState,
    log: RunLog,
    folder: Path | None,
    earlier: float,
    *,
    transcript: bool,
) -> dict[str, Any]:
    """Return the facts of the finished run; those that were written before the run was resumed."""
    if folder is not None and is_result_logged(log):
        return {**read_facts(folder), **log_facts(log.events)}
    facts = run_facts.facts(session, state, log.events, (log.events[0]["time"], utc_now()))
    if transcript:
        facts["transcript"] = len(session.engine.transcript)
    facts["seconds"] = run_facts.processor_seconds(session, earlier + time.process_time())
    return facts


def _own_results(
    engine: MemoryEngine | RemoteParties, planned: Planned, session: bytes, cohort: Sequence[str]
) -> tuple[dict[str, Result], tuple[str, ...]]:
    """Write each site's own result to its folder; return the results, and the errors as texts."""
    if not isinstance(engine, MemoryEngine):  # each site's process has written its own
        return {}, ()
    results = engine.site_results
    own = {name: with_noise(results[name], planned) for name in results if name in cohort}
    said = [
        write_site_result(planned.sources[name], session, planned.job, one)
        for name, one in own.items()
    ]
    return own, tuple(why for why in said if why is not None)


def _loop(
    session: Session,
    step: Step,
    keep: Callable[[Step], Entry],
    write: Progress,
    progress: Progress | None,
    sums: ItemFile | None,
) -> CoordinatorState:
    """Step until done: save, log, send, advance."""
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
        for remark in _remarks(session):
            if progress is not None:
                progress({"event": "remark", "text": remark})
        restarts = _restarts(session, step.state)
        try:
            following = session.coordinator.advance(step.state, frames)
            if following.state.total is not None:
                if session.ledger is not None:
                    # Before the sum is written to disk: no sum is stored without a ledger entry.
                    session.ledger.record_release(following.events[-1], following.state.total)
                if sums is not None:
                    with writing(sums.path):
                        append_sum(sums, _released_sum(session, following.state))
        except SecaggError as error:
            _log_stop(error, session, entry, restarts, write)
            raise
        step = replace(following, events=(*restarts, *following.events))


def _remarks_once(progress: Progress | None) -> Progress | None:
    """Return the callback without repeated remarks."""
    if progress is None:
        return None
    remarked: set[str] = set()

    def report(event: Mapping[str, Any]) -> None:
        if event["event"] == "remark":
            if event["text"] in remarked:
                return
            remarked.add(event["text"])
        progress(event)

    return report


def _remarks(session: Session) -> tuple[str, ...]:
    """Return the remarks of the sites in this process, on the records that they have read."""
    return tuple(remark for side in session.sites.values() for remark in side.remarks)


def _record_messages(session: Session, folder: Path, delivered: int) -> None:
    """Write each message from now on; the file has those that were delivered before."""
    with writing(folder):
        file = transcript_file(folder, sync=session.journal is not None)
        file.keep(delivered)

    def record(delivery: Delivery, frame: bytes) -> None:
        with writing(file.path):
            append_message(file, delivery, frame)

    session.engine.record = record


def _sums_file(session: Session, folder: Path | None, log: RunLog, step: Step) -> ItemFile | None:
    """Return the file of the released sums, with those whose release is in the log or the step."""
    if folder is None:
        return None
    sums = ItemFile(folder / SUMS_FILE, sync=session.journal is not None)
    releases = [event for event in (*log.events, *step.events) if event["event"] == "release"]
    with writing(folder):
        folder.mkdir(mode=0o700, exist_ok=True)
        sums.keep(len(releases))
    return sums


def _released_sum(session: Session, state: CoordinatorState) -> ReleasedSum:
    assert state.stage is not None and state.total is not None  # after a release
    salt = sum_salt(session.coordinator.identity, session.session, state.round)
    return ReleasedSum(state.round, state.stage, salt, state.total)


def _restarts(session: Session, state: CoordinatorState) -> list[dict[str, Any]]:
    """Return an event for each party that the engine started again."""
    if isinstance(session.engine, MemoryEngine):
        return []
    return [
        {"event": "restarted", "round": state.round, "phase": state.phase, "party": party}
        for party in session.engine.restarted
    ]


def _log_stop(
    error: SecaggError,
    session: Session,
    entry: Entry,
    restarts: list[dict[str, Any]],
    write: Progress,
) -> None:
    """Log why a run that may be resumed stops, with only what the coordinator knows.

    The step remains the one to repeat. Its new events go to the journal and then to the log, so
    that the two agree even if this is interrupted.
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
        more = f"{', '.join(late)} gave no answer within {engine.deadline:g} s: "
        error.advice = f"{error.advice} {more}{engine.more_time} gives it more time.".strip()
