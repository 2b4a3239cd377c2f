"""`secagg.run`: run a job from start to result, and write the evidence on the way.

`secagg.runs.session_loop` runs the session. `secagg.runs.output_folder` decides where the files of
an unfinished run are, and what is kept if it fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from secagg.core.hash_chain_log import RunLog
from secagg.core.identity import COORDINATOR
from secagg.core.key_file import read_key
from secagg.core.randomness import RandomBytes, system_random
from secagg.errors import SecaggError, UsageError
from secagg.jobs.data_sources import Data
from secagg.jobs.headers_and_copies import check_files, check_headers
from secagg.jobs.job import Job, read_job
from secagg.runs.checks.earlier_draws import new_ledgers
from secagg.runs.output_folder import (
    check_target,
    discard_unfinished,
    find_unfinished,
    keep_log,
    move_into_place,
    remove_stale,
    scratch_near,
    utc_now,
    writing,
)
from secagg.runs.run_end import finish_folder
from secagg.runs.session_loop import Run, play_session
from secagg.runs.stored_run import begin_run, continue_run
from secagg.sessions.engines.engine import Progress
from secagg.sessions.engines.memory import Tamper
from secagg.sessions.engines.processes import processes_in
from secagg.sessions.planned_job import Planned, plan_job
from secagg.sessions.session import open_session

__all__ = ["Run", "resume", "run"]


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
    transcript: bool = False,
) -> Run:
    """Run a job on this computer and return its result.

    job: a `Job`, its plain data, or the path of a TOML file
    data: records by site name (DataFrames or mappings of columns) instead of the job's sites
    out: folder to write the run into; without it nothing is written
    overwrite: replace `out` if it holds an earlier run
    overrides: dotted job keys to TOML values, as `--set` on the command line
    progress: called with each log event when it is written; with engine "processes" also with
        events that are not logged: `starting` when a party has started, `asked` before each phase.
        `sites` comes first, with the names of the sites, and `remark` for each remark
    tamper: see `secagg.sessions.engines.memory`
    random: any generator but the operating system's removes all protection; the run records this
    key: file with the coordinator's own keys (`secagg key`), which sites' policies may require
    transcript: also write every message into `out` (`secagg.evidence.transcript_file`), for
        `secagg audit`
    Engine "processes" does not accept `data`, `tamper` or `random`.

    Raises `UsageError`, `PolicyRefusal`, `ProtocolAbort`; `out` is then unchanged. If sums were
    released before the error, their log is kept as `OUT.failed-SESSION`. If something else was
    created at `out` during the run, the finished run is kept as `OUT.SESSION`.
    With engine "processes", a run that fails or is killed stays in `OUT.partial`, for `resume`.
    """
    planned = plan_job(read_job(job, overrides), data)
    check_headers(planned.job, planned.sources)
    own = None if key is None else read_key(Path(key), COORDINATOR)
    target = None if out is None else Path(out).absolute()
    if transcript and target is None:
        raise UsageError("transcript", "is written into a folder", "Give `out`, too.")
    if target is not None:
        check_target(target, overwrite)
    if planned.job.engine.name == "processes":
        if tamper is not None or random is not system_random:
            raise UsageError("engine", "'processes' accepts neither `random` nor `tamper`")
        found = _name_sites(planned, progress)
        finished = begin_run(
            planned, target, lambda place: processes_in(place, progress),
            overwrite=overwrite, progress=progress, own=own, transcript=transcript,
        )  # fmt: skip
        return _as_returned(finished, out, found)
    if target is not None:
        discard_unfinished(target, overwrite, only_check=True)
        _remove_stale(target, progress)
    with scratch_near(target) as scratch:
        folder = scratch / "run"
        folder.mkdir(mode=0o700)
        log = RunLog(folder / "log.jsonl", utc_now)
        try:
            found = _name_sites(planned, progress)
            session = open_session(planned, random, tamper, coordinator=own)
            written = None if target is None else folder
            finished = play_session(
                session, log, None, progress, target or folder, written, transcript=transcript
            )
            if target is not None:
                with writing(target):
                    finish_folder(folder, finished.facts, log)
                    move_into_place(folder, target, overwrite, finished.facts["session"][:8])
        except BaseException as error:
            released = any(event["event"] == "release" for event in log.events)
            if target is not None and released and folder.exists():
                kept = keep_log(log, folder, target, getattr(error, "code", "interrupted"))
                more = f"The log of the sums that were already released is in {kept}."
                if isinstance(error, SecaggError):
                    error.advice = f"{error.advice} {more}".strip()
                else:
                    error.add_note(more)  # the user interrupted the run
            elif not released:
                error.add_note("No sum was released, and nothing is kept.")
            raise
    if target is not None:
        with suppress(UsageError):  # another process is resuming it
            discard_unfinished(target, overwrite)
    return _as_returned(finished, out, found)


def _remove_stale(target: Path, progress: Progress | None) -> None:
    """Remove what killed runs left near the target, and report it."""
    for line in remove_stale(target):
        if progress is not None:
            progress({"event": "remark", "text": line})


def _name_sites(planned: Planned, progress: Progress | None) -> list[str]:
    """Report the names of the sites, and report and return remarks about their files."""
    remarks = check_files(planned.job, planned.sources)
    if progress is not None:
        progress({"event": "sites", "sites": list(planned.public.sites)})
        for remark in (*remarks, *new_ledgers(planned)):
            progress({"event": "remark", "text": remark})
    return remarks


def _as_returned(run: Run, out: str | Path | None, found: list[str]) -> Run:
    """Return the run with the folder as the caller named it, and with remarks about files."""
    folder = None if out is None else Path(out)
    return replace(run, folder=folder, remarks=(*found, *run.remarks))


def resume(
    folder: str | Path, *, deadline: float | None = None, progress: Progress | None = None
) -> Run:
    """Continue a run with engine "processes" that failed or was killed, and return its result.

    folder: the `out` of that run; deadline: seconds for each phase, instead of the job's

    Answered requests are not computed again. The log continues with the event `resumed`; if an
    error stopped the run, the event `stopped` before it says why.
    Raises as `run`, and `EvidenceError` if the unfinished run is damaged or inconsistent.
    """
    if deadline is not None and not deadline > 0:
        raise UsageError("deadline", f"must be above 0 seconds (got {deadline:g})")
    folder = Path(folder)
    place, target = find_unfinished(folder)
    finished = continue_run(
        place, target, lambda place: processes_in(place, progress),
        deadline=deadline, progress=progress,
    )  # fmt: skip
    return replace(finished, folder=folder if folder.absolute() == target else target)
