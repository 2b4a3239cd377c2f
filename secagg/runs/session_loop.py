"""Plays a session to its end, and writes its evidence on the way.

The loop drives every engine. For each step: save it in the journal, if there is one; write its
events to disk; send its requests to the parties; advance the coordinator.
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
from secagg.core.randomness import system_random
from secagg.core.threads import single_threaded_blas
from secagg.errors import RecordsRefusal, SecaggError, UsageError
from secagg.runs import facts as run_facts
from secagg.runs.run_folder import (
    utc_now,
    writing,
)
from secagg.runs.site_baselines import fit_each_site_only
from secagg.runtime.coordinator import Step
from secagg.runtime.coordinator_state import CoordinatorState
from secagg.runtime.engines.loopback import LoopbackEngine
from secagg.runtime.engines.memory import MemoryEngine
from secagg.runtime.journal import Entry
from secagg.runtime.planned_job import Planned
from secagg.runtime.process_session import Progress
from secagg.runtime.session import Session
from secagg.runtime.site_results import write_site_result


@dataclass(frozen=True)
class Run:
    """A finished run.

    result: the method's result
    facts: the content of run.json, with the log's releases and failures (`secagg.runs.run_files`)
    events: the log
    folder: where it was written, or None
    transcript: every frame that was delivered
    remarks: remarks on the records of the sites in this process; never in a file
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


def play_session(
    session: Session,
    log: RunLog,
    entry: Entry | None,
    progress: Progress | None,
    place: Path,
) -> Run:
    """Play a session to its end, from its beginning or from the journal's last entry."""
    began = time.process_time()
    engine, planned = session.engine, session.planned
    if entry is None:
        replayable = session.coordinator.random is not system_random
        if session.ledger is not None:
            session.ledger.check_budget()
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
        # In one process the party's own error is available; otherwise only its code arrives.
        errors = engine.errors if isinstance(engine, MemoryEngine) else {}
        own = errors.get(error.where)
        same = own is not None and error.code in (own.code, RecordsRefusal.code)
        shown = own if own is not None and same else error
        raise shown from shown.__cause__  # of an internal error
    with single_threaded_blas():
        result = planned.method.result(
            state.method, planned.public, run_facts.counted(planned, state)
        )
    summary = {"title": planned.job.title, **result.summary, **run_facts.counts(planned, state)}
    if planned.job.simulation.site_alone:
        summary["simulation"] = {"site_alone": fit_each_site_only(session.sites)}
    result = Result(summary, result.arrays)
    facts = run_facts.facts(session, state, log.events, (log.events[0]["time"], utc_now()))
    facts["seconds"] = run_facts.processor_seconds(session, earlier + time.process_time())
    read = [side.rows for site, side in session.sites.items() if site in state.cohort]
    remarks = tuple(remark for rows in read for remark in rows.remarks)
    left, complaints = _own_results(engine, planned, session.session, state.cohort)
    remarks += complaints
    return Run(result, facts, log.events, None, engine.transcript, remarks, left)


def _own_results(
    engine: MemoryEngine | LoopbackEngine, planned: Planned, session: bytes, cohort: Sequence[str]
) -> tuple[dict[str, Result], tuple[str, ...]]:
    """Write each site's own result to its folder; return the results, and the errors as texts."""
    if not isinstance(engine, MemoryEngine):  # each site's process has written its own
        return {}, ()
    own = {name: result for name, result in engine.site_results.items() if name in cohort}
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
        restarts = _restarts(session, step.state)
        try:
            following = session.coordinator.advance(step.state, frames)
            if session.ledger is not None and following.state.total is not None:
                # Before the sum is written to disk: a sum without a ledger entry is never stored.
                session.ledger.record_release(following.events[-1], following.state.total)
        except SecaggError as error:
            _log_stop(error, session, entry, restarts, write)
            raise
        step = replace(following, events=(*restarts, *following.events))


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
        more = (
            f"{', '.join(late)} gave no answer within {engine.deadline:g} s: a longer --deadline "
        )
        error.advice = f"{error.advice} {more}with 'secagg resume' gives it more time.".strip()
