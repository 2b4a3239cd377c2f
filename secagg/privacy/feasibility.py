"""Will the result be usable? From public numbers alone, before any record is read.

Noise for differential privacy does not shrink when there are few records, so whether a regression
survives it can be said beforehand. What the records are like is not known and is assumed:

    A continuous variable, scaled by its public bounds to [-1, 1], is centred and has the standard
    deviation `spread`. Bounds say what is possible, not what is likely: an age from 0 to 120 years
    with a standard deviation of 12 has 0.2. An indicator is plus or minus `indicator_size`, and has
    `indicator_spread`: 0.4 where a fifth of the records differ from the rest, at a size of 1/2. Any
    two variables have the same correlation, and the predictors explain the share `explained` of the
    outcome.

Clipping records to norm R shrinks all variances by E min(q, R^2) / E q, q a record's squared
length: its size squared for each indicator, and for k continuous variables about a gamma variable
with the mean and variance that normal ones give it, k spread^2 and 2 spread^4 times
k + k (k - 1) rho^2. Let D^2 be the d predictors' variances then, C their correlations (with the
eigenvalues 1 - rho, d - 1 times, and 1 + (d - 1) rho), A = n D C D their scatter matrix, and
b = D^-1 c the slopes; those per standard deviation, c, have |c|^2 = g. For linear regression
g = explained times the outcome's variance. With noise of standard deviation s in every released
number:

    moments   b~ - b = A^-1 (e - E b) to first order, E, e the noise of cross products:
              E|D (b~ - b)|^2 = s^2 (1 + |b|^2) h tr C^-2 / n^2,  h the mean of 1 / D^2        (1)
    rounds    the mean of T/2 points whose gradients have independent noise (Polyak & Juditsky
              1992): E|D (b~ - b)|^2 = s^2 (2 / T) h tr C^-2 / (n w)^2, w the mean weight of a
              record in the Hessian, 1 for linear regression; s^2 grows with T, so T cancels     (2)
              and what T rounds leave of the way from zero to c, by the method's own recursion,
              the curvature being w times the product of an eigenvalue of C and one of D^2       (3)

The error reported is relative to |c|: that of (2) and (3) for rounds (at most 1; what (3) says
below 0.2 is rough), and for moments e / root(1 + e^2), e that of (1): the error of the best
multiple of b~, which every analysis with some shrinkage is near. `ratio` is the
spectral norm expected of the noise, 2 s root(p) for a symmetric p x p matrix (Wigner), over the
least eigenvalue of A: from 1 on the noisy matrix may not even be positive definite.

Not covered: sampling error (the error is that against the fit without noise), bias of clipping,
single variables of much smaller spread, whose slopes suffer most. Nothing here is a promise of
privacy; and as nothing here read a record, it costs none.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from scipy.special import gammainc, gammaincc

from secagg.errors import UsageError
from secagg.noise import Placement
from secagg.privacy.gaussian import gaussian_epsilon, gaussian_mu

GREEN_ERROR = 0.1
USABLE_ERROR = 0.3


class Verdict(StrEnum):
    """Green: noise hardly shows. Amber: directions and large effects. Red: do not run it."""

    GREEN = "green"
    AMBER = "amber"
    RED = "red"


@dataclass(frozen=True)
class Assumed:
    """What is expected of the records, from public knowledge; see the module's text.

    records: in all sites together
    continuous, indicators: how many variables of either kind, the outcome among them; together at
        least 2. The outcome is continuous if there is any, but an indicator if `logistic`
    square: R^2, to which records are clipped
    logistic: log odds are modelled. `explained` is then the share of the variance of the latent
        logistic variable, whose residual has variance pi^2 / 3
    """

    records: int
    continuous: int
    indicators: int
    square: float
    logistic: bool = False
    indicator_size: float = 0.5
    spread: float = 0.2
    indicator_spread: float = 0.4
    correlation: float = 0.3
    explained: float = 0.5


@dataclass(frozen=True)
class Noised:
    """The noise that a job asks for.

    touch: L2 sensitivity of one release under the job's adjacency, for its unit of privacy
    share: of the budget of mu^2 that these releases have together, in (0, 1]
    rounds: of a method that releases gradients (placement `round`); otherwise 1
    """

    touch: float
    epsilon: float
    delta: float
    placement: Placement
    sites: int
    colluding: int = 1
    share: float = 1.0
    rounds: int = 1


@dataclass(frozen=True)
class Feasibility:
    """The verdict, and what would be enough; see the module's text.

    error: expected relative error of the slopes, 0 to 1, against the fit without noise
    ratio: of the noise's spectral norm to the least eigenvalue of the scatter; None for gradients
    least_epsilon: the smallest epsilon at which `error` is 0.3; None where none is enough
    least_records: as many records would do at the epsilon asked for; None likewise
    """

    verdict: Verdict
    error: float
    ratio: float | None
    least_epsilon: float | None
    least_records: int | None

    def words(self) -> str:
        """Return one line for the plan."""
        line = f"{self.verdict.value}: expected coefficient error {100 * self.error:.2g} %"
        if self.least_epsilon is None or self.least_records is None:
            return f"{line}; usable at no epsilon: raise method.rounds"
        line += f"; smallest usable epsilon {_two_digits(self.least_epsilon)}"
        if self.verdict is Verdict.RED:
            line += f", or {_two_digits(self.least_records)} records"
        return line

    def to_dict(self) -> dict[str, Any]:
        """Return the fields and the line as plain data."""
        return {**asdict(self), "verdict": self.verdict.value, "words": self.words()}


def feasibility(assumed: Assumed, noised: Noised) -> Feasibility:
    """Return whether the result will be usable. Raises `UsageError` for impossible numbers."""
    _check(assumed, noised)
    mu = math.sqrt(noised.share) * gaussian_mu(noised.epsilon, noised.delta)
    noise = noised.touch / mu * math.sqrt(_in_sum(noised))
    records, rho = assumed.records, assumed.correlation
    *predictors, outcome = _variances(assumed)
    d = len(predictors)
    inverse = sum(1 / v for v in predictors) / d  # h
    values = [1 - rho] * (d - 1) + [1 + (d - 1) * rho]  # of C
    trace = sum(1 / value**2 for value in values)  # of C^-2
    weight, signal = 1.0, assumed.explained * outcome  # w, g
    if assumed.logistic:
        weight, signal = _logistic(assumed.explained)
    noise_of_slopes = noise * math.sqrt(inverse * trace / signal) / (records * weight)
    ratio: float | None = None
    if noised.placement is Placement.ROUND:
        random = math.sqrt(2.0) * noise_of_slopes  # (2)
        longest = 1 + sum(predictors) + _off_centre(assumed)
        steepest = longest / 4 if assumed.logistic else longest
        shares = [
            _left(weight * variance * value / steepest, noised.rounds) ** 2
            for variance in predictors
            for value in values
        ]
        left = math.sqrt(sum(shares)) / d  # (3)
        error = min(1.0, math.hypot(random, left))
        needed = math.sqrt(max(USABLE_ERROR**2 - left**2, 0.0))  # of `random`
    else:
        random = math.sqrt(1 + signal * inverse) * noise_of_slopes  # (1)
        error = random / math.hypot(1.0, random)
        needed = USABLE_ERROR / math.sqrt(1 - USABLE_ERROR**2)
        ratio = 2 * noise * math.sqrt(d + 1) / (records * min(values) * min(predictors))
    verdict = Verdict.RED
    if error <= USABLE_ERROR:
        verdict = Verdict.GREEN if error <= GREEN_ERROR else Verdict.AMBER
    if needed == 0:
        return Feasibility(verdict, error, ratio, None, None)
    excess = random / needed  # and `random` is proportional to 1 / mu and to 1 / records
    least_epsilon = gaussian_epsilon(excess * mu / math.sqrt(noised.share), noised.delta)
    return Feasibility(verdict, error, ratio, least_epsilon, math.ceil(excess * records))


def _in_sum(noised: Noised) -> float:
    """Return the variance of noise in the sum, in units of what protects a record."""
    if noised.placement is Placement.SITE:
        return noised.sites
    return noised.sites / (noised.sites - noised.colluding)


def _variances(assumed: Assumed) -> list[float]:
    """Return the variances of the scaled variables, as clipped; the outcome's last."""
    kept = _kept(assumed)
    continuous, indicator = kept * assumed.spread**2, kept * assumed.indicator_spread**2
    found = [indicator] * assumed.indicators + [continuous] * assumed.continuous
    return found[::-1] if assumed.logistic else found


def _kept(assumed: Assumed) -> float:
    """Return E min(q, R^2) / E q, the share of their variance that clipping leaves."""
    k, square = assumed.continuous, assumed.square
    fixed = assumed.indicators * assumed.indicator_size**2
    if k == 0 or square <= fixed:
        return min(1.0, square / (fixed + k * assumed.spread**2))
    mean, relative = k * assumed.spread**2, 2 * (1 + (k - 1) * assumed.correlation**2) / k
    shape, limit = 1 / relative, (square - fixed) / (mean * relative)
    least = mean * gammainc(shape + 1, limit) + (square - fixed) * gammaincc(shape, limit)
    return float((fixed + least) / (fixed + mean))


def _logistic(explained: float) -> tuple[float, float]:
    """Return (w, g) for log odds of variance g: about the mean of the logistic density."""
    signal = explained / (1 - explained) * math.pi**2 / 3
    return 0.25 / math.sqrt(1 + math.pi * signal / 8), signal


def _off_centre(assumed: Assumed) -> float:
    """Return the sum of the predictors' squared means."""
    outcome = assumed.logistic or assumed.continuous == 0
    off_centre = assumed.indicator_size**2 - assumed.indicator_spread**2
    return _kept(assumed) * (assumed.indicators - outcome) * off_centre


@cache
def _left(curvature: float, rounds: int) -> float:
    """Return a part of (3) by equations (1) and (2) of the gradient method, along one eigenvector.

    curvature: over the steepest that its steps allow for, the mean squared length of (1, x), or a
    quarter of that for log odds. The distance from the optimum begins as 1; the points of the last
    half of the rounds are averaged.
    """
    distance = point = momentum = 1.0
    summed = 0.0
    for t in range(1, rounds + 1):
        before, distance = distance, (1 - curvature) * point
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        point = distance + (momentum - 1) / following * (distance - before)
        momentum = following
        if t > rounds // 2:
            summed += point
    return abs(summed) / (rounds - rounds // 2)


def _two_digits(number: float) -> str:
    """Return a positive number written with two digits, rounded up so that it still suffices."""
    step = 10.0 ** (math.floor(math.log10(number)) - 1)
    return f"{math.ceil(number / step) * step:.15g}" if number < 1e15 else f"{number:.1e}"


def _check(assumed: Assumed, noised: Noised) -> None:
    """Raise `UsageError` for numbers that no data set and no job can have."""
    predictors = assumed.continuous + assumed.indicators - 1
    for name, fits in (
        ("records", assumed.records >= 1),
        ("number of variables", min(assumed.continuous, assumed.indicators) >= 0 < predictors),
        ("logistic", assumed.indicators >= 1 or not assumed.logistic),
        ("square", assumed.square > 0),
        ("spread", 0 < assumed.spread <= 1),
        ("indicators", 0 < assumed.indicator_spread <= assumed.indicator_size <= 1),
        ("correlation", -1 / max(predictors - 1, 1) < assumed.correlation < 1),
        ("explained", 0 < assumed.explained < 1),
        ("touch", 0 < noised.touch < math.inf),
        ("epsilon", 0 < noised.epsilon < math.inf),
        ("delta", 0 < noised.delta < 1),
        ("sites", noised.sites >= 1),
        ("colluding", 0 <= noised.colluding < noised.sites or noised.placement is Placement.SITE),
        ("share", 0 < noised.share <= 1),
        ("rounds", noised.rounds >= 1),
        ("placement", noised.placement is not Placement.NONE),
    ):
        if not fits:
            raise UsageError("feasibility", f"{name} is out of range")
