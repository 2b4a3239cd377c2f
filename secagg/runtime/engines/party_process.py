"""One party in a process of its own: `python -m secagg.runtime.engines.party_process`, told who it
is on standard input.

It draws its own keys, reads its own records, keeps its own state, and answers the coordinator over
one line (`secagg.runtime.engines.channel`). The line is its life: when the coordinator hangs up or
dies, the party ends, and nothing is left running. Started again on the same folder it goes on where
it stood, which the coordinator cannot tell from a slow answer.

What it keeps, in a private folder (`secagg.core.private_files`):

=========  ======================================================================================
keys       its signing and its opening key, drawn at the first start
session    roster and nonce, pinned at the first opening: it takes part in no other session
state      digest of the last request, the reply to it, the state after it, and a digest of the
           records, in one file, written *before* the reply leaves
seconds    processor time spent on requests
log.txt    its own words on what went wrong, or looks wrong in its records; only a code crosses
           the line
=========  ======================================================================================

Exactly once: the request that was answered last, byte for byte, gets the same reply, byte for byte,
so that a coordinator which was killed may ask again. Any other request is `Party.handle`'s to
judge, which refuses a phase that has had its answer. A refusal is no answer, and is not kept:
whoever mends the cause may be asked again. What it does leave behind (`secagg.runtime.party`) is
kept too.
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
from secagg.runtime.parties import make_party, read_records
from secagg.runtime.party import Party
from secagg.runtime.planned_job import Planned, plan_sites, session_of
from secagg.runtime.site_results import keep_own

_CONNECT_SECONDS = 10.0
"""Seconds to wait for an earlier process of the same party to end."""


class PartyProcess:
    """A party with its private folder."""

    def __init__(self, folder: Path, name: str, role: Role, job: Job) -> None:
        self._folder, self._job = folder, job
        self.identity = _own_keys(folder / "keys", name, role)
        self._pinned: list[Any] = []
        self._party: Party | None = None
        self._source: SiteSource | None = None
        self._records = b""
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
        """The session it takes part in, once it has been opened."""
        return None if self._party is None else self._party.session

    def answer(self, message: Any) -> list[Any]:
        """Return what to answer to one message of the coordinator. Raises `PeerError`."""
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
        raise PeerError("coordinator", "says what makes no sense here")

    def _take_part(self, roster_plain: list[Any], nonce: bytes) -> Party:
        """Build the party from its own copy of the job, so that the session's name is its own."""
        roster, me = Roster.from_plain(roster_plain), self.identity.name
        if roster.parties.get(me) != self.identity.public:
            raise PeerError("coordinator", "shows a roster without this party's keys")
        is_site = self.identity.role is Role.SITE
        sources = find_sites(self._job) if is_site else {}
        if is_site and me not in sources:
            raise DataError(me, "its file is gone", "Put it back.")
        self._source = sources.get(me)
        planned = plan_sites(self._job, roster.with_role(Role.SITE), sources)
        session = session_of(planned, roster, nonce)
        party = make_party(planned, self.identity, roster, session, system_random, system_random)
        if party.site is None:
            return party
        load = functools.partial(self._same_records, planned, sources[me])
        return replace(party, site=replace(party.site, load=load))

    def _same_records(self, planned: Planned, source: SiteSource) -> SiteRecords:
        """Read the records; after a restart they have to be those that earlier rounds used."""
        rows = read_records(planned, source)
        for remark in rows.remarks:
            note(remark)
        self._records = encoding.digest([rows.values, rows.incomplete, rows.outside])
        if self._last[3] not in (b"", self._records):
            raise DataError(
                self.identity.name, "its records changed during the run", "Put the file back."
            )
        return rows

    def _reply(self, party: Party, request: bytes, digest: bytes) -> bytes:
        last, reply, state, records = self._last
        if last == digest:
            return bytes(reply)
        began = time.process_time()
        handled = party.handle(request, state)
        self._spend(time.process_time() - began)
        if handled.error is not None:
            note(handled.error.line())
            if handled.error.__cause__ is not None:
                traceback.print_exception(handled.error.__cause__)
        if handled.error is None:
            last, reply, records = digest, handled.reply, self._records or records
        kept = [last, reply, handled.state, records]
        if handled.own is not None and self._source is not None:
            complaint = keep_own(self._source, party.session, self._job, handled.own)
            if complaint is not None:
                note(complaint)
        if kept != self._last:
            write_checked(self._folder / "state", kept)
            self._last = kept
        return handled.reply

    def _spend(self, seconds: float) -> None:
        spent = seconds + read_seconds(self._folder)
        write_checked(self._folder / "seconds", spent, sync=False)


def _own_keys(path: Path, name: str, role: Role) -> Identity:
    if not path.exists():
        drawn = Identity.generate(name, role, system_random)
        write_checked(path, [drawn.signing_key, drawn.opening_key])
    signing, opening = read_checked(path)
    return Identity(name, role, signing, opening)


def note(words: str) -> None:
    """Write a line to the party's own log, which standard error is."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    sys.stderr.write(f"{now} {words}\n")
    sys.stderr.flush()


def main() -> None:
    """Take part until the coordinator hangs up."""
    told = encoding.loads(sys.stdin.buffer.read())
    folder, name, role = Path(told["folder"]), told["name"], Role(told["role"])
    try:
        with exclusive_lock(folder / "lock", _CONNECT_SECONDS):
            process = PartyProcess(folder, name, role, Job.model_validate_json(told["job"]))
            public = process.identity.public
            with Line.calling(told["port"], name, told["token"], system_random) as line:
                line.send(["hello", public.verify_key, public.seal_key, process.session])
                note("takes part")
                while True:
                    line.send(process.answer(line.receive()))
    except (EOFError, ConnectionError):
        note("the coordinator hung up")
    except SecaggError as error:
        note(error.line())
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
