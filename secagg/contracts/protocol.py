"""The interface of secure-sum protocols, and of the engine that carries their messages."""

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
    """The sizes of the vectors that a protocol sums.

    ring_bits: contributions are vectors over Z_2^ring_bits (32, 64 or 128)
    length: number of elements in one contribution
    value_bits: every element v of one contribution, read as signed, has |v| < 2**(value_bits - 1)
    """

    ring_bits: int
    length: int
    value_bits: int


@dataclass(frozen=True)
class Phase:
    """A step of a protocol: the coordinator sends requests to some parties, and they reply.

    contributes: a site's reply contains its protected contribution
    opens: the replies let the coordinator compute a sum; parties check the release rules first
    """

    name: str
    role: Role
    contributes: bool = False
    opens: bool = False


@dataclass(frozen=True)
class Capabilities:
    """What a protocol can do and what it protects; a job that asks for more is refused.

    dropouts: which parties may drop out, as text for the report
    sees: for each role, what the messages show that party, as text for the report
    unprotected: what the protocol does not protect, as texts for the report
    """

    ring_bits: tuple[int, ...]
    hides_from_coordinator: bool
    dropouts: str
    sees: Mapping[str, str]
    unprotected: tuple[str, ...]


@dataclass(frozen=True)
class Context:
    """The constants that a step of a protocol may read.

    identity: the private keys of the party that runs the step
    random: the party's source of random bytes
    request_digest: of the request that the contributors to this sum answer (stage, cohort, number
        of records, message); known to the coordinator, and to a site while it contributes
    min_sites: the smallest number of sites by the party's own release rule (0 if not set)
    """

    session: bytes
    round: int
    identity: Identity
    roster: Roster
    shape: Shape
    random: RandomBytes
    request_digest: bytes = b""
    min_sites: int = 0

    @property
    def me(self) -> str:
        """The name of the party that runs the step."""
        return self.identity.name


@dataclass(frozen=True)
class PhaseRequest:
    """The coordinator's request to run a phase, with one message body for each party.

    contributors: for a phase that opens a sum, the sites whose contributions the sum covers
    """

    phase: str
    bodies: dict[str, Body]
    contributors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Total:
    """A finished sum: the ring vector, and the sites whose contributions it covers."""

    values: RingVector
    contributors: tuple[str, ...]


@dataclass(frozen=True)
class Ready:
    """The set-up phases of a protocol are finished."""


class SecureSum(Protocol):
    """A protocol: settings in frozen fields, and two pure functions, `client` and `server`.

    Every protocol guarantees: `Total.values` is the exact ring sum of the contributions of
    `Total.contributors`, or an error is raised. Both functions raise `PeerError` for a malformed
    message, and `ProtocolAbort` if the sum cannot be finished.
    """

    name: ClassVar[str]
    capabilities: ClassVar[Capabilities]
    setup: ClassVar[tuple[Phase, ...]]
    """Phases that run once in a session, before the first sum; may be empty."""
    phases: ClassVar[tuple[Phase, ...]]
    """Phases of one sum, in order."""

    def parties(self) -> tuple[tuple[str, Role], ...]:
        """Return the parties that the protocol needs in addition to sites and coordinator."""
        ...

    def guarantee_text(self, sites: int) -> str:
        """Return how many of `sites` sites may collude and drop out, as text for plan and report.

        Raises `JobError` if the settings do not fit this number of sites.
        """
        ...

    def max_colluding(self, sites: int) -> int:
        """Return how many of `sites` sites may collude with the coordinator and see only sums."""
        ...

    def client(
        self,
        phase: str,
        state: State,
        body: Body,
        context: Context,
        contribution: RingVector | None = None,
    ) -> tuple[State, Body]:
        """Answer one request, at a site or an aggregator. The state lasts for the session.

        contribution: the site's own, in a phase with `contributes`; the protocol may overwrite it
        """
        ...

    def server(
        self, phase: str, state: State, replies: Mapping[str, Body], context: Context
    ) -> tuple[State, PhaseRequest | Total | Ready]:
        """Process the replies to `phase` and return the next step.

        `phase` is "setup" at the start of the session's set-up and "sum" at the start of a sum.
        Then `replies` holds an empty body for every site that takes part.
        """
        ...


class Engine(Protocol):
    """Carries frames between parties. Parties that do not answer in time have no reply."""

    def exchange(self, requests: Mapping[str, bytes]) -> Sequence[bytes]:
        """Deliver one frame to each named party; return the replies that arrive, in any order."""
        ...
