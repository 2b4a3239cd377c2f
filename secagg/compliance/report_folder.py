"""The folder of a report: written once, then verified and signed.

report.html, report.json   the report, and its twin for programs
evidence/                  everything that it is computed from (`secagg.compliance.evidence`)
report.pdf                 optional: the page, printed; report.json has its digest
signatures/NAME.json       signatures of the digest of report.json
timestamp.tsr              optional: an RFC 3161 time stamp of report.json, from an authority
"""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from secagg.compliance.again import measure_again
from secagg.compliance.document import SCHEMA, build
from secagg.compliance.evidence import FOLDER, MOST_BYTES, AllEvidence, digests, gather, well_formed
from secagg.compliance.sections.proof import verify_runs
from secagg.compliance.signatures import Signed, read_signatures
from secagg.core.browser import print_pdf
from secagg.core.private_files import write_private
from secagg.errors import EvidenceError, UsageError
from secagg.evidence.integrity import Verified
from secagg.evidence.run_files import file_digest
from secagg.reports.compliance.page import compliance_page

_PDF = "report.pdf"
_UNCHECKED = ("timestamp.tsr",)
_PARTS = ("report.html", "report.json", _PDF, FOLDER, "signatures", *_UNCHECKED)


@dataclass(frozen=True)
class VerifiedReport:
    """What was checked.

    digest: SHA-256 of report.json as it was checked, in hexadecimal
    runs_not_checked: what of which run could not be computed again here
    statements: how many were built again; signed: by whom; unchecked: files that nothing checks
    again: what was run anew, or why not (`secagg.compliance.again`); empty if it was not asked for
    """

    digest: str
    runs: int
    runs_not_checked: tuple[str, ...]
    statements: int
    files: int
    signed: tuple[Signed, ...]
    unchecked: tuple[str, ...] = ()
    again: tuple[str, ...] = ()


def write_report(
    folder: Path,
    runs: Sequence[Path],
    audits: Sequence[Path] = (),
    experiments: Sequence[Path] = (),
    ledgers: Path | None = None,
    form: Path | None = None,
    *,
    pdf: bool = False,
) -> dict[str, Any]:
    """Write a new report, and return it as plain data.

    runs, audits, experiments: folders of finished ones; ledgers: a folder or a file of ledgers;
    form: the officer's answers; pdf: also print report.pdf
    Raises `UsageError`, and `EvidenceError` if a run's folder was changed.
    """
    if folder.exists():
        raise UsageError(str(folder), "exists", "Give another --out, or remove it.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        gather(scratch, runs, audits, experiments, ledgers, form)
        *_, report = _built(scratch)
        write_private(scratch / "report.html", compliance_page(report).encode())
        if pdf:
            print_pdf(scratch / "report.html", scratch / _PDF)
            report |= {"pdf": file_digest(scratch / _PDF)}
        write_private(scratch / "report.json", as_bytes(report))
        _make_private(scratch)
        scratch.rename(folder)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    return report


def _make_private(folder: Path) -> None:
    """Give all files and folders the modes of private ones: copies kept those of others."""
    for path in folder.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)


def _built(folder: Path) -> tuple[AllEvidence, dict[str, Verified], dict[str, Any]]:
    """Return a report's evidence, its runs verified, and the report. Raises `EvidenceError`."""
    with well_formed(""):
        evidence = AllEvidence.read(folder)
        verified = verify_runs(evidence)
        report = build(evidence, verified)
        as_bytes(report)  # of text and finite numbers only
        return evidence, verified, report


def as_bytes(report: dict[str, Any]) -> bytes:
    """Return the bytes of report.json."""
    return json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def verify_report(folder: Path, again: Sequence[Path] | None = None) -> VerifiedReport:
    """Build the report again from its evidence, and compare every part.

    again: also run audits and experiments anew, with the records of these jobs and experiments
    Raises `EvidenceError` that names the first file or statement that differs.
    """
    for path in sorted(folder.rglob("*")):
        where = path.relative_to(folder).as_posix()
        if path.is_symlink():  # what it leads to is outside, and could change after a signature
            raise EvidenceError(where, "is a symbolic link")
        if not (path.is_file() or path.is_dir()):  # a pipe, on which reading would wait
            raise EvidenceError(where, "is neither a file nor a folder")
    for path in sorted(folder.iterdir()):
        if path.name not in _PARTS:
            raise EvidenceError(path.name, "was added: a report has no such file")
    try:
        if (folder / "report.json").stat().st_size > MOST_BYTES:
            raise EvidenceError("report.json", "is too large")
        written = (folder / "report.json").read_bytes()
        stated = json.loads(written)
        known = dict(stated["evidence"]) if stated["schema"] == SCHEMA else None
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        raise EvidenceError("report.json", "is malformed") from None
    if known is None:
        what = f"has the schema {stated['schema']!r}"
        raise UsageError("report.json", what, f"This version reads {SCHEMA!r}.")
    _compare_files(known, digests(folder / FOLDER))
    _check_empty(folder / FOLDER)
    evidence, verified, built = _built(folder)
    if (folder / _PDF).exists():
        built |= {"pdf": file_digest(folder / _PDF)}
    if built["pdf"] != stated.get("pdf"):
        what = "is missing" if not built["pdf"] else "was changed or added after the report"
        raise EvidenceError(_PDF, what)
    for where in differences(stated, built):
        raise EvidenceError(f"report.json, {where}", "does not follow from the evidence")
    if as_bytes(built) != written:
        raise EvidenceError("report.json", "is not as secagg writes it")
    compare_page(folder / "report.html", compliance_page(built))
    runs = [run.folder for run in evidence.runs]
    digest = hashlib.sha256(written).digest()
    signed = read_signatures(folder / "signatures", "signatures", digest, runs)
    statements = sum(len(section["statements"]) for section in built["sections"])
    unchecked = tuple(name for name in _UNCHECKED if (folder / name).exists())
    left_out = tuple(f"{part} of run {n}" for n, of in verified.items() for part in of.unchecked)
    measured = () if again is None else tuple(measure_again(evidence, again))
    return VerifiedReport(
        digest.hex(),
        len(evidence.runs),
        left_out,
        statements,
        len(known),
        signed,
        unchecked,
        measured,
    )


def _compare_files(stated: dict[str, str], found: dict[str, str]) -> None:
    for name in sorted(stated.keys() | found.keys()):
        if name not in found:
            raise EvidenceError(f"{FOLDER}/{name}", "is missing")
        if name not in stated:
            raise EvidenceError(f"{FOLDER}/{name}", "was added after the report was written")
        if stated[name] != found[name]:
            raise EvidenceError(f"{FOLDER}/{name}", "was changed after the report was written")


def _check_empty(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_dir() and not any(path.iterdir()):
            where = f"{FOLDER}/{path.relative_to(folder).as_posix()}"
            raise EvidenceError(where, "was added: an empty folder")


def compare_page(path: Path, page: str) -> None:
    """Compare the page byte by byte; name the first line that differs."""
    try:
        found = path.read_bytes()
    except OSError:
        raise EvidenceError(path.name, "is missing or cannot be read") from None
    if found == page.encode():
        return
    pairs = zip(found.split(b"\n"), page.encode().split(b"\n"), strict=False)
    same = sum(1 for _ in itertools.takewhile(lambda lines: lines[0] == lines[1], pairs))
    raise EvidenceError(
        f"{path.name} line {same + 1}", "is not what secagg draws from the numbers beside it"
    )


def differences(stated: Any, again: Any, where: str = "") -> Iterator[str]:
    """Yield where two values differ: statements by their numbers, others by their keys."""
    if isinstance(stated, dict) and isinstance(again, dict):
        name = again.get("id") or again.get("title")
        here = f"statement {name}" if again.get("id") else where
        for key in [*again, *(key for key in stated if key not in again)]:
            if key not in stated or key not in again:
                yield f"{here}, {key}"
            else:
                yield from differences(stated[key], again[key], f"{here}, {key}".strip(", "))
    elif isinstance(stated, list) and isinstance(again, list) and len(stated) == len(again):
        for i, (one, other) in enumerate(zip(stated, again, strict=True), start=1):
            yield from differences(one, other, f"{where} {i}")
    elif stated != again or type(stated) is not type(again):
        yield where
