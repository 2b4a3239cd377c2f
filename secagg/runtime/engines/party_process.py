"""One party in its own process: `python -m secagg.runtime.engines.party_process`.

The process reads name, folder and job from standard input. The party draws its own keys, reads its
own records, keeps its own state, and answers the coordinator over one connection
(`secagg.runtime.engines.channel`). When the coordinator closes the connection or dies, the process
ends, so no process is left over. A process that is started again on the same folder continues where
the last one stopped; the coordinator sees only a slow answer.

The party has a private folder (`secagg.core.private_files`):

=========  ======================================================================================
keys       its signing key and its opening key, drawn at the first start
session    roster and nonce, fixed when a session is first opened: it takes part in no other
state      digest of the last request, the reply, the state after it, and a digest of the records,
           in one file that is written *before* the reply is sent
seconds    processor time for its requests
log.txt    its error texts, and warnings about its records; the coordinator gets only a code
=========  ======================================================================================

Exactly once: if the last answered request comes again, byte for byte, the party sends the same
reply, byte for byte; so a coordinator that was killed can ask again. `Party.handle` decides on any
other request, and refuses a phase that already has its answer. A refusal is not stored as a reply:
after the cause is fixed, the coordinator may ask again. What a refusal changes in the state
(`secagg.runtime.party`) is stored, too.
"""

from __future__ import annotations

import functools
import hashlib
import sys
import time
import traceback
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from secagg.contracts import SiteRecords
from secagg.core import encoding
from secagg.core.identity import Identity, Role, Roster
from secagg.core.private_files import exclusive_lock, read_checked, write_checked
from secagg.core.randomness import system_random
from secagg.errors import DataError, PeerError, SecaggError
from secagg.jobs.data_sources import SiteSource, find_sites
from secagg.jobs.job import Job
from secagg.runtime.engines.channel import Line
from secagg.runtime.engines.launcher import read_seconds
from secagg.runtime.engines.site_results import write_site_result
from secagg.runtime.parties import make_party, read_records
from secagg.runtime.party import Party
from secagg.runtime.planned_job import Planned, plan_sites, session_of

_CONNECT_SECONDS = 10.0
"""Seconds to wait until an earlier process of the same party has ended."""


class PartyProcess:
    """A party and its private folder."""

    def __init__(self, folder: Path, name: str, role: Role, job: Job) -> None:
        self._folder, self._job = folder, job
        self.identity = _load_keys(folder / "keys", name, role)
        self._pinned: list[Any] = []
        self._party: Party | None = None
        self._source: SiteSource | None = None
        self._records = b""
        self._noted = 0
        """number of the guard's remarks that are in the log"""
        self._last: list[Any] = [b"", b"", b"", b""]
        """digest of the last request, reply, state, digest of the records"""
        if (folder / "session").exists():
            self._pinned = read_checked(folder / "session")
            self._party = self._take_part(*self._pinned)
            self._last[2] = self._party.first_state()
        if (folder / "state").exists():
            self._last = read_checked(folder / "state")

    @property
    def session(self) -> bytes | None:
        """The session in which it takes part, once opened."""
        return None if self._party is None else self._party.session

    def answer(self, message: Any) -> list[Any]:
        """Return the answer to one message of the coordinator. Raises `PeerError`."""
        match message:
            case ["open", list(roster), bytes(nonce)] if not self._pinned:
                self._party = self._take_part(roster, nonce)
                self._last[2] = self._party.first_state()
                self._pinned = [roster, nonce]
                write_checked(self._folder / "session", self._pinned)
                return ["opened", self.session]
            case ["open", *again] if again == self._pinned:
                return ["opened", self.session]
            case ["handle", bytes(request)] if self._party is not None:
                digest = hashlib.sha256(request).digest()
                return ["handled", digest, self._reply(self._party, request, digest)]
        raise PeerError("coordinator", "sends an invalid message")

    def _take_part(self, roster_plain: list[Any], nonce: bytes) -> Party:
        """Build the party and compute the session's name, from the party's own copy of the job."""
        roster, me = Roster.from_plain(roster_plain), self.identity.name
        if roster.parties.get(me) != self.identity.public:
            raise PeerError("coordinator", "sends a roster without this party's keys")
        is_site = self.identity.role is Role.SITE
        sources = find_sites(self._job) if is_site else {}
        if is_site and me not in sources:
            raise DataError(me, "its file is missing", "Restore the file.")
        self._source = sources.get(me)
        planned = plan_sites(self._job, roster.with_role(Role.SITE), sources)
        session = session_of(planned, roster, nonce)
        party = make_party(planned, self.identity, roster, session, system_random, system_random)
        if party.site is None:
            return party
        load = functools.partial(self._same_records, planned, sources[me])
        return replace(party, site=replace(party.site, load=load))

    def _same_records(self, planned: Planned, source: SiteSource) -> SiteRecords:
        """Read the records; after a restart they must be the same as in earlier rounds."""
        rows = read_records(planned, source)
        for remark in rows.remarks:
            note(remark)
        self._records = encoding.digest([rows.values, rows.incomplete, rows.outside])
        if self._last[3] not in (b"", self._records):
            what = "its records changed during the run"
            raise DataError(self.identity.name, what, "Restore the file, or start a new run.")
        return rows

    def _reply(self, party: Party, request: bytes, digest: bytes) -> bytes:
        last, reply, state, records = self._last
        if last == digest:
            return bytes(reply)
        began = time.process_time()
        handled = party.handle(request, state)
        seconds = time.process_time() - began + read_seconds(self._folder)
        write_checked(self._folder / "seconds", seconds, sync=False)
        guard = None if party.site is None else party.site.guard
        while guard is not None and len(guard.remarks) > self._noted:
            note(guard.remarks[self._noted])
            self._noted += 1
        if handled.error is not None:
            note(handled.error.line())
            if handled.error.__cause__ is not None:
                traceback.print_exception(handled.error.__cause__)
        if handled.error is None:
            last, reply, records = digest, handled.reply, self._records or records
        new = [last, reply, handled.state, records]
        if handled.site_result is not None and self._source is not None:
            failure = write_site_result(self._source, party.session, self._job, handled.site_result)
            if failure is not None:
                note(failure)
        if new != self._last:
            write_checked(self._folder / "state", new)
            self._last = new
        return handled.reply


def _load_keys(path: Path, name: str, role: Role) -> Identity:
    if not path.exists():
        identity = Identity.generate(name, role, system_random)
        write_checked(path, [identity.signing_key, identity.opening_key])
    signing, opening = read_checked(path)
    return Identity(name, role, signing, opening)


def note(text: str) -> None:
    """Write a line to standard error, which is the party's log."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    sys.stderr.write(f"{now} {text}\n")
    sys.stderr.flush()


def main() -> None:
    """Take part until the coordinator closes the connection."""
    setup = encoding.loads(sys.stdin.buffer.read())
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
