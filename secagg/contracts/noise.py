"""Public facts about the noise of differential privacy: the place where it is added, its variance.

Differential privacy limits how much one record can change the probability of any released result.
`secagg.privacy.accounting.calibration` computes the variance for a given epsilon and delta, the
two numbers that state this limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

SITE_MOMENTS: Final = "site_moments"
"""The name among the stages of a run of the moments that sites add noise to once, and keep. No sum
is computed in it."""


@dataclass(frozen=True)
class Sensitivity:
    """L2 sensitivity: the largest change, in L2 norm, that one record can cause in a contribution.

    add: the largest change if a record is added or removed
    replace: the largest change if a record is replaced by another. Since an incomplete record is
        left out, removing a record is a special case, so `replace` is at least `add`
    weights: one positive integer for each number of the contribution; () means that all are 1. In
        the norm, the change of a number is divided by the square root of its weight. The variance
        of its noise is multiplied by its weight

    Both bounds hold exactly for the integers that are summed, if records are clipped as `Clip`
    says.
    """

    add: float
    replace: float
    weights: tuple[int, ...] = ()

    def of_chosen_persons(self) -> Sensitivity:
        """Return the bounds if the job chooses the column that names the person of each record.

        A site uses the first records of each person only. If two patients share a value of the
        column, the removal of one lets a record of the other in. Then the records of that value
        change as if a person were replaced. So adding or removing a record counts as replacing one.
        Replacing a record can change the records of two values, so it counts twice.
        docs/math/persons-and-windows.md has the derivation.
        """
        return Sensitivity(self.replace, 2 * self.replace, self.weights)


class Placement(StrEnum):
    """Where the noise of differential privacy is added."""

    NONE = "none"
    SUM = "sum"  # once, in one sum, to which each site adds a share of the noise
    SITE = "site"  # once, in each site's own contribution; later rounds use the same noise
    ROUND = "round"  # in the sum of every round, to which each site adds a share of the noise


@dataclass(frozen=True)
class Placements:
    """Where a method can have the noise of differential privacy.

    where: the placements, the one that a job has if it names none first; () if there is none
    note: what they need, or why others are not possible; a sentence
    instead: what else serves users of this method (or of settings that cannot have noise), as a
        sentence of advice; "" if there is nothing more to say
    with_settings: which one comes first if a setting has this value: (setting, value, placement)
    """

    where: tuple[Placement, ...]
    note: str
    instead: str = ""
    with_settings: tuple[tuple[str, str, Placement], ...] = ()

    @classmethod
    def site_moments(cls, unless: str = "", instead: str = "") -> Placements:
        """Return those of a method that reads moments only; unless: settings that need records."""
        note = "Noise once in each site's moments, which serve every round and every such method"
        return cls((Placement.SITE,), f"{note}{f'; not with {unless}' if unless else ''}.", instead)


class Adjacency(StrEnum):
    """Which data sets are neighbours.

    Differential privacy limits how well a result shows which of two neighbours it was made from.
    """

    ADD_REMOVE = "add_remove"
    REPLACE = "replace"


@dataclass(frozen=True)
class Clip:
    """How sites clip each record before they use it, under differential privacy.

    squared_norm: R^2. A record whose scaled variables have a larger L2 norm than R is scaled down
        to norm R. R is at most the largest norm that the public bounds allow
    grid_bits: values are truncated, towards zero, to multiples of 2**-grid_bits
    person_square: P^2. If the squared norms of a person's records add up to more than P^2, all
        these records are scaled down together. None if there is no such limit
    records_per_person: m, the largest number of records of a person at a site
    constant: c, in moments of vectors (c, u), a multiple of the grid
    whole: whether c is part of the record: R and P are then limits for (c, u), and scale it, too
    """

    squared_norm: float
    grid_bits: int
    person_square: float | None = None
    records_per_person: int = 1
    constant: float = 0.5
    whole: bool = False

    @property
    def norm(self) -> float:
        """R, rounded to float64."""
        return math.sqrt(self.squared_norm)

    @property
    def mean_square(self) -> float:
        """Q, the largest mean of a person's m squared norms: P^2 / m, at most R^2."""
        if self.person_square is None:
            return self.squared_norm
        return min(self.squared_norm, self.person_square / self.records_per_person)


@dataclass(frozen=True)
class Noise:
    """The noise of one stage, which is public. Only the random numbers themselves are secret.

    Variances are in units of (2**-fraction_bits)^2.

    variance: with placement `site`, the variance of the noise of each site. With `sum` and `round`,
        the noise of all sites except `colluding` of them has together at least this variance
    fraction_bits: fraction bits of the stage's fields
    colluding: number of sites whose noise does not count, because colluding sites reveal it
    min_sites: the smallest number of sites that a sum can cover
    weights: the variance of each number is multiplied by its weight (see `Sensitivity`)
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
        """Return the variance of the noise in a sum over `cohort` sites, for a number of weight 1.

        The result is in the squared units of the fields; `site_variance` is in squared steps.
        """
        return float(cohort * site_variance) * 4.0**-self.fraction_bits
