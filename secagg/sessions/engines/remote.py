"""Parties on other computers: the coordinator's side, over the calls of a federated engine.

An adapter gives one function, `Call`, which carries bytes to a party and its answer back. The
messages are those of `secagg.sessions.engines.site_node`. All parties are called in parallel, with
one deadline for each phase:

* A call that fails, or whose answer cannot be read, is repeated until the deadline. The process of
  the party may be starting again, or its line may be broken. A party repeats its reply to a
  repeated request, so nothing is computed or charged twice.
* A party whose process is new ("unknown") gets the session again, then the request.
* A party without an answer at the deadline has dropped out of the phase.
* If a party refuses to open the session, the run ends with the party's error code.

Threat model: the engine can read, change, delay, repeat and invent calls. The frames inside the
calls are signed, envelopes are sealed, and a party's answer is used only if it is a frame of this
session. Sizes are limited by the plan of the job before an answer is decoded.

Not protected: delivery. An engine that drops every call stops the run.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Self

from secagg.core import canonical_encoding
from secagg.core.frames import Delivery, Recorder, record_nothing, write_frame
from secagg.core.identity import Identity, PublicIdentity, Roster
from secagg.errors import PeerError, ProtocolAbort, SecaggError
from secagg.sessions.engines.engine import deliveries
from secagg.sessions.engines.site_node import OPEN, read_hello
from secagg.sessions.received_frames import first_of, refusal

Call = Callable[[str, bytes, float], bytes]
"""call(party, message, seconds) returns the answer, or raises an exception if there is none."""

_PAUSE = 0.2
"""Seconds before a call that failed is repeated."""
_ITEMS = 8
_GREETING_BYTES = 1 << 12


class RemoteEngine:
    """Carries frames between `coordinator` and `parties`; see `secagg.sessions.engines.engine`."""

    def __init__(
        self, name: str, call: Call, coordinator: Identity, parties: Mapping[str, PublicIdentity],
        job: str, deadline: float, limit: int, pinned: str,
    ) -> None:  # fmt: skip
        """Call nobody yet.

        name: of the federated engine; parties: those that must take part, with their pinned keys
        job: what the parties agree on, as JSON; limit: the largest number of bytes in an answer
        pinned: the fingerprint of the roster that the coordinator has pinned
        """
        self.name, self.deadline, self.limit, self.pinned = name, deadline, limit, pinned
        self.more_time = "a longer engine.deadline"
        self.transcript: list[Delivery] = []
        self.record: Recorder = record_nothing
        self.restarted: list[str] = []
        self.silent: list[str] = []
        self.seconds: dict[str, float] = {}
        self._call, self._coordinator, self._parties, self._job = call, coordinator, parties, job
        self._pool = ThreadPoolExecutor(max(len(parties), 1), thread_name_prefix="secagg")
        self._openings: dict[str, bytes] = {}
        self._session = b""
        self._opened: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def is_running(self, name: str) -> bool:
        """Whether the party may still answer; nobody here knows that it does not."""
        return name in self._parties

    def start(self) -> dict[str, PublicIdentity]:
        """Greet every party; return the keys of those that answered in time.

        Raises `PeerError` for a party with other keys, `UsageError` for another version of secagg.
        """
        greeting = canonical_encoding.dumps(["hello"])

        def greet(name: str, until: float) -> PublicIdentity:
            answer = self._answer(name, greeting, until, _GREETING_BYTES)
            read_hello(answer, name, self._parties[name])
            return self._parties[name]

        return self._of_each(dict.fromkeys(self._parties, greet))

    def not_ready(self, missing: Sequence[str], ready: int, seconds: float) -> ProtocolAbort:
        """Return the error for parties that could not be reached."""
        what = (
            f"cannot be reached; {ready} of {ready + len(missing)} parties answered in "
            f"{seconds:.0f} s"
        )
        advice = "Start its client, or give it more time (engine.deadline)."
        return ProtocolAbort(", ".join(missing), what, advice)

    def open(self, roster: Roster, nonce: bytes, session: bytes) -> None:
        """Set the session. Each party opens it with its first request."""
        body = {"job": self._job, "roster": roster.to_plain(), "nonce": nonce}
        self._session, self._opened = session, set()
        self._openings = {
            name: canonical_encoding.dumps(
                ["open", session, write_frame(self._coordinator, session, 0, OPEN, name, body)]
            )
            for name in self._parties.keys() & roster.parties.keys()
        }

    def exchange(self, requests: Mapping[str, bytes]) -> Sequence[bytes]:
        """Deliver all requests in parallel, and return the replies before the deadline.

        Raises the error of a party that refuses to open the session.
        """
        self.restarted = []

        def asking(request: bytes) -> Callable[[str, float], bytes]:
            return lambda name, until: self._ask(name, request, until)

        replies = self._of_each({name: asking(request) for name, request in requests.items()})
        self.silent = sorted(set(requests) - set(replies))
        for delivery, frame in deliveries(self._coordinator.name, requests, self._opened, replies):
            self.transcript.append(delivery)
            self.record(delivery, frame)
        return list(replies.values())

    # --- one party ---------------------------------------------------------------------------

    def _ask(self, name: str, request: bytes, until: float) -> bytes:
        """Return a party's reply. Raises `TimeoutError`, or the error of a refused opening."""
        message = canonical_encoding.dumps(["handle", self._session, request])
        digest = hashlib.sha256(request).digest()
        while True:
            if name not in self._opened:
                self._open(name, until)
            match self._answer(name, message, until, self.limit):
                case ["handled", bytes(echo), bytes(reply)] if echo == digest:
                    return reply
                case ["unknown"]:
                    self._opened.discard(name)
                    self.restarted.append(name)
                case _:  # refused: perhaps a full disk
                    time.sleep(_PAUSE)

    def _open(self, name: str, until: float) -> None:
        while name not in self._opened:
            match self._answer(name, self._openings[name], until, _GREETING_BYTES):
                case ["opened", bytes(session)] if session == self._session:
                    self._opened.add(name)
                case ["busy"]:
                    time.sleep(_PAUSE)
                case ["refused", str(code)]:
                    raise refusal(name, code)
                case _:
                    raise PeerError(name, "opens another session")

    def _answer(self, name: str, message: bytes, until: float, limit: int) -> Any:
        """Call until there is an answer. Raises `TimeoutError` at the deadline."""
        while (left := until - time.monotonic()) > 0:
            try:
                answer = self._call(name, message, left)
                if not isinstance(answer, bytes) or len(answer) > limit:
                    raise PeerError(name, "sends too much, or no bytes")
                return canonical_encoding.loads(answer, _ITEMS)
            except Exception:  # of any engine; the party may come back
                time.sleep(min(_PAUSE, max(until - time.monotonic(), 0.0)))
        raise TimeoutError

    # --- all of them -------------------------------------------------------------------------

    def _of_each(self, tasks: Mapping[str, Callable[[str, float], Any]]) -> dict[str, Any]:
        """Return what each task returned in time, by name. Raises the first error of a party.

        It names the other parties with an error.
        """
        until = time.monotonic() + self.deadline
        pending: dict[str, Future[Any]] = {
            name: self._pool.submit(task, name, until) for name, task in tasks.items()
        }
        wait(pending.values(), self.deadline + _PAUSE)
        results, errors = {}, {}
        for name, future in pending.items():
            future.cancel()
            if not future.done() or future.cancelled():
                continue
            try:
                results[name] = future.result()
            except SecaggError as error:
                errors[name] = error
            except TimeoutError:
                pass
        if errors:
            raise first_of(errors)
        return results
