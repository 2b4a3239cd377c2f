"""`secagg verify --again`: run the audits and experiments of a report anew, and compare.

An audit is a function of job, records, seed and code, but for its duration. Its file has the job,
the seed and the share that was set aside. The records are not in a report. They are read where the
audit found them, seen from the same working folder, or where a job file says (`--records JOB`). An
audit of a finished run needs only that run, which is in the report; if it had the transcript, it
cannot be repeated without. An experiment is repeated from its own file (`--records EXPERIMENT`).

Compared are every verdict, and every number with its interval up to rounding: another processor may
round otherwise. An attack that was tried and left out of the file is named, too.

Not protected: other records under the same names give other numbers. So a difference does not say
who is wrong: it says that the numbers do not follow from these records. The code of a job that
names some is imported only if the job file names the same.
"""

from __future__ import annotations

import json
import math
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from secagg.audits.audit import Audit, audit_job
from secagg.audits.audit_file import as_plain
from secagg.audits.contract import Limit
from secagg.audits.folder_audit import FolderAudit, audit_folder
from secagg.audits.views import Who
from secagg.compliance.evidence import FOLDER, AllEvidence
from secagg.errors import EvidenceError, UsageError
from secagg.evidence.run_folder import RunFolder
from secagg.evidence.transcript_file import MESSAGES_FILE
from secagg.experiments.experiment import plan_experiment
from secagg.experiments.output import write
from secagg.experiments.runner.experiment import compute_experiment
from secagg.experiments.summary import SECONDS, summarise
from secagg.experiments.sweep import Sweep, read_sweep
from secagg.jobs.job import Job, load_job, parse_job

_ADVICE = "The numbers of the file do not follow from these records: ask who measured them."
_RELATIVE, _ABSOLUTE = 1e-6, 1e-9
_NOT_COMPARED = (SECONDS, "secagg", "versions", "seconds", "file")


def measure_again(evidence: AllEvidence, files: Sequence[Path], jobs: int = 1) -> list[str]:
    """Return what was run anew with equal results, and what could not be, in a line each.

    files: jobs, which say where records are, and experiments; jobs: number of processes
    Raises `EvidenceError` that names the first number that differs, and `UsageError`.
    """
    known, sweeps, further = files_for(files)
    runs = {str(run.facts["session"]): run.folder.path for run in evidence.runs} | further
    done = list[str]()
    for name, audit in evidence.audits.items():
        where = f"{FOLDER}/audits/{name}"
        done.append(f"{where}: {measure_audit(audit, where, runs, known, jobs)}")
    for name, summary in evidence.experiments.items():
        where = f"{FOLDER}/experiments/{name}"
        done.append(f"{where}: {measure_experiment(summary, where, sweeps, jobs)}")
    return done


def files_for(files: Sequence[Path]) -> tuple[list[Job], list[Sweep], dict[str, Path]]:
    """Return jobs, experiments, and folders of runs by session. Raises `UsageError`."""
    runs = {str(RunFolder.open_finished(p).session): p for p in files if p.is_dir()}
    read = [_read(path) for path in files if not path.is_dir()]
    jobs = [each for each in read if isinstance(each, Job)]
    return jobs, [each for each in read if isinstance(each, Sweep)], runs


def _read(path: Path) -> Job | Sweep:
    try:
        is_job = "method" in tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise UsageError(str(path), "is neither a job nor an experiment") from None
    return load_job(path) if is_job else read_sweep(path)


def audit_again(
    audit: Mapping[str, Any], place: Path | Job, jobs: int = 1
) -> Audit | FolderAudit:  # fmt: skip
    """Run an audit anew. place: the folder of its run, or its job with the place of the records"""
    rows = audit["attacks"]
    limits = {r["metric"]: Limit.of_text(r["limit"]) for r in rows
              if "limit" in r and r["limit"] != r.get("own_limit")}  # fmt: skip
    attacks = list(dict.fromkeys(row["name"] for row in rows))
    views = [Who(view) for view in dict.fromkeys(row["view"] for row in rows)]
    seed = int(audit["seed"])
    if isinstance(place, Path):
        return audit_folder(place, attacks=attacks, views=views, limits=limits, seed=seed)
    return audit_job(
        place, attacks=attacks, views=views, limits=limits, seed=seed,
        set_aside=float(audit["share"]), jobs=jobs,
    )  # fmt: skip


def measure_audit(
    audit: Mapping[str, Any], where: str, runs: Mapping[str, Path], known: Sequence[Job],
    jobs: int = 1,
) -> str:  # fmt: skip
    """Run an audit anew and compare; return what was done. Raises `EvidenceError`.

    runs: folders of runs by session; known: jobs, which say where records are
    """
    if "session" in audit:
        run = runs.get(str(audit["session"]))
        if run is None or bool(audit["with_messages"]) != (run / MESSAGES_FILE).exists():
            return "not run again: it needs the run's folder, with the transcript if it had that"
        found = audit_again(audit, run)
    else:
        places = [made for job in known if (made := _at_records_of(audit, job)) is not None]
        places += [made for made in [_where_they_were(audit)] if made is not None]
        if not places:
            return "not run again: its records are not here; say where with --records JOB"
        found = audit_again(audit, places[0], jobs)
    compare_audits(audit, as_plain(found), where)
    return f"run again, {len(audit['attacks'])} verdicts and numbers are equal"


def _at_records_of(audit: Mapping[str, Any], job: Job) -> Job | None:
    """Return the audit's job with the records of another; None if that has other columns."""
    agreed = audit["agreed"]
    module = (agreed["method"].get("module"), (job.method.model_extra or {}).get("module"))
    if agreed["columns"] != job.agreed["columns"] or module[0] not in (None, module[1]):
        return None
    return parse_job({**agreed, "sites": {**agreed["sites"], **job.local["sites"]}})


def _where_they_were(audit: Mapping[str, Any]) -> Job | None:
    """Return the audit's job with the records where they were; None if they are not there."""
    agreed, local = audit["agreed"], audit.get("local") or {}
    place = local.get("folder") or local.get("table")
    if not place or not Path(place).exists() or agreed["method"].get("module"):
        return None
    return parse_job({**agreed, "sites": {**agreed["sites"], **local}})


def compare_audits(stated: Mapping[str, Any], again: Mapping[str, Any], where: str) -> None:
    """Compare an audit with the same one run anew. Raises `EvidenceError`."""
    for key in ("sites", "records", "set_aside"):
        if stated.get(key) != again.get(key):
            what = f"{key} is {stated.get(key)!r}, and {again.get(key)!r} when run again"
            raise EvidenceError(where, what, _ADVICE)
    rows = {(r["name"], r["view"], r["metric"]): r for r in stated["attacks"]}
    for row in again["attacks"]:
        place = f"{where}, {row['label']} ({row['view']})"
        said = rows.pop((row["name"], row["view"], row["metric"]), None)
        if said is None:
            raise EvidenceError(place, "was tried and is not in the file", _ADVICE)
        for what, one, other in _pairs(said, row):
            if not _equal(one, other):
                text = f"{what} is {_short(one)}, and {_short(other)} when run again"
                raise EvidenceError(place, text, _ADVICE)
    for row in rows.values():
        what = "is in the file, and was not found when run again"
        raise EvidenceError(f"{where}, {row['label']} ({row['view']})", what, _ADVICE)


def _pairs(row: Mapping[str, Any], again: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    numbers = ("value", "low", "high", "baseline")
    for name in (*numbers, "limit", "own_limit"):
        yield name, row.get(name), again.get(name)
    control, other = row.get("control") or {}, again.get("control") or {}
    for name in (*numbers, "limit"):
        yield f"control, {name}", control.get(name), other.get(name)
    yield "verdict", row["verdict"], again["verdict"]
    yield "why", row["why"], again["why"]


def _equal(one: Any, other: Any) -> bool:
    numbers = [type(each) in (int, float) for each in (one, other)]
    if not all(numbers):
        return bool(one == other)
    return math.isclose(one, other, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def measure_experiment(
    summary: Mapping[str, Any], where: str, sweeps: Sequence[Sweep], jobs: int = 1
) -> str:
    """Run an experiment anew and compare; return what was done. Raises `EvidenceError`."""
    same = [s for s in sweeps if (s.title, s.file) == (summary["title"], summary.get("file"))]
    if not same:
        return f"not run again: it needs its file; --records {summary.get('file')}"
    planned = plan_experiment(same[0])
    with tempfile.TemporaryDirectory(prefix="secagg-again-") as scratch:
        again = summarise(planned, compute_experiment(planned, write, Path(scratch), jobs))
    again = json.loads(json.dumps(again))
    for place in _differences(summary, again, ""):
        raise EvidenceError(f"{where}, {place}", "is another number when run again", _ADVICE)
    return "run again, all numbers are equal"


def _differences(one: Any, other: Any, where: str) -> Iterator[str]:
    """Yield where two summaries differ, but for times and versions."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted((one.keys() | other.keys()) - set(_NOT_COMPARED)):
            yield from _differences(one.get(key), other.get(key), f"{where}/{key}".lstrip("/"))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            yield from _differences(a, b, f"{where}/{i}")
    elif not _equal(one, other):
        yield where
