"""Will the result be usable? From public numbers alone, before any record is read.

Noise for differential privacy does not shrink when there are few records, so whether a regression
survives it can be said beforehand. What the records are like is not known and is assumed:

    scaled variables are centred, with a standard deviation `spread` (public bounds are that much
    wider than the data: 0.3 means bounds at 3.3 standard deviations either side of the mean), any
    two have the same correlation, and p - 1 of them explain the share `explained` of the p-th.

Clipping to norm R leaves them the variance v = E min(q, R^2) / p. Here q is a record's squared
length: about a gamma variable with the mean and variance that normal records give it, p spread^2
and 2 spread^4 (p + p (p - 1) rho^2). The predictors' scatter matrix A then has the eigenvalues
n v (1 - rho) (p - 2 times) and n v (1 + (p - 2) rho), and |b|^2 = explained for the slopes b of
equally scaled variables, on average over their directions. With noise of standard deviation s in
every released number:

    moments   b~ - b = A^-1 (e - E b) to first order, E, e the noise of cross products:
              E|b~ - b|^2 = s^2 (1 + |b|^2) tr A^-2                                            (1)
    rounds    the mean of T/2 points whose gradients have independent noise (Polyak & Juditsky
              1992): E|b~ - b|^2 = s^2 (2 / T) tr (w A)^-2, w the mean weight of a record in the
              Hessian (1 for linear regression); s^2 grows with T, and T cancels               (2)
              and what T rounds leave of the way from zero to b, where the objective is flattest (3)

(3) is found by playing the method's recursion on one number. The error reported is relative to |b|:
root(E|b~ - b|^2) / |b| = e for rounds (at most 1), and e / root(1 + e^2) for moments, the error of
the best multiple of b~, which every analysis with some shrinkage is near. `ratio` is the spectral
norm expected of the noise, 2 s root(p) for a symmetric p x p matrix (Wigner), over the least
eigenvalue of A: from 1 on the noisy matrix may not even be positive definite.

Not covered: sampling error (the error is that against the fit without noise), bias of clipping,
variables off the centre of their bounds or of much smaller spread than assumed. Nothing here is a
promise of privacy; and as nothing here read a record, it costs none.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from enum import StrEnum
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

    records: in all sites together; variables: p, the outcome among them, at least 2
    square: R^2, to which records are clipped
    logistic: the outcome is binary and its log odds are modelled. `explained` is then the share of
        the variance of the latent logistic variable, whose residual has variance pi^2 / 3
    """

    records: int
    variables: int
    square: float
    spread: float = 0.3
    correlation: float = 0.3
    explained: float = 0.5
    logistic: bool = False


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
    gradients = noised.placement is Placement.ROUND
    scatter = _eigenvalues(assumed)
    weight, slopes = _weight_and_slopes(assumed)
    roots = math.sqrt(sum(1 / (weight * value) ** 2 for value in scatter)) / slopes
    if gradients:
        random = noise * math.sqrt(2.0) * roots  # (2)
        left = _left_over(weight, min(scatter) / assumed.records, assumed, noised.rounds)
        error = min(1.0, math.hypot(random, left))
        needed = math.sqrt(max(USABLE_ERROR**2 - left**2, 0.0))  # of `random`
    else:
        random = noise * math.sqrt(1 + slopes**2) * roots  # (1)
        error = random / math.hypot(1.0, random)
        needed = USABLE_ERROR / math.sqrt(1 - USABLE_ERROR**2)
    verdict = Verdict.RED
    if error <= USABLE_ERROR:
        verdict = Verdict.GREEN if error <= GREEN_ERROR else Verdict.AMBER
    # `random` is proportional to 1 / mu and to 1 / n
    least_mu = mu * random / needed if needed > 0 else math.inf
    least_epsilon = gaussian_epsilon(least_mu / math.sqrt(noised.share), noised.delta)
    return Feasibility(
        verdict=verdict,
        error=error,
        ratio=None if gradients else 2 * noise * math.sqrt(assumed.variables) / min(scatter),
        least_epsilon=least_epsilon if needed > 0 else None,
        least_records=math.ceil(assumed.records * random / needed) if needed > 0 else None,
    )


def _in_sum(noised: Noised) -> float:
    """Return the variance of noise in the sum, in units of what protects a record."""
    if noised.placement is Placement.SITE:
        return noised.sites
    return noised.sites / (noised.sites - noised.colluding)


def _eigenvalues(assumed: Assumed) -> list[float]:
    """Return the eigenvalues of the predictors' scatter matrix."""
    size = assumed.records * _variance(assumed)
    predictors, rho = assumed.variables - 1, assumed.correlation
    return [size * (1 - rho)] * (predictors - 1) + [size * (1 + (predictors - 1) * rho)]


def _variance(assumed: Assumed) -> float:
    """Return v, the variance of a scaled variable after clipping."""
    p = assumed.variables
    mean, relative = p * assumed.spread**2, 2 * (1 + (p - 1) * assumed.correlation**2) / p
    shape, scale = 1 / relative, mean * relative
    limit = assumed.square / scale
    whole, cut = gammainc(shape + 1, limit), gammaincc(shape, limit)
    return float(mean * whole + assumed.square * cut) / p


def _weight_and_slopes(assumed: Assumed) -> tuple[float, float]:
    """Return (w, |b|), both 1-ish for linear regression: see the module's text.

    With log odds of variance t, the mean of the logistic density is about 1 / (4 root(1 + pi t/8)).
    """
    if not assumed.logistic:
        return 1.0, math.sqrt(assumed.explained)
    latent = assumed.explained / (1 - assumed.explained) * math.pi**2 / 3
    weight = 0.25 / math.sqrt(1 + math.pi * latent / 8)
    return weight, math.sqrt(latent / _variance(assumed))


def _left_over(weight: float, flattest: float, assumed: Assumed, rounds: int) -> float:
    """Return (3), by equations (1) and (2) of the gradient method along one eigenvector.

    The steepest that it allows for is the records' mean squared length, 1 + (p - 1) v, and a
    quarter of that for log odds. The distance from the optimum begins as 1; the points of the last
    half of the rounds are averaged.
    """
    longest = 1 + (assumed.variables - 1) * _variance(assumed)
    shrink = 1 - weight * flattest / (longest / 4 if assumed.logistic else longest)
    distance = point = momentum = 1.0
    summed = 0.0
    for t in range(1, rounds + 1):
        before, distance = distance, shrink * point
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
    least_correlation = -1 / max(assumed.variables - 2, 1)
    for name, fits in (
        ("records", assumed.records >= 1),
        ("variables", assumed.variables >= 2),
        ("square", assumed.square > 0),
        ("spread", 0 < assumed.spread <= 1),
        ("correlation", least_correlation < assumed.correlation < 1),
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
