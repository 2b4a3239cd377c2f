"""Signatures of a report, an audit or an experiment: Ed25519 over name, role and a SHA-256.

A party signs report.json, audit.json or summary.json with its own keys.

report.json has the digests of all evidence and of report.pdf, so a signature covers all of it; the
page is compared with report.json. A signature on a report does not say that the signer agrees with
it, only that this party saw exactly this report. A signature on an audit or an experiment says that
the signer stands for its numbers, if a run's roster has the key; nothing else shows where they are
from.

Guarantees: nobody without the private key can make a signature that `verify` accepts for another
file, or for a key that a run's roster lists.

Not protected: a name or a role beside a key that no roster lists; `verify` says so. Nor does a
roster prove whose keys it lists: a person who makes a whole new run with new keys can sign with
them. Compare keys over a second channel. A signed number can still be wrong.
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
from secagg.evidence.run_folder import RunFolder

FOLDER = "signatures"


@dataclass(frozen=True)
class Signed:
    """One valid signature. known: whether a run's roster has this key under this name"""

    name: str
    key: str
    known: bool


def sign_report(report: Path, digest: bytes, identity: Identity) -> Path:
    """Sign with a party's keys; return the file. Raises `UsageError`.

    report: the folder of a report, an audit or an experiment
    digest: of the file that was verified, so that a file changed since then is not signed
    """
    who = (identity.name, identity.role.value, identity.public.verify_key.hex())
    check_name("name", identity.name)  # it becomes a file's
    path = report / FOLDER / f"{identity.name}.json"
    path.parent.mkdir(mode=0o700, exist_ok=True)
    write_private(path, _content(who, digest, identity.sign_report(digest)))
    return path


def _content(who: tuple[str, str, str], digest: bytes, signature: bytes) -> bytes:
    """Return the content of a signature's file. who: name, role and key"""
    name, role, key = who
    content = {
        "name": name, "role": role, "key": key, "report": digest.hex(),
        "signature": signature.hex(),
    }  # fmt: skip
    return json.dumps(content, indent=1).encode() + b"\n"


def digest_of(report: Path) -> bytes:
    """Return the SHA-256 of report.json. Raises `UsageError`."""
    try:
        return hashlib.sha256((report / "report.json").read_bytes()).digest()
    except OSError:
        raise UsageError(str(report), "is not the folder of a report") from None


def read_signatures(
    folder: Path, where: str, digest: bytes, runs: Sequence[RunFolder]
) -> tuple[Signed, ...]:
    """Return the signatures in a folder. Raises `EvidenceError` for one that is not valid.

    where: the folder's name in errors; digest: of what was signed
    """
    found = list[Signed]()
    if not folder.exists():
        return ()
    if not folder.is_dir():
        raise EvidenceError(where, "is not a folder")
    keys = ("name", "role", "key")
    rosters = [party for run in runs for party in run.facts["roster"]]
    known = {(party["name"], party["role"], party["verify_key"]) for party in rosters}
    for path in sorted(folder.iterdir()):
        place = f"{where}/{ascii(path.name)[1:-1]}"
        try:
            written = path.read_bytes()
            content = json.loads(written)
            name, role, key = who = tuple(str(content[key]) for key in keys)
            signature = bytes.fromhex(content["signature"])
            signed = (bytes.fromhex(key), name, role, digest, signature)
            check_name("name", name)  # it is printed
        except (OSError, ValueError, LookupError, TypeError, RecursionError, UsageError):
            raise EvidenceError(place, "is malformed") from None
        # Only these bytes are a signature: nothing can be added beside it.
        whole = _content((name, role, signed[0].hex()), digest, signature)
        if (path.name, written) != (f"{name}.json", whole) or not is_report_signature(*signed):
            raise EvidenceError(place, "is not a signature of this file")
        found.append(Signed(name, key, who in known))
    return tuple(found)
