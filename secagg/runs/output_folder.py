"""The folders of a run: a temporary one next to its target `OUT` (option `--out`), and then `OUT`.

When the run is complete, its temporary folder is renamed to `OUT`. So `OUT` always holds a complete
run, and an earlier run at `OUT` is not lost if the new one fails. A run in one process uses a
hidden temporary folder; if it fails, only the log of released sums is kept. A run in which each
party has its own process uses `OUT.partial` (`secagg.sessions.stored_session`). If it fails or is
interrupted, that folder stays: it can be resumed, or discarded by a later run with `overwrite`.

All these folders are private: mode 0700 for the folder, 0600 for its files. The owner decides which
files others may read (docs/reference/run-folder.md).
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from secagg.core.hash_chain_log import RunLog
from secagg.core.identity import COORDINATOR
from secagg.core.private_files import exclusive_lock, write_private
from secagg.errors import (
    CapabilityError,
    DataError,
    EvidenceError,
    JobError,
    OverflowRefusal,
    PolicyRefusal,
    ProtocolAbort,
    SecaggError,
    UsageError,
)
from secagg.evidence.run_folder import RunFolder

_PARTIAL = ".partial"
_SCRATCH = ".secagg-"


def check_target(target: Path, overwrite: bool) -> None:
    """Refuse a target that exists or cannot be written, before any sum is released in vain.

    A link is never followed or replaced, even a broken one.
    """
    try:
        with suppress(FileNotFoundError):
            target.with_name(f"{target.name}.earlier-{'0' * 8}").lstat()  # the longest name in use
        target.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise JobError(str(target), f"cannot be written to ({error.strerror})") from None
    if not overwrite:
        raise JobError(str(target), "already exists", "Choose another --out, or add --overwrite.")
    if target.is_symlink() or not (target / "run.json").is_file():
        what = "is not a run folder, so it is not overwritten"
        raise JobError(str(target), what, "Choose another --out.")


@contextmanager
def scratch_near(target: Path | None) -> Iterator[Path]:
    """Create and lock a temporary folder on the same disk as `target`, so that a rename suffices.

    It is in the nearest existing folder above `target`, so that a run that fails creates none. The
    lock tells it from the folder of a process that was killed (`remove_stale`).
    """
    parent = None if target is None else _nearest(target)
    try:
        scratch = tempfile.TemporaryDirectory(
            prefix=_SCRATCH, suffix=_PARTIAL, dir=parent, ignore_cleanup_errors=True
        )
    except OSError as error:
        raise JobError(str(parent), f"cannot be written to ({error.strerror})") from None
    with scratch as name, exclusive_lock(Path(name) / "new"):
        place = Path(name)
        (place / "new").rename(place / "lock")  # nobody sees it before it is locked
        yield place


def remove_stale(target: Path) -> list[str]:
    """Remove the temporary folders near `target` that killed runs left; return a line on each.

    Only a folder of this user whose lock nobody holds is removed. If it released sums, its log is
    kept as `killed.failed-SESSION`. A folder with anything but a lock and a run is named only: it
    may be an unfinished run that can be resumed, or another version's; one without a lock may be
    made at this moment. So is one whose log is damaged: a person may want to read it.
    """
    lines = []
    for place in sorted(_nearest(target).glob(f"{_SCRATCH}*{_PARTIAL}")):
        with suppress(UsageError, OSError):  # in use, or deleted just now
            lines += _remove_scratch(place)
    return lines


def _remove_scratch(place: Path) -> list[str]:
    found = place.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return []
    run = place / "run"
    own = {path.name for path in place.iterdir()} <= {"lock", "run"} and not run.is_symlink()
    if not own or not (place / "lock").is_file():
        return [f"{place}: may be what a killed run left; delete it if no run is going on"]
    with exclusive_lock(place / "lock"):
        kept = ""
        if has_released(run):
            try:
                log = RunLog.reopen(run / "log.jsonl", utc_now)
                failed = keep_log(log, run, place.with_name("killed"), "killed")
            except (EvidenceError, LookupError):
                return [f"{place}: left by a killed run, with a damaged log; read and delete it"]
            kept = f"; the log of the sums that it released is in {failed}"
        shutil.rmtree(place)
    return [f"{place}: left by a killed run, and removed{kept}"]


def _nearest(target: Path) -> Path:
    return next(parent for parent in target.parents if os.path.lexists(parent))


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """Turn an error of the file system into a `UsageError` that names `place`."""
    try:
        yield
    except OSError as error:
        what = f"cannot be written ({error.strerror or error})"
        raise UsageError(str(place), what, "Free disk space or choose another --out.") from error


def move_into_place(folder: Path, target: Path, overwrite: bool, session: str) -> None:
    """Rename the finished run to `target`; an earlier run there is deleted last, after that.

    If an error occurs, the earlier run is put back. If another program created `target` during the
    run, that is left unchanged: the finished run is kept next to it, and `JobError` says where.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    earlier = target.with_name(f"{target.name}.earlier-{session}")
    try:
        if overwrite and os.path.lexists(target):
            check_target(target, overwrite)
            target.rename(earlier)
        if os.path.lexists(target):
            raise JobError(str(target), "was created by another program during the run")
        folder.rename(target)  # fails if `target` was created just now, unless as an empty folder
    except BaseException as error:
        if os.path.lexists(earlier) and not os.path.lexists(target):
            earlier.rename(target)
        if isinstance(error, JobError):
            fallback = target.with_name(f"{target.name}.{session}")
            folder.rename(fallback)
            error.advice = f"The finished run is in {fallback}."
        raise
    shutil.rmtree(earlier, ignore_errors=True)  # files that cannot be deleted stay there


def keep_log(log: RunLog, folder: Path, target: Path, code: str) -> Path:
    """Keep the log of a run that failed after a release, as a record of the released sums.

    code: of the error that ended the run. Returns the folder, which holds only the log.
    """
    for path in set(folder.iterdir()) - {log.path}:
        if path.is_dir():  # the transcript
            shutil.rmtree(path)
        else:
            path.unlink()
    with suppress(OSError):  # the disk may be full; the lines of the releases are already written
        log.write({"event": "failed", "code": code})
    with suppress(OSError):
        target.parent.mkdir(parents=True, exist_ok=True)
    nearest = next(parent for parent in target.parents if parent.is_dir())
    return folder.rename(nearest / f"{target.name}.failed-{log.events[0]['session'][:8]}")


@dataclass(frozen=True)
class Resuming:
    """How a user goes on with an unfinished run, in the texts of errors.

    how: the command, or what else to do; logs: where the parties' own logs are
    changed: what to do with a changed job
    """

    how: str
    logs: str
    changed: str = "start again with --overwrite"

    @classmethod
    def in_processes(cls, target: Path) -> Resuming:
        """Return the texts for a run with engine "processes"."""
        place = partial_path(target) / "parties"
        return cls(f"'secagg resume {target}'", f"The parties' own logs are in {place}.")


@contextmanager
def unfinished(
    target: Path | None, overwrite: bool, resuming: Resuming | None = None
) -> Iterator[Path]:
    """Create and lock `OUT.partial`; without a target, a temporary folder.

    resuming: if it is not as with engine "processes"
    An unfinished run that is already there is discarded if `overwrite`, otherwise it is an error.
    """
    if target is None:
        with tempfile.TemporaryDirectory(prefix="secagg-") as scratch:
            yield Path(scratch)
        return
    discard_unfinished(target, overwrite)
    place = partial_path(target)
    created = [parent for parent in target.parents if not parent.exists()]
    try:
        place.mkdir(parents=True, mode=0o700)
    except OSError as error:
        raise JobError(str(place), f"cannot be written to ({error.strerror})") from None
    try:
        with exclusive_lock(place / "lock"), resumable(place, target, resuming):
            yield place
    finally:
        for parent in created:
            with suppress(OSError):  # usually it is not empty
                parent.rmdir()


@contextmanager
def resumable(place: Path, target: Path, resuming: Resuming | None = None) -> Iterator[None]:
    """Keep an unfinished run that fails, and say how to continue it; delete any other."""
    kept, resuming = False, resuming or Resuming.in_processes(target)
    try:
        yield
    except BaseException as error:
        begun = (place / "journal").exists()
        kept = begun or isinstance(error, ProtocolAbort)  # the log of a failed party says why
        if not isinstance(error, SecaggError):  # the user interrupted the run
            more = f"The unfinished run is in {place}: continue with {resuming.how}."
            error.add_note(more if begun else "No sum was requested yet, and nothing is kept.")
        elif kept and not isinstance(error, EvidenceError):
            more = f"{_resume_advice(error, place, resuming)} " if begun else ""
            error.advice = f"{error.advice} {more}{resuming.logs}".strip()
        raise
    finally:
        if not kept:
            delete(place)


def _resume_advice(error: SecaggError, place: Path, resuming: Resuming) -> str:
    """Return how to complete a run that stopped with this error, and what is kept."""
    command = resuming.how
    if not isinstance(error, _JOB_PROBLEM | PolicyRefusal | DataError):
        return f"Continue with {command}."
    kept = "the log of the sums released so far is kept"
    kept = kept if has_released(place) else "nothing was released yet"
    otherwise = f"change the job and {resuming.changed} ({kept})."
    if isinstance(error, _JOB_PROBLEM):
        return f"This job cannot succeed: {otherwise}"
    if error.where == COORDINATOR:  # a rule of the job, which only a returning site can meet
        return f"If sites were missing and return, continue with {command}; otherwise {otherwise}"
    return (
        f"When the site's rule or data is corrected, continue with {command}; otherwise {otherwise}"
    )


_JOB_PROBLEM = JobError | OverflowRefusal | CapabilityError
"""Errors that no site can fix."""


def partial_path(target: Path) -> Path:
    """Return the folder of the unfinished run for `target`."""
    return target.with_name(target.name + _PARTIAL)


def find_unfinished(folder: Path) -> tuple[Path, Path]:
    """Return the unfinished run that `OUT` or `OUT.partial` names, and its `OUT`."""
    folder = folder.absolute()
    for target in (folder, folder.with_name(folder.name.removesuffix(_PARTIAL))):
        place = partial_path(target)
        if (place / "journal").is_file():
            if place.stat().st_uid != os.getuid():  # it holds that user's job and keys
                raise UsageError(str(place), "belongs to another user")
            return place, target
    raise UsageError(str(folder), "has no unfinished run", "Start one: secagg run.")


def check_unfinished(place: Path, target: Path, session: bytes) -> None:
    """Raise `UsageError` if the run was moved to `target` before it was killed.

    Then the run is complete, and the unfinished copy is only made impossible to resume.
    """
    try:
        finished = RunFolder(target).session == session.hex()
    except EvidenceError:
        return
    if finished:
        (place / "journal").unlink(missing_ok=True)
        raise UsageError(str(target), "is finished", "There is nothing to resume.")


def delete(place: Path) -> None:
    """Delete an unfinished run, the journal first, so that no part of it can be resumed."""
    (place / "journal").unlink(missing_ok=True)
    shutil.rmtree(place)


def copy_log(log: RunLog, folder: Path) -> RunLog:
    """Return a copy of the log in this private folder, which is created if it does not exist."""
    folder.mkdir(mode=0o700, exist_ok=True)
    write_private(folder / log.path.name, log.path.read_bytes())
    return RunLog(folder / log.path.name, log.clock, log.head, log.lines, list(log.events))


def discard_unfinished(target: Path, overwrite: bool, *, only_check: bool = False) -> None:
    """Delete the unfinished run for `target`, if any; the log of its released sums is kept.

    Raises `JobError` unless `overwrite`, and for a folder that is not an unfinished run.
    """
    place = partial_path(target)
    if not os.path.lexists(place):
        return
    if place.is_symlink() or not (place / "lock").is_file():
        raise JobError(str(place), "exists but is not an unfinished run", "Move it elsewhere.")
    with exclusive_lock(place / "lock"):
        begun = (place / "journal").exists()
        if begun and not overwrite:
            raise JobError(
                str(place), "is an unfinished run",
                f"Continue it with 'secagg resume {target}', or discard it with --overwrite.",
            )  # fmt: skip
        if only_check:
            return
        give_up(place, target)


def give_up(place: Path, target: Path) -> None:
    """Delete an unfinished run; if it released sums, keep its log as `OUT.failed-SESSION`."""
    if (place / "journal").exists() and has_released(place):
        copy = copy_log(RunLog.reopen(place / "log.jsonl", utc_now), place / "run")
        keep_log(copy, copy.path.parent, target, "given up")
    delete(place)


def has_released(place: Path) -> bool:
    """Return whether the log of an unfinished run has a released sum."""
    log = place / "log.jsonl"
    return log.exists() and b'"event":"release"' in log.read_bytes()


def utc_now() -> str:
    """Return the time of day for the log."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
