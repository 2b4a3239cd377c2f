"""What a paper says, held against a figure's entries: as stated, not, or undecided.

A comparison of two means is decided by the *paired* differences of their runs: methods of one seed
share their data, so the difference is taken seed by seed, over the seeds that both have. With n
such seeds, mean m and standard deviation s of the differences, Student's interval

    m +- t s / sqrt(n),  t the 0.975 quantile with n - 1 degrees of freedom,

holds the mean difference over all seeds with probability 0.95, were the differences normal; they
are counts and shares, for which this is an approximation. What that mean is about depends on what
seeds draw: new graphs and records where both are simulated; where they draw from a given table
without replacement, as 512 of the same 853 cells, other draws from that table, and neither other
tables nor what they are a sample of. The comparison is as stated where the whole interval is
on the stated side, not as stated where none of it is, and undecided where it holds both answers.
Fewer than FEWEST runs in which both have a value decide nothing: were both methods alike, five
differences would all have one sign in 1 of 16 experiments, more than the 1 in 20 that the interval
allows, and six in 1 of 32.

A number that the paper gives is itself a mean, over N runs of its own. Were those runs of the same
kind as our n, their mean would be m +- t s sqrt(1/n + 1/N) with probability 0.95. It is printed to
so many digits, which may be half a unit of the last from it: the interval is as much wider.

That a difference grows (with the number of variables, say) is a comparison of two differences. Its
runs are the differences of the paired differences, seed by seed, and all else is as above. The seed
only names the runs then: two sizes draw different graphs, so pairing them changes nothing.

Nothing is corrected for how many comparisons there are: of those without any difference of means, 1
in 40 comes out as stated, and 1 in 40 not.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from scipy.special import stdtrit

from secagg.reproductions.harness.figures import Comparison, Entries, Place, Stated, Statement

LEVEL = 0.95
MIN_RUNS = 6


class Verdict(Enum):
    """How what the paper says comes out here; NOT_RUN: a place that it is about has no values."""

    AS_STATED = "as stated"
    NOT_AS_STATED = "not as stated"
    UNDECIDED = "undecided"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Interval:
    """A mean, and the ends of the interval around it."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Found:
    """What came of a comparison, or of a number that the paper gives.

    runs: that it rests on; interval: of larger - smaller (less what that is to be more than), or
        of a mean of the paper's runs; None where fewer than two runs give none
    absent: the places without values
    """

    verdict: Verdict
    runs: int
    interval: Interval | None
    absent: tuple[Place, ...]


def interval(values: Sequence[float], others: float = math.inf) -> Interval | None:
    """Return the interval of the mean over all seeds, or over so many others; None below two
    values.
    """
    n = len(values)
    if n < 2:
        return None
    mean = statistics.fmean(values)
    error = statistics.stdev(values) * math.sqrt(1 / n + 1 / others)
    half = float(stdtrit(n - 1, (1 + LEVEL) / 2)) * error
    return Interval(mean, mean - half, mean + half)


def paired(entries: Entries, metric: str, place: Place, other: Place) -> dict[int, float]:
    """Return the value at one place less that at the other, of every seed that has both."""
    values, others = (_values(entries, each, metric) for each in (place, other))
    return {seed: value - others[seed] for seed, value in values.items() if seed in others}


def compare(entries: Entries, comparison: Comparison) -> Found:
    """Say whether the smaller mean is smaller. No difference in any run is not as stated."""
    differences = list(_differences(entries, comparison).values())
    found = interval(differences)
    verdict = Verdict.UNDECIDED
    if absent := _absent(entries, comparison.places()):
        verdict = Verdict.NOT_RUN
    elif found is not None and len(differences) >= MIN_RUNS:
        if found.low > 0:
            verdict = Verdict.AS_STATED
        elif found.high <= 0:
            verdict = Verdict.NOT_AS_STATED
    return Found(verdict, len(differences), found, absent)


def check(entries: Entries, stated: Stated) -> Found:
    """Say whether a number of the paper's, as printed, is one that runs like ours would give."""
    values = list(_values(entries, stated.place, stated.metric).values())
    found = interval(values, stated.runs)
    if found is not None:
        rounding = 0.5 * 10.0**-stated.decimals
        found = Interval(found.mean, found.low - rounding, found.high + rounding)
    verdict = Verdict.UNDECIDED
    if absent := _absent(entries, (stated.place,)):
        verdict = Verdict.NOT_RUN
    elif found is not None and len(values) >= MIN_RUNS:
        verdict = (
            Verdict.AS_STATED if found.low <= stated.value <= found.high else Verdict.NOT_AS_STATED
        )
    return Found(verdict, len(values), found, absent)


def judge(entries: Entries, statement: Statement) -> list[tuple[Comparison, Found]]:
    """Compare what a statement says with the entries."""
    return [(each, compare(entries, each)) for each in statement.comparisons]


def _differences(entries: Entries, comparison: Comparison) -> dict[int, float]:
    found = paired(entries, comparison.metric, comparison.larger, comparison.smaller)
    if comparison.by_more_than is None:
        return found
    others = _differences(entries, comparison.by_more_than)
    return {seed: value - others[seed] for seed, value in found.items() if seed in others}


def _values(entries: Entries, place: Place, metric: str) -> dict[int, float]:
    return dict(entries[place].values.get(metric, {})) if place in entries else {}


def _absent(entries: Entries, places: Sequence[Place]) -> tuple[Place, ...]:
    return tuple(place for place in places if place not in entries or not entries[place].runs)
