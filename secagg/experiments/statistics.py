"""What an experiment found, over its seeds: means, intervals, differences, a recommendation.

The interval of a mean is that of Student's t, at 95 %, over the seeds. Runs of the same seed use
the same records on every curve, so a curve is compared with a baseline by the mean of the
differences.

The recommendation. A goal is that a metric is below x in a share p of runs. At each point, the
logarithms of the metric over n seeds have mean m and standard deviation s, and m + k s is an upper
tolerance limit: with confidence 90 %, a share p of further runs is below exp(m + k s), if the
logarithms are normal (Krishnamoorthy and Mathew, *Statistical Tolerance Regions*, 2009, section
2.2: k = t(n - 1, sqrt(n) z_p; 0.9) / sqrt(n), with the quantile of the noncentral t distribution).
Values with zeros or ties, such as numbers of edges, are not normal. Their limit is that of any
distribution: the smallest order statistic r with P(Binomial(n, p) < r) >= 90 %, which exists from
n = 22 on for p = 0.9. The smallest epsilon from which on all limits are below x is recommended,
with a straight line between the logarithms of limits and of epsilons at two neighbouring points.
On other axes, only points are recommended. If more is better, as of an AUC a, then 1 - a is the
metric, and the goal "above x" is that it is below 1 - x.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from secagg.experiments.experiment import EPSILON, Planned
from secagg.experiments.one_run import BASELINES, NO_NOISE, RUN
from secagg.experiments.runner.cells import Cell, Outcome
from secagg.experiments.sweep import Goal

LEVEL = 0.95
CONFIDENCE = 0.9
Outcomes = Mapping[Cell, Outcome]


@dataclass(frozen=True)
class Mean:
    """A mean over seeds, with its interval; low and high are nan with one seed."""

    value: float
    low: float
    high: float
    runs: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Mean:
        """Return the mean of at least one value."""
        mean, n = float(np.mean(values)), len(values)
        if n == 1:
            return cls(mean, math.nan, math.nan, 1)
        half = float(stats.t.ppf((1 + LEVEL) / 2, n - 1) * np.std(values, ddof=1) / math.sqrt(n))
        return cls(mean, mean - half, mean + half, n)


@dataclass(frozen=True)
class PointResult:
    """What the runs at one point found.

    values: metric -> seed -> value; failed: seed -> line of the error; waiting: number of runs that
    were not computed yet; seconds: processor time of each run
    """

    values: Mapping[str, Mapping[int, float]]
    failed: Mapping[int, str]
    waiting: int
    seconds: Mapping[int, float]

    def mean(self, metric: str) -> Mean | None:
        """Return the mean of a metric; None if no run has it."""
        values = list(self.values.get(metric, {}).values())
        return Mean.of(values) if values else None


@dataclass(frozen=True)
class Recommendation:
    """The smallest epsilon that reaches the goal on a curve; None if no point does.

    limits: at each epsilon, the tolerance limit of the metric: the upper one, or the lower one of a
        share that is better if it is larger; reached: how many runs reached the goal
    """

    line: str
    epsilon: float | None
    limits: Mapping[float, float]
    reached: Mapping[float, int]


def results(planned: Planned, outcomes: Outcomes) -> dict[str, dict[float, PointResult]]:
    """Return what each point found: line -> place on the horizontal axis -> result."""
    return {
        line: {across: _point(cells, outcomes, RUN) for across, cells in along.items()}
        for line, along in planned.runs.items()
    }


def baselines(planned: Planned, outcomes: Outcomes) -> dict[str, dict[float, PointResult]]:
    """Return what each baseline found, by place; one place, 0, if it is the same everywhere."""
    return {
        name: {place: _point(cells, outcomes, name) for place, cells in planned.baselines.items()}
        for name in BASELINES
    }


def without_noise(planned: Planned, outcomes: Outcomes) -> dict[str, PointResult]:
    """Return what each line's own job finds without noise; empty if the axis is not epsilon."""
    if planned.sweep.across != EPSILON:
        return {}
    ((_, same),) = baselines(planned, outcomes)[NO_NOISE].items()
    return {
        line: _point(planned.exact[line], outcomes, RUN) if line in planned.exact else same
        for line in planned.runs
    }


def _point(cells: Mapping[int, Cell], outcomes: Outcomes, name: str) -> PointResult:
    values, failed, seconds = dict[str, dict[int, float]](), dict[int, str](), dict[int, float]()
    waiting = 0
    for seed, cell in cells.items():
        outcome = outcomes.get(cell)
        if outcome is None:
            waiting += 1
            continue
        if outcome.numbers is None:
            failed[seed] = outcome.failed or "unknown"
            continue
        seconds[seed] = outcome.seconds
        for metric, value in outcome.numbers.get(name, {}).items():
            values.setdefault(metric, {})[seed] = value
    return PointResult(dict(sorted(values.items())), failed, waiting, seconds)


def paired_difference(one: PointResult, other: PointResult, metric: str) -> Mean | None:
    """Return the mean of one minus the other over the seeds that both have; None without any."""
    a, b = one.values.get(metric, {}), other.values.get(metric, {})
    both = sorted(set(a) & set(b))
    return Mean.of([a[seed] - b[seed] for seed in both]) if both else None


def tolerance_factor(n: int, share: float, confidence: float = CONFIDENCE) -> float:
    """Return k of the one-sided normal tolerance limit m + k s of n >= 2 values."""
    z = float(stats.norm.ppf(share))
    return float(stats.nct.ppf(confidence, n - 1, math.sqrt(n) * z)) / math.sqrt(n)


def fewest_runs(share: float) -> int:
    """Return how many values a limit needs if some are zero or equal."""
    return math.ceil(math.log(1 - CONFIDENCE) / math.log(share) - 1e-9)


def upper_limit(values: Sequence[float], share: float) -> float:
    """Return the upper tolerance limit of positive or zero values (see above); inf without one."""
    n = len(values)
    if n < 2 or not all(0 <= value < math.inf for value in values):
        return math.inf
    if min(values) == 0 or len(set(values)) < n:
        enough = stats.binom.cdf(np.arange(n), n, share) >= CONFIDENCE
        return sorted(values)[int(np.argmax(enough))] if enough.any() else math.inf
    logs = np.log(values)
    return float(np.exp(np.mean(logs) + tolerance_factor(n, share) * np.std(logs, ddof=1)))


def recommendation(
    line: str, along: Mapping[float, PointResult], goal: Goal, *, between: bool = True
) -> Recommendation:
    """Return the smallest place on the axis from which on the goal is reached (see above).

    between: also places between two points. A run that failed, or has no value, does not reach
    the goal; a point with such runs is therefore skipped.
    """
    limits, reached = dict[float, float](), dict[float, int]()
    for epsilon in sorted(along):
        point = along[epsilon]
        values = [goal.loss(value) for value in point.values.get(goal.metric, {}).values()]
        reached[epsilon] = sum(value < goal.limit for value in values)
        whole = not point.failed and len(values) >= len(point.seconds)
        limits[epsilon] = upper_limit(values, goal.share) if whole else math.inf
    of_metric = {x: goal.loss(limit) for x, limit in limits.items()}
    return Recommendation(line, smallest(limits, goal, between=between), of_metric, reached)


def smallest(limits: Mapping[float, float], goal: Goal, *, between: bool) -> float | None:
    """Return the smallest place from which on all tolerance limits reach the goal; or None.

    limits: of `goal.loss` at each place; between: also places between two points
    """
    found: float | None = None
    for epsilon, limit in sorted(limits.items(), reverse=True):
        if limit < goal.limit:
            found = epsilon
            continue
        if found is not None and between and math.isfinite(limit) and limits[found] > 0:
            found = _crossing(epsilon, limit, found, limits[found], goal.limit)
        break
    return found


def _crossing(low: float, above: float, high: float, under: float, below: float) -> float:
    """Return where a straight line between the logarithms reaches `below`, rounded up."""
    part = math.log(above / below) / math.log(above / under)
    epsilon: float = low * (high / low) ** part
    grid = 10.0 ** (math.floor(math.log10(epsilon)) - 1)  # two digits
    return min(high, float(f"{math.ceil(epsilon / grid - 1e-9) * grid:.2g}"))
