"""What a session needs of an engine. An engine carries the session's frames between the parties.

`secagg.sessions.engines.memory` has all parties in one process. Any other engine reaches parties
whose processes may die, and whose session may be resumed: `RemoteParties`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, Self

from secagg.core.frames import Delivery, Recorder, peek_header
from secagg.core.identity import PublicIdentity, Roster
from secagg.errors import PeerError, ProtocolAbort
from secagg.sessions.planned_job import Planned


class RemoteParties(Protocol):
    """An engine whose parties are other processes; it is a context manager.

    more_time: how a user gives the parties more time, for texts of errors
    deadline: seconds that the parties have for each request
    transcript: every frame that was delivered; record: called with each of them
    restarted: parties that lost their state in memory during the last exchange, once for each time
    silent: parties that gave no answer in the last exchange
    """

    more_time: str
    deadline: float
    transcript: list[Delivery]
    record: Recorder
    restarted: list[str]
    silent: list[str]

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    @property
    def name(self) -> str:
        """Of the engine, for `run.json`."""
        ...

    @property
    def seconds(self) -> Mapping[str, float]:
        """Processor time of each party for its requests, as far as it is known."""
        ...

    def start(self) -> dict[str, PublicIdentity]:
        """Reach every party; return the public keys of all that are ready."""
        ...

    def not_ready(self, missing: Sequence[str], ready: int, seconds: float) -> ProtocolAbort:
        """Return the error for parties that `start` did not return."""
        ...

    def is_running(self, name: str) -> bool:
        """Whether the party may still answer."""
        ...

    def open(self, roster: Roster, nonce: bytes, session: bytes) -> None:
        """Set the session: each party opens it before its first request, and no other."""
        ...

    def exchange(self, requests: Mapping[str, bytes]) -> Sequence[bytes]:
        """Deliver all requests in parallel, and return the replies before the deadline."""
        ...


MakeEngine = Callable[[Planned, str], RemoteParties]
"""make_engine(planned, cwd) returns the engine; cwd: for relative paths in the job."""

Progress = Callable[[Mapping[str, Any]], None]
"""Called with each event when it occurs."""


def deliveries(
    coordinator: str, requests: Mapping[str, bytes], reached: Collection[str],
    replies: Mapping[str, bytes],
) -> Iterator[tuple[Delivery, bytes]]:  # fmt: skip
    """Yield the frames of an exchange in the order of the transcript, by party.

    reached: the parties that got their request
    """
    for name, request in requests.items():
        round_, phase = peek_header(request)
        if name in reached:
            yield Delivery(round_, phase, coordinator, name, len(request)), request
        if name in replies:
            reply = replies[name]
            with suppress(PeerError):  # not a frame: the coordinator rejects it
                round_, phase = peek_header(reply)
            yield Delivery(round_, phase, name, coordinator, len(reply)), reply
