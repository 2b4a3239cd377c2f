"""What a secure-sum protocol has to provide, and the engine that carries its messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from secagg.contracts.data import Body, State
from secagg.core.identity import Identity, Role, Roster
from secagg.core.randomness import RandomBytes
from secagg.core.ring import RingVector


@dataclass(frozen=True)
class Shape:
    """What a protocol must know of the numbers it sums: nothing but sizes.

    ring_bits: contributions are vectors in Z_2^ring_bits (32, 64 or 128)
    length: elements in one contribution
    value_bits: every element v of one contribution, read as signed, has |v| < 2**(value_bits - 1)
    """

    ring_bits: int
    length: int
    value_bits: int


@dataclass(frozen=True)
class Phase:
    """One kind of request from the coordinator to some parties, and their replies.

    contributes: the site's contribution enters here
    opens: the reply lets the coordinator see a sum; the release rules are checked first
    """

    name: str
    role: Role
    contributes: bool = False
    opens: bool = False


@dataclass(frozen=True)
class Capabilities:
    """What a protocol can do and whom it protects from; a job that asks for more is refused.

    sees: for each role, in words for the report, what that party's messages show it
    unprotected: what the protocol does not protect, in words for the report
    """

    ring_bits: tuple[int, ...]
    hides_from_coordinator: bool
    dropouts: str
    sees: Mapping[str, str]
    unprotected: tuple[str, ...]


@dataclass(frozen=True)
class Context:
    """Everything constant that one step of a protocol may read.

    `identity` holds the private keys of the party that runs the step; `random` is where it draws.
    asked: digest of the request that this sum's contributors answer (stage, cohort, records,
        message); known to the coordinator, and to a site while it contributes
    min_sites: the least number of sites by the party's own rule (0 where that is unset)
    """

    session: bytes
    round: int
    identity: Identity
    roster: Roster
    shape: Shape
    random: RandomBytes
    asked: bytes = b""
    min_sites: int = 0

    @property
    def me(self) -> str:
        """The name of the party that runs the step."""
        return self.identity.name


@dataclass(frozen=True)
class Ask:
    """The coordinator asks parties to run a phase, one body for each.

    contributors: for a phase that opens, the sites whose sum would be seen
    """

    phase: str
    bodies: dict[str, Body]
    contributors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Total:
    """The end of a sum: the ring vector, and exactly whose contributions it holds."""

    values: RingVector
    contributors: tuple[str, ...]


@dataclass(frozen=True)
class Ready:
    """The end of a protocol's set-up phases."""


class SecureSum(Protocol):
    """A protocol: settings in frozen fields, two pure functions, one for each side.

    Guarantee asked of every protocol: `Total.values` is the exact ring sum of the contributions of
    `Total.contributors`, or an error is raised. Both functions raise `PeerError` for a message that
    does not make sense, and `ProtocolAbort` when the sum cannot be finished.
    """

    name: ClassVar[str]
    capabilities: ClassVar[Capabilities]
    setup: ClassVar[tuple[Phase, ...]]
    """Phases run once a session, before the first sum; may be empty."""
    phases: ClassVar[tuple[Phase, ...]]
    """Phases of one sum, in order."""

    def parties(self) -> tuple[tuple[str, Role], ...]:
        """Return the parties it needs beside sites and coordinator."""
        ...

    def guarantee_text(self, sites: int) -> str:
        """Return, for plan and report, how many may collude and drop out among so many sites.

        Raises `JobError` for settings that cannot be with so many sites.
        """
        ...

    def max_colluding(self, sites: int) -> int:
        """Return how many of so many sites may collude with the coordinator and see sums only."""
        ...

    def client(
        self,
        phase: str,
        state: State,
        body: Body,
        context: Context,
        contribution: RingVector | None = None,
    ) -> tuple[State, Body]:
        """Answer one request, at a site or an aggregator. State persists over the session.

        contribution: the site's own, in a phase that contributes; the protocol may overwrite it
        """
        ...

    def server(
        self, phase: str, state: State, replies: Mapping[str, Body], context: Context
    ) -> tuple[State, Ask | Total | Ready]:
        """Take the replies to `phase` and say what comes next.

        `phase` is "setup" to begin a session's set-up, "sum" to begin a sum; then `replies` holds
        an empty body for every site that takes part.
        """
        ...


class Engine(Protocol):
    """Carries frames. Who does not answer in time is simply absent from the replies."""

    def exchange(self, requests: Mapping[str, bytes]) -> Sequence[bytes]:
        """Deliver one frame to each named party; return whatever frames came back, in any order."""
        ...
