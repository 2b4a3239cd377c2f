"""A party on a computer of its own, for any federated engine: bytes come in, bytes go out.

An engine's adapter passes each call to `PartyNode.answer`. Messages are plain data in the encoding
of `secagg.core.canonical_encoding`, and a message and its answer are

    ["hello"]                      ["hello", version of secagg, name, verify key, seal key]
    ["open", session, frame]       ["opened", session], or ["busy"]
    ["handle", session, frame]     ["handled", SHA-256 of the frame, reply], or ["unknown"] if this
                                   process has not opened the session
    any                            ["refused", code]

The frame of "open" is signed by the coordinator (phase `OPEN`) and has what the parties agree on:
job, roster, nonce. The party opens a session only if

1. the signature is by the coordinator whose key it has pinned,
2. every key in the roster is one that it has pinned, and the roster's sites are those of the job
   (or whole groups of them, if the job says `sites.lost = "leave_out"`:
   `secagg.privacy.policy.named_sites`),
3. the job has no folder or other local key, has only printable texts, and was approved
   (`secagg.sessions.homes.approvals`),
4. the session's name, which it computes from its own plan of the job, is the one that was signed.

So the engine's server can start nothing, because it does not have the coordinator's key.

Threat model: the engine and its server, who can read, change, delay and invent calls; the
coordinator, who writes the job.

Guarantees
    * Nothing leaves but these answers and signed frames. Every exception, even an unforeseen one,
      becomes a code. Its text stays in the party's log.
    * The size and the number of items of a message are limited before it is decoded.

==========================================  ====================================================
case                                        answer
==========================================  ====================================================
a message that is not one of the three      ["refused", "peer"]
"open" signed by another key, or for        ["refused", "peer"]
  another party, session, roster or job
an unapproved job                           ["refused", "policy"]; the job then waits
a session that another process holds        ["busy"], until that process has ended
a session whose state was deleted, or is    ["refused", "evidence"]
  an old copy (`engines.progress`)
the disk is full, or a bug                  ["refused", "internal"]
"handle" after a restart, or after eight    ["unknown"]; after "open" it goes on where it was
  later sessions were opened
==========================================  ====================================================

Not protected: the engine's operator sees who takes part, when, and the sizes of messages.
"""

from __future__ import annotations

import hashlib
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any, Final

from secagg.core import canonical_encoding
from secagg.core.frames import read_frame
from secagg.core.identity import PublicIdentity, Role, Roster
from secagg.core.printable import is_printable
from secagg.core.private_files import exclusive_lock
from secagg.core.version import __version__
from secagg.errors import InternalError, PeerError, SecaggError, UsageError
from secagg.jobs.data_sources import SiteSource
from secagg.jobs.job import Job, parse_job
from secagg.sessions.engines.crash_safe_party import CrashSafeParty
from secagg.sessions.homes.approvals import check_approved
from secagg.sessions.homes.home import Home
from secagg.sessions.homes.own_source import plan_at_home
from secagg.sessions.planned_job import Planned, may_be_sites
from secagg.sessions.received_frames import refusal

OPEN: Final = "open session"
"""The phase of the frame that opens a session. No protocol has a phase of this name."""
_MAX_OPENING: Final = 1 << 22
"""Bytes of a message before the job, and so the size of its messages, is known."""
_MAX_ITEMS: Final = 8
_LOCK_SECONDS: Final = 5.0
_MAX_SESSIONS: Final = 8
"""Sessions in memory. The coordinator can open any number; the oldest then waits on disk."""


class PartyNode:
    """What an engine's adapter holds at a party; it may be called from several threads.

    One thread of its own does all the work, one call at a time: a ledger's connection to its file
    belongs to the thread that opened it.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="secagg-party")
        self._open: dict[bytes, _HomeParty] = {}

    def close(self) -> None:
        """Release the sessions, so that another process can take part in them."""
        self._worker.submit(self._release).result()
        self._worker.shutdown()

    def _release(self) -> None:
        for party in self._open.values():
            party.close()
        self._open.clear()

    def answer(self, message: bytes) -> bytes:
        """Return the answer to one message. Never raises an `Exception` before `close`."""
        return self._worker.submit(self._answer, message).result()

    def _answer(self, message: bytes) -> bytes:
        try:
            return canonical_encoding.dumps(self._answered(message))
        except SecaggError as error:
            return self._refusal(error.code, error.line())
        except Exception:  # its text may quote a record
            return self._refusal(InternalError.code, traceback.format_exc())

    def _refusal(self, code: str, text: str) -> bytes:
        with suppress(OSError):  # a full disk: the code alone must do
            self._home.note(text)
        return canonical_encoding.dumps(["refused", code])

    def _answered(self, message: bytes) -> list[Any]:
        largest = max([_MAX_OPENING, *(party.message_bytes for party in self._open.values())])
        if len(message) > largest:
            raise PeerError("engine", f"a message of {len(message)} bytes is too long")
        match canonical_encoding.loads(message, _MAX_ITEMS):
            case ["hello"]:
                public = self._home.identity.public
                return ["hello", __version__, public.name, public.verify_key, public.seal_key]
            case ["open", bytes(session), bytes(frame)]:
                return ["opened", session] if self._open_session(session, frame) else ["busy"]
            case ["handle", bytes(session), bytes(frame)]:
                if session not in self._open:
                    return ["unknown"]
                digest = hashlib.sha256(frame).digest()
                return ["handled", digest, self._open[session].handle(frame)]
        raise PeerError("engine", "sends an invalid message")

    def _open_session(self, session: bytes, frame: bytes) -> bool:
        """Open a session, or return False if another process still holds it."""
        home = self._home
        pinned = home.roster
        opening = read_frame(frame, pinned, home.name, session)
        header, body = opening.header, opening.body
        if (header.sender, header.phase) != (pinned.coordinator, OPEN):
            raise PeerError(header.sender, "opens no session")
        match body:
            case {"job": str(text), "roster": list(plain), "nonce": bytes(nonce)}:
                roster = Roster.from_plain(plain)
            case _:
                raise PeerError(header.sender, "opens no session")
        for name, public in roster.parties.items():
            if pinned.parties.get(name) != public:
                raise PeerError(header.sender, f"the key of {name} is not the pinned one")
        job = _job(text, roster)
        check_approved(home, job)
        if session in self._open:
            self._open[session].open(plain, nonce)
            return True
        folder = home.folder / "runs" / session.hex()
        folder.mkdir(mode=0o700, exist_ok=True)
        with ExitStack() as held:
            try:
                held.enter_context(exclusive_lock(folder / "lock", _LOCK_SECONDS))
            except UsageError:
                return False
            party = _HomeParty(home, session, job)
            party.open(plain, nonce, session)
            party.lock = held.pop_all()
        if len(self._open) == _MAX_SESSIONS:
            self._open.pop(next(iter(self._open))).close()
        self._open[session] = party
        return True


class _HomeParty(CrashSafeParty):
    """A party whose keys, records and rules are those of its home."""

    def __init__(self, home: Home, session: bytes, job: Job) -> None:
        witness = home.progress(session)
        super().__init__(home.folder / "runs" / session.hex(), home.identity, home.note, witness)
        self._home, self._job, self.lock = home, job, ExitStack()
        self.message_bytes = _MAX_OPENING
        self.restore()

    def close(self) -> None:
        """Release the session, so that another process or object can take part in it."""
        super().close()
        self.lock.close()

    def plan(self, roster: Roster) -> tuple[Planned, SiteSource | None]:
        """Return the plan of the job, with the records and rules of this home."""
        planned = plan_at_home(self._home, self._job, roster.with_role(Role.SITE))
        self.message_bytes += planned.plans.message_bytes(len(roster.parties))
        return planned, planned.sources.get(self.identity.name)


def _job(text: str, roster: Roster) -> Job:
    """Return the job in an opening. Raises `JobError` or `PeerError`."""
    try:
        job = Job.model_validate_json(text)
    except ValueError:  # as pydantic's are
        raise PeerError(roster.coordinator, "sends a job that this version cannot read") from None
    if not is_printable(job.agreed):  # the officer reads it in a terminal before approving it
        raise PeerError(roster.coordinator, "sends a job with characters that cannot be printed")
    if parse_job(job.agreed) != job:
        raise PeerError(roster.coordinator, "sends a job with local keys")
    if not may_be_sites(roster.with_role(Role.SITE), job):
        raise PeerError(roster.coordinator, "the sites of the roster are not those of the job")
    return job


def read_hello(answer: Any, name: str, pinned: PublicIdentity) -> None:
    """Check a party's answer to "hello". Raises the error of a refusal, `PeerError`, `UsageError`.

    Nobody signs this answer, so no text of it is quoted that could begin a line of its own.
    """
    match answer:
        case ["refused", str(code)]:
            raise refusal(name, code)
        case ["hello", str(version), str(called), bytes(verify), bytes(seal)] if is_printable(
            version
        ):
            if version != __version__:
                what = f"runs secagg {version}, and the coordinator {__version__}"
                raise UsageError(name, what, "All parties need the same version.")
            if (called, verify, seal) != (name, pinned.verify_key, pinned.seal_key):
                raise PeerError(name, "has other keys than the pinned ones")
            return
    raise PeerError(name, "sends an invalid message")
