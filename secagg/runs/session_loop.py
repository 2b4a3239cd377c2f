"""Plays a session to its end, and writes its evidence as it goes.

The loop is the whole driver, whatever the engine: each step is kept in the journal, if there is
one; its events go to disk, then its requests to the parties, then the coordinator advances.
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
from secagg.errors import SecaggError, UsageError
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


def play_session(
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
        error.advice = f"{error.advice} {more}with 'secagg resume' gives it more time.".strip()
