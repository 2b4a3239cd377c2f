"""What everybody must know of differential privacy's noise: where it goes and how much there is.

These are the public terms in which methods, codec, parties and the accountant speak of noise; how
much of it a claim of (epsilon, delta) takes is worked out in
`secagg.privacy.accounting.calibration`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True)
class Sensitivity:
    """How far one record can move a contribution: largest L2 norm of the change of all its fields.

    Where `weights` are given, each number's change counts divided by the root of its weight, and
    its noise has that many times the stage's variance: whole numbers from 1 on; () means all 1.

    add: a record is added or removed
    replace: one record is replaced by another or by an incomplete one, which does not count; so
        never below `add`
    Both hold for records that were clipped as `Clip` says, and exactly, in the fields' integers.
    """

    add: float
    replace: float
    weights: tuple[int, ...] = ()


class Placement(StrEnum):
    """Where the noise of differential privacy goes."""

    NONE = "none"
    SUM = "sum"  # once, into the sum: each site adds a share of it
    SITE = "site"  # once, into each site's own contribution, and never drawn again
    ROUND = "round"  # as `sum`, into every round


class Adjacency(StrEnum):
    """Which data sets differential privacy makes hard to tell apart."""

    ADD_REMOVE = "add_remove"
    REPLACE = "replace"


@dataclass(frozen=True)
class Clip:
    """What sites do to every record before anything else, under differential privacy.

    square: R^2, R the largest L2 norm of a record's scaled variables; no larger than their public
        bounds allow
    grid_bits: they are truncated, towards zero, to multiples of 2**-grid_bits
    """

    square: float
    grid_bits: int

    @property
    def norm(self) -> float:
        """R, as near as float64 has it."""
        return math.sqrt(self.square)


@dataclass(frozen=True)
class Noise:
    """The noise of one stage; public. Variances are in squared steps of the stage's grid.

    variance: what protects a record: the honest sites' noise has at least this variance together
        (in placement `site`: each site's own has it)
    fraction_bits: of the stage's fields
    colluding: sites whose noise does not count, because they know it
    least: fewest sites that a sum can cover
    weights: each number's noise has so many times these variances (`Sensitivity.weights`)
    """

    placement: Placement
    variance: int
    fraction_bits: int
    colluding: int
    least: int
    weights: tuple[int, ...] = ()

    def at_site(self, cohort: int) -> int:
        """Return the variance of one site's noise in a sum that covers `cohort` sites."""
        if self.placement is Placement.SITE:
            return self.variance
        return -(-self.variance // (cohort - self.colluding))

    def in_sum(self, cohort: int, at_site: int) -> float:
        """Return the variance of a number of weight 1 in a sum, in the fields' units squared."""
        return float(cohort * at_site) * 4.0**-self.fraction_bits
