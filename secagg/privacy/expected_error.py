"""Predict, before any record is read, whether a regression will be usable under noise.

The size of the noise is known beforehand, and it does not depend on the records. So its expected
effect on a regression can be computed from public numbers and from assumptions about the records:
their means, spread, correlation and explained variance (`stated`, `spread`, `correlation`,
`indicator_size`, `indicator_spread`, `explained`). Clipping records to norm R multiplies all
variances by E min(q, R^2) / E q, where q is the squared norm of a record and E the expectation.

The predicted error compares the slopes with those of the fit without noise. It is relative to the
size of the slopes per standard deviation. With noise in the moments, it is formula (1) in
docs/math/expected-error.md. With noise in every round, it consists of the effect of the noise (2)
and the remaining distance to the optimum (3). That page also states the assumptions. `ratio` is the
expected spectral norm of the noise divided by the smallest eigenvalue of the scatter matrix. If the
ratio is 1 or more, the noisy matrix may not even be positive definite.

Not covered: sampling error and the bias of clipping. The error is that of all slopes together. It
depends on the spread, so `error_if_narrow` is the error if continuous variables whose spread is
assumed, and not stated by the job, vary half as much. The error of a single slope, relative to its
own size, can be several times larger: if the slope is small, or its variable has a smaller spread
than the others. This module reads no record, so it uses up no budget.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from itertools import product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincc

from secagg.contracts import FisherLaw
from secagg.contracts.noise import Placement
from secagg.errors import UsageError
from secagg.privacy.accounting.gaussian_dp import gaussian_epsilon, gaussian_mu

Vector = NDArray[np.float64]

GREEN_ERROR = 0.1
USABLE_ERROR = 0.3
MAX_EPSILON = 100.0  # of a job
_CONVERGED = 0.05
"""If the remaining distance to the optimum is below this, more rounds hardly reduce the error."""
_MAX_ROUNDS = 10_000

LINEAR: Final = FisherLaw()


class Verdict(StrEnum):
    """Green: the noise has little effect. Amber: signs and large effects are usable.

    Red: the result will not be usable, so do not run the job. A search that has more than a
    twentieth of the way to the optimum before it, without any noise, is never green.
    """

    GREEN = "green"
    AMBER = "amber"
    RED = "red"


@dataclass(frozen=True)
class Assumptions:
    """What is assumed about the records, from public knowledge.

    records: number of records of all sites together
    continuous, indicators: number of continuous variables, and of 0/1 variables, including the
        outcome; together at least 2. The outcome counts as continuous if there is any continuous
        variable, but as 0/1 if the law says so
    squared_norm: R^2, where R is the norm to which records are clipped
    law: the Fisher weights of the regression's family. In logistic regression, `explained` is the
        explained share of the variance of the latent logistic variable. (At 0.2 the area under the
        ROC curve is about 0.73.) The outcome is as frequent as `indicator_spread` implies, by
        default in a fifth of the records
    stated: for each continuous variable, the outcome last, its (mean, standard deviation), or None
        if these are assumed: 0 and `spread`. () if all are assumed
    others: mean squared length of the variables of a record that are not in the regression
    """

    records: int
    continuous: int
    indicators: int
    squared_norm: float
    law: FisherLaw = LINEAR
    indicator_size: float = 0.5
    spread: float = 0.2
    indicator_spread: float = 0.4
    correlation: float = 0.3
    explained: float = 0.2
    stated: tuple[tuple[float, float] | None, ...] = ()
    others: float = 0.0

    @property
    def columns(self) -> list[tuple[float, float]]:
        """Mean and standard deviation of each continuous variable, before clipping."""
        stated = self.stated or (None,) * self.continuous
        return [(0.0, self.spread) if each is None else each for each in stated]

    @property
    def guessed(self) -> bool:
        """Whether the spread of a continuous variable is assumed, and not stated."""
        return self.continuous > sum(each is not None for each in self.stated)

    @property
    def outcome_variance(self) -> float:
        """The variance p (1 - p) of a 0/1 outcome; p is its frequency."""
        return (self.indicator_spread / self.indicator_size) ** 2 / 4


@dataclass(frozen=True)
class PlannedNoise:
    """The noise that a job requests.

    sensitivity: the largest change of one release, in L2 norm, that one unit (a record or a person)
        can cause; under the job's adjacency
    epsilon, delta: the guarantee of the whole job
    share: share in (0, 1] of the budget of mu^2 that these releases use together, where mu of a
        release is its sensitivity divided by the standard deviation of its noise
    rounds: number of rounds of a method that releases gradients (placement `round`); otherwise 1
    constant: c, if moments are released, of the vectors (c, u)
    """

    sensitivity: float
    epsilon: float
    delta: float
    placement: Placement
    sites: int
    colluding: int = 1
    share: float = 1.0
    rounds: int = 1
    constant: float = 0.5


@dataclass(frozen=True)
class Feasibility:
    """The verdict, and the smallest numbers that would make the result usable.

    error: expected relative error of the slopes, compared with the fit without noise; 0 to 1
    error_if_narrow: the same if continuous variables have half the assumed standard deviation; None
        if none is assumed
    left: the part of `error` that remains without noise, because the search ends after the last
        round; None for a method that releases moments
    ratio: spectral norm of the noise divided by the smallest eigenvalue of the scatter matrix; None
        for a method that releases gradients
    least_epsilon: the smallest epsilon at which `error` is 0.3; None if no epsilon is enough
    least_records: the smallest number of records at which `error` is 0.3 with the requested
        epsilon; None if no number is enough
    least_rounds: the smallest number of rounds after which at most a twentieth of the distance to
        the optimum remains; None if the requested rounds are enough, or if no number is
    """

    verdict: Verdict
    error: float
    error_if_narrow: float | None
    left: float | None
    ratio: float | None
    least_epsilon: float | None
    least_records: int | None
    least_rounds: int | None

    def words(self) -> str:
        line = f"{self.verdict.value}: expected coefficient error {percent(self.error)} "
        line += "(relative to the coefficients without noise)"
        if self.error_if_narrow is not None:
            line += f", {percent(self.error_if_narrow)} if columns vary half as much as assumed"
        line += "; "
        more = f"raise method.rounds to {self.least_rounds}"
        if self.least_epsilon is None or self.least_records is None:
            advice = "narrow the columns' bounds" if self.least_rounds is None else more
            return f"{line}not usable at any epsilon with these rounds: {advice}"
        if self.least_epsilon > MAX_EPSILON:
            needed = f"{two_digits(self.least_records)} records"
            return f"{line}not usable at any epsilon up to {MAX_EPSILON:g}: it needs {needed}"
        line += f"at most {percent(USABLE_ERROR)} needs epsilon {two_digits(self.least_epsilon)}"
        if self.verdict is Verdict.RED:
            line += f", or {two_digits(self.least_records)} records"
        return f"{line}; better: {more}" if self.ends_too_early else line

    @property
    def ends_too_early(self) -> bool:
        """Whether more rounds help: the search's end costs more than the noise.

        With more rounds, the noise of each is larger.
        """
        return self.least_rounds is not None and 2 * (self.left or 0.0) ** 2 > self.error**2

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, and the line from `words`, as plain data."""
        return {**asdict(self), "verdict": self.verdict.value, "words": self.words()}


def percent(share: float) -> str:
    """Write a share in whole per cent."""
    return "less than 1 %" if 0 < share < 0.01 else f"{100 * share:.0f} %"


@dataclass(frozen=True)
class _Predicted:
    """random: the effect of the noise, to first order; needed: the largest usable one; left: (3)"""

    error: float
    random: float
    needed: float
    left: float | None
    ratio: float | None
    least_rounds: int | None


def feasibility(assumed: Assumptions, planned: PlannedNoise) -> Feasibility:
    """Return the verdict about a job. Raises `UsageError` for numbers that are out of range."""
    _check(assumed, planned)
    found, narrow = _predicted(assumed, planned), None
    if assumed.guessed:
        narrow = _predicted(replace(assumed, spread=assumed.spread / 2), planned).error
    verdict = Verdict.RED
    if found.error <= USABLE_ERROR:
        converged = found.left is None or found.left <= _CONVERGED
        green = found.error <= GREEN_ERROR and converged
        verdict = Verdict.GREEN if green else Verdict.AMBER
    epsilon: float | None = None
    records: int | None = None
    if found.needed > 0:
        excess = found.random / found.needed  # `random` is proportional to 1 / (mu records)
        mu = gaussian_mu(planned.epsilon, planned.delta)
        epsilon = gaussian_epsilon(excess * mu, planned.delta)
        records = math.ceil(excess * assumed.records)
    return Feasibility(
        verdict, found.error, narrow, found.left, found.ratio, epsilon, records, found.least_rounds
    )


def _predicted(assumed: Assumptions, planned: PlannedNoise) -> _Predicted:
    """Return the predicted error and its parts."""
    mu = math.sqrt(planned.share) * gaussian_mu(planned.epsilon, planned.delta)
    noise = planned.sensitivity / mu * math.sqrt(sum_variance(planned))
    records, rho = assumed.records, assumed.correlation
    *predictors, outcome = variances(assumed)
    *squared_means, of_outcome = means(assumed)
    d = len(predictors)
    inverse = sum(1 / v for v in predictors) / d  # h
    values = [1 - rho] * (d - 1) + [1 + (d - 1) * rho]  # of C
    trace = sum(1 / value**2 for value in values)  # of C^-2
    law = assumed.law
    signal = law.signal(assumed.explained, outcome)  # g, the variance of the linear predictor
    flat = law.at_zero(assumed.outcome_variance)
    weight = flat * law.attenuation(signal)  # w
    noise_of_slopes = noise * math.sqrt(trace / (d * signal)) / (records * weight)
    if planned.placement is Placement.ROUND:
        of_sums = sum((1 + m) / v for m, v in zip(squared_means, predictors, strict=True))
        random = math.sqrt(2 * of_sums) * noise_of_slopes  # (2)
        squared_length = 1 + sum(predictors) + sum(squared_means)
        # steps allow for the largest weight, and those of the records are at most `flat` on average
        squared_length *= law.largest / flat
        parts = Counter(product(predictors, values))
        left, least_rounds = _distance_to_optimum(  # (3)
            parts, squared_length, lambda share: law.attenuation(signal * share), planned.rounds
        )
        needed = math.sqrt(max(USABLE_ERROR**2 - left**2, 0.0))
        error = min(1.0, math.hypot(random, left))
        return _Predicted(error, random, needed, left, None, least_rounds)
    scaled = [m / v for m, v in zip(squared_means, predictors, strict=True)]
    square = 1 + signal * inverse  # of w
    at_middle = of_outcome + signal * sum(scaled) / d  # of m'w
    of_means = (square * sum(scaled) + at_middle * d * inverse) / planned.constant**2
    random = math.sqrt(square * d * inverse + of_means) * noise_of_slopes  # (1)
    error = random / math.hypot(1.0, random)
    needed = USABLE_ERROR / math.sqrt(1 - USABLE_ERROR**2)
    ratio = 2 * noise * math.sqrt(d + 1) / (records * min(values) * min(predictors))
    return _Predicted(error, random, needed, None, ratio, None)


def sum_variance(planned: PlannedNoise) -> float:
    """Return the ratio of two variances: of all noise in a sum, and of the noise that counts.

    For the guarantee of a record, the noise of colluding sites does not count. In placement `site`,
    only the noise of the record's own site counts.
    """
    if planned.placement is Placement.SITE:
        return planned.sites
    return planned.sites / (planned.sites - planned.colluding)


def variances(assumed: Assumptions) -> list[float]:
    """Return the variances of the scaled variables after clipping; the outcome is the last."""
    share = _variance_after_clipping(assumed)
    found = [assumed.indicator_spread**2] * assumed.indicators
    found += [spread**2 for _, spread in assumed.columns]
    return [share * v for v in (found[::-1] if assumed.law.indicator else found)]


def means(assumed: Assumptions) -> list[float]:
    """Return the squared means of the scaled variables after clipping, in the same order."""
    share = _variance_after_clipping(assumed)
    found = [assumed.indicator_size**2 - assumed.indicator_spread**2] * assumed.indicators
    found += [mean**2 for mean, _ in assumed.columns]
    return [share * m for m in (found[::-1] if assumed.law.indicator else found)]


def _variance_after_clipping(assumed: Assumptions) -> float:
    """Return E min(q, R^2) / E q, the share of the variance that remains after clipping."""
    limit, squares = assumed.squared_norm, np.array([spread**2 for _, spread in assumed.columns])
    fixed = assumed.indicators * assumed.indicator_size**2 + assumed.others
    fixed += sum(mean**2 for mean, _ in assumed.columns)
    mean = float(squares.sum())
    if mean == 0 or limit <= fixed:
        return min(1.0, limit / (fixed + mean))
    rho = assumed.correlation**2
    relative = 2 * (rho + (1 - rho) * float(squares @ squares) / mean**2)
    shape, scaled = 1 / relative, (limit - fixed) / (mean * relative)
    clipped = mean * gammainc(shape + 1, scaled) + (limit - fixed) * gammaincc(shape, scaled)
    return float((fixed + clipped) / (fixed + mean))


def _distance_to_optimum(
    parts: Counter[tuple[float, float]],
    squared_length: float,
    attenuation: Callable[[float], float],
    rounds: int,
) -> tuple[float, int | None]:
    """Return the remaining distance (3), and the number of rounds after which it is small.

    The steps are equations (1) and (2) of the method `gradient`. The vector c and the weights W are
    those of docs/math/expected-error.md.

    parts: number of parts of c, by (variance, eigenvalue)
    squared_length: mean squared length of (1, x), which is the largest curvature that the method's
        steps allow for. The steps multiply it by the largest weight, which in logistic regression
        is 1/4, and the weight W of slopes of zero is p (1 - p). So here it is divided by
        4 p (1 - p), and W by its value there
    attenuation: W divided by this value, for a share of the linear predictor's variance
    """
    variance, eigenvalue = np.array(list(parts)).T
    count = np.array(list(parts.values()))
    curvature, signal = variance * eigenvalue / squared_length, count * eigenvalue

    def weight(share: Vector) -> float:
        variance_share = float(signal @ share**2 / signal.sum())
        return attenuation(variance_share)

    at_end = weight(np.ones(len(count)))
    share = point = np.zeros(len(count))
    sums, momentum, requested = [np.zeros(len(count))], 1.0, 1.0
    for t in range(1, _MAX_ROUNDS + 1):
        gradient = curvature * (at_end - point * weight(point))
        before, share = share, point + gradient
        if (count / variance * gradient) @ (share - before) < 0:  # in scaled variables: b, not c
            momentum = 1.0
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        point = share + (momentum - 1) / following * (share - before)
        momentum = following
        sums.append(sums[-1] + point)
        missing = 1 - (sums[t] - sums[t // 2]) / (t - t // 2)
        distance = math.sqrt(float(np.average(missing**2, weights=count)))
        if t == rounds:
            requested = distance
        if t >= rounds and distance <= _CONVERGED:
            return requested, None if t == rounds else t
    return requested, None


def two_digits(number: float) -> str:
    """Write a number >= 0 with two digits, rounded up, so that the written number is enough too."""
    if number == 0:  # an epsilon: delta alone is enough
        return "0"
    step = 10.0 ** (math.floor(math.log10(number)) - 1)
    return f"{math.ceil(number / step) * step:.15g}" if number < 1e15 else f"{number:.1e}"


def _check(assumed: Assumptions, planned: PlannedNoise) -> None:
    """Raise `UsageError` for numbers that no data set and no job can have."""
    predictors = assumed.continuous + assumed.indicators - 1
    for name, fits in (
        ("records", assumed.records >= 1),
        ("number of variables", min(assumed.continuous, assumed.indicators) >= 0 < predictors),
        ("law", assumed.indicators >= 1 or not assumed.law.indicator),
        ("squared_norm", assumed.squared_norm > 0),
        ("spread", 0 < assumed.spread <= 1),
        ("stated", len(assumed.stated) in (0, assumed.continuous)),
        ("stated spread", all(0 < spread <= 1 for _, spread in assumed.columns)),
        ("indicators", 0 < assumed.indicator_spread <= assumed.indicator_size <= 1),
        ("correlation", -1 / max(predictors - 1, 1) < assumed.correlation < 1),
        ("explained", 0 < assumed.explained < 1),
        ("sensitivity", 0 < planned.sensitivity < math.inf),
        ("epsilon", 0 < planned.epsilon < math.inf),
        ("delta", 0 < planned.delta < 1),
        ("sites", planned.sites >= 1),
        (
            "colluding",
            0 <= planned.colluding < planned.sites or planned.placement is Placement.SITE,
        ),
        ("share", 0 < planned.share <= 1),
        ("rounds", planned.rounds >= 1),
        ("placement", planned.placement is not Placement.NONE),
    ):
        if not fits:
            raise UsageError("feasibility", f"{name} is out of range")
