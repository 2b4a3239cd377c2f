"""Runs whose parties are other processes: begin one in `OUT.partial`, or go on with one there.

One driver for every engine but the one in this process: an engine is what `MakeEngine` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from secagg.core.hash_chain_log import RunLog
from secagg.core.identity import COORDINATOR, Identity
from secagg.core.private_files import exclusive_lock
from secagg.evidence.transcript_file import TRANSCRIPT
from secagg.jobs.data_sources import as_policy
from secagg.privacy.policy.release_rules import check_invitation
from secagg.runs.output_folder import (
    Resuming,
    check_unfinished,
    copy_log,
    move_into_place,
    resumable,
    unfinished,
    utc_now,
    writing,
)
from secagg.runs.run_end import finish_folder
from secagg.runs.session_loop import Run, play_session
from secagg.sessions.engines.engine import MakeEngine, Progress
from secagg.sessions.engines.memory import MemoryEngine
from secagg.sessions.journal import still_to_log
from secagg.sessions.planned_job import Planned
from secagg.sessions.stored_session import resume_session, start_session

EngineIn = Callable[[Path], MakeEngine]
"""engine_in(place) returns what makes the engine of the unfinished run in this folder."""


def begin_run(
    planned: Planned,
    target: Path | None,
    engine_in: EngineIn,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
    own: Identity | None = None,
    ledgers: Path | None = None,
    stays: bool = False,
    transcript: bool = False,
    resuming: Resuming | None = None,
    began_again: Sequence[dict[str, Any]] = (),
) -> Run:
    """Run a planned job from its beginning. Raises as `secagg.runs.run.run`.

    target: the run's folder, or None to write nothing
    own, ledgers, stays: as for `secagg.sessions.stored_session.start_session`
    resuming: how the run goes on if it is interrupted, if not as with engine "processes"
    began_again: log events about an earlier session of this run (`secagg.runs.lost_sites`)
    """
    policy = as_policy(planned.job.release)  # checked first, before any process starts
    check_invitation(policy, COORDINATOR, planned.public.sites, None)
    with unfinished(target, overwrite, resuming) as place:
        log = RunLog(place / "log.jsonl", utc_now)
        up = start_session(
            planned, place, overwrite, engine_in(place), own, ledgers, stays=stays
        )  # fmt: skip
        with up as session:
            written = None if target is None else place / "run"
            finished = play_session(
                session, log, None, progress, place, written,
                transcript=transcript, began_again=began_again,
            )  # fmt: skip
        return finished if target is None else _finish(finished, log, place, target, overwrite)


def continue_run(
    place: Path,
    target: Path,
    engine_in: EngineIn,
    *,
    deadline: float | None = None,
    progress: Progress | None = None,
    own: Identity | None = None,
    ledgers: Path | None = None,
    resuming: Resuming | None = None,
    wait: float = 0.0,
) -> Run:
    """Go on with the unfinished run in `place`. Raises as `secagg.runs.run.resume`.

    wait: seconds, if another process still has the run
    """
    with (
        exclusive_lock(place / "lock", wait),
        resumable(place, target, resuming),
        resume_session(place, deadline, engine_in(place), own, ledgers) as up,
    ):
        session, overwrite = up
        assert session.journal is not None and not isinstance(session.engine, MemoryEngine)
        check_unfinished(place, target, session.session)
        log = RunLog.reopen(place / "log.jsonl", utc_now)
        entry = session.journal.read()
        step = still_to_log(entry, log)
        if progress is not None:
            progress(log.events[0])  # what the run is, and its number of rounds
        event = {"event": "resumed", "round": step.state.round, "deadline": session.engine.deadline}
        first = replace(entry, step=replace(step, events=(*step.events, event)))
        written = place / "run"
        recorded = (written / TRANSCRIPT).exists()
        finished = play_session(session, log, first, progress, place, written, transcript=recorded)
        return _finish(finished, log, place, target, overwrite)


def _finish(finished: Run, log: RunLog, place: Path, target: Path, overwrite: bool) -> Run:
    """Complete the folder and move it to `target`; until then, resume is possible."""
    folder = place / "run"
    try:
        with writing(target):
            copy = copy_log(log, folder)
            finish_folder(folder, finished.facts, copy)
            move_into_place(folder, target, overwrite, finished.facts["session"][:8])
    finally:
        if not folder.exists():
            (place / "journal").unlink()
    return replace(finished, events=copy.events)
