"""What a federated method has to provide, and what it may provide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol, runtime_checkable

from numpy.typing import NDArray

from secagg.contracts.data import Body, PublicFacts, SiteRecords, Stage, State, Update
from secagg.contracts.reporting import Disclosure, ResultTable
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
    """A federated method: settings in frozen fields, what it says of itself, six pure functions.

    Plan, report and terminal read `title`, `disclosure` and `tables`. All parties call `stages`,
    before data is read. The coordinator calls `initial_state` once, `next_request` and `aggregate`
    in turn, and `result` at the end; each site calls `contribute` once a round.

    What must hold of every method: `contribute` reads a site's records only to compute the fields
    of the stage it was asked for, within their bounds; `aggregate` sees only sums. What the sums of
    all rounds together determine about a site is derived in the method's docstring and stated in
    `disclosure`.

    A new method is a class like this, a line in `secagg.jobs.registry.METHODS`, and its tests:
    nothing else knows a method by its name.
    """

    name: ClassVar[str]

    @property
    def title(self) -> str:
        """What the method is called in a heading, with these settings."""
        ...

    @property
    def disclosure(self) -> Disclosure:
        """What all sums together tell, and whom; with these settings."""
        ...

    def tables(self, public: PublicFacts) -> tuple[ResultTable, ...]:
        """Return how the result is shown: one table for its summary.

        If the summary has a list "analyses", one table for each of them, in their order.
        """
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
class OneRegression(Protocol):
    """A method whose result under noise is one regression: what `plan` judges is that one.

    Of any other method `plan` judges a linear regression on all columns.
    """

    @property
    def columns_used(self) -> frozenset[str]:
        """The columns of the outcome and the predictors."""
        ...

    @property
    def logistic(self) -> bool:
        """Whether it is a logistic regression; otherwise it is a linear one."""
        ...


@runtime_checkable
class ExplainsUnknown(Protocol):
    """A method that users expect to have a setting which it does not have."""

    unknown_settings: ClassVar[Mapping[str, str]]
    """By the setting's name, why there is none: continues the method's name."""


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
