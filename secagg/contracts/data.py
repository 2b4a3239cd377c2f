"""The data that sites contribute and its public description: fields, stages, public facts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.contracts.noise import Clip, Noise, Sensitivity

State = dict[str, Any]
"""The state of one party: plain data (that `secagg.core.encoding` encodes), passed in and
returned."""

Body = dict[str, Any]
"""The content of one message; plain data."""

Update = dict[str, NDArray[np.float64]]
"""A site's contribution, or the sum of contributions: one float64 array for each `Field`."""


class Kind(StrEnum):
    """The kind of numbers in a field; determines the overflow check and how noise may be added."""

    COUNT = "count"  # integers in [0, bound]
    BOUNDED = "bounded"  # reals in [-bound, bound]
    PSD = "psd"  # upper triangle, row by row, of a positive semidefinite matrix; entries as BOUNDED
    WEIGHT = "weight"  # reals in [0, bound]


@dataclass(frozen=True)
class Field:
    """One named array of a contribution.

    bound: the largest absolute value of an entry at one site; public, positive and finite
    fraction_bits: entries are rounded to multiples of 2**-fraction_bits (0 for counts)
    strict: an entry beyond the bound is an error, because the method has proved the bound;
        otherwise such an entry is clipped and counted
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
    """A kind of round. A method declares its stages before any data is read.

    sees: what its sum tells the coordinator, as text for the report
    sensitivity: how far one record can move the contribution; None if that is not bounded, so that
        noise cannot protect it. With a sensitivity, all fields have equal `fraction_bits`.
    ends_early: whether the method may end before `max_rounds`
    """

    name: str
    spec: Spec
    max_rounds: int
    sees: str
    sensitivity: Sensitivity | None = None
    ends_early: bool = True


@dataclass(frozen=True)
class Variable:
    """One numeric column of the design matrix; categorical columns have become indicators.

    Values are scaled to u = (x - midpoint) / half_range, so that |u| <= 1 by the public bounds.

    indicator: x is 0 or 1. Under differential privacy `half_range` is 1 for indicators, so that
        |u| = 1/2. Otherwise indicators would dominate the norm of a record, and with it the noise.
    """

    name: str
    column: str
    midpoint: float
    half_range: float
    indicator: bool = False

    @property
    def max_abs(self) -> float:
        """The largest |u| that the public bounds allow."""
        return 0.5 / self.half_range if self.indicator else 1.0


@dataclass(frozen=True)
class PublicFacts:
    """What the job declares about the data, known to all parties; nothing here comes from records.

    clip: under differential privacy, how every site clips its records; otherwise None
    noise: under differential privacy, the noise of each stage, by name
    repeated_persons: whether one person may have several records, according to the job
    """

    variables: tuple[Variable, ...]
    columns: tuple[str, ...]
    max_rows: int
    sites: tuple[str, ...]
    clip: Clip | None = None
    noise: Mapping[str, Noise] = field(default_factory=dict)
    repeated_persons: bool = False


@dataclass(frozen=True)
class SiteRecords:
    """A site's complete records, scaled by the public bounds. They never leave the site.

    values: float64, shape (records, variables), every entry in [-1, 1]
    incomplete: number of records left out because a declared column was missing
    outside: for each declared column, how many values lay outside its bounds and were clipped
    remarks: remarks about the site's own records, shown to the site only
    """

    values: NDArray[np.float64]
    incomplete: int
    outside: NDArray[np.float64]
    remarks: tuple[str, ...] = ()
