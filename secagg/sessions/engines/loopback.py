"""Each party in its own operating-system process on this computer: the coordinator's side.

The engine starts the parties (`secagg.sessions.engines.party_process`), talks to them over TCP on
127.0.0.1 (`secagg.sessions.engines.channel`), and sends frames to all of them in parallel. Each
phase has one deadline:

* If a process ends, its connection closes, and the engine notices at once. It starts the process
  again on its saved state and repeats the request, within the same deadline. If `restart` is off,
  the party counts as dropped out instead.
* If a process hangs or is slow, the engine notices at the deadline. The connection stays open. The
  engine drops late answers to earlier requests, and the next request is sent as usual.
* If a party sends a malformed message, the engine closes the connection and kills the process.

Parties connect to the coordinator, never the reverse, like sites behind a firewall. So no party has
an open port. This engine is for one computer only: the coordinator listens at the loopback address.

Threat model: that of `secagg.sessions.engines.channel`. All processes belong to one user, who can
read the data of each of them. The separate processes show that the protocol needs only its
messages, and that a run survives the death of a process. They do not protect the parties from each
other.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Self, TypeVar

from secagg.core.frames import Delivery, Recorder, record_nothing
from secagg.core.identity import PublicIdentity, Role, Roster, party_fault
from secagg.core.randomness import system_random
from secagg.errors import PeerError, ProtocolAbort
from secagg.jobs.job import Job
from secagg.sessions.engines.channel import HOST, LIMIT, Caller, greet_party, receive
from secagg.sessions.engines.engine import deliveries
from secagg.sessions.engines.event_loop import results_until, run_to_end
from secagg.sessions.engines.launcher import Launcher

_START, _START_EACH = 60.0, 3.0
"""Time limit for the start of n parties, in seconds: the first number plus n times the second.

A starting party only loads its libraries, which took up to 3 s of processor time on the slowest
computer. So the limit is sufficient even if all parties share one core.
"""
_GREETING = 10.0
"""Time limit for a greeting, in seconds; then the connection is closed."""
_MAX_STARTS = 3
"""The engine gives up after three failed starts of one process for one request."""
_CONNECTION_ERRORS = (PeerError, EOFError, OSError)
"""The errors of a broken connection."""

T = TypeVar("T")


class LoopbackEngine:
    """Carries frames between `coordinator` and parties that are processes; see `Engine`.

    It is a context manager, which ends all processes on exit.
    """

    name: str = "processes"

    def __init__(
        self, coordinator: str, job: Job, parties: Mapping[str, Role], folder: Path, cwd: str
    ) -> None:
        """Create a private folder for each party in `folder`, and listen; this starts no process.

        cwd: the working directory of the processes, for relative paths in the job
        `deadline` and `restart` are set from the job, and may be changed. `limit` is the largest
        number of bytes in a message of a party; the caller sets it from the plan.
        `restarted` and `silent` describe the last exchange: the parties that were started again
        (once for each restart), and the parties without an answer.
        The engine calls `on_start` with the numbers of parties that have started and must start.
        """
        self.coordinator, self.parties = coordinator, dict(parties)
        self.deadline, self.restart = job.engine.deadline, job.engine.restart
        self.limit, self.more_time = LIMIT, "a longer --deadline with 'secagg resume'"
        self.transcript: list[Delivery] = []
        self.record: Recorder = record_nothing
        self.restarted: list[str] = []
        self.silent: list[str] = []
        self.on_start: Callable[[int, int], None] = lambda started, parties: None
        self._launcher = Launcher(job, parties, folder, cwd)
        self._opening: tuple[Roster, bytes, bytes] | None = None
        self._callers: set[asyncio.StreamWriter] = set()
        self._connections: dict[str, Caller] = {}
        self._loop = asyncio.new_event_loop()
        self._server = run_to_end(self._loop, asyncio.start_server(self._called, HOST, 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def seconds(self) -> dict[str, float]:
        """Processor time of each party for its requests."""
        return self._launcher.seconds

    def start(self) -> dict[str, PublicIdentity]:
        """Start every party that has not started yet; return the public keys of all that are ready.

        The deadline of a phase does not include this time. The time limit is 60 seconds plus 3
        seconds for each party, since all parties may share one core.
        """
        new = [name for name in self.parties if not self._launcher.was_started(name)]
        started = itertools.count()

        async def connect(name: str) -> Caller | None:
            if caller := await self._connection(name):
                self.on_start(next(started), len(new))
            return caller

        if new:
            self.on_start(next(started), len(new))
        limit = _START + _START_EACH * len(new)
        self._wait({name: connect(name) for name in new}, limit)
        return {name: caller.public for name, caller in sorted(self._connections.items())}

    def is_running(self, name: str) -> bool:
        """Whether the party's process exists; it may be busy or stuck."""
        return self._launcher.is_running(name)

    def not_ready(self, missing: Sequence[str], ready: int, seconds: float) -> ProtocolAbort:
        """Return the error for a party that did not start; it says whether its process ended."""
        ended = [name for name in missing if not self.is_running(name)]
        what = (
            f"its process {'ended' if ended else 'was not ready'}; {ready} of "
            f"{ready + len(missing)} parties had started after {seconds:.0f} s"
        )
        busy = "The computer may be busy or too small for so many parties. Try again."
        reason = "The reason is in the log of this party."
        return ProtocolAbort((ended or missing)[0], what, reason if ended else busy)

    def open(self, roster: Roster, nonce: bytes, session: bytes) -> None:
        """Set the session; each party receives it before its next request, and accepts no other."""
        self._opening = roster, nonce, session

    def exchange(self, requests: Mapping[str, bytes]) -> Sequence[bytes]:
        """Deliver all requests in parallel, and return the replies before the deadline."""
        self.restarted = []
        if requests:
            self.start()
        reached: set[str] = set()
        pending = {n: self._converse(n, request, reached) for n, request in requests.items()}
        replies = self._wait(pending, self.deadline)
        self.silent = sorted(set(requests) - set(replies))
        for delivery, frame in deliveries(self.coordinator, requests, reached, replies):
            self.transcript.append(delivery)
            self.record(delivery, frame)
        return list(replies.values())

    # --- one party ---------------------------------------------------------------------------

    async def _converse(self, name: str, request: bytes, reached: set[str]) -> bytes | None:
        """Return the reply, or None after a dropout; add the party to `reached` after sending."""
        for _ in range(_MAX_STARTS if self.restart else 1):
            caller = await self._connection(name)
            if caller is None:
                continue
            try:
                await self._open_session(caller)
                await caller.send(["handle", request])
                reached.add(name)
                match await caller.receive("handled", hashlib.sha256(request).digest()):
                    case bytes(reply):
                        return reply
                raise PeerError(name, "its answer is not a frame")
            except _CONNECTION_ERRORS:
                self._disconnect(name)
        return None

    async def _open_session(self, caller: Caller) -> None:
        assert self._opening is not None
        roster, nonce, session = self._opening
        if roster.parties[caller.public.name] != caller.public:
            raise PeerError(caller.public.name, "has other keys than at its first start")
        if caller.session is None:
            await caller.send(["open", roster.to_plain(), nonce])
            caller.session = await caller.receive("opened")
        if caller.session != session:
            raise PeerError(caller.public.name, "takes part in another session")

    async def _connection(self, name: str) -> Caller | None:
        """Return the connection to a party, after a start if necessary; None if it has ended."""
        if name in self._connections:
            return self._connections[name]
        started = self._launcher.was_started(name)
        if not started or (self.restart and not self._launcher.is_running(name)):
            if started:
                self.restarted.append(name)
            self._launcher.launch(name, self.port)
        while name not in self._connections:
            if not self._launcher.is_running(name):
                return None
            await asyncio.sleep(0.01)
        return self._connections[name]

    async def _called(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Greet a caller; if it is a party, receive its messages until the connection closes."""
        caller: Caller | None = None
        self._callers.add(writer)
        try:
            async with asyncio.timeout(_GREETING):
                caller = await self._greet(reader, writer)
            while True:
                caller.inbox.put_nowait(await receive(reader, self.limit))
        except (*_CONNECTION_ERRORS, TimeoutError):
            if caller is not None:
                caller.inbox.put_nowait(None)
        finally:
            self._callers.discard(writer)
            writer.close()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Caller:
        name = await greet_party(reader, writer, self._launcher.tokens, system_random)
        match await receive(reader):
            case ["hello", bytes(verify), bytes(seal), None | bytes() as session]:
                public = PublicIdentity(name, self.parties[name], verify, seal)
                if fault := party_fault(public):
                    raise PeerError(name, fault)
                self._connections[name] = Caller(public, session, writer)
                return self._connections[name]
        raise PeerError(name, "sends an invalid message")

    def _disconnect(self, name: str) -> None:
        """Close a party's connection and kill its process."""
        self._connections.pop(name).writer.close()
        self._launcher.kill(name)

    # --- all of them -------------------------------------------------------------------------

    def _wait(self, pending: Mapping[str, Awaitable[T | None]], seconds: float) -> dict[str, T]:
        """Return the results that are ready in time, by name."""
        results: dict[str, T] = run_to_end(self._loop, results_until(pending, seconds))
        return results

    def close(self) -> None:
        """Close all connections and wait for the processes; kill those that do not end in time."""
        self._server.close()
        run_to_end(self._loop, self._close_connections())
        self._launcher.close()
        self._loop.close()

    async def _close_connections(self) -> None:
        """Close every connection."""
        for writer in self._callers:
            writer.close()  # the task that reads from it ends
        await asyncio.gather(
            *(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True
        )
