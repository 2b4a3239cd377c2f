"""What one attack found on one view of a job, before a limit judges it; and its file.

An outcome is a function of job, records, attack, view, seed and code. So `Outcomes` keeps it in a
folder under a digest of these, and an audit that was interrupted computes only the others.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import secagg
from secagg.audits.audited_run import AuditedRun
from secagg.audits.contract import Attack, Finding, Limit, Verdict
from secagg.audits.views import Who
from secagg.core import encoding
from secagg.core.private_files import read_checked, write_checked
from secagg.core.threads import single_threaded_blas
from secagg.errors import EvidenceError
from secagg.jobs.job import Job


@dataclass(frozen=True)
class Outcome:
    """What an attack found.

    why_not: why it does not apply; then all that follows is None
    limit: the attack's own; control: what it found in the run with the planted leak
    control_found: whether that exceeds the attack's own limit there
    error: the error that ended the attack, in a line
    """

    why_not: str = ""
    finding: Finding | None = None
    limit: Limit | None = None
    control: Finding | None = None
    control_found: bool = False
    error: str = ""
    seconds: float = 0.0

    def judged(self, limit: Limit | None) -> tuple[Verdict, str]:
        """Return the verdict with its reason; limit: instead of the attack's own."""
        if self.why_not:
            return Verdict.NOT_APPLICABLE, self.why_not
        if self.finding is None:
            return Verdict.INCONCLUSIVE, self.error
        limit = limit or self.limit
        assert limit is not None
        if limit.exceeded_by(self.finding.value):
            bound = self.finding.bound
            return (Verdict.INCONCLUSIVE, bound) if bound else (Verdict.LEAK, "")
        if self.finding.failed:
            return Verdict.INCONCLUSIVE, self.finding.failed
        if not self.control_found:
            why = self.error or "the attack does not find the planted leak either"
            return Verdict.INCONCLUSIVE, why
        return Verdict.NO_LEAK_FOUND, ""

    def to_plain(self) -> dict[str, Any]:
        """Return plain data for `from_plain`."""
        return dict(plain(asdict(self)))

    @classmethod
    def from_plain(cls, found: Mapping[str, Any]) -> Outcome:
        """Return the outcome from plain data."""
        parts = {"finding": Finding, "control": Finding, "limit": Limit}
        made = {n: None if found[n] is None else parts[n](**found[n]) for n in parts}
        return cls(**{**found, **made})


def attack_once(
    attack: Attack, who: Who, run: AuditedRun, control: AuditedRun, seed: int
) -> Outcome:
    """Run one attack on one view of the run and of the control. Errors become outcomes."""
    began = time.perf_counter()
    try:
        with single_threaded_blas():
            return _attack(attack, who, run, control, seed, began)
    except Exception as error:  # one attack must not end the audit
        if os.environ.get("SECAGG_TRACEBACK"):
            raise
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        return Outcome(error=f"the attack ended with an error: {what}")


def _attack(
    attack: Attack, who: Who, run: AuditedRun, control: AuditedRun, seed: int, began: float
) -> Outcome:
    seeds = [seed, zlib.crc32(attack.name.encode())]
    colluding = attack.colluding(len(run.view.sites))
    view = run.seen_by(who, colluding)
    if why := attack.why_not(view):
        return Outcome(why)
    finding = attack.score(attack.run(view, np.random.default_rng(seeds)), view, run.truth)
    if math.isnan(finding.value):
        return Outcome(str(finding.details["why_not"]))
    planted = attack.control(control.seen_by(who, colluding))
    guess = attack.run(planted, np.random.default_rng(seeds))
    found = attack.score(guess, planted, control.truth)
    return Outcome(
        finding=finding, limit=attack.limit(view), control=found,
        control_found=attack.limit(planted).exceeded_by(found.value) and not found.bound,
        seconds=time.perf_counter() - began,
    )  # fmt: skip


@dataclass(frozen=True)
class Outcomes:
    """A private folder with a file for each outcome of one job, its records and a seed."""

    folder: Path
    about: bytes

    @classmethod
    def of(
        cls, folder: Path, job: Job, tables: Sequence[Mapping[str, pd.DataFrame]], seed: int
    ) -> Outcomes:
        """Return the outcomes of a job in this folder; tables: that take part, and the others."""
        records = [[[name, table.to_csv()] for name, table in each.items()] for each in tables]
        about = encoding.digest([_code(), job.model_dump_json(), records, seed])
        for place in (folder.parent, folder):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        return cls(folder, about)

    def load(self, name: str, who: Who) -> Outcome | None:
        """Return an outcome; None if its file is missing or damaged."""
        try:
            return Outcome.from_plain(read_checked(self._file(name, who)))
        except EvidenceError:
            return None

    def save(self, name: str, who: Who, outcome: Outcome) -> None:
        """Write an outcome. Raises `OSError`."""
        write_checked(self._file(name, who), outcome.to_plain())

    def _file(self, name: str, who: Who) -> Path:
        return self.folder / encoding.digest([self.about, name, who.value])[:16].hex()


@cache
def _code() -> str:
    """Return a digest of all code of the package."""
    root = Path(secagg.__file__).parent
    found = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def plain(value: Any) -> Any:
    """Return data without numpy's types, tuples and keys that are not text."""
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value
