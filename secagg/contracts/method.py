"""What a federated method has to provide, and what it may provide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol, runtime_checkable

from numpy.typing import NDArray

from secagg.contracts.data import Body, PublicFacts, SiteRecords, Stage, State, Update
from secagg.core.randomness import RandomBytes


@dataclass(frozen=True)
class Result:
    """What a run is for. `summary` goes to result.json, `arrays` to arrays.npz."""

    summary: dict[str, Any]
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class RecordCount:
    """What the first sum of every run said of the number of records, over the sites in it.

    records: as decoded; with noise it need not be whole, nor positive
    variance: of its noise; 0 where it is exact
    """

    records: float
    variance: float


class Method(Protocol):
    """A federated method: settings in frozen fields, six pure functions.

    Guarantee asked of every method: `contribute` reads a site's records only to compute the fields
    of the stage it was asked for, within their bounds; `aggregate` sees only sums. What the sums of
    all rounds together determine about a site is written in the method's docstring and in `leaves`.
    """

    name: ClassVar[str]

    @property
    def leaves(self) -> str:
        """For the report: what the whole transcript of sums determines, in plain words."""
        ...

    def stages(self, public: PublicFacts) -> tuple[Stage, ...]:
        """Declare every kind of round. Called by all parties, before data is read.

        Raises `JobError` for settings that do not fit the declared columns.
        """
        ...

    def initial_state(self, public: PublicFacts) -> State:
        """Return the coordinator's first state."""
        ...

    def next_request(self, state: State) -> tuple[str, Body] | None:
        """Return (stage, message to all sites) of the next round, or None when done."""
        ...

    def contribute(
        self,
        stage: str,
        rows: SiteRecords,
        message: Body,
        memory: State,
        public: PublicFacts,
        random: RandomBytes,
    ) -> tuple[Update, State]:
        """Return a site's contribution and what it remembers until the next round.

        The message comes from the coordinator: whatever does not make sense is a `PeerError`.
        random: the site's own, which nobody else knows; not that of the protocol, so that what a
            method draws does not depend on how its sums are protected
        """
        ...

    def aggregate(self, state: State, total: Update, sites: int) -> State:
        """Take the decoded sum over `sites` sites and return the next state."""
        ...

    def result(self, state: State, public: PublicFacts, counted: RecordCount) -> Result:
        """Return the result of a finished run."""
        ...


# --- what a method may have besides -----------------------------------------------------------

COLLECTED_DRAWS: Final = "collected"
"""Key of the coordinator's state whose value is a list that only grows at its end: what a journal
has to write of it in a round is what is new."""


@runtime_checkable
class HasSiteResult(Protocol):
    """A method that leaves a site something for its own eyes."""

    def site_result(self, memory: State, public: PublicFacts) -> Result | None:
        """Return it, from what the site remembers after its part in the last round; or None."""
        ...


@runtime_checkable
class BatchedLocal(Protocol):
    """A method that computes many sites' contributions at once, where one process has them all."""

    def contribute_batched(
        self,
        stage: str,
        rows: Sequence[SiteRecords],
        message: Body,
        memories: Sequence[State],
        public: PublicFacts,
        randoms: Sequence[RandomBytes],
    ) -> list[tuple[Update, State]]:
        """Return what `contribute` returns at each of these sites, bit for bit."""
        ...
