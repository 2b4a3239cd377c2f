"""One party with its state in a private folder, so that it survives the death of its process.

=========  ======================================================================================
session    roster and nonce, fixed when a session is first opened: the party takes part in no
           other session
state      digest of the last request, the reply, the state after it, a digest of the records, and
           the party's progress (`secagg.sessions.engines.progress`), in one file that is written
           *before* the reply is sent. `state` is written before `session`: a folder with `session`
           but no `state` is damaged
seconds    processor time for its requests
=========  ======================================================================================

Exactly once: if the last answered request comes again, byte for byte, the party sends the same
reply, byte for byte. So a coordinator that was killed can ask again. `Party.handle` decides on any
other request. It refuses a phase that already has its answer. A refusal is not stored as a reply:
after the cause is fixed, the coordinator may ask again. What a refusal changes in the state
(`secagg.sessions.party`) is stored, too.

Not protected: the state, against a person who can read the folder. The state holds private keys of
the protocol. A folder that is restored from an old copy is noticed only if a witness
(`secagg.sessions.engines.progress`) is kept elsewhere, as in a home. With engine "processes" there
is no witness, because one user has the folders of all parties.
"""

from __future__ import annotations

import functools
import hashlib
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

from secagg.contracts import SiteRecords
from secagg.core import canonical_encoding
from secagg.core.identity import Identity, Roster
from secagg.core.private_files import RESTART_ADVICE, read_checked, write_checked
from secagg.core.randomness import system_random
from secagg.errors import DataError, EvidenceError, PeerError
from secagg.jobs.data_sources import SiteSource
from secagg.sessions.engines.progress import Progress, check_witness
from secagg.sessions.engines.site_results import with_noise, write_site_result
from secagg.sessions.parties import make_party, read_records
from secagg.sessions.party import Party
from secagg.sessions.planned_job import Planned, roster_fault, session_of


@dataclass(frozen=True)
class LastStep:
    """What a party keeps of its last step, so that the same request gets the same reply.

    request: digest of the request; reply: to it; state: the party's state after it
    records: digest of the site's records, b"" until they are first read
    """

    request: bytes = b""
    reply: bytes = b""
    state: bytes = b""
    records: bytes = b""


class CrashSafeParty(ABC):
    """A party and its private folder, which only this object reads or writes.

    note: writes a text to the party's own log
    witness: the file with a second copy of the party's progress; None if there is none
    """

    def __init__(
        self, folder: Path, identity: Identity, note: Callable[[str], None],
        witness: Path | None = None,
    ) -> None:  # fmt: skip
        self.identity = identity
        self._folder, self._note, self._witness = folder, note, witness
        self._progress = Progress()
        self._pinned: list[Any] = []
        self._party: Party | None = None
        self._planned: Planned | None = None
        self._source: SiteSource | None = None
        self._records = b""
        self._noted = 0
        """number of the guard's remarks that are in the log"""
        self._last = LastStep()

    @abstractmethod
    def plan(self, roster: Roster) -> tuple[Planned, SiteSource | None]:
        """Return the job, planned from this party's own copy of it, and a site's own records.

        Raises `PeerError` if the roster must not be used.
        """

    @property
    def session(self) -> bytes | None:
        """The session in which the party takes part, once opened."""
        return None if self._party is None else self._party.session

    def restore(self) -> None:
        """Continue where an earlier object with the same folder stopped. Raises `EvidenceError`."""
        began, kept = ((self._folder / name).exists() for name in ("session", "state"))
        if began or kept:
            *last, progress = read_checked(self._folder / "state")
            self._last, self._progress = LastStep(*last), Progress(*progress)
        if not began and self._progress.steps:
            raise EvidenceError(str(self._folder / "session"), "is missing", RESTART_ADVICE)
        check_witness(self._folder, self._progress if began else None, self._witness)
        if began:
            self._pinned = read_checked(self._folder / "session")
            self._party = self._take_part(*self._pinned)

    def open(self, roster: list[Any], nonce: bytes, expected: bytes | None = None) -> bytes:
        """Take part in a session, and return its name. Raises `PeerError` for a second session.

        expected: the name that it must have, if that is known before
        """
        if not self._pinned:
            party = self._take_part(roster, nonce)
            if expected not in (None, party.session):
                raise PeerError("coordinator", "names another session than this party's own plan")
            self._party = party
            self._last = replace(self._last, state=party.first_state())
            self._pinned = [roster, nonce]
            self._write_state(self._last, self._progress)
            write_checked(self._folder / "session", self._pinned)
        elif self._pinned != [roster, nonce]:
            raise PeerError("coordinator", "opens a second session")
        assert self._party is not None
        return self._party.session

    def handle(self, request: bytes) -> bytes:
        """Return the reply to a frame. Raises `PeerError` before a session was opened."""
        party = self._party
        if party is None:
            raise PeerError("coordinator", "sends a request before it opens a session")
        digest = hashlib.sha256(request).digest()
        if digest == self._last.request:
            return self._last.reply
        began = time.process_time()
        handled = party.handle(request, self._last.state)
        seconds = time.process_time() - began + read_seconds(self._folder)
        write_checked(self._folder / "seconds", seconds, sync=False)
        guard = None if party.site is None else party.site.guard
        while guard is not None and len(guard.remarks) > self._noted:
            self._note(guard.remarks[self._noted])
            self._noted += 1
        if handled.error is not None:
            self._note(handled.error.line())
            if handled.error.__cause__ is not None:
                self._note("".join(traceback.format_exception(handled.error.__cause__)))
        step = replace(self._last, state=handled.state)
        if handled.error is None:
            records = self._records or self._last.records
            step = LastStep(digest, handled.reply, handled.state, records)
        if handled.site_result is not None and self._source is not None:
            assert self._planned is not None
            own = with_noise(handled.site_result, self._planned)
            failure = write_site_result(self._source, party.session, self._planned.job, own)
            if failure is not None:
                self._note(failure)
        if step != self._last:
            progress = self._progress.after(list(astuple(step)))
            self._write_state(step, progress)
            if self._witness is not None:
                write_checked(self._witness, progress.to_plain())
            # Only now: after a failed write, the same request must not get this reply.
            self._last, self._progress = step, progress
        return handled.reply

    def _write_state(self, last: LastStep, progress: Progress) -> None:
        write_checked(self._folder / "state", [*astuple(last), progress.to_plain()])

    def close(self) -> None:
        """Close the site's ledger."""
        if self._party is not None and self._party.site is not None and self._party.site.guard:
            self._party.site.guard.close()

    def _take_part(self, roster_plain: list[Any], nonce: bytes) -> Party:
        """Build the party and compute the session's name, from the party's own copy of the job."""
        roster, me = Roster.from_plain(roster_plain), self.identity.name
        if roster.parties.get(me) != self.identity.public:
            raise PeerError("coordinator", "sends a roster without this party's keys")
        planned, source = self.plan(roster)
        if fault := roster_fault(roster, planned.public.sites, planned.protocol):
            raise PeerError("coordinator", f"sends a roster that {fault}")
        self._planned, self._source = planned, source
        session = session_of(planned, roster, nonce)
        party = make_party(planned, self.identity, roster, session, system_random, system_random)
        if party.site is None or source is None:
            return party
        load = functools.partial(self._same_records, planned, source)
        return replace(party, site=replace(party.site, load=load))

    def _same_records(self, planned: Planned, source: SiteSource) -> SiteRecords:
        """Read the records; after a restart they must be the same as in earlier rounds."""
        rows = read_records(planned, source)
        for remark in rows.remarks:
            self._note(remark)
        self._records = canonical_encoding.digest([rows.values, rows.incomplete, rows.outside])
        if self._last.records not in (b"", self._records):
            what = "its records changed during the run"
            raise DataError(self.identity.name, what, "Restore the file, or start a new run.")
        return rows


def read_seconds(folder: Path) -> float:
    """Return the processor time of the party with this folder; 0 if it is unknown."""
    try:
        return float(read_checked(folder / "seconds"))
    except EvidenceError:  # no answer yet, or the computer crashed before the write
        return 0.0
