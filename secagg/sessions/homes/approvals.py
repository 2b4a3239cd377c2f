"""Which jobs a site takes part in: those that its officer approved, or that its policy allows.

A job's digest is the SHA-256 of what the parties agree on (`secagg.jobs.job.Job.agreed`), in
canonical JSON. The session's name is a digest of the same content, and every signature covers it.
So only the job that was approved runs: another bound, level, rule or site gives another digest.

Who may ask: only the coordinator whose key is pinned (`secagg.sessions.engines.site_node`). A job
that is not approved is kept in `waiting/`. At most `MAX_WAITING` jobs are kept, each of at most
`MAX_WAITING_BYTES`, so a coordinator cannot fill the disk.

Not protected: an officer who approves without reading. An approval has no end. The ledger and the
limits in the policy bound what repeated runs of one job can reveal.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from secagg.core.hash_chain_log import canonical_json
from secagg.core.printable import is_printable
from secagg.core.private_files import write_private
from secagg.errors import JobError, PolicyRefusal, UsageError
from secagg.jobs.job import Job, parse_job
from secagg.sessions.homes.home import Home

MAX_WAITING = 100
MAX_WAITING_BYTES = 1 << 20
MIN_DIGITS = 8
"""Of a digest that names a job on the command line."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


def approval_digest(job: Job) -> str:
    """Return the digest under which a job is approved, in hexadecimal."""
    return hashlib.sha256(canonical_json(job.agreed)).hexdigest()


class Approval(StrEnum):
    """How a job stands at a home."""

    APPROVED = "approved"
    WAITS = "waits"
    NEW = "new"
    """It was neither approved nor has it asked."""
    BY_POLICY = "by policy"
    """Jobs need no approval here: those that policy.toml allows are taken."""


@dataclass(frozen=True)
class Asked:
    """A job that asked this party, with its digest."""

    digest: str
    job: Job
    approved: bool


def check_approved(home: Home, job: Job) -> None:
    """Raise `PolicyRefusal` unless this party takes part in the job; it is then in `waiting/`."""
    if home.settings.approve == "policy":
        if not (home.folder / "policy.toml").exists():
            advice = "Write one, or set approve = 'each'."
            raise PolicyRefusal(home.name, "approves by its policy, but has no policy.toml", advice)
        return
    digest = approval_digest(job)
    if (home.folder / "approved" / f"{digest}.json").exists():
        return
    waiting, text = home.folder / "waiting", _text(job)
    path = waiting / f"{digest}.json"
    if len(text) > MAX_WAITING_BYTES:
        what = f"job {digest[:MIN_DIGITS]} is not approved, and is too long to wait for it"
        raise PolicyRefusal(home.name, what)
    if path.exists() or sum(1 for _ in waiting.iterdir()) < MAX_WAITING:
        write_private(path, text)
    advice = f"Read it: secagg site show {digest[:MIN_DIGITS]}. Then approve or refuse it."
    raise PolicyRefusal(home.name, f"job {digest[:MIN_DIGITS]} is not approved", advice)


def approval_of(home: Home, job: Job) -> Approval:
    """Return how a job stands at this home."""
    if home.settings.approve == "policy":
        return Approval.BY_POLICY
    name = f"{approval_digest(job)}.json"
    if (home.folder / "approved" / name).exists():
        return Approval.APPROVED
    return Approval.WAITS if (home.folder / "waiting" / name).exists() else Approval.NEW


def jobs_of(home: Home) -> list[Asked]:
    """Return all jobs that wait or are approved, by digest. Raises `UsageError`."""
    return [
        Asked(path.stem, _read(path), folder == "approved")
        for folder in ("waiting", "approved")
        for path in sorted((home.folder / folder).glob("*.json"))
        if _DIGEST.fullmatch(path.stem)
    ]


def find_job(home: Home, digits: str) -> Asked:
    """Return the job whose digest begins with these digits. Raises `UsageError`."""
    digits = digits.lower()
    matches = [asked for asked in jobs_of(home) if asked.digest.startswith(digits)]
    if len(digits) < MIN_DIGITS or len(matches) != 1:
        what = f"names {len(matches)} jobs" if len(digits) >= MIN_DIGITS else "is too short"
        raise UsageError(digits, what, "secagg site jobs lists them.")
    return matches[0]


def approve(home: Home, job: Job) -> str:
    """Approve a job, and return its digest. Raises `JobError` if it has texts that can hide."""
    if not is_printable(job.agreed):
        what = "has characters that cannot be printed, so no party takes part in it"
        raise JobError("job", what, "Remove them from its texts.")
    digest = approval_digest(job)
    write_private(home.folder / "approved" / f"{digest}.json", _text(job))
    (home.folder / "waiting" / f"{digest}.json").unlink(missing_ok=True)
    return digest


def refuse(home: Home, digits: str) -> str:
    """Remove a job that waits, and return its digest. Raises `UsageError` for an approved one."""
    asked = find_job(home, digits)
    if asked.approved:
        advice = f"To take the approval back: secagg site revoke {digits}."
        raise UsageError(digits, "is approved and does not wait", advice)
    (home.folder / "waiting" / f"{asked.digest}.json").unlink(missing_ok=True)
    return asked.digest


def revoke(home: Home, digits: str) -> str:
    """Take an approval back, and return the job's digest. Raises `UsageError` if it waits.

    A session that has begun may end; no later one takes part.
    """
    asked = find_job(home, digits)
    if not asked.approved:
        advice = f"To remove it: secagg site refuse {digits}."
        raise UsageError(digits, "is not approved, but waits", advice)
    (home.folder / "approved" / f"{asked.digest}.json").unlink(missing_ok=True)
    return asked.digest


def _text(job: Job) -> bytes:
    return (json.dumps(job.agreed, indent=1, ensure_ascii=False) + "\n").encode()


def _read(path: Path) -> Job:
    """Return the job in a file. Raises `UsageError` if its digest is another one."""
    try:
        job = parse_job(json.loads(path.read_bytes()), str(path))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(str(path), f"cannot be read ({error})") from None
    if approval_digest(job) != path.stem:
        raise JobError(str(path), "was changed: its digest is another one", "Delete the file.")
    return job
