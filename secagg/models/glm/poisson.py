"""Poisson regression: a count with log mean eta. With an exposure e, the rate is exp(x'beta).

With mu = exp(eta), the log-likelihood of a record is y eta - mu - log y!, its derivative y - mu,
and the Fisher weight mu. Terms have no bound of their own, so a site refuses coefficients that give
a record a larger mu than a public C. No fit has such coefficients: let N be the largest number of
records, M the largest count, |o| <= h, and B = 128 N M. The first trial is the fit without
predictors, mu = r exp(o) with sum mu = Y = sum y, so mu <= N M. As Y >= 1, mu >= exp(-2h) / N, so
its log-likelihood is at least
-Y - sum y log(1 / mu) - Y log M >= -N M (1 + log N M + 2h) >= -59 N M, for N M <= 10^17 and
h <= log 10^4. A record with mu >= B has at most y log B - B <= -B (1 - log B / (128 N)) < -82 N M,
others at most 0, so such a trial is not accepted. A step from an accepted one changes eta by at
most 4 (`longest_step`), so all trials have mu < exp(4) B < 64 B <= C.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import gammaln, pdtr, xlogy

from secagg.contracts import MAX_PREDICTOR, Family, Outcome, OutcomeRange, TermBounds
from secagg.contracts.noise import Placements
from secagg.core.arrays import Array
from secagg.errors import JobError
from secagg.models.glm.newton import log_link_intercept
from secagg.models.glm.newton_regression import NewtonRegression


def _log_likelihood(y: Array, eta: Array) -> Array:
    """Return log P(y): that of mu = y, minus half the deviance, so that near y no digits cancel."""
    mu, count = np.exp(eta), np.maximum(y, 1.0)
    near = np.log1p(np.maximum(mu / count - 1, -0.5))
    log_ratio = np.where(2 * mu > y, near, eta - np.log(count))
    half_deviance = np.where(y > 0, mu - y - y * log_ratio, mu)
    return np.asarray(xlogy(y, y) - y - gammaln(y + 1) - half_deviance)


def _bounds(public: OutcomeRange) -> TermBounds:
    if (largest := public.records * public.high) > 1e17:
        raise JobError("sites.max_rows", "times the largest count exceeds 10^17", "Lower one.")
    C = 4.0 ** math.ceil(math.log2(max(64 * 128 * largest, math.exp(public.offset))) / 2)
    loss = 2.0 ** math.ceil(math.log2(C + MAX_PREDICTOR * public.high + gammaln(public.high + 1)))
    return TermBounds(log_likelihood=loss, score=C, weight=C, predictor=math.log(C))


def _clipped(eta: Array, limit: Array) -> tuple[Array, Array]:
    """Return the means of c and of c r. With F the distribution function and f(k) = F(k) - F(k-1),
    E r 1(y <= k) = -root(mu) f(k), and E r^2 1(y <= k) follows from E y (y - 1) 1(y <= k) =
    mu^2 F(k - 2).
    """
    mu = np.exp(eta)
    root = np.sqrt(mu)
    below, last = np.ceil(mu - limit * root) - 1, np.floor(mu + limit * root)  # y < -L; y <= L

    def cdf(k: Array) -> Array:
        return np.asarray(np.where(k < 0, 0.0, pdtr(np.maximum(k, 0.0), mu)))

    low, high = [cdf(below - j) for j in range(3)], [cdf(last - j) for j in range(3)]
    r_low, r_high = root * (low[1] - low[0]), root * (high[1] - high[0])  # E r 1(y <= k)
    squares = [mu * (at[2] - 2 * at[1] + at[0]) + at[1] for at in (low, high)]  # E r^2 1(y <= k)
    mean = limit * (1 - high[0] - low[0]) + r_high - r_low
    product = -limit * (r_high + r_low) + squares[1] - squares[0]
    return mean, product


POISSON = Family(
    name="poisson",
    effect="rate",
    outcome=Outcome.COUNT,
    mean=np.exp,
    log_likelihood=_log_likelihood,
    score=lambda y, eta: y - np.exp(eta),
    weight=np.exp,
    bounds=_bounds,
    null_intercept=log_link_intercept,
    longest_step=4.0,
    assumption="Standard errors assume counts whose variance is their mean, as Poisson's is.",
    clipped=_clipped,
)


@dataclass(frozen=True)
class Poisson(NewtonRegression):
    """Poisson regression of a column of counts."""

    outcome: str
    """The outcome: a column of counts."""
    fraction_bits: int = 54
    exposure: str | None = None
    """A continuous column, with `low` above 0, such as person-years. Its logarithm is added to the
    linear predictor with the coefficient 1. Results are then rates per unit of exposure."""

    name: ClassVar[str] = "poisson"
    title: ClassVar[str] = "Poisson regression"
    family: ClassVar[Family] = POISSON
    placements: ClassVar[Placements] = Placements(
        (),
        "Newton steps build on exact sums.",
        'Use method one_step with family = "poisson" and placement "round": it fits the same '
        "regression with noise.",
    )

    def exposure_column(self) -> str | None:
        """Return the exposure."""
        return self.exposure
