"""Where a run lies: beside its place while it is under way, and in its place once it is whole.

A finished run is renamed to `OUT`, so that what is there is complete; nothing that stood there is
lost on the way. Under way, a run in one process lies in a hidden scratch folder, and one that fails
leaves nothing but, if sums had been released already, their log. A run whose parties are processes
lies in `OUT.partial` (see `secagg.runtime.process_session`), and stays there when it is interrupted
or fails, to be resumed or, by a later run with `overwrite`, given up.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from secagg.core.hash_chain_log import RunLog
from secagg.core.identity import COORDINATOR
from secagg.core.private_files import exclusive_lock
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
from secagg.runs.run_reader import RunFolder

_PARTIAL = ".partial"


def check_target(target: Path, overwrite: bool) -> None:
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


def scratch_beside(target: Path | None) -> tempfile.TemporaryDirectory[str]:
    """Return a folder to write into, from where renaming to `target` is one step on one disk.

    It lies in the nearest folder above `target` that exists: a run that fails makes none.
    """
    parent = None if target is None else next(p for p in target.parents if os.path.lexists(p))
    try:
        return tempfile.TemporaryDirectory(prefix=".secagg-", suffix=".partial", dir=parent)
    except OSError as error:
        raise JobError(str(parent), f"cannot be written to ({error.strerror})") from None


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """Turn a failure of the disk into the one line that names the place."""
    try:
        yield
    except OSError as error:
        what = f"cannot be written ({error.strerror or error})"
        raise UsageError(str(place), what, "Make room or choose another --out.") from error


def move_into_place(folder: Path, target: Path, overwrite: bool, session: str) -> None:
    """Rename the finished run to `target`; an earlier run there is deleted last, after that.

    Whatever goes wrong before, the earlier run is put back. What appeared at `target` during the
    run is not ours to touch: then the finished run is kept beside it, and `JobError` says where.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    earlier = target.with_name(f"{target.name}.earlier-{session}")
    try:
        if overwrite and os.path.lexists(target):
            check_target(target, overwrite)
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
            error.advice = f"The finished run is in {beside}."
        raise
    shutil.rmtree(earlier, ignore_errors=True)  # what cannot be deleted stays, under that name


def keep_log(log: RunLog, folder: Path, target: Path, code: str) -> Path:
    """Keep the log of a run that failed after a release: what was released stays on record.

    code: what ended the run. Returns the folder that holds the log, alone
    """
    for path in set(folder.iterdir()) - {log.path}:
        path.unlink()
    with suppress(OSError):  # on a full disk; the lines of the releases are safe already
        log.write({"event": "failed", "code": code})
    with suppress(OSError):
        target.parent.mkdir(parents=True, exist_ok=True)
    nearest = next(parent for parent in target.parents if parent.is_dir())
    return folder.rename(nearest / f"{target.name}.failed-{log.events[0]['session'][:8]}")


@contextmanager
def unfinished(target: Path | None, overwrite: bool) -> Iterator[Path]:
    """Make and lock `OUT.partial`; without a target, a folder that is gone afterwards.

    An unfinished run that is there already is given up if `overwrite`, and refused otherwise.
    """
    if target is None:
        with tempfile.TemporaryDirectory(prefix="secagg-") as scratch:
            yield Path(scratch)
        return
    discard_unfinished(target, overwrite)
    place = partial_path(target)
    made = [parent for parent in target.parents if not parent.exists()]
    try:
        place.mkdir(parents=True, mode=0o700)
    except OSError as error:
        raise JobError(str(place), f"cannot be written to ({error.strerror})") from None
    try:
        with exclusive_lock(place / "lock"), resumable(place, target):
            yield place
    finally:
        for parent in made:
            with suppress(OSError):  # not empty, as a rule
                parent.rmdir()


@contextmanager
def resumable(place: Path, target: Path) -> Iterator[None]:
    """Keep an unfinished run that fails, and say how it may go on; delete any other."""
    kept = False
    try:
        yield
    except BaseException as error:
        begun = (place / "journal").exists()
        kept = begun or isinstance(error, ProtocolAbort)  # a party did not start: its log says why
        if not isinstance(error, SecaggError):  # for who interrupts
            more = f"The unfinished run is in {place}: continue with 'secagg resume {target}'."
            error.add_note(more if begun else "No sum was asked for yet, and nothing is kept.")
        elif kept and not isinstance(error, EvidenceError):
            more = f"{_resume_advice(error, place, target)} " if begun else ""
            error.advice = f"{error.advice} {more}The parties' own logs are in {place / 'parties'}."
            error.advice = error.advice.strip()
        raise
    finally:
        if not kept:
            delete(place)


def _resume_advice(error: SecaggError, place: Path, target: Path) -> str:
    """Say how a run that stopped by this error can come to an end, and what that costs."""
    again = f"'secagg resume {target}'"
    if not isinstance(error, _CANNOT_FIT | PolicyRefusal | DataError):
        return f"Continue with {again}."
    released = b'"event":"release"' in (place / "log.jsonl").read_bytes()
    cost = "the log of the sums released so far is kept" if released else "nothing was released yet"
    otherwise = f"change the job and begin again with --overwrite ({cost})."
    if isinstance(error, _CANNOT_FIT):
        return f"As it is, this job cannot succeed: {otherwise}"
    if error.where == COORDINATOR:  # its rule is the job's, which only a returning site can meet
        return f"If sites were missing and come back, continue with {again}; otherwise {otherwise}"
    return (
        f"Once the site's rule or data is corrected, continue with {again}; otherwise {otherwise}"
    )


_CANNOT_FIT = JobError | OverflowRefusal | CapabilityError
"""What no site can fix."""


def partial_path(target: Path) -> Path:
    """Return where the run for `target` lies while it is under way."""
    return target.with_name(target.name + _PARTIAL)


def find_unfinished(folder: Path) -> tuple[Path, Path]:
    """Return the unfinished run that `OUT` or `OUT.partial` names, and its `OUT`."""
    folder = folder.absolute()
    for target in (folder, folder.with_name(folder.name.removesuffix(_PARTIAL))):
        place = partial_path(target)
        if (place / "journal").is_file():
            if place.stat().st_uid != os.getuid():  # his job, and his keys
                raise UsageError(str(place), "belongs to another user")
            return place, target
    raise UsageError(str(folder), "has no unfinished run", "Begin one: secagg run.")


def check_unfinished(place: Path, target: Path, session: bytes) -> None:
    """Raise `UsageError` if the run had been moved to `target` when it was killed.

    Then there is nothing left to do but to delete the unfinished copy.
    """
    try:
        finished = RunFolder(target).session == session.hex()
    except EvidenceError:
        return
    if finished:
        (place / "journal").unlink(missing_ok=True)
        raise UsageError(str(target), "is finished", "There is nothing to resume.")


def delete(place: Path) -> None:
    """Delete an unfinished run; the journal first, so that no half of it is ever resumed."""
    (place / "journal").unlink(missing_ok=True)
    shutil.rmtree(place)


def fresh_copy(log: RunLog, folder: Path) -> RunLog:
    """Return a copy of the log in a new folder, which replaces one of that name."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copyfile(log.path, folder / log.path.name)
    return RunLog(folder / log.path.name, log.clock, log.head, log.lines, list(log.events))


def discard_unfinished(target: Path, overwrite: bool, *, only_check: bool = False) -> None:
    """Make room where an unfinished run for `target` lies; the log of what it released is kept.

    Raises `JobError` unless `overwrite`, or if what lies there is no unfinished run.
    """
    place = partial_path(target)
    if not os.path.lexists(place):
        return
    if place.is_symlink() or not (place / "lock").is_file():
        raise JobError(str(place), "is in the way, and is no unfinished run", "Move it.")
    with exclusive_lock(place / "lock"):
        begun = (place / "journal").exists()
        if begun and not overwrite:
            raise JobError(
                str(place), "is an unfinished run",
                f"Continue it with 'secagg resume {target}', or give it up with --overwrite.",
            )  # fmt: skip
        if only_check:
            return
        if begun:
            log = RunLog.reopen(place / "log.jsonl", utc_now)
            if any(event["event"] == "release" for event in log.events):
                copy = fresh_copy(log, place / "run")
                keep_log(copy, copy.path.parent, target, "given up")
        delete(place)


def utc_now() -> str:
    """Return the time of day for the log."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
