"""An exposure, such as person-years: a column whose logarithm is the offset of a regression.

The offset is taken relative to the middle of the column's public bounds on the log scale. So
|offset| is at most half the logarithm of high / low, which is public and enters the bounds of all
sums. It is at most log(10^4): an exposure may vary by a factor of 10^8.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from secagg.contracts import PublicFacts, Variable
from secagg.core.arrays import Array
from secagg.errors import JobError
from secagg.models.common.variables import choose

_LARGEST_OFFSET = math.log(1e4)
_ROUNDING = 1e-6  # the bounds follow from their middle: 10^-4 to 10^4 are off by 10^-8


@dataclass(frozen=True)
class Exposure:
    """The exposure of a regression. position, variable: of the column"""

    position: int
    variable: Variable

    @classmethod
    def of(cls, public: PublicFacts, name: str, others: Sequence[str]) -> Exposure:
        """Return the exposure in this column. others: outcome and predictors. Raises `JobError`."""
        where = "method.exposure"
        position = int(choose(public, [name], where)[0])
        variable = public.variables[position]
        if variable.indicator or not (variable.log or variable.midpoint > variable.half_range):
            what = f"column {name!r} has no positive lower bound"
            raise JobError(where, what, "Declare it as continuous, with low above 0.")
        if position in choose(public, others, where):
            raise JobError(where, f"{name!r} is also outcome or predictor", "Name it once.")
        found = cls(position, variable)
        if found.largest_offset > _LARGEST_OFFSET + _ROUNDING:
            what = f"the bounds of column {name!r} differ by more than a factor of 10^8"
            raise JobError(where, what, "Declare narrower bounds.")
        return found

    @property
    def _bounds(self) -> tuple[float, float]:
        """The public bounds of log exposure."""
        v = self.variable
        low, high = v.midpoint - v.half_range, v.midpoint + v.half_range
        return (low, high) if v.log else (math.log(low), math.log(high))

    @property
    def middle(self) -> float:
        """The log exposure at which the offset is 0."""
        return sum(self._bounds) / 2

    @property
    def largest_offset(self) -> float:
        """The largest |offset|."""
        low, high = self._bounds
        return (high - low) / 2

    def offset(self, records: Array) -> Array:
        """Return the offset of each record. records: scaled, shape (records, variables)"""
        v = self.variable
        values = v.midpoint + v.half_range * records[:, self.position]
        logs = values if v.log else np.log(values)
        return np.clip(logs - self.middle, -self.largest_offset, self.largest_offset)
