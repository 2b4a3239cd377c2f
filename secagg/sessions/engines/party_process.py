"""One party in its own process: `python -m secagg.sessions.engines.party_process`.

The process reads name, folder and job from standard input. The party draws its own keys, reads its
own records, keeps its own state, and answers the coordinator over one connection
(`secagg.sessions.engines.channel`). When the coordinator closes the connection or dies, the process
ends, so no process is left over. A process that is started again on the same folder continues where
the last one stopped; the coordinator sees only a slow answer.

The party has a private folder: that of `secagg.sessions.engines.crash_safe_party`, and

=========  ======================================================================================
keys       its signing key and its opening key, drawn at the first start
log.txt    its error texts, and warnings about its records; the coordinator gets only a code
=========  ======================================================================================
"""

from __future__ import annotations

import hashlib
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from secagg.core import canonical_encoding
from secagg.core.identity import Identity, Role, Roster
from secagg.core.printable import printable_lines
from secagg.core.private_files import exclusive_lock, read_checked, write_checked
from secagg.core.randomness import system_random
from secagg.errors import DataError, PeerError, SecaggError
from secagg.jobs.data_sources import SiteSource, find_sites
from secagg.jobs.job import Job
from secagg.sessions.engines.channel import Line
from secagg.sessions.engines.crash_safe_party import CrashSafeParty
from secagg.sessions.planned_job import Planned, plan_sites

_CONNECT_SECONDS = 10.0
"""Seconds to wait until an earlier process of the same party has ended."""


class PartyProcess(CrashSafeParty):
    """A party that reads the job's folder, as its user gave it, and draws its own keys."""

    def __init__(self, folder: Path, name: str, role: Role, job: Job) -> None:
        super().__init__(folder, _load_keys(folder / "keys", name, role), note)
        self._job = job
        self.restore()

    def plan(self, roster: Roster) -> tuple[Planned, SiteSource | None]:
        """Return the plan of the job for the sites in the roster."""
        me, sources = self.identity.name, {}
        if self.identity.role is Role.SITE:
            sources = find_sites(self._job)
            if me not in sources:
                raise DataError(me, "its file is missing", "Restore the file.")
        planned = plan_sites(self._job, roster.with_role(Role.SITE), sources)
        return planned, sources.get(me)

    def answer(self, message: Any) -> list[Any]:
        """Return the answer to one message of the coordinator. Raises `PeerError`."""
        match message:
            case ["open", list(roster), bytes(nonce)]:
                return ["opened", self.open(roster, nonce)]
            case ["handle", bytes(request)]:
                return ["handled", hashlib.sha256(request).digest(), self.handle(request)]
        raise PeerError("coordinator", "sends an invalid message")


def _load_keys(path: Path, name: str, role: Role) -> Identity:
    if not path.exists():
        identity = Identity.generate(name, role, system_random)
        write_checked(path, [identity.signing_key, identity.opening_key])
    signing, opening = read_checked(path)
    return Identity(name, role, signing, opening)


def note(text: str) -> None:
    """Write a line to standard error, which is the party's log."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    sys.stderr.write(f"{now} {printable_lines(text)}\n")
    sys.stderr.flush()


def main() -> None:
    """Take part until the coordinator closes the connection."""
    setup = canonical_encoding.loads(sys.stdin.buffer.read())
    folder, name, role = Path(setup["folder"]), setup["name"], Role(setup["role"])
    try:
        with exclusive_lock(folder / "lock", _CONNECT_SECONDS):
            process = PartyProcess(folder, name, role, Job.model_validate_json(setup["job"]))
            public = process.identity.public
            with Line.calling(setup["port"], name, setup["token"], system_random) as line:
                line.send(["hello", public.verify_key, public.seal_key, process.session])
                note("connected to the coordinator")
                while True:
                    line.send(process.answer(line.receive()))
    except (EOFError, ConnectionError):
        note("the coordinator closed the connection")
    except SecaggError as error:
        note(error.line())
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
