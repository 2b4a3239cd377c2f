"""What one attack found on one view of a job, before a limit judges it; and its file.

An outcome is a function of job, records, attack, view, seed, code and libraries. So `Outcomes`
keeps it in a folder under a digest of these, and an audit that was interrupted computes only the
others. Code that a job names itself, such as a torch module, is not part of the digest.
"""

from __future__ import annotations

import hashlib
import os
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import secagg
from secagg.audits.audited_run import AuditedRun
from secagg.audits.contract import Attack, Finding, Limit, Verdict
from secagg.audits.views import View, Who
from secagg.contracts.findings import judge
from secagg.core import canonical_encoding
from secagg.core.private_files import read_checked, write_checked
from secagg.core.threads import single_threaded_blas
from secagg.errors import EvidenceError, UsageError
from secagg.jobs.job import Job


@dataclass(frozen=True)
class Outcome:
    """What an attack found.

    why_not: why it does not apply; then all that follows is None
    limit: the attack's own; control: what it found in the run with the planted leak
    control_limit: the attack's own limit there
    error: the error that ended the attack, in a line
    """

    why_not: str = ""
    finding: Finding | None = None
    limit: Limit | None = None
    control: Finding | None = None
    control_limit: Limit | None = None
    error: str = ""
    seconds: float = 0.0

    def judged(self, limit: Limit | None) -> tuple[Verdict, str]:
        """Return the verdict with its reason; limit: instead of the attack's own."""
        if self.why_not:
            return Verdict.NOT_APPLICABLE, self.why_not
        limit = limit or self.limit
        return judge(self.finding, limit, self.control, self.control_limit, self.error)

    def of_rate(self, name: str, guess: float, limit: Limit) -> Outcome:
        """Return the outcome of a rate in the details of this one (`Attack.rates`)."""
        if self.why_not or self.finding is None:
            return self
        rate, planted = (_rate(each, name, guess) for each in (self.finding, self.control))
        if rate is None:
            needs = f"needs {1 / guess:.0f} records that take no part: --set-aside"
            return Outcome(error=needs)
        if planted is not None and not limit.exceeded_by(planted.low):
            planted = replace(planted, bound="the interval reaches the limit")
        return replace(self, finding=rate, limit=limit, control=planted, control_limit=limit)

    def to_plain(self) -> dict[str, Any]:
        """Return plain data for `from_plain`."""
        return dict(plain(asdict(self)))

    @classmethod
    def from_plain(cls, found: Mapping[str, Any]) -> Outcome:
        """Return the outcome from plain data."""
        parts = {"finding": Finding, "limit": Limit, "control": Finding, "control_limit": Limit}
        made = {n: None if found[n] is None else parts[n](**found[n]) for n in parts}
        return cls(**{**found, **made})


def attack_once(
    attack: Attack, who: Who, run: AuditedRun, control: AuditedRun | None, seed: int
) -> Outcome:
    """Run one attack on one view of the run and of the control. Errors become outcomes.

    control: None if the control itself could not be run
    """
    began, seeds = time.perf_counter(), [seed, zlib.crc32(attack.name.encode())]
    colluding = attack.colluding(len(run.view.sites))

    def attacked(run: AuditedRun, view: View) -> Finding:
        guess = attack.run(view, np.random.default_rng(seeds))
        return attack.score(guess, view, run.truth)

    with single_threaded_blas(), np.errstate(all="ignore"):
        try:
            with run.seen_by(who, colluding) as view:
                if why := attack.why_not(view):
                    return Outcome(why)
                finding, limit = attacked(run, view), attack.limit(view)
        except Exception as error:  # one attack must not end the audit
            return Outcome(error=_ended("the attack", error))
        if finding.why_not:
            return Outcome(finding.why_not)
        if control is None:
            return Outcome(finding=finding, limit=limit, error="the control could not be run")
        try:
            with control.seen_by(who, colluding) as view:
                planted = attack.control(view)
                found = attacked(control, planted)
                control_limit = attack.limit(planted)
        except Exception as error:  # a leak is one, whatever becomes of the control
            return Outcome(finding=finding, limit=limit, error=_ended("the control", error))
    return Outcome(
        finding=finding, limit=limit, control=found, control_limit=control_limit,
        seconds=time.perf_counter() - began,
    )  # fmt: skip


def _rate(found: Finding | None, name: str, guess: float) -> Finding | None:
    if found is None or name not in found.details:
        return None
    value, low, high = found.details[name]
    bound = "" if low > guess else f"the interval includes {guess:g}, which is a guess"
    return Finding(value=value, low=low, high=high, baseline=guess, bound=bound)


def attack_folder(attack: Attack, view: View, seed: int) -> Outcome:
    """Run one attack on a view without the truth and without a control."""
    with single_threaded_blas(), np.errstate(all="ignore"):
        try:
            if why := attack.why_not(view):
                return Outcome(why)
            finding = attack.without_truth(attack.run(view, np.random.default_rng(seed)), view)
        except Exception as error:  # one attack must not end the audit
            return Outcome(error=_ended("the attack", error))
    if finding is None:
        return Outcome("only the true records show whether it succeeded: audit the job")
    why = "no control without the records"
    return Outcome(finding=finding, limit=attack.limit(view), error=why)


def _ended(what: str, error: Exception) -> str:
    """Return a line without the error's own text, which may quote records.

    With SECAGG_TRACEBACK, the error is raised.
    """
    if os.environ.get("SECAGG_TRACEBACK"):
        raise error
    advice = "SECAGG_TRACEBACK=1 and --jobs 1 show it"
    return f"{what} ended with an error, {type(error).__name__}; {advice}"


@dataclass(frozen=True)
class Outcomes:
    """A private folder with a file for each outcome of one job, its records and a seed."""

    folder: Path
    about: bytes

    @classmethod
    def of(
        cls, folder: Path, job: Job, tables: Sequence[Mapping[str, pd.DataFrame]], seed: int
    ) -> Outcomes:
        """Return the outcomes of a job in this folder; tables: that take part, and the others.

        Raises `UsageError` if the folder cannot be written.
        """
        records = [[[name, table.to_csv()] for name, table in each.items()] for each in tables]
        about = canonical_encoding.digest(
            [_code(), _libraries(), job.model_dump_json(), records, seed]
        )
        try:
            for place in (folder.parent, folder):
                place.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(str(folder), f"cannot be written ({error.strerror})") from None
        return cls(folder, about)

    def load(self, name: str, who: Who) -> Outcome | None:
        """Return an outcome; None if its file is missing or damaged."""
        try:
            return Outcome.from_plain(read_checked(self._file(name, who)))
        except EvidenceError:
            return None

    def save(self, name: str, who: Who, outcome: Outcome) -> None:
        """Write an outcome. Raises `UsageError` if the file cannot be written."""
        try:
            write_checked(self._file(name, who), outcome.to_plain())
        except OSError as error:
            raise UsageError(str(self.folder), f"cannot be written ({error.strerror})") from None

    def _file(self, name: str, who: Who) -> Path:
        return self.folder / canonical_encoding.digest([self.about, name, who.value])[:16].hex()


@cache
def _code() -> str:
    """Return a digest of all code of the package."""
    root = Path(secagg.__file__).parent
    found = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def _libraries() -> list[list[str]]:
    """Return the versions of all installed packages: another may compute other numbers."""
    return sorted([each.name, each.version] for each in metadata.distributions())


def plain(value: Any) -> Any:
    """Return data without numpy's types, tuples and keys that are not text."""
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value
