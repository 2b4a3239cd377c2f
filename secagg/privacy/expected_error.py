"""Will the result be usable? From public numbers alone, before any record is read.

Noise for differential privacy does not shrink when there are few records, so whether a regression
survives it can be computed beforehand. The records are not known, so their spread, correlation and
explained variance are assumed (`spread`, `indicator_size`, `indicator_spread`, `explained`).
Clipping to norm R shrinks all variances by E min(q, R^2) / E q, q a record's squared length.

The error is relative to the slopes per standard deviation: that of the noise in the moments (1), or
that of the noise in every round (2) with what the rounds leave of the way to the optimum (3).
`ratio` is the expected spectral norm of the noise over the least eigenvalue of the scatter matrix:
from 1 on, the noisy matrix may not even be positive definite.

docs/math/expected-error.md states the assumptions and derives (1) to (3).

Not covered: sampling error (the error is that against the fit without noise), the bias of clipping,
and single variables with a much smaller spread, whose slopes suffer most. Nothing here is a
guarantee of privacy, and nothing here reads a record, so it costs no privacy.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincc

from secagg.contracts.noise import Placement
from secagg.errors import UsageError
from secagg.privacy.accounting.gaussian_dp import gaussian_epsilon, gaussian_mu

Vector = NDArray[np.float64]

GREEN_ERROR = 0.1
USABLE_ERROR = 0.3
_LITTLE_LEFT = 0.05
"""Of the way: then more rounds do not show beside the rest of a green error."""
_MAX_ROUNDS = 10_000


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

    sensitivity: float
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
    least_rounds: so many rounds would leave at most a twentieth of the way, where those asked for
        leave more; None also where no number of rounds would
    """

    verdict: Verdict
    error: float
    ratio: float | None
    least_epsilon: float | None
    least_records: int | None
    least_rounds: int | None

    def words(self) -> str:
        """Return one line for the plan."""
        line = f"{self.verdict.value}: expected coefficient error {percent(self.error)} "
        line += "(how far noise moves the slopes, of their size"
        more = f"method.rounds to {self.least_rounds}"
        if self.least_epsilon is None or self.least_records is None:
            advice = "narrow the columns' bounds" if self.least_rounds is None else f"raise {more}"
            return f"{line}, or too few rounds leave them off); usable at no epsilon: {advice}"
        line += f"); usable, at most {percent(USABLE_ERROR)}, from epsilon "
        line += _two_digits(self.least_epsilon)
        if self.verdict is Verdict.RED:
            line += f", or from {_two_digits(self.least_records)} records"
        return line if self.least_rounds is None else f"{line}; better: raise {more}"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields and the line as plain data."""
        return {**asdict(self), "verdict": self.verdict.value, "words": self.words()}


def percent(share: float) -> str:
    """Write a share in whole per cent."""
    return "less than 1 %" if 0 < share < 0.01 else f"{100 * share:.0f} %"


def feasibility(assumed: Assumed, noised: Noised) -> Feasibility:
    """Return whether the result will be usable. Raises `UsageError` for impossible numbers."""
    _check(assumed, noised)
    mu = math.sqrt(noised.share) * gaussian_mu(noised.epsilon, noised.delta)
    noise = noised.sensitivity / mu * math.sqrt(_in_sum(noised))
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
    least_rounds: int | None = None
    if noised.placement is Placement.ROUND:
        random = math.sqrt(2.0) * noise_of_slopes  # (2)
        longest = 1 + sum(predictors) + _off_centre(assumed)
        parts = Counter(product(predictors, values))
        log_odds = signal if assumed.logistic else 0.0
        left, least_rounds = _left(parts, longest, log_odds, noised.rounds)  # (3)
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
        return Feasibility(verdict, error, ratio, None, None, least_rounds)
    excess = random / needed  # and `random` is proportional to 1 / mu and to 1 / records
    least_epsilon = gaussian_epsilon(excess * mu / math.sqrt(noised.share), noised.delta)
    least_records = math.ceil(excess * records)
    return Feasibility(verdict, error, ratio, least_epsilon, least_records, least_rounds)


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


def _left(
    parts: Counter[tuple[float, float]], longest: float, log_odds: float, rounds: int
) -> tuple[float, int | None]:
    """Return (3), and how many rounds would leave little: equations (1), (2) of `gradient`.

    parts: how many parts of c have a variance and an eigenvalue
    longest: the mean squared length of (1, x), the steepest that the method's steps allow for; for
        log odds it is a quarter of that, as the weight at zero is, over which W is taken here
    log_odds: their variance; 0 for linear regression
    """
    variance, eigenvalue = np.array(list(parts)).T
    count = np.array(list(parts.values()))
    curved, signal = variance * eigenvalue / longest, count * eigenvalue

    def weight(share: Vector) -> float:
        reached = float(signal @ share**2 / signal.sum())
        return 1 / math.sqrt(1 + math.pi / 8 * log_odds * reached)  # as in `_logistic`

    at_end = weight(np.ones(len(count)))
    share, point = np.zeros(len(count)), np.zeros(len(count))
    sums, momentum, left = [np.zeros(len(count))], 1.0, 1.0
    for t in range(1, _MAX_ROUNDS + 1):
        gradient = curved * (at_end - point * weight(point))
        before, share = share, point + gradient
        if (count / variance * gradient) @ (share - before) < 0:  # in scaled variables, b not c
            momentum = 1.0
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        point = share + (momentum - 1) / following * (share - before)
        momentum = following
        sums.append(sums[-1] + point)
        missing = 1 - (sums[t] - sums[t // 2]) / (t - t // 2)
        now = math.sqrt(float(np.average(missing**2, weights=count)))
        if t == rounds:
            left = now
        if t >= rounds and now <= _LITTLE_LEFT:
            return left, None if t == rounds else t
    return left, None


def _two_digits(number: float) -> str:
    """Return a number from 0 on written with two digits, rounded up so that it still suffices."""
    if number == 0:  # an epsilon of which delta alone is enough
        return "0"
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
        ("touch", 0 < noised.sensitivity < math.inf),
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
