"""Read a run folder. Anybody may have written it, so no file in it is trusted.

Each file is read once, when it is first needed. A file that was missing then stays missing. So
reports, audits and predictions use the same bytes that `secagg.evidence.integrity` checked. Reading
the log checks its hash chain (`secagg.core.hash_chain_log`).

==========================================  ======================================================
case                                        outcome
==========================================  ======================================================
no folder, or an unfinished run             `UsageError` from `open`
a file is missing or malformed              `EvidenceError` that names the file, when it is read
a line of the log was changed               `EvidenceError` that names the line, from `events`
a job of another version of secagg          `UsageError` from `job` and `method`
==========================================  ======================================================
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import Method, Result
from secagg.core.hash_chain_log import parse_log
from secagg.core.identity import PublicIdentity, Role, Roster, parties_fault
from secagg.errors import EvidenceError, UsageError
from secagg.evidence.claims.privacy import PrivacyClaims
from secagg.evidence.released_sums import SUMS_FILE, ReleasedSum, read_sums
from secagg.evidence.run_files import json_bytes, log_facts
from secagg.evidence.transcript_file import MESSAGES_FILE, Message, read_messages
from secagg.jobs.job import Job
from secagg.jobs.registry import make_method
from secagg.sessions.planned_job import Planned, plan_sites

MALFORMED_ERRORS = (LookupError, TypeError, ValueError, AttributeError, RecursionError)
"""Errors that reading malformed data can raise."""

BAD_ARCHIVE_ERRORS = (
    EOFError, MemoryError, OSError, OverflowError, RuntimeError, zipfile.BadZipFile, zlib.error
)  # fmt: skip
"""Errors that reading a damaged NPZ file can raise, too."""


@dataclass(frozen=True)
class RunFolder:
    """A run folder; the table of the module lists what its properties raise."""

    path: Path
    _read: dict[str, bytes | OSError] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Return the folder of a run that has ended."""
        path = Path(path)
        if path.is_file():
            raise UsageError(str(path), "is a file", f"Give the run's folder: {path.parent}.")
        if not path.is_dir():
            raise UsageError(str(path), "no such folder", "Give the --out of a run.")
        if (path / "journal").exists():
            raise UsageError(str(path), "is an unfinished run", "Continue it: secagg resume.")
        return cls(path)

    @classmethod
    def open_finished(cls, path: str | Path) -> Self:
        """Return the folder of a run that has a result. Raises `UsageError`."""
        folder = cls.open(path)
        if not folder.has("run.json"):
            what = "is not the folder of a finished run"
            raise UsageError(str(path), what, "Give the --out of a run.")
        return folder

    @contextmanager
    def well_formed(self, part: str) -> Iterator[None]:
        """Turn the errors of malformed content into `EvidenceError`."""
        try:
            yield
        except MALFORMED_ERRORS as error:
            raise EvidenceError(str(self.path), f"its {part} is malformed") from error

    @property
    def failed(self) -> bool:
        """Whether the run ended without a result and only its log was kept."""
        return not self.has("run.json") and self.has("log.jsonl")

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The content of run.json, which must be byte for byte as secagg writes it."""
        path = self.path / "run.json"
        try:
            written = self.read("run.json")
            facts = json.loads(written)
            if json_bytes(facts) != written:  # e.g. a repeated key, which readers treat differently
                raise ValueError
            match facts["log"]:
                case {"lines": int(), "head": str(), **others} if not others:
                    return dict(facts)
                case _:
                    raise ValueError
        except OSError:
            raise EvidenceError(str(path), "is missing", "Is this a run folder?") from None
        except MALFORMED_ERRORS:
            raise EvidenceError(str(path), "is malformed") from None

    @cached_property
    def events(self) -> list[dict[str, Any]]:
        """The events of the log, whose hash chain is intact."""
        return parse_log("log.jsonl", self._content("log.jsonl"))

    @property
    def releases(self) -> list[dict[str, Any]]:
        """The log's events of releases."""
        releases: list[dict[str, Any]] = log_facts(self.events)["releases"]
        return releases

    @cached_property
    def run_facts(self) -> dict[str, Any]:
        """What `secagg.Run.facts` has: the facts of run.json, and the releases of the log."""
        return {**self.facts, **log_facts(self.events)}

    @cached_property
    def claims(self) -> PrivacyClaims:
        """What the run may claim about privacy."""
        return PrivacyClaims.of(self.run_facts)

    @cached_property
    def roster(self) -> Roster:
        """The parties of the run, whose keys check its signatures."""
        return roster_of(self.events[0] if self.failed else self.facts)

    @cached_property
    def cohort(self) -> list[str]:
        """The sites in every sum."""
        sites = self.releases[0]["contributors"] if self.failed else self._fact("cohort")
        return list(sites)

    @cached_property
    def planned(self) -> Planned:
        """The job as all parties planned it, without access to records. Raises `UsageError`."""
        return plan_sites(self.job, self.roster.with_role(Role.SITE), {})

    @property
    def has_sums(self) -> bool:
        """Whether the folder still has its released sums."""
        return self.has(SUMS_FILE)

    @cached_property
    def sums(self) -> tuple[ReleasedSum, ...]:
        """Every released sum of the folder, in order."""
        return tuple(read_sums(self._content(SUMS_FILE)))

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """Every message of the run, in order; none if the folder has no transcript."""
        kept = self.has(MESSAGES_FILE)
        return tuple(read_messages(self._content(MESSAGES_FILE))) if kept else ()

    @cached_property
    def session(self) -> str:
        """The session's name, in hexadecimal."""
        return str(self.events[0]["session"] if self.failed else self._fact("session"))

    @property
    def session_bytes(self) -> bytes:
        """The session's name, as the parties sign it."""
        return bytes.fromhex(self.session)

    @cached_property
    def result(self) -> Result:
        """The content of result.json and arrays.npz."""
        return Result(self._summary(), self._arrays())

    @cached_property
    def job(self) -> Job:
        """The job that was run."""
        try:
            return Job.model_validate_json(json.dumps(self._fact("job")))
        except ValueError as error:  # as pydantic's are
            raise self._of_another_version() from error

    @cached_property
    def method(self) -> Method:
        """The method that was run, with its settings."""
        job = self.job
        try:
            return make_method(job.method)
        except UsageError as error:
            raise self._of_another_version() from error

    def read(self, name: str) -> bytes:
        """Return the content of a file, read once. Raises `OSError`."""
        if name not in self._read:
            place = self.path / name
            try:
                if place.exists() and not place.is_file():  # a pipe, on which reading would wait
                    raise IsADirectoryError(errno.EISDIR, "not a file")
                self._read[name] = place.read_bytes()
            except OSError as error:
                self._read[name] = error
        content = self._read[name]
        if isinstance(content, OSError):
            raise content
        return content

    def has(self, name: str) -> bool:
        """Return whether there is such a file, although it may be impossible to read."""
        with suppress(OSError):
            self.read(name)
        return not isinstance(self._read[name], FileNotFoundError | NotADirectoryError)

    def digest(self, name: str) -> str:
        """Return the SHA-256 of a file, in hexadecimal. Raises `EvidenceError`."""
        return hashlib.sha256(self._content(name)).hexdigest()

    def _fact(self, key: str) -> Any:
        try:
            return self.facts[key]
        except KeyError:
            raise EvidenceError(str(self.path / "run.json"), f"has no {key!r}") from None

    def _content(self, name: str) -> bytes:
        try:
            return self.read(name)
        except OSError as error:
            what = f"cannot be read ({error.strerror})"
            raise EvidenceError(str(self.path / name), what) from None

    def _summary(self) -> dict[str, Any]:
        path = self.path / "result.json"
        try:
            summary = json.loads(self._content("result.json"))
        except (ValueError, RecursionError):
            raise EvidenceError(str(path), "is not JSON") from None
        if not isinstance(summary, dict):
            raise EvidenceError(str(path), "is malformed")
        return summary

    def _arrays(self) -> dict[str, NDArray[Any]]:
        path = self.path / "arrays.npz"
        try:
            content = io.BytesIO(self._content("arrays.npz"))
            with np.load(content, allow_pickle=False) as arrays:
                return dict(arrays)
        except (*MALFORMED_ERRORS, *BAD_ARCHIVE_ERRORS):
            raise EvidenceError(str(path), "is malformed") from None

    def _of_another_version(self) -> UsageError:
        advice = "Use the version of secagg that run.json names under 'versions'."
        return UsageError(str(self.path), "was made with another version of secagg", advice)


def roster_of(facts: Mapping[str, Any]) -> Roster:
    """Return the roster of run.json, or of the log's first line. Raises `EvidenceError`."""
    parties = [
        PublicIdentity(
            p["name"], Role(p["role"]), bytes.fromhex(p["verify_key"]), bytes.fromhex(p["seal_key"])
        )
        for p in facts["roster"]
    ]
    if fault := parties_fault(parties):
        raise EvidenceError("log.jsonl line 1", fault)
    return Roster({party.name: party for party in parties})
