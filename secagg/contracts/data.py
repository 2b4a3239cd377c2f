"""What is summed, and what everybody knows of it: fields, stages, public facts, records."""

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
"""Plain data: whatever `secagg.core.encoding` encodes. Owned by one party, passed in and handed
back."""

Body = dict[str, Any]
"""The content of one message, plain data."""

Update = dict[str, NDArray[np.float64]]
"""What a site contributes, or the sum of it: one float64 array for each `Field`, by name."""


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
    sensitivity: Sensitivity | None = None


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
class PublicFacts:
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
class SiteRecords:
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
