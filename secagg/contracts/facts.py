"""What a method must say about itself. The rules of sites and all audits rest on these facts.

Every method has one `MethodFacts`. A fact on which security rests has no default: building
`MethodFacts` without it raises an error. `secagg.contracts.facts_of` refuses a method without
facts. The contract tests (tests/contracts) compare the facts with what the method does.

Threat model: authors of methods make mistakes. A false fact of a malicious author is not detected;
the code of a method runs at every site, so its author could read the records anyway.

================================================  =============================================
case                                              result
================================================  =============================================
no attribute `facts`, or one of another type      refused
a fact is missing or has another type             refused
a hook is misspelt (`self.record_weigths`)        refused
no `disclosure`                                   refused
weights, moments or a pooled disclosure claimed   the contract tests fail
falsely
================================================  =============================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from secagg.contracts.data import Body, PublicFacts, SiteRecords, State, Update
from secagg.contracts.family import Family
from secagg.contracts.reporting import RecordCount, Result
from secagg.core.randomness import RandomBytes

# --- how much a record weighs in a sum ------------------------------------------------------------

RecordWeights = Callable[[SiteRecords, Body, PublicFacts], Sequence[NDArray[np.float64]]]
"""Maps a site's records and a message that `contribute` has accepted to weights: for each part of
the sum one array, shape (records,), not negative. A record contributes to this part its weight
times a function of the record that does not depend on the message."""

WeightedColumns = Callable[[SiteRecords, PublicFacts], NDArray[np.float64]]
"""Maps a site's records to the columns z that the weights w multiply, shape (records, columns),
with a column of ones. The sum has the entries sum_i w_i z_ij, and perhaps sum_i w_i z_ij z_ik."""


@dataclass(frozen=True)
class EqualWeights:
    """No message of the coordinator gives some records more weight than others.

    reason: why, as a sentence
    """

    reason: str


@dataclass(frozen=True)
class ChosenWeights:
    """A message can give some records more weight than others, and no rule measures how much.

    A site with a policy answers exact rounds of such a method only if the policy names the method.

    reason: what lets a message weigh records unequally, as a sentence
    """

    reason: str


# --- what a site's contributions are functions of -------------------------------------------------


@dataclass(frozen=True)
class MomentsOnly:
    """Contributions depend on the records through number, means and covariances alone.

    Two tables with equal sums of z z', z = (1, x), then give contributions that are equal up to
    rounding, in every round and for every message. So all rounds together release at most these
    moments. A test checks this: it replaces a site's records by others with the same moments.

    noise_at_site: whether, under differential privacy, sites work with moments to which they added
        noise once (`secagg.sessions.site_moments`). If false, the method adds its noise itself
    knows_noise: whether intervals and probabilities then account for this noise
        (`SiteRecords.noisy`)
    released: whether the contributions are these moments themselves
    """

    noise_at_site: bool = True
    knows_noise: bool = False
    released: bool = False


@dataclass(frozen=True, kw_only=True)
class SingleRecords:
    """Contributions depend on single records.

    reason: why, as a clause that begins with a verb: the method "has powers of a column"
    repeatable: whether equal records and messages, in all rounds so far, give equal contributions;
        false if sites draw random numbers. Only a repeatable round can be repeated without
        releasing new numbers
    moments_with_other_settings: whether the method is `MomentsOnly` with other settings
    """

    reason: str
    repeatable: bool
    moments_with_other_settings: bool = False


# --- what a record is -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Windows:
    """Records are windows of series: the values of some successive steps.

    An event, the values of a series at one step, is then in several records. Under differential
    privacy, a job that names no persons protects events instead of records.

    steps: number of steps of a window, which is the number of records that an event is in
    columns: the columns that are part of the windows; None stands for all
    """

    steps: int
    columns: frozenset[str] | None


NO_WINDOWS: Final = Windows(1, frozenset())
"""Every record stands for itself."""


# --- what the result is ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Regression:
    """The result is one regression, also under differential privacy.

    columns: names of the columns or variables of outcome and predictors; None for all
    outcome: name of the outcome's column or variable
    own_at_sites: whether each site also has coefficients of its own, which need its own records
    """

    family: Family
    columns: frozenset[str] | None
    outcome: str
    own_at_sites: bool = False


@dataclass(frozen=True)
class EdgeRule:
    """When a graph of linear effects has an edge, in units of standardised columns.

    columns: names of the columns or variables of the graph; None for all
    penalty, threshold: for two columns that are unrelated to all others, an edge is found if
        |correlation| > penalty + threshold. Both are 0 for a method that tests edges, or computes
        their probability. Penalty None: the universal threshold of chance, root(2 log d / n)
    pooled: whether the sites' moments decide together; if not, sites learn alone
    vote: whether an edge needs more than half of the sites
    level: two-sided level of the test of one edge. None: the level is chosen so that all tests
        together seldom find a false edge
    level_of_vote: whether `level` is that of the vote about one pair, and not of one site
    analysis: its name, if the job may have several
    beside_regressions: whether the job has regressions too, which are judged first
    """

    columns: frozenset[str] | None
    penalty: float | None
    threshold: float
    pooled: bool
    vote: bool = False
    level: float | None = None
    level_of_vote: bool = False
    analysis: str = ""
    beside_regressions: bool = False


@dataclass(frozen=True)
class CellError:
    """The expected error of a table of counts under noise.

    table: its name; cells: their number; error: standard deviation of the noise of one cell
    """

    table: str
    cells: int
    error: float


# --- further functions of a method ----------------------------------------------------------------

IntegerNoise = Callable[[int], NDArray[np.int64]]
"""`noise(n)` returns n independent integers from the noise of a stage."""

SiteResult = Callable[[State, PublicFacts], Result | None]
"""Maps a site's memory after its last `contribute` to a result that only this site sees."""


class Train(Protocol):
    """Trains at a site alone, with noise, in a stage with `Stage.training`."""

    def __call__(
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


class ContributeBatched(Protocol):
    """Computes many sites' contributions at once, if one process runs them all."""

    def __call__(
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


@dataclass(frozen=True)
class AskedRegression:
    """A regression that other methods may answer as well.

    outcome, predictors: columns, or variables as `column=level`
    within: whether each site has an intercept of its own
    exposure: a column whose logarithm is added to the linear predictor
    """

    outcome: str
    predictors: tuple[str, ...]
    family: Family
    within: bool = False
    exposure: str | None = None

    def settings(self) -> dict[str, Any]:
        """Return the three as keys of a job."""
        named = {"outcome": self.outcome, "predictors": list(self.predictors)}
        return {**named, "family": self.family.name}


FirstOrder = Callable[[State, PublicFacts, RecordCount], Result]
"""`Method.result`, but quick: only the terms of the regressions, in the order in which they are
asked (under "analyses"), with errors to first order in the noise."""


@dataclass(frozen=True, kw_only=True)
class MethodFacts:
    """The facts of a method with its settings.

    derivation: the module whose docstring derives what all sums together determine. The attacks
        that carry it out are named in `Disclosure.attacks`
    weights: a function that returns the weights of records in a sum; else `EqualWeights` (why they
        are equal) or `ChosenWeights` (what makes them unequal)
    weighted_columns: with weights of records, the columns that they multiply; else None
    reads: what contributions are functions of. It decides how many exact numbers a run releases
        (`secagg.privacy.policy.exact_numbers`)
    windows: whether records are windows of series
    named_code: third-party code named in the settings, which every party imports and runs; as
        `package.module:function`
    network: whether sites train a neural network, or contribute gradients of one
    regression: the regression that the result is; None if it is none, or several
    asked: the regressions of the result that another method could answer as well; `secagg plan`
        compares these methods
    first_order: see above; None if `result` is quick
    edge_rule: if the result is a graph of linear effects: the rule for an edge, or a text that says
        why the rule is not known. Otherwise None
    public_records: whether the coordinator can add public records (`PublicFacts.public_records`)
    simulated: whether `secagg plan` predicts the error of the regression under noise by running the
        method on simulated records; it must then be quick, and have standard errors
    cell_errors: for tables of counts, maps what is public to the error of each table, for the plan;
        None for other methods, and without noise it is not called
    partial_columns: whether sites may lack columns that it analyses (`PublicFacts.partial`)
    title_under_noise: what replaces `Method.title` under differential privacy, if the method is
        then another algorithm
    """

    derivation: str
    weights: RecordWeights | EqualWeights | ChosenWeights
    reads: MomentsOnly | SingleRecords
    windows: Windows
    named_code: tuple[str, ...]
    network: bool
    regression: Regression | None
    edge_rule: EdgeRule | str | None
    weighted_columns: WeightedColumns | None = None
    site_result: SiteResult | None = None
    train: Train | None = None
    contribute_batched: ContributeBatched | None = None
    title_under_noise: str = ""
    public_records: bool = False
    simulated: bool = False
    partial_columns: bool = False
    asked: tuple[AskedRegression, ...] = ()
    first_order: FirstOrder | None = None
    cell_errors: Callable[[PublicFacts], Sequence[CellError]] | None = None

    def __post_init__(self) -> None:
        """Check the types of what security rests on. Raises `TypeError`."""
        kinds: dict[str, type | tuple[type, ...]] = {
            "derivation": str, "reads": (MomentsOnly, SingleRecords), "windows": Windows,
            "named_code": tuple, "network": bool, "regression": (Regression, type(None)),
            "edge_rule": (EdgeRule, str, type(None)), "title_under_noise": str,
        }  # fmt: skip
        for name, kind in kinds.items():
            if not isinstance(getattr(self, name), kind):
                raise TypeError(f"{name} has the type {type(getattr(self, name)).__name__}")
        if not isinstance(self.weights, EqualWeights | ChosenWeights) and not callable(
            self.weights
        ):
            raise TypeError("weights are neither a function nor EqualWeights nor ChosenWeights")
        if callable(self.weights) != callable(self.weighted_columns):
            raise TypeError("weights of records and weighted_columns are not stated together")
        for name in ("site_result", "train", "contribute_batched", "cell_errors"):
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise TypeError(f"{name} is not a function")

    @property
    def moments_only(self) -> bool:
        """Whether contributions depend on the records through their moments alone."""
        return isinstance(self.reads, MomentsOnly)

    @property
    def knows_noise(self) -> bool:
        """Whether intervals include noise that sites added to their moments."""
        return isinstance(self.reads, MomentsOnly) and self.reads.knows_noise
