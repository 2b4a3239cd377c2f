"""What a site contributes to a sum, and the public description of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.contracts.noise import Clip, Noise, Sensitivity

State = dict[str, Any]
"""The state of one party between two steps: plain data (`secagg.core.canonical_encoding`)."""

ProtocolState = Mapping[str, Any]
"""The state of one party in a protocol. Each protocol declares its keys as a `TypedDict`."""

Body = dict[str, Any]
"""The content of one message: plain data, as for `State`."""

Update = dict[str, NDArray[np.float64]]
"""A site's contribution, or the sum of contributions: one float64 array for each `Field`."""


LEAST_SPREAD_OF_LEVEL = 0.3
"""Records weighed by typical ranges: least standard deviation that an indicator is taken to have.
With that of a rare level, the records that have the level would hardly count."""


class Kind(StrEnum):
    """The kind of numbers in a field, which determines the allowed range of an entry."""

    COUNT = "count"  # integers in [0, bound]
    BOUNDED = "bounded"  # reals in [-bound, bound]
    PSD = "psd"  # a positive semidefinite matrix: upper triangle, by rows; range as BOUNDED
    WEIGHT = "weight"  # reals in [0, bound]


@dataclass(frozen=True)
class Field:
    """One named array of a contribution.

    bound: the largest absolute value of an entry at one site; public, positive and finite
    fraction_bits: entries are rounded to multiples of 2**-fraction_bits (0 for counts)
    strict: if true, an entry beyond the bound is an error, because the method guarantees the bound;
        if false, the entry is replaced by the bound, and the site counts how often this happened
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
class LocalTraining:
    """A training at each site in one round, which adds noise in each of its steps.

    The site's contribution is a function of the noisy steps, so it needs no further noise. A step
    is a sum over a random sample of the site's records.

    steps: number of steps
    numbers: number of noisy numbers of a step
    sensitivity: the largest change of a step that one record can cause
    fraction_bits: the numbers of a step are multiples of 2**-fraction_bits
    sampling_rate: as for `Stage`
    """

    steps: int
    numbers: int
    sensitivity: Sensitivity
    fraction_bits: int
    sampling_rate: float = 1.0


@dataclass(frozen=True)
class Stage:
    """A kind of round. A round computes one sum. A method declares its stages before reading data.

    spec: the arrays of one contribution
    max_rounds: the largest number of rounds of this kind
    sees: what the sum tells the coordinator, as text for the report
    sensitivity: the largest change of the contribution that one record can cause; all fields then
        have equal `fraction_bits`. The contribution is then a sum of terms, one for each record,
        that is computed without an error whatever the records are. None if there is no bound, so
        that noise cannot protect records
    ends_early: whether the method may end before `max_rounds`
    held_out: the share of a site's records that the sum leaves out or covers alone, to test
        predictions; at least one record if it is not 0
    held_out_rows: which ones: "last" of the table, "random", or "" for none
    few_records: the number of records on which a site's contribution may depend alone, if it draws
        them at random (a batch); 0 for all records
    few_sites: the number of sites on which a sum may depend alone, if sites take part at random; 0
        for all sites
    powers: by variable, the highest power of which the sum has cross products, if it is above 1. A
        site judges its records in all these powers (`secagg.privacy.policy.record_sets`)
    sampling_rate: the probability with which each record takes part in a round, drawn by its site
        with secret random numbers, independently of other records and rounds; 1 for all records
    training: under differential privacy, the training at the site that adds all noise of this stage
    budget: the share of the privacy budget of each round, relative to those of other stages
    reads_records: whether contributions depend on records other than through what earlier stages
        left in the site's memory. If false, sites get no records in this stage. Under differential
        privacy it then costs nothing: what is computed from a noisy result is as private as this
    counts_cells: whether the sum has numbers of records, or persons, in cells of tables. Without
        noise, all its numbers are such counts, and the coordinator's program compares each with
        release.min_cell_records (`secagg.privacy.policy.cell_counts`) before the method sees it
    """

    name: str
    spec: Spec
    max_rounds: int
    sees: str
    sensitivity: Sensitivity | None = None
    ends_early: bool = True
    held_out: float = 0.0
    held_out_rows: str = ""
    few_records: int = 0
    few_sites: int = 0
    powers: Mapping[str, int] = field(default_factory=dict)
    sampling_rate: float = 1.0
    training: LocalTraining | None = None
    budget: float = 1.0
    reads_records: bool = True
    counts_cells: bool = False


@dataclass(frozen=True)
class Variable:
    """One column of the design matrix: a continuous variable, or an indicator with values 0 and 1.

    A value x is scaled to u = (x - midpoint) / half_range. By the public bounds, |u| <= 1.

    column: the declared column from which the variable is made
    indicator: whether x is 0 or 1. Under differential privacy, an indicator has `half_range` 1, so
        |u| = 1/2. With |u| = 1, indicators would make up most of the norm of a record, and the
        noise, which is proportional to that norm, would be larger
    count: whether x is a whole number, at least 0
    log: whether x is the natural logarithm of the values in the table
    typical_centre, typical_spread: a public guess of the mean and standard deviation of u
    relative: whether u is relative to the typical range, and not to the bounds
        (`secagg.jobs.typical_ranges`). It may then exceed 1, and records are shortened
    farthest: if `relative`, the largest |u| of the public bounds
    """

    name: str
    column: str
    midpoint: float
    half_range: float
    indicator: bool = False
    count: bool = False
    log: bool = False
    typical_centre: float = 0.0
    typical_spread: float = 0.2
    relative: bool = False
    farthest: float = 1.0

    @property
    def max_abs(self) -> float:
        """The largest |u| that the public bounds allow."""
        if self.relative:
            return self.farthest
        return 0.5 / self.half_range if self.indicator else 1.0


@dataclass(frozen=True)
class PublicFacts:
    """What the job declares about the data. All parties know it, and no part comes from records.

    columns: names of the declared columns
    max_rows: the largest number of records that one site may have
    sites: names of the sites
    clip: under differential privacy, how every site clips its records; otherwise None
    noise: under differential privacy, the noise of each stage, by the stage's name
    repeated_persons: whether one person may have several records, according to the job
    chosen_persons: under differential privacy, whether the job chooses the column that names
        persons; see `secagg.contracts.noise.Sensitivity.of_chosen_persons`
    counted_persons: without noise, whether the job names a column of persons, so that counts are
        of persons
    min_sites: the smallest number of sites in a sum (release.min_sites); 1 if it is not set
    public_records: the public records, scaled, float64, shape (records, variables); None if the job
        has none
    site_moments: under differential privacy, whether each site adds noise to its moments once, and
        all rounds use these instead of its records
    partial: for each column that some sites lack, the names of the sites that have it
    levels: for each column with levels, their names
    """

    variables: tuple[Variable, ...]
    columns: tuple[str, ...]
    max_rows: int
    sites: tuple[str, ...]
    clip: Clip | None = None
    noise: Mapping[str, Noise] = field(default_factory=dict)
    repeated_persons: bool = False
    min_sites: int = 1
    site_moments: bool = False
    chosen_persons: bool = False
    counted_persons: bool = False
    public_records: NDArray[np.float64] | None = field(default=None, compare=False)
    partial: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def lacked_by(self, site: str) -> tuple[str, ...]:
        """Return the columns that this site lacks; none for a name that is no site's."""
        found = [name for name, having in self.partial.items() if site not in having]
        return tuple(found) if site in self.sites else ()

    @cached_property
    def positions(self) -> Mapping[str, tuple[int, ...]]:
        """The positions of the variables that a name stands for: a column, or one variable."""
        found: dict[str, tuple[int, ...]] = {}
        for position, variable in enumerate(self.variables):
            for name in {variable.name, variable.column}:
                found[name] = (*found.get(name, ()), position)
        return found


@dataclass(frozen=True)
class NoisyMatrix:
    """Moments with the noise that a site added once.

    matrix: the sum of z z' over records, z = (1, u), plus noise; float64, shape
        (variables + 1, variables + 1), symmetric, maybe not positive semidefinite
    variance: the noise's variances, same shape. The entries of the upper triangle are independent
        and nearly normal
    constant: c of the vectors (c, u) whose moments were released
    """

    matrix: NDArray[np.float64]
    variance: NDArray[np.float64]
    constant: float = 0.5

    def select(self, variables: NDArray[np.int64]) -> NoisyMatrix:
        """Return the moments of the variables at these positions."""
        rows = np.concatenate([[0], 1 + variables])
        at = np.ix_(rows, rows)
        return NoisyMatrix(self.matrix[at], self.variance[at], self.constant)


@dataclass(frozen=True)
class SiteRecords:
    """A site's complete records, scaled by the public bounds. They never leave the site.

    values: float64, shape (records, variables), every entry in [-1, 1]
    incomplete: number of records left out because a value of a declared column, or the name of
        their person, was missing
    outside: for each declared column, number of values outside its bounds, which were clipped
    remarks: remarks about the site's records, which only the site sees
    clipped_share: for each declared column, `outside` divided by its number of values
    complete: for each row of the site's table, whether it is one of the records; empty if there is
        no table
    surplus: number of complete records left out because a person has too many
    site: the name of the site
    noisy: under noise once at the site, the site's noisy moments. `values` then has their repair,
        and no entry is a record's
    persons: for each record, a number that stands for its person at this site. Empty if no column
        names persons: every record is then a person of its own
    concerned: without noise and with such a column, the numbers of persons with an incomplete
        record, and with a value outside the bounds of each column
    expert_edges: the pairs of columns that the site's experts join; None if they name no graph
    lacking: the declared columns that the site does not have. Their `values` are 0
    constants: for each record, the c of `Clip.whole`, shortened with the record; empty otherwise
    """

    values: NDArray[np.float64]
    incomplete: int
    outside: NDArray[np.float64]
    remarks: tuple[str, ...] = ()
    clipped_share: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    complete: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    site: str = ""
    noisy: NoisyMatrix | None = None
    surplus: int = 0
    persons: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    concerned: tuple[int, ...] = ()
    expert_edges: tuple[tuple[str, str], ...] | None = None
    lacking: tuple[str, ...] = ()
    constants: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    @property
    def person_codes(self) -> NDArray[np.int64]:
        """For each record, the number of its person, from 0 on without gaps."""
        if not len(self.persons):
            return np.arange(len(self.values))
        return np.unique(self.persons, return_inverse=True)[1].reshape(-1)

    @property
    def persons_count(self) -> int:
        """The number of persons; of records, if no column names persons."""
        return len(np.unique(self.persons)) if len(self.persons) else len(self.values)

    @property
    def whole(self) -> NDArray[np.float64]:
        """The records with their constants, if these differ."""
        if not len(self.constants):
            return self.values
        return np.column_stack([self.constants, self.values])

    def held(self, public: PublicFacts) -> SiteRecords:
        """Return the records without the variables of columns that the site lacks."""
        if not self.lacking:
            return self
        return replace(
            self, values=self.values[:, [v.column not in self.lacking for v in public.variables]]
        )

    def part(self, start: int, end: int) -> SiteRecords:
        """Return so many of the records, with the counts of all."""
        return replace(
            self, values=self.values[start:end], persons=self.persons[start:end],
            constants=self.constants[start:end],
        )  # fmt: skip
