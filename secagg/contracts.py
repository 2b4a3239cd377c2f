"""The contracts of secagg: read this file first.

A federated method is a loop in which the coordinator needs only *sums over sites* of small named
arrays. So there are three things to plug together, and one rule for all of them:

* a `Method` says what each site contributes and what the coordinator does with the sum;
* a `SecureSum` computes that sum so that nobody sees a single contribution;
* an `Engine` carries bytes between the parties.

The rule: methods and protocols do no input or output and hide nothing. Each step is a function
(state, inputs) -> (state, outputs); state is plain data (what `secagg.wire` can encode), so that
any engine may stop and resume between any two steps, and a test may replay them.

One secure sum, in the order that is fixed for every method and protocol::

    SITE      Method.local -> codec.encode (clip to bounds, fixed point) -> site policy -> SecureSum
    ...       SecureSum phases, routed through the coordinator; whoever holds keys or shares checks
              the release rules before anything is opened
    COORD.    release logged on disk -> codec.decode -> Method.server -> next message, or the result
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from secagg.identity import Identity, Role, Roster
from secagg.noise import Clip, Noise, Touch
from secagg.randomness import RandomBytes
from secagg.ring import RingVector

State = dict[str, Any]
"""Plain data: whatever `secagg.wire` encodes. Owned by one party, passed in and handed back."""

Body = dict[str, Any]
"""The content of one message, plain data."""

Update = dict[str, NDArray[np.float64]]
"""What a site contributes, or the sum of it: one float64 array for each `Field`, by name."""


# --- what is summed ---------------------------------------------------------------------------


class Kind(StrEnum):
    """What a field's numbers are; decides how its fit is proved and how it may be noised."""

    COUNT = "count"  # integers in [0, bound]
    BOUNDED = "bounded"  # reals in [-bound, bound]
    PSD = "psd"  # upper triangle, row by row, of a positive semidefinite matrix; entries as BOUNDED
    WEIGHT = "weight"  # reals in [0, bound]


@dataclass(frozen=True)
class Field:
    """One named array of a contribution.

    bound: largest absolute value an entry may have at one site, public, > 0 and finite
    fraction_bits: entries are rounded to multiples of 2**-fraction_bits (0 for counts)
    strict: an entry beyond the bound, which the method has shown cannot be, is an error; otherwise
        it is clipped, and counted
    """

    name: str
    shape: tuple[int, ...]
    bound: float
    fraction_bits: int
    kind: Kind
    strict: bool = False

    @cached_property
    def size(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)


Spec = tuple[Field, ...]


@dataclass(frozen=True)
class Stage:
    """A kind of round that a method declares before any data is read.

    sees: what its sum tells the coordinator, in words for the report
    touch: how far one record can move it; None where that is not bounded, and noise cannot help.
        All fields of a stage that has one are on the same grid: they have equal `fraction_bits`.
    """

    name: str
    spec: Spec
    max_rounds: int
    sees: str
    touch: Touch | None = None


# --- what everybody knows ----------------------------------------------------------------------


@dataclass(frozen=True)
class Variable:
    """One numeric column of the design, after categorical columns became indicators.

    Values are carried as u = (x - middle) / half, so that |u| <= 1 by the public bounds.

    indicator: 0 or 1 before that. Under differential privacy `half` is 1 for these, and |u| = 1/2:
        a record's norm, and with it all noise, would otherwise be mostly theirs.
    """

    name: str
    column: str
    middle: float
    half: float
    indicator: bool = False

    @property
    def largest(self) -> float:
        """The largest |u| that the public bounds allow."""
        return 0.5 / self.half if self.indicator else 1.0


@dataclass(frozen=True)
class Public:
    """What the job declares about the data, known to all; nothing here came from records.

    clip: under differential privacy, what every site does to its records; otherwise None
    noise: under differential privacy, the noise of each stage, by name
    repeated: the job says that one person may have several of the records
    """

    variables: tuple[Variable, ...]
    columns: tuple[str, ...]
    max_rows: int
    sites: tuple[str, ...]
    clip: Clip | None = None
    noise: Mapping[str, Noise] = field(default_factory=dict)
    repeated: bool = False


@dataclass(frozen=True)
class Rows:
    """A site's complete records, as scaled by the public bounds. Never leaves the site.

    values: float64, shape (records, variables), every entry in [-1, 1]
    incomplete: records left out because a declared column was missing
    outside: for each declared column, how many values lay outside its bounds and were clipped
    remarks: what the site should know of its own records; for its own eyes
    """

    values: NDArray[np.float64]
    incomplete: int
    outside: NDArray[np.float64]
    remarks: tuple[str, ...] = ()


# --- methods -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """What a run is for. `summary` goes to result.json, `arrays` to arrays.npz."""

    summary: dict[str, Any]
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Counted:
    """What the first sum of every run said of the number of records, over the sites in it.

    records: as decoded; with noise it need not be whole, nor positive
    variance: of its noise; 0 where it is exact
    """

    records: float
    variance: float


class Method(Protocol):
    """A federated method: settings in frozen fields, six pure functions.

    Guarantee asked of every method: `local` reads a site's records only to compute the fields of
    the stage it was asked for, within their bounds; `server` sees only sums. What the sums of all
    rounds together determine about a site is written in the method's docstring and in `leaves`.
    """

    name: ClassVar[str]

    @property
    def leaves(self) -> str:
        """For the report: what the whole transcript of sums determines, in plain words."""
        ...

    def stages(self, public: Public) -> tuple[Stage, ...]:
        """Declare every kind of round. Called by all parties, before data is read.

        Raises `JobError` for settings that do not fit the declared columns.
        """
        ...

    def start(self, public: Public) -> State:
        """Return the coordinator's first state."""
        ...

    def message(self, state: State) -> tuple[str, Body] | None:
        """Return (stage, message to all sites) of the next round, or None when done."""
        ...

    def local(
        self,
        stage: str,
        rows: Rows,
        message: Body,
        memory: State,
        public: Public,
        random: RandomBytes,
    ) -> tuple[Update, State]:
        """Return a site's contribution and what it remembers until the next round.

        The message comes from the coordinator: whatever does not make sense is a `PeerError`.
        random: the site's own, which nobody else knows; not that of the protocol, so that what a
            method draws does not depend on how its sums are protected
        """
        ...

    def server(self, state: State, total: Update, sites: int) -> State:
        """Take the decoded sum over `sites` sites and return the next state."""
        ...

    def result(self, state: State, public: Public, counted: Counted) -> Result:
        """Return the result of a finished run."""
        ...


# --- protocols -----------------------------------------------------------------------------------


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

    def in_numbers(self, sites: int) -> str:
        """Return, for plan and report, how many may collude and drop out among so many sites.

        Raises `JobError` for settings that cannot be with so many sites.
        """
        ...

    def withstands(self, sites: int) -> int:
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


# --- engines -------------------------------------------------------------------------------------


class Engine(Protocol):
    """Carries frames. Who does not answer in time is simply absent from the replies."""

    def exchange(self, requests: Mapping[str, bytes]) -> Sequence[bytes]:
        """Deliver one frame to each named party; return whatever frames came back, in any order."""
        ...
