"""Reads a run folder that anybody may have written: no file in it is trusted.

Each file is read once, when it is first needed. Whether the files belong together is checked by
`secagg.audits.run_integrity`.

==========================================  ======================================================
case                                        outcome
==========================================  ======================================================
no folder, or an unfinished run             `UsageError` from `open`
a file is missing or malformed              `EvidenceError` that names the file, when it is read
a job of another version of secagg          `UsageError` from `job` and `method`
==========================================  ======================================================
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import Method, Result
from secagg.core.hash_chain_log import read_log
from secagg.errors import EvidenceError, UsageError
from secagg.jobs.job import Job
from secagg.jobs.registry import make_method
from secagg.runs.run_files import json_bytes, log_facts

MALFORMED_ERRORS = (LookupError, TypeError, ValueError, AttributeError, RecursionError)
"""Errors that reading malformed data can raise."""

_BAD_ARCHIVE = (
    EOFError, MemoryError, OverflowError, RuntimeError, zipfile.BadZipFile, zlib.error
)  # fmt: skip


@dataclass(frozen=True)
class RunFolder:
    """A run folder; the table of the module lists what its properties raise."""

    path: Path

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
        if not (folder.path / "run.json").exists():
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
        return not (self.path / "run.json").exists() and (self.path / "log.jsonl").is_file()

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The content of run.json, which must be byte for byte as secagg writes it."""
        path = self.path / "run.json"
        try:
            written = path.read_bytes()
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
        return read_log(self.path / "log.jsonl")

    @property
    def releases(self) -> list[dict[str, Any]]:
        """The log's events of releases."""
        releases: list[dict[str, Any]] = log_facts(self.events)["releases"]
        return releases

    @cached_property
    def session(self) -> str:
        """The session's name, in hexadecimal."""
        return str(self._fact("session"))

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

    def _fact(self, key: str) -> Any:
        try:
            return self.facts[key]
        except KeyError:
            raise EvidenceError(str(self.path / "run.json"), f"has no {key!r}") from None

    def _summary(self) -> dict[str, Any]:
        path = self.path / "result.json"
        try:
            summary = json.loads(path.read_bytes())
        except OSError as error:
            raise EvidenceError(str(path), f"cannot be read ({error.strerror})") from None
        except (ValueError, RecursionError):
            raise EvidenceError(str(path), "is not JSON") from None
        if not isinstance(summary, dict):
            raise EvidenceError(str(path), "is malformed")
        return summary

    def _arrays(self) -> dict[str, NDArray[Any]]:
        path = self.path / "arrays.npz"
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                return dict(arrays)
        except OSError as error:
            raise EvidenceError(str(path), f"cannot be read ({error.strerror})") from None
        except (*MALFORMED_ERRORS, *_BAD_ARCHIVE):
            raise EvidenceError(str(path), "is malformed") from None

    def _of_another_version(self) -> UsageError:
        advice = "Use the version of secagg that run.json names under 'versions'."
        return UsageError(str(self.path), "was made with another version of secagg", advice)
