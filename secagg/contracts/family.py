"""What a family of regressions is: the distribution of the outcome, and its link.

A generalised linear model (McCullagh & Nelder, *Generalized Linear Models*, 1989) has a linear
predictor eta_i = x_i'beta + o_i, with o_i a known offset or 0, and the mean mu_i of the outcome y_i
is a function of eta_i. The functions here take the numbers of all records at once. They are pure,
and finite for every outcome of its kind and |eta| <= `MAX_PREDICTOR`.

The core of all fits (`secagg.models.glm.newton`) limits each record's term to the family's
`TermBounds`. So a family whose bounds are too small gives a wrong fit, but never an overflow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from secagg.contracts.data import Variable
from secagg.core.arrays import Array

MAX_PREDICTOR: Final = 100.0
"""Largest |eta| of a record that a site answers without noise. In a fit it is far smaller: a binary
outcome with this log odds occurs once in 10^43. At larger coefficients all records but a few have
a weight of 0, so a coordinator could step over the records one by one."""


class Outcome(StrEnum):
    """The kind of column that an outcome is."""

    NUMBER = "continuous"
    BINARY = "binary"
    COUNT = "count"


@dataclass(frozen=True, kw_only=True)
class OutcomeRange:
    """What is public about the records of a fit.

    records: the largest number of records of all sites together
    low, high: bounds of the outcome
    offset: the largest |o|
    """

    records: int
    low: float
    high: float
    offset: float


@dataclass(frozen=True, kw_only=True)
class TermBounds:
    """Limits of the size of one record's terms: powers of two, and `weight` a power of four.

    predictor: the largest linear predictor that a site answers, if it is below `MAX_PREDICTOR`; in
        `secagg.models.glm.newton` a larger one counts as this one
    least_predictor: the smallest, if terms grow as it falls, as gamma's y / mu
    """

    log_likelihood: float
    score: float
    weight: float
    predictor: float = math.inf
    least_predictor: float = -math.inf


@dataclass(frozen=True)
class FisherLaw:
    """The records' mean Fisher weight, for a normal linear predictor. It is used to plan noise.

    Without arguments, it is the law of linear regression, whose weights are all 1.

    largest: the largest weight of a record
    indicator: whether the outcome is 0 or 1
    explained: whose variance the predictors explain, in words
    signal: from the explained share and the outcome's variance to the linear predictor's variance
    at_zero: from the outcome's variance to the mean weight at slopes of 0
    attenuation: from the linear predictor's variance to the mean weight, divided by `at_zero`
    """

    largest: float = 1.0
    indicator: bool = False
    explained: str = "the outcome's variance"
    signal: Callable[[float, float], float] = lambda share, variance: share * variance
    at_zero: Callable[[float], float] = lambda variance: 1.0
    attenuation: Callable[[float], float] = lambda signal: 1.0


@dataclass(frozen=True, kw_only=True)
class Family:
    """A family of regressions.

    name: as in results
    outcome: the kind of outcome
    mean: from eta to mu
    log_likelihood: from (y, eta) to l, for a dispersion of 1
    score: from (y, eta) to dl / d eta
    weight: from eta to the Fisher weight, the expected -d^2 l / d eta^2
    score_size: |score| without loss of digits, if it needs another formula
    bounds: of a record's terms; None if no method fits the family by Newton's method
    effect: "odds" if the exponential of a coefficient is an odds ratio; "" if it has no name
    null_intercept: from the sums of score and weight at eta = offset to the intercept of the model
        without predictors, -inf if it has none. Newton's method begins there. None: it begins at 0
    longest_step: the largest sum |d_j| of a step that is tried first
    linear: whether mu = eta. Outcome and coefficients are then in units of the scaled outcome
    dispersed: whether the variance has a factor that is estimated, the dispersion. l is then minus
        half the deviance
    fisher: needed only where noise is planned
    assumption: what its standard errors assume, for the result
    clipped: from eta and limits L > 0 to the means of c and of c r, with the Pearson residual
        r = score / root(weight) and c = clip(r, -L, L). Needed for limits that move no coefficient
    """

    name: str
    outcome: Outcome
    mean: Callable[[Array], Array]
    log_likelihood: Callable[[Array, Array], Array]
    score: Callable[[Array, Array], Array]
    weight: Callable[[Array], Array]
    bounds: Callable[[OutcomeRange], TermBounds] | None = None
    score_size: Callable[[Array, Array], Array] | None = None
    effect: str = ""
    null_intercept: Callable[[float, float], float] | None = None
    longest_step: float = math.inf
    linear: bool = False
    dispersed: bool = False
    fisher: FisherLaw | None = None
    assumption: str = ""
    clipped: Callable[[Array, Array], tuple[Array, Array]] | None = None

    def outcomes(self, scaled: Array, variable: Variable) -> Array:
        """Return y from a stored variable. Clipping a record's norm keeps the sign of 0 and 1."""
        if self.linear:
            return scaled
        if self.outcome is Outcome.BINARY:
            return (scaled > 0).astype(np.float64)
        own = variable.midpoint + variable.half_range * scaled
        return np.rint(own) if self.outcome is Outcome.COUNT else own

    def score_sizes(self, y: Array, eta: Array) -> Array:
        """Return |dl / d eta| of each record."""
        return np.abs(self.score(y, eta)) if self.score_size is None else self.score_size(y, eta)
