"""Test a paper's claims against a figure's entries: as stated, not as stated, or undecided.

A comparison of two means uses the *paired* differences of their runs. Methods share their data
within a seed, so the difference is taken for each seed that both methods have. With n such seeds,
and mean m and standard deviation s of the differences, Student's interval

    m +- t s / sqrt(n),  t the 0.975 quantile with n - 1 degrees of freedom,

covers the mean difference over all seeds with probability 0.95 if the differences are normal. They
are counts and proportions, so this is an approximation. The population behind that mean depends on
what the seeds draw. If graphs and records are simulated, it consists of new graphs and records. If
the seeds draw from a given table without replacement (512 of the same 853 cells, say), it consists
of other draws from that table. It then does not include other tables, nor the population that the
table samples.

The comparison is as stated if the whole interval lies on the stated side, not as stated if no part
of it does, and undecided otherwise. Fewer than MIN_RUNS runs with values of both methods decide
nothing. If both methods were equal, five differences would all have the same sign in 1 of 16
experiments, more than the 1 in 20 that the interval allows; six in 1 of 32.

A published number is itself a mean over N runs. If those runs were of the same kind as our n, their
mean would lie in m +- t s sqrt(1/n + 1/N) with probability 0.95. The paper rounds the number, which
moves it by up to half a unit of its last digit, so the interval is wider by that much at each end.

The claim that a difference grows (with the number of variables, say) compares two differences. Its
runs are the differences between the paired differences, seed by seed; everything else is as above.
Here the seed merely labels the runs: two sizes draw different graphs, so the pairing has no effect.

There is no correction for multiple comparisons. Where two means are equal, 1 comparison in 40 comes
out as stated, and 1 in 40 not as stated.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from scipy.special import stdtrit

from reproductions.harness.figures import (
    Comparison,
    Entries,
    Place,
    PublishedValue,
    Statement,
)

LEVEL = 0.95
MIN_RUNS = 6


class Verdict(Enum):
    """The result of testing a claim; NOT_RUN: a place that the claim needs has no values."""

    AS_STATED = "as stated"
    NOT_AS_STATED = "not as stated"
    UNDECIDED = "undecided"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Interval:
    """A mean, and the ends of its interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Finding:
    """The result of a comparison, or of checking a published number.

    runs: number of runs used; interval: of larger - smaller (minus the difference that it should
        exceed, if any), or of a mean over the paper's runs; None below two runs
    absent: the places without values
    """

    verdict: Verdict
    runs: int
    interval: Interval | None
    absent: tuple[Place, ...]


def interval(values: Sequence[float], others: float = math.inf) -> Interval | None:
    """Return the interval of the mean over all seeds; None below two values.

    others: if finite, the prediction interval of a mean over that many other runs
    """
    n = len(values)
    if n < 2:
        return None
    mean = statistics.fmean(values)
    error = statistics.stdev(values) * math.sqrt(1 / n + 1 / others)
    half = float(stdtrit(n - 1, (1 + LEVEL) / 2)) * error
    return Interval(mean, mean - half, mean + half)


def paired(entries: Entries, metric: str, place: Place, other: Place) -> dict[int, float]:
    """Return the value at `place` minus that at `other`, for each seed that has both."""
    values, others = (_values(entries, each, metric) for each in (place, other))
    return {seed: value - others[seed] for seed, value in values.items() if seed in others}


def compare(entries: Entries, comparison: Comparison) -> Finding:
    """Test whether the claimed order of two means holds. If all runs are equal, it does not."""
    differences = list(_differences(entries, comparison).values())
    around = interval(differences)
    verdict = Verdict.UNDECIDED
    if absent := _absent(entries, comparison.places()):
        verdict = Verdict.NOT_RUN
    elif around is not None and len(differences) >= MIN_RUNS:
        if around.low > 0:
            verdict = Verdict.AS_STATED
        elif around.high <= 0:
            verdict = Verdict.NOT_AS_STATED
    return Finding(verdict, len(differences), around, absent)


def check(entries: Entries, stated: PublishedValue) -> Finding:
    """Test whether a published number is compatible with the runs here."""
    values = list(_values(entries, stated.place, stated.metric).values())
    around = interval(values, stated.runs)
    if around is not None:
        rounding = 0.5 * 10.0**-stated.decimals
        around = Interval(around.mean, around.low - rounding, around.high + rounding)
    verdict = Verdict.UNDECIDED
    if absent := _absent(entries, (stated.place,)):
        verdict = Verdict.NOT_RUN
    elif around is not None and len(values) >= MIN_RUNS:
        inside = around.low <= stated.value <= around.high
        verdict = Verdict.AS_STATED if inside else Verdict.NOT_AS_STATED
    return Finding(verdict, len(values), around, absent)


def judge(entries: Entries, statement: Statement) -> list[tuple[Comparison, Finding]]:
    """Test each comparison of a statement."""
    return [(each, compare(entries, each)) for each in statement.comparisons]


def _differences(entries: Entries, comparison: Comparison) -> dict[int, float]:
    own = paired(entries, comparison.metric, comparison.larger, comparison.smaller)
    if comparison.by_more_than is None:
        return own
    others = _differences(entries, comparison.by_more_than)
    return {seed: value - others[seed] for seed, value in own.items() if seed in others}


def _values(entries: Entries, place: Place, metric: str) -> dict[int, float]:
    return dict(entries[place].values.get(metric, {})) if place in entries else {}


def _absent(entries: Entries, places: Sequence[Place]) -> tuple[Place, ...]:
    return tuple(place for place in places if place not in entries or not entries[place].runs)
