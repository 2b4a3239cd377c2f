"""Every party in an operating-system process of its own, on this computer: the coordinator's side.

It starts the parties (`secagg.runtime.engines.party_process`), hears them over TCP on 127.0.0.1
(`secagg.runtime.engines.channel`) and carries frames to all of them at once, with one deadline a
phase:

* a process that ends is noticed at once, since its line breaks. It is started again on its saved
  state and asked again, within the same deadline; with `restart` off it has dropped out;
* a process that hangs, or is slow, is noticed at the deadline. It keeps its line: what it says
  later to an earlier request is dropped, and the next request finds it if it has recovered;
* a party that says what makes no sense is hung up on, and counts as one that ended.

Parties call the coordinator, never the reverse, as sites behind a firewall do; so no party has an
open port. This engine is for one computer: it binds to the loopback and nothing else.

Threat model: that of `secagg.runtime.engines.channel`. All processes run under one user, who can
read what each of them holds; separate processes show that the protocol needs nothing but its
messages, and that it survives their death. They do not make the parties strangers to each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, TypeVar

from secagg.core.frames import Delivery, peek_header
from secagg.core.identity import PublicIdentity, Role, Roster
from secagg.core.randomness import system_random
from secagg.errors import PeerError
from secagg.jobs.job import Job
from secagg.runtime.engines.channel import HOST, Caller, greet_party, receive
from secagg.runtime.engines.event_loop import results_until, run_to_end
from secagg.runtime.engines.launcher import Launcher

_START, _START_EACH = 60.0, 3.0
"""Seconds in which n parties must have started: the first, and n times the second.

They read no record and compute nothing, but each loads its libraries: up to 3 s of processor time
where it was slowest. That many for each is enough where they all share one core.
"""
_GREETING = 10.0
"""Seconds for a greeting; a caller that says nothing is hung up on."""
_MAX_STARTS = 3
"""Starts of one process for one request: what ends thrice will end again."""
_CONNECTION_ERRORS = (PeerError, EOFError, OSError)
"""What a line can raise that is of no more use."""

T = TypeVar("T")


class LoopbackEngine:
    """Carries frames between `coordinator` and parties that are processes; see `Engine`.

    To be used as a context: at its end no process is left.
    """

    name: ClassVar[str] = "processes"

    def __init__(
        self, coordinator: str, job: Job, parties: Mapping[str, Role], folder: Path, cwd: str
    ) -> None:
        """Give each party a private folder in `folder`, and listen; nobody is started yet.

        cwd: the folder at which relative paths in the job start
        `deadline` and `restart` are the job's, and may be changed
        `restarted` and `silent` tell of the last exchange: who was started again, once for each
        time, and who gave no answer
        `on_start` is called with the numbers of parties that have started and that are to start
        """
        self.coordinator, self.parties = coordinator, dict(parties)
        self.deadline, self.restart = job.engine.deadline, job.engine.restart
        self.transcript: list[Delivery] = []
        self.restarted: list[str] = []
        self.silent: list[str] = []
        self.on_start: Callable[[int, int], None] = lambda started, parties: None
        self._launcher = Launcher(job, parties, folder, cwd)
        self._opening: tuple[Roster, bytes, bytes] | None = None
        self._callers: set[asyncio.StreamWriter] = set()
        self._lines: dict[str, Caller] = {}
        self._loop = asyncio.new_event_loop()
        self._server = run_to_end(self._loop, asyncio.start_server(self._called, HOST, 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    def __enter__(self) -> LoopbackEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def seconds(self) -> dict[str, float]:
        """Processor time that each party spent on requests."""
        return self._launcher.seconds

    def start(self) -> dict[str, PublicIdentity]:
        """Start every party that was not started yet; return the public keys of those that came.

        Starting does not count against the deadline of a phase. Its own limit is 60 seconds and 3
        more for each party: they may all share a core or two.
        """
        new = [name for name in self.parties if not self._launcher.was_started(name)]
        came = itertools.count()

        async def first_line(name: str) -> Caller | None:
            if line := await self._line(name):
                self.on_start(next(came), len(new))
            return line

        if new:
            self.on_start(next(came), len(new))
        limit = _START + _START_EACH * len(new)
        self._wait({name: first_line(name) for name in new}, limit)
        return {name: line.public for name, line in sorted(self._lines.items())}

    def is_running(self, name: str) -> bool:
        """Whether the party's process is there, be it busy or stuck."""
        return self._launcher.is_running(name)

    def open(self, roster: Roster, nonce: bytes, session: bytes) -> None:
        """Say which session this is; each party is told before its next request, and pins it."""
        self._opening = roster, nonce, session

    def exchange(self, requests: Mapping[str, bytes]) -> Sequence[bytes]:
        """Deliver all requests at once, and return what came back before the deadline."""
        self.restarted = []
        if requests:
            self.start()
        reached: set[str] = set()
        asked = {n: self._converse(n, request, reached) for n, request in requests.items()}
        replies = self._wait(asked, self.deadline)
        self.silent = sorted(set(requests) - set(replies))
        for name, request in requests.items():
            round_, phase = peek_header(request)
            there, back = (self.coordinator, name), (name, self.coordinator)
            if name in reached:
                self.transcript.append(Delivery(round_, phase, *there, len(request)))
            if name in replies:
                with contextlib.suppress(PeerError):  # no frame: the coordinator will say so
                    round_, phase = peek_header(replies[name])
                self.transcript.append(Delivery(round_, phase, *back, len(replies[name])))
        return list(replies.values())

    # --- one party ---------------------------------------------------------------------------

    async def _converse(self, name: str, request: bytes, reached: set[str]) -> bytes | None:
        """Return the party's reply, or None if it has dropped out; note whom a request reached."""
        for _ in range(_MAX_STARTS if self.restart else 1):
            line = await self._line(name)
            if line is None:
                continue
            try:
                await self._open_session(line)
                await line.send(["handle", request])
                reached.add(name)
                match await line.hear("handled", hashlib.sha256(request).digest()):
                    case bytes(reply):
                        return reply
                raise PeerError(name, "answers no frame")
            except _CONNECTION_ERRORS:
                self._hang_up(name)
        return None

    async def _open_session(self, line: Caller) -> None:
        assert self._opening is not None
        roster, nonce, session = self._opening
        if roster.parties[line.public.name] != line.public:
            raise PeerError(line.public.name, "has other keys than at its first start")
        if line.session is None:
            await line.send(["open", roster.to_plain(), nonce])
            line.session = await line.hear("opened")
        if line.session != session:
            raise PeerError(line.public.name, "agrees to another session")

    async def _line(self, name: str) -> Caller | None:
        """Return the line to a party, whose process is started if need be; None if it ended."""
        if name in self._lines:
            return self._lines[name]
        started = self._launcher.was_started(name)
        if not started or (self.restart and not self._launcher.is_running(name)):
            if started:
                self.restarted.append(name)
            self._launcher.launch(name, self.port)
        while name not in self._lines:
            if not self._launcher.is_running(name):
                return None
            await asyncio.sleep(0.01)
        return self._lines[name]

    async def _called(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Greet a caller, and if it is a party listen to it until its line breaks."""
        line: Caller | None = None
        self._callers.add(writer)
        try:
            async with asyncio.timeout(_GREETING):
                line = await self._greeted(reader, writer)
            while True:
                line.said.put_nowait(await receive(reader))
        except (*_CONNECTION_ERRORS, TimeoutError):
            if line is not None:
                line.said.put_nowait(None)
        finally:
            self._callers.discard(writer)
            writer.close()

    async def _greeted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Caller:
        name = await greet_party(reader, writer, self._launcher.tokens, system_random)
        match await receive(reader):
            case ["hello", bytes(verify), bytes(seal), None | bytes() as session]:
                public = PublicIdentity(name, self.parties[name], verify, seal)
                self._lines[name] = Caller(public, session, writer)
                return self._lines[name]
        raise PeerError(name, "says what makes no sense here")

    def _hang_up(self, name: str) -> None:
        """End a line, and the process that it was the life of."""
        self._lines.pop(name).writer.close()
        self._launcher.kill(name)

    # --- all of them -------------------------------------------------------------------------

    def _wait(self, waited: Mapping[str, Awaitable[T | None]], seconds: float) -> dict[str, T]:
        """Return what came, by name, before the time was up."""
        came: dict[str, T] = run_to_end(self._loop, results_until(waited, seconds))
        return came

    def close(self) -> None:
        """Hang up on every party and wait for its end; who does not end is killed."""
        self._server.close()
        run_to_end(self._loop, self._settle())
        self._launcher.close()
        self._loop.close()

    async def _settle(self) -> None:
        """End every line."""
        for writer in self._callers:
            writer.close()  # whoever listens there finds the end
        await asyncio.gather(
            *(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True
        )
