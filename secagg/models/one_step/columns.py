"""The columns of a one-step regression, and its kinds of sums."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import (
    LEAST_SPREAD_OF_LEVEL,
    Family,
    Outcome,
    PublicFacts,
    SiteRecords,
    Variable,
)
from secagg.core.arrays import Array
from secagg.errors import JobError
from secagg.models.common.coefficient_table import INTERCEPT
from secagg.models.common.gaussian import GAUSSIAN
from secagg.models.common.variables import choose, outcome_index
from secagg.models.glm.exposure import Exposure
from secagg.models.glm.logistic import BINOMIAL
from secagg.models.glm.poisson import POISSON

CENTRES, MOMENTS, LENGTHS = "centres", "products", "lengths"
FIRST_SCORES, SCORES = "first_scores", "scores"
_OF_LINEAR: Final = {CENTRES: 0.07, MOMENTS: 0.26, LENGTHS: 0.09, SCORES: 0.58}
_OF_OTHERS: Final = {CENTRES: 0.06, MOMENTS: 0.18, FIRST_SCORES: 0.22, LENGTHS: 0.08, SCORES: 0.46}
"""Shares of the budget."""
_OF_OWN_CENTRES = 0.2  # each site has fewer records than all together
_GRID_BITS = 16
_LEAST_SPREAD_OF_OUTCOME = 0.5  # of 0 and 1, or of counts
FAMILIES: Final = {each.name: each for each in (GAUSSIAN, BINOMIAL, POISSON)}
"""One that is not linear has `Family.clipped`."""


@dataclass(frozen=True)
class Columns:
    """Predictors and outcome of a regression, from the settings and what is public.

    positions: of the predictors' variables, and of the outcome's at the end
    variables: the same; p: number of coefficients, with the intercept
    grid_bits: records are put on a grid of 2^-grid_bits
    own_centres: whether each site has means of its own
    exposure: whose logarithm is the offset
    guessed: of each predictor, whether the job says something of its spread
    """

    positions: NDArray[np.int64]
    variables: tuple[Variable, ...]
    family: Family
    grid_bits: int
    own_centres: bool
    exposure: Exposure | None = None
    guessed: tuple[bool, ...] = ()

    @classmethod
    def of(
        cls,
        outcome: str,
        predictors: tuple[str, ...],
        family: str,
        public: PublicFacts,
        *,
        own_centres: bool,
        exposure: str | None = None,
    ) -> Columns:
        """Raises `JobError` for columns or settings that do not fit."""
        law, offset = FAMILIES[family], None
        counts = law.outcome is Outcome.COUNT
        if exposure is not None and not counts:
            what = f'does not go with family = "{family}"'
            raise JobError("method.exposure", what, "Leave it out, or choose a family of counts.")
        if own_centres and counts:
            what = f'"site" does not go with family = "{family}"'
            raise JobError("method.centre", what, 'Use "pooled".')
        if exposure is not None:
            offset = Exposure.of(public, exposure, (outcome, *predictors))
        if not law.linear:
            of_y = outcome_index(public, outcome, law.outcome, log=False)
        else:
            matches = choose(public, [outcome], "method.outcome")
            if len(matches) != 1:
                what = f"{outcome!r} has several indicators"
                raise JobError("method.outcome", what, "Name one of them as `column=level`.")
            of_y = int(matches[0])
        of_x = choose(public, predictors, "method.predictors", other_than=outcome)
        positions = np.array([*of_x, of_y], dtype=np.int64)
        bits = _GRID_BITS if public.clip is None else public.clip.grid_bits
        variables = tuple(public.variables[i] for i in positions)
        guessed = tuple(not _equal_shares(v, public) for v in variables[:-1])
        return cls(positions, variables, law, bits, own_centres, offset, guessed)

    @property
    def p(self) -> int:
        return len(self.positions)

    @property
    def binary(self) -> bool:
        return self.family.outcome is Outcome.BINARY and not self.family.linear

    @property
    def budgets(self) -> dict[str, float]:
        """Return the kinds of sums in their order, with their shares of the budget."""
        found = dict(_OF_LINEAR if self.family.linear else _OF_OTHERS)
        if self.own_centres:
            rest = (1 - _OF_OWN_CENTRES) / (1 - found[CENTRES])
            found = {name: rest * share for name, share in found.items()} | {
                CENTRES: _OF_OWN_CENTRES
            }
        return found

    @property
    def names(self) -> tuple[str, ...]:
        return (INTERCEPT, *(v.name for v in self.variables[:-1]))

    @property
    def centre(self) -> Array:
        """Return the guesses of the columns' means, scaled."""
        return np.array([v.typical_centre for v in self.variables])

    @property
    def spread(self) -> Array:
        """Return the guesses of the columns' standard deviations, scaled."""
        spread = np.array([v.typical_spread for v in self.variables])
        least = [LEAST_SPREAD_OF_LEVEL * v.indicator for v in self.variables[:-1]]
        least.append(0.0 if self.family.linear else _LEAST_SPREAD_OF_OUTCOME)
        half_ranges = [v.half_range for v in self.variables]
        return np.asarray(np.maximum(spread, np.array(least) / half_ranges))

    @property
    def said(self) -> Array:
        """Return what the job says of the predictors' spreads, relative to `spread`; 0: nothing."""
        told = np.array([v.typical_spread for v in self.variables[:-1]]) / self.spread[:-1]
        return np.asarray(np.where(self.guessed, told, 0.0))

    def unscaled(self, centre: Array) -> Array:
        """Return scaled values in the columns' own units."""
        return np.array(
            [v.midpoint + v.half_range * c for v, c in zip(self.variables, centre, strict=True)]
        )

    def offset(self, rows: SiteRecords) -> Array | float:
        """Return log exposure of each record, relative to the typical exposure."""
        if self.exposure is None:
            return 0.0
        return self.exposure.offset(rows.values) - (self._typical_exposure - self.exposure.middle)

    @property
    def log_exposure(self) -> float:
        """The log exposure to which the intercept belongs while the run goes on."""
        return 0.0 if self.exposure is None else self._typical_exposure

    @property
    def _typical_exposure(self) -> float:
        assert self.exposure is not None
        v = self.exposure.variable
        middle = v.midpoint + v.half_range * v.typical_centre
        return middle if v.log else math.log(middle)

    def first_values(self, rows: SiteRecords) -> Array:
        """Return u and y of each record for the first two sums: counts at the typical exposure."""
        values = rows.values[:, self.positions]
        if self.exposure is None:
            return values
        y, v = values[:, -1], self.variables[-1]
        rate = (v.midpoint + v.half_range * y) * np.exp(-self.offset(rows))
        return np.column_stack([values[:, :-1], (rate - v.midpoint) / v.half_range])

    @property
    def half_ranges(self) -> Array:
        return np.array([v.half_range for v in self.variables])


def _equal_shares(variable: Variable, public: PublicFacts) -> bool:
    """Return whether this is a level of which no share is stated: all are taken to be equal."""
    levels = len(public.levels.get(variable.column, ()))
    if not (variable.indicator and levels):
        return False
    share = variable.midpoint + variable.half_range * variable.typical_centre
    return math.isclose(share, 1 / levels)
