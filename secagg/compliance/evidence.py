"""The evidence of a report: copies in its folder, which everything is computed from.

evidence/runs/SESSION/     a run's folder, without its transcript
evidence/audits/N.json     an audit (`secagg audit --out`)
evidence/experiments/N.json  the summary of an experiment (`secagg experiment`)
evidence/signatures/       of audits and experiments, in audits-N and experiments-N
evidence/ledgers.json      the releases in ledgers (`secagg budget history`), without record counts
evidence/form.toml         the officer's form
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from secagg.audits.audit_file import read_audit
from secagg.compliance.form import Form, read_form
from secagg.compliance.signatures import Signed, read_signatures
from secagg.compliance.statements import Evidence, Statement, Status
from secagg.core.private_files import write_private
from secagg.errors import EvidenceError, UsageError
from secagg.evidence.claims.claim import Claim
from secagg.evidence.claims.counts import records_of
from secagg.evidence.claims.privacy import PrivacyClaims
from secagg.evidence.integrity import verify_folder
from secagg.evidence.numbers import listing
from secagg.evidence.run_files import file_digest, json_bytes
from secagg.evidence.run_folder import MALFORMED_ERRORS, RunFolder
from secagg.experiments.summary import SCHEMA, check_summary
from secagg.runs.ledger_history import history

FOLDER = "evidence"
_TRANSCRIPT = "transcript"
_OF_RELEASES = ("party", "stage", "placement", "cohort", "cost", "delta", "adjacency", "unit")
"""What is copied of a ledger's entry. Not its question, which has the site's number of records."""
MOST_BYTES = 1 << 28
"""Of an audit, an experiment or ledgers: others write these files."""
Plain = Mapping[str, Any]


@dataclass(frozen=True)
class RunEvidence:
    """A run: its facts, its result, and what it may claim."""

    name: str
    folder: RunFolder

    @property
    def facts(self) -> Plain:
        """The content of run.json, and what the log has of releases."""
        return self.folder.run_facts

    @property
    def summary(self) -> Plain:
        """The content of result.json."""
        return self.folder.result.summary

    @property
    def claims(self) -> PrivacyClaims:
        """What the run may claim about privacy."""
        return self.folder.claims

    @property
    def records(self) -> int:
        """The number of complete records of all sites; with noise, the best estimate."""
        return records_of(self.summary)[0] if self.claims.noised else int(self.summary["records"])

    def at(self, where: str, file: str = "run.json") -> Evidence:
        """Return a place in a file of the run."""
        return Evidence(f"runs/{self.name}/{file}", where)

    def state(self, claim: Claim) -> Statement:
        """Return a claim of the run as a statement of the report."""
        return self.says(claim.topic.lower(), claim.text, claim.status, claim.where)

    def says(self, topic: str, text: str, status: Status, *places: str | Evidence) -> Statement:
        """Return a statement about the run. places: keys of run.json, or places in other files"""
        evidence = (self.at(place) if isinstance(place, str) else place for place in places)
        return Statement(topic, text, status, tuple(evidence), self.name)

    def line(self, event: str) -> Evidence:
        """Return the first line of the log with this event; the whole log if it has none."""
        seqs = [e["seq"] for e in self.folder.events if e["event"] == event]
        return self.at(f"line {seqs[0] + 1}" if seqs else "", "log.jsonl")


def in_order(run: RunEvidence) -> tuple[str, str]:
    """Return the key by which runs are sorted: oldest first."""
    return str(run.facts["started"]), run.name


@dataclass(frozen=True)
class AllEvidence:
    """Everything that a report is computed from.

    ledgers: None if none was given; signed: by whom an audit or an experiment is signed
    """

    folder: Path
    runs: tuple[RunEvidence, ...]
    audits: Mapping[str, Plain]
    experiments: Mapping[str, Plain]
    ledgers: Sequence[Plain] | None
    form: Form
    signed: Mapping[str, tuple[Signed, ...]] = field(default_factory=dict)

    @classmethod
    def read(cls, report: Path) -> AllEvidence:
        """Read the evidence in a report's folder. Raises `EvidenceError`, `UsageError`."""
        folder = report / FOLDER
        places = sorted((folder / "runs").iterdir()) if (folder / "runs").is_dir() else []
        if not places:
            raise EvidenceError(str(folder / "runs"), "has no run")
        runs = [RunEvidence(place.name, RunFolder.open_finished(place)) for place in places]
        runs.sort(key=in_order)
        ledgers = folder / "ledgers.json"
        audits = {
            name: read_audit(content, f"{FOLDER}/audits/{name}")
            for name, content in _json_files(folder / "audits").items()
        }
        experiments = _json_files(folder / "experiments")
        for name, content in experiments.items():
            with well_formed(f"experiments/{name}"):
                check_summary(content, f"{FOLDER}/experiments/{name}")
        signed = {
            f"{kind}/{name}": _signatures(folder, kind, name, [run.folder for run in runs])
            for kind, files in (("audits", audits), ("experiments", experiments))
            for name in files
        }
        form = read_form(folder / "form.toml")
        kept = read_json(ledgers) if ledgers.exists() else None
        return cls(folder, tuple(runs), audits, experiments, kept, form, signed)

    def stated_by(self, file: str) -> tuple[str, Status]:
        """Return who stands for an audit or an experiment, and the status that this gives it."""
        signed = self.signed.get(file, ())
        known = [each for each in signed if each.known]
        names = [f"{each.name} (key {each.key[:16]})" for each in known or signed]
        if known:
            return f"Signed by {listing(names)}, as in the roster of a run.", Status.ATTACHED
        who = self.form.trust.tested.rstrip(".") or "a person whom the form does not name"
        others = f"Signed as {listing(names)}, in no roster." if names else "Not signed."
        return f"Stated by {who}. {others}", Status.STATED


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file of evidence, by its path below the folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): file_digest(path) for path in files}


def gather(
    report: Path,
    runs: Iterable[Path],
    audits: Iterable[Path] = (),
    experiments: Iterable[Path] = (),
    ledgers: Path | None = None,
    form: Path | None = None,
) -> None:
    """Copy the evidence into a new report's folder. Raises `UsageError`."""
    folder = report / FOLDER
    folder.mkdir(parents=True)
    if form is not None:
        read_form(form)  # readable
    for place in runs:
        run = RunFolder.open_finished(place)
        verify_folder(run, recompute=False)  # no other files, and the session is a digest
        target = folder / "runs" / run.session[:16]
        if target.exists():
            raise UsageError(str(place), "is the same run as another one")
        shutil.copytree(place, target, ignore=shutil.ignore_patterns(_TRANSCRIPT))
    for name, places, file in (
        ("audits", audits, "audit.json"), ("experiments", experiments, "summary.json"),
    ):  # fmt: skip
        for i, place in enumerate(places, start=1):
            path = place / file if place.is_dir() else place
            content = read_json(path, UsageError)  # readable
            if name == "experiments":
                _check_version(path, content)
            (folder / name).mkdir(exist_ok=True)
            shutil.copyfile(path, folder / name / f"{i}.json")
            if (signatures := path.parent / "signatures").is_dir():
                target = folder / "signatures" / f"{name}-{i}"
                target.mkdir(parents=True)
                for each in signatures.glob("*.json"):
                    shutil.copyfile(each, target / each.name)
    if ledgers is not None:
        rows = [
            {**row, "content": {k: v for k, v in row["content"].items() if k in _OF_RELEASES}}
            for row in history(ledgers)
            if row["kind"] in ("entry", "use", "cohort")
        ]
        write_private(folder / "ledgers.json", json_bytes(rows))  # an infinite epsilon is null
    write_private(folder / "form.toml", b"" if form is None else form.read_bytes())


def _signatures(
    folder: Path, kind: str, name: str, runs: Sequence[RunFolder]
) -> tuple[Signed, ...]:
    place = f"signatures/{kind}-{name.removesuffix('.json')}"
    digest = bytes.fromhex(file_digest(folder / kind / name))
    return read_signatures(folder / place, f"{FOLDER}/{place}", digest, runs)


def _check_version(path: Path, summary: Any) -> None:
    version = summary.get("schema") if isinstance(summary, dict) else None
    if version != SCHEMA and isinstance(version, int):
        what = f"has schema {version}, and this version of secagg reads {SCHEMA}"
        raise UsageError(str(path), what, "Run `secagg experiment` again: its results are kept.")


@contextmanager
def well_formed(file: str) -> Iterator[None]:
    """Turn the errors of malformed content into an `EvidenceError` that names the file."""
    try:
        yield
    except (*MALFORMED_ERRORS, OverflowError) as error:
        raise EvidenceError(f"{FOLDER}/{file}".rstrip("/"), "is malformed") from error


def _json_files(folder: Path) -> dict[str, Plain]:
    if not folder.is_dir():
        return {}
    return {path.name: read_json(path) for path in sorted(folder.iterdir())}


def read_json(path: Path, kind: type[EvidenceError] | type[UsageError] = EvidenceError) -> Any:
    """Return the content of a file of others. Raises an error of this kind."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise kind(str(path), f"has more than {MOST_BYTES >> 20} MiB")
        if not path.is_file():
            raise kind(str(path), "is not a file")
        found = json.loads(path.read_bytes())
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()  # also no half characters
        return found
    except OSError as error:
        raise kind(str(path), f"cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise kind(str(path), "is not JSON") from None
