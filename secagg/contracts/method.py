"""What a federated method must provide, and what it may provide in addition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from secagg.contracts.data import Body, PublicFacts, SiteRecords, Stage, State, Update
from secagg.contracts.noise import Placements
from secagg.contracts.reporting import Disclosure, ResultTable
from secagg.core.randomness import RandomBytes


@dataclass(frozen=True)
class Result:
    """The result of a run. `summary` is written to result.json, `arrays` to arrays.npz."""

    summary: dict[str, Any]
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class RecordCount:
    """The number of records of all sites together, which is the first sum of every run.

    records: the released number; with noise it may be fractional or negative
    variance: variance of the noise in `records`; 0 without noise
    """

    records: float
    variance: float


class Method(Protocol):
    """A federated method. Its settings are the fields of a frozen dataclass.

    `secagg plan`, the report and the terminal show `title`, `disclosure` and `tables`. The other
    functions depend on their arguments only. They are called in this order:

    1. All parties call `stages`, before any record is read.
    2. The coordinator calls `initial_state`.
    3. In each round, the coordinator calls `next_request`, each site calls `contribute`, and the
       coordinator calls `aggregate` with the sum of the contributions.
    4. When `next_request` returns None, the coordinator calls `result`.

    Every method must have these properties:

    * `contribute` uses a site's records only to compute the fields of the requested stage. All
      entries are within the bounds of the fields.
    * `aggregate` receives only sums.
    * The method's docstring derives what the sums of all rounds together determine about a site,
      and `disclosure` states the conclusion.

    A new method needs such a class, a line in `secagg.jobs.registry.METHODS`, and tests. No other
    part of the program refers to a method by name.
    """

    name: ClassVar[str]
    placements: ClassVar[Placements]

    @property
    def title(self) -> str:
        """The name of the method, with its settings, for headings."""
        ...

    @property
    def disclosure(self) -> Disclosure:
        """What all sums together reveal, and to whom, with these settings."""
        ...

    def tables(self, public: PublicFacts) -> tuple[ResultTable, ...]:
        """Return how the result is shown: one table for the summary of the result.

        If the summary has a list "analyses", there is one table for each analysis, in that order.
        """
        ...

    def stages(self, public: PublicFacts) -> tuple[Stage, ...]:
        """Return every kind of round of the method. All parties call this before data is read.

        Raises `JobError` if the settings do not fit the declared columns.
        """
        ...

    def initial_state(self, public: PublicFacts) -> State:
        """Return the coordinator's first state."""
        ...

    def next_request(self, state: State) -> tuple[str, Body] | None:
        """Return the stage of the next round and the message to all sites; None after the last."""
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
        """Return a site's contribution, and the memory that it keeps until its next round.

        stage: name of the requested stage
        rows: the site's records
        message: from the coordinator
        memory: the memory that this function returned in the site's previous round; empty in the
            first round
        random: the site's secret random bytes. The protocol draws from another source, so the
            method draws the same numbers under every protocol
        Raises `PeerError` if the message is not valid.
        """
        ...

    def aggregate(self, state: State, total: Update, sites: int) -> State:
        """Return the coordinator's next state, given the decoded sum over `sites` sites."""
        ...

    def result(self, state: State, public: PublicFacts, counted: RecordCount) -> Result:
        """Return the result of a finished run. counted: the released number of records."""
        ...


# --- what a method may provide in addition ----------------------------------------------------

COLLECTED_DRAWS: Final = "collected"
"""Key in the coordinator's state of a list to which rounds only append. So in each round it is
enough to write the new items to disk."""


@runtime_checkable
class HasRecordWeights(Protocol):
    """A method whose sums give records other weights, depending on the coordinator's message."""

    def record_weights(
        self, rows: SiteRecords, message: Body, public: PublicFacts
    ) -> Sequence[NDArray[np.float64]]:
        """Return the weights of the site's records, shape (records,), for each part of the sum.

        Weights are not negative. message: one that `contribute` has accepted
        """
        ...


@runtime_checkable
class HasSiteResult(Protocol):
    """A method that gives each site a result of its own, which only that site sees."""

    def site_result(self, memory: State, public: PublicFacts) -> Result | None:
        """Return a site's own result, or None. memory: from the site's last `contribute`."""
        ...


IntegerNoise = Callable[[int], NDArray[np.int64]]
"""`noise(n)` returns n independent integers from the noise of a stage."""


@runtime_checkable
class TrainsWithNoise(Protocol):
    """A method with stages in which sites train alone, with noise (`Stage.training`)."""

    def train(
        self,
        stage: str,
        rows: SiteRecords,
        message: Body,
        memory: State,
        public: PublicFacts,
        random: RandomBytes,
        noise: IntegerNoise,
    ) -> tuple[Update, State]:
        """Return what `contribute` returns, for such a stage under differential privacy.

        What it returns depends on the records through noisy steps only, as many as declared. Each
        step adds a fresh `noise(numbers)` to its sums, which are multiples of 2**-fraction_bits.

        random: for the samples of records. `random` and `noise` come from a seed that is in the
            site's ledger: for the same records and message they are the same again
        """
        ...


@runtime_checkable
class ReadsMoments(Protocol):
    """A method whose sites may need no more of their records than number, means and covariances.

    Under differential privacy with placement `site`, its sites then work with moments that have
    noise, drawn once (`secagg.runtime.site_moments`).

    """

    @property
    def knows_noise(self) -> bool:
        """Whether intervals and probabilities include this noise, from `SiteRecords.noisy`."""
        ...

    @property
    def needs_records(self) -> str:
        """Why these settings need single records, as a clause; "" if moments are enough.

        If it is "", then two tables with equal sums of z z', z = (1, x), give contributions that
        are equal up to rounding, in every round and for every message.
        """
        ...


@runtime_checkable
class ReadsWindows(Protocol):
    """A method whose records may be windows of series: the values of some successive steps.

    An event, the values of a series at one step, is then in several records. Under differential
    privacy, a job that names no persons protects events instead of records.
    """

    @property
    def windows(self) -> tuple[int, frozenset[str] | None]:
        """Return the number of steps of a window, and the columns that are part of it.

        The number is that of the records that an event is in; 1 if records are no windows. None
        stands for all columns.
        """
        ...


@runtime_checkable
class OneRegression(Protocol):
    """A method whose result is one regression, also under differential privacy.

    For such a method, `secagg plan` predicts the effect of the noise on this regression. For every
    other method without a graph (`OneGraph`), it predicts the effect on a linear regression that
    uses all columns.
    """

    @property
    def columns_used(self) -> frozenset[str] | None:
        """The names of the columns or variables of outcome and predictors; None for all."""
        ...

    @property
    def logistic(self) -> bool:
        """Whether the regression is logistic; if false, it is linear."""
        ...

    @property
    def own_at_sites(self) -> bool:
        """Whether each site also has coefficients of its own, which need its own records."""
        ...


@dataclass(frozen=True)
class EdgeRule:
    """When a graph of linear effects has an edge, in units of standardised columns.

    columns: names of the columns or variables of the graph; None for all
    penalty, threshold: an edge's correlation has to be beyond their sum, if the two columns are
        related to no other. 0 for a method that tests edges, or computes their probability
    pooled: whether the sites' moments decide together; if not, sites learn alone
    vote: whether an edge needs more than half of the sites
    level: two-sided level of the test of one edge; None for one at which all tests together seldom
        find an edge between unrelated columns
    """

    columns: frozenset[str] | None
    penalty: float
    threshold: float
    pooled: bool
    vote: bool = False
    level: float | None = None


@runtime_checkable
class OneGraph(Protocol):
    """A method whose result is a graph of linear effects; `secagg plan` judges it under noise."""

    @property
    def edge_rule(self) -> EdgeRule | str:
        """When an edge is found; a text if that is not known, which says why."""
        ...


@runtime_checkable
class RunsNamedCode(Protocol):
    """A method whose settings name Python code that every party imports and runs."""

    @property
    def named_code(self) -> tuple[str, ...]:
        """The names, as `package.module:function`, of code that does not come with secagg."""
        ...


@runtime_checkable
class ExplainsUnknown(Protocol):
    """A method that explains why it lacks a setting which users may expect."""

    unknown_settings: ClassVar[Mapping[str, str]]
    """For each missing setting, the reason, as the end of a sentence that begins with the method's
    name."""


@runtime_checkable
class OtherUnderNoise(Protocol):
    """A method that is another algorithm under differential privacy, and is then called so."""

    @property
    def title_under_noise(self) -> str:
        """What replaces `title` under differential privacy."""
        ...


@runtime_checkable
class BatchedLocal(Protocol):
    """A method that can compute many sites' contributions at once, if one process runs them all."""

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
