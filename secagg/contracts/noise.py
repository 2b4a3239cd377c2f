"""Public facts about the noise of differential privacy: where it is added and its variance.

Methods, codec, parties and the accountant share these types.
`secagg.privacy.accounting.calibration` computes the variance for a given (epsilon, delta).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True)
class Sensitivity:
    """L2 sensitivity: the largest L2 norm of the change of a contribution if one record changes.

    add: if a record is added or removed
    replace: if a record is replaced by another one, or by an incomplete one, which is left out;
        so at least `add`
    weights: positive integers, one for each number; () means all 1. The change of a number is
        divided by the square root of its weight, and its noise variance is multiplied by it.

    Both bounds are exact for the integers that are summed, if records are clipped as `Clip` says.
    """

    add: float
    replace: float
    weights: tuple[int, ...] = ()


class Placement(StrEnum):
    """Where the noise of differential privacy is added."""

    NONE = "none"
    SUM = "sum"  # once, to the sum: each site adds a share of the noise
    SITE = "site"  # once, to each site's own contribution; later rounds use the same noise
    ROUND = "round"  # as `sum`, in every round


class Adjacency(StrEnum):
    """Which data sets are neighbours: differential privacy makes neighbours hard to tell apart."""

    ADD_REMOVE = "add_remove"
    REPLACE = "replace"


@dataclass(frozen=True)
class Clip:
    """How sites clip each record first, under differential privacy.

    squared_norm: R^2, where R is the largest L2 norm of a record's scaled variables; at most what
        the public bounds allow
    grid_bits: values are truncated, towards zero, to multiples of 2**-grid_bits
    """

    squared_norm: float
    grid_bits: int

    @property
    def norm(self) -> float:
        """R, rounded to float64."""
        return math.sqrt(self.squared_norm)


@dataclass(frozen=True)
class Noise:
    """The noise of one stage; public. Variances are in squared grid steps of the stage.

    variance: the noise of all honest sites together has at least this variance (with placement
        `site`, the noise of each site)
    fraction_bits: of the stage's fields
    colluding: number of sites whose noise does not count, because colluding sites know it
    min_sites: the smallest number of sites that a sum can cover
    weights: the variance of each number is multiplied by its weight (`Sensitivity.weights`)
    """

    placement: Placement
    variance: int
    fraction_bits: int
    colluding: int
    min_sites: int
    weights: tuple[int, ...] = ()

    def site_variance(self, cohort: int) -> int:
        """Return the variance of one site's noise in a sum that covers `cohort` sites."""
        if self.placement is Placement.SITE:
            return self.variance
        return -(-self.variance // (cohort - self.colluding))

    def sum_variance(self, cohort: int, site_variance: int) -> float:
        """Return the noise variance of a sum (weight 1), in the squared units of the fields."""
        return float(cohort * site_variance) * 4.0**-self.fraction_bits
