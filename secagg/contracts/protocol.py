"""The interface of secure-sum protocols, and the interface of the engine that carries messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from secagg.contracts.data import Body, ProtocolState
from secagg.core.identity import Identity, Role, Roster
from secagg.core.randomness import RandomBytes
from secagg.core.ring import RingVector


@dataclass(frozen=True)
class Shape:
    """The sizes of the vectors that a protocol sums.

    ring_bits: 32, 64 or 128; vectors hold integers modulo 2**ring_bits
    length: number of elements in one contribution
    value_bits: every element v of one contribution, read as signed, has |v| < 2**(value_bits - 1)
    """

    ring_bits: int
    length: int
    value_bits: int


@dataclass(frozen=True)
class Phase:
    """A step of a protocol: the coordinator sends requests to some parties, and they reply.

    role: the role of the parties that reply
    contributes: whether a site's reply contains its protected contribution
    opens: whether the coordinator can compute a sum from the replies; if so, parties check the
        release rules before they reply
    """

    name: str
    role: Role
    contributes: bool = False
    opens: bool = False


@dataclass(frozen=True)
class Capabilities:
    """What a protocol can do and what it protects. A job that requires more is refused.

    ring_bits: the allowed values of `Shape.ring_bits`
    hides_from_coordinator: whether the coordinator sees no single contribution
    dropouts: which parties may drop out of the first sum, as text for the report
    sees: for each role, what a party with this role learns from messages, as text for the report
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

    session: 16 bytes that name the session, in which one set of keys is used
    round: number of the round
    identity: the private keys of the party that runs the step
    roster: all parties with their public keys
    shape: the sizes of the vectors
    random: the party's source of random bytes
    request_digest: digest of the request to which the sites contribute: stage, cohort, number of
        records and message. Empty for a site in phases in which it does not contribute
    min_sites: the smallest number of sites by the party's own release rule (0 if not set)
    named: the number of sites that the job names; 0 if these are the sites of the roster
    """

    session: bytes
    round: int
    identity: Identity
    roster: Roster
    shape: Shape
    random: RandomBytes
    request_digest: bytes = b""
    min_sites: int = 0
    named: int = 0

    @property
    def job_sites(self) -> int:
        """The number of sites that thresholds are for: those that the job names.

        A session may leave some of them out. Those who collude may all be among the sites that are
        left, so a threshold for fewer sites would withstand fewer colluding sites.
        """
        return max(self.named, len(self.roster.with_role(Role.SITE)))

    @property
    def me(self) -> str:
        """The name of the party that runs the step."""
        return self.identity.name


@dataclass(frozen=True)
class PhaseRequest:
    """The coordinator's request to run a phase, with one message body for each party.

    phase: name of the phase
    bodies: the message body for each party, by the party's name
    contributors: for a phase that opens a sum, the sites whose contributions the sum covers
    """

    phase: str
    bodies: dict[str, Body]
    contributors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Total:
    """A finished sum.

    values: the sum, as integers modulo 2**ring_bits
    contributors: the sites whose contributions the sum covers
    """

    values: RingVector
    contributors: tuple[str, ...]


@dataclass(frozen=True)
class Ready:
    """The set-up phases of a protocol are finished."""


class SecureSum(Protocol):
    """A protocol. Its settings are the fields of a frozen dataclass.

    The functions `client` and `server` depend on their arguments only. Every protocol guarantees
    that `Total.values` is exactly the sum of the contributions of `Total.contributors` (modulo
    2**ring_bits), if no error is raised. `client` and `server` raise `PeerError` for a malformed
    message, and `ProtocolAbort` if the sum cannot be finished.
    """

    name: ClassVar[str]
    capabilities: ClassVar[Capabilities]
    setup: ClassVar[tuple[Phase, ...]]
    """The phases that run once in a session, before the first sum. There may be none."""
    phases: ClassVar[tuple[Phase, ...]]
    """The phases of one sum, in order."""

    def parties(self) -> tuple[tuple[str, Role], ...]:
        """Return the names and roles of parties needed in addition to sites and coordinator."""
        ...

    def guarantee_text(self, sites: int) -> str:
        """Return a text for plan and report: how many sites may collude, and how many drop out.

        sites: number of sites that the job names
        Raises `JobError` if the settings do not fit this number of sites.
        """
        ...

    def max_colluding(self, sites: int) -> int:
        """Return the largest number of colluding sites against which contributions stay hidden.

        If at most this number of sites collude with the coordinator, then all of them together see
        only sums, in a session over all or some of them. sites: number that the job names
        """
        ...

    def least_sites(self, sites: int) -> int:
        """Return the smallest number of the sites over which a session may begin without the rest.

        A job may allow that sites which do not answer are left out (`sites.lost`). A session over
        this number or more withstands `max_colluding(sites)` colluding sites, as one over all does,
        and they leave at least two others in each sum if the protocol counts on sites.
        sites: number of sites that the job names
        """
        ...

    def client(
        self,
        phase: str,
        state: ProtocolState,
        body: Body,
        context: Context,
        contribution: RingVector | None = None,
    ) -> tuple[ProtocolState, Body]:
        """Answer one request, at a site or an aggregator. Return the new state and the answer.

        phase: name of the phase
        state: the state that this function returned for the previous request of the session
        body: content of the request
        contribution: the site's contribution, in a phase with `contributes`; this function may
            overwrite the array
        """
        ...

    def server(
        self, phase: str, state: ProtocolState, replies: Mapping[str, Body], context: Context
    ) -> tuple[ProtocolState, PhaseRequest | Total | Ready]:
        """Process the replies to `phase`, at the coordinator. Return the new state and next step.

        phase: name of the phase. To begin the set-up of a session, the coordinator calls this
            function with "setup", and to begin a sum with "sum"; `replies` then has an empty body
            for every site that takes part
        """
        ...


class Engine(Protocol):
    """Carries frames, which are signed messages, between the parties."""

    def exchange(self, requests: Mapping[str, bytes]) -> Sequence[bytes]:
        """Deliver one frame to each named party, and return the replies in any order.

        There is no reply from a party that does not answer in time.
        """
        ...
