"""Signatures of a report: Ed25519 over the SHA-256 of report.json, with a party's own keys.

report.json has the digests of all evidence, so a signature covers all of it; the page is compared
with report.json. It does not say that the signer agrees with the report, only that this party saw
exactly this report.

Guarantees: nobody without the private key can make a signature that `verify` accepts for another
report, or for a key that a run's roster lists.

Not protected: a name beside a key that no roster lists; `verify` says so. Compare such keys over a
second channel.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from secagg.core.identity import Identity, is_report_signature
from secagg.core.private_files import write_private
from secagg.core.roster_file import check_name
from secagg.errors import EvidenceError, UsageError
from secagg.runs.run_reader import RunFolder

FOLDER = "signatures"


@dataclass(frozen=True)
class Signed:
    """One valid signature. known: whether a run's roster has this key under this name"""

    name: str
    key: str
    known: bool


def sign_report(report: Path, identity: Identity) -> Path:
    """Sign a report with a party's keys; return the file. Raises `UsageError`."""
    digest = digest_of(report)
    content = {
        "name": identity.name,
        "role": identity.role.value,
        "key": identity.public.verify_key.hex(),
        "report": digest.hex(),
        "signature": identity.sign_report(digest).hex(),
    }
    check_name("name", identity.name)  # it becomes a file's
    path = report / FOLDER / f"{identity.name}.json"
    path.parent.mkdir(exist_ok=True)
    write_private(path, json.dumps(content, indent=1).encode() + b"\n")
    return path


def digest_of(report: Path) -> bytes:
    """Return the SHA-256 of report.json. Raises `UsageError`."""
    try:
        return hashlib.sha256((report / "report.json").read_bytes()).digest()
    except OSError:
        raise UsageError(str(report), "is not the folder of a report") from None


def read_signatures(report: Path, runs: Sequence[RunFolder]) -> tuple[Signed, ...]:
    """Return the signatures of a report. Raises `EvidenceError` for one that is not valid."""
    folder, found = report / FOLDER, list[Signed]()
    if not folder.is_dir():
        return ()
    known = {(p["name"], p["verify_key"]) for run in runs for p in run.facts["roster"]}
    for path in sorted(folder.iterdir()):
        where = f"{FOLDER}/{path.name}"
        try:
            content = json.loads(path.read_bytes())
            name, key = str(content["name"]), str(content["key"])
            parts = (bytes.fromhex(key), digest_of(report), bytes.fromhex(content["signature"]))
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            raise EvidenceError(where, "is malformed") from None
        if path.name != f"{name}.json" or not is_report_signature(*parts):
            raise EvidenceError(where, "is not a signature of this report")
        found.append(Signed(name, key, (name, key) in known))
    return tuple(found)
