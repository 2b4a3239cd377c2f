"""Figures of an experiment: points read from cells; means and standard errors over the seeds.

A figure has panels; a panel has columns (numbers of variables, of sites); at each column stand
methods, and for each method one *point* a seed. Several points may read one cell: a method that
does not depend on the number of sites is computed once, and local fits serve every method built on
them.

The standard error of a mean over n seeds is s / sqrt(n), with s the standard deviation of divisor
n - 1; one seed has none. What a paper says is compared with them in `comparing`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from secagg.reproductions.harness.cells import Cell, Outcome
from secagg.reproductions.harness.types import CONVERGED

SECONDS = "seconds"  # processor time of a cell


@dataclass(frozen=True)
class Metric:
    """name: of a quantity that is never negative; label: as shown; decimals: of its mean in tables
    top: largest possible value, None where there is none
    """

    name: str
    label: str
    decimals: int
    top: float | None = None


@dataclass(frozen=True)
class Method:
    """name: as in the cells' numbers; label, note: as shown; drawn: in the picture, too"""

    name: str
    label: str
    drawn: bool = True
    note: str = ""


@dataclass(frozen=True)
class Panel:
    """name: as shown; across: what the columns are; columns: their values"""

    name: str
    across: str
    columns: tuple[float, ...]


@dataclass(frozen=True)
class Place:
    """One entry of a figure's tables."""

    panel: str
    column: float
    method: str


@dataclass(frozen=True)
class Comparison:
    """That the mean of a metric is smaller in one place than in another; by more than another
    comparison's means differ, where one is given.
    """

    metric: str
    smaller: Place
    larger: Place
    by_more_than: Comparison | None = None

    def places(self) -> tuple[Place, ...]:
        """Return all that are compared."""
        others = () if self.by_more_than is None else self.by_more_than.places()
        return (self.smaller, self.larger, *others)


@dataclass(frozen=True)
class Statement:
    """What the paper says in words, and the comparisons that it amounts to."""

    words: str
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True)
class Remark:
    """What the paper says in words that no comparison decides ("close", "stable"), and the
    differences by which to judge it: of a metric, the first place less the second.
    """

    words: str
    metric: str
    differences: tuple[tuple[Place, Place], ...]


@dataclass(frozen=True)
class Stated:
    """A number that the paper gives: a mean over so many runs, printed to so many decimals."""

    metric: str
    place: Place
    value: float
    runs: int
    decimals: int


@dataclass(frozen=True)
class Figure:
    """name: of its files; title, notes: as shown
    methods: those left out of this run as well, which have no points
    points: their seeds may differ between places
    """

    name: str
    title: str
    metrics: tuple[Metric, ...]
    costs: tuple[Metric, ...]
    methods: tuple[Method, ...]
    panels: tuple[Panel, ...]
    points: Mapping[Place, Mapping[int, Cell]]
    statements: tuple[Statement, ...]
    remarks: tuple[Remark, ...]
    stated: tuple[Stated, ...]
    notes: tuple[str, ...]

    def cells(self) -> list[Cell]:
        """Return every cell once."""
        return list(dict.fromkeys(cell for runs in self.points.values() for cell in runs.values()))

    def left_out(self) -> list[Method]:
        """Return the methods without points: not run."""
        there = {place.method for place in self.points}
        return [method for method in self.methods if method.name not in there]


@dataclass(frozen=True)
class Entry:
    """What came of one method at one column.

    values: metric -> seed -> value, of the seeds that gave one, converged or not; the metric
        SECONDS is the processor time of the cell, which other methods may share
    failed: seed -> line of the error; unconverged: how many of the values are of such fits
    waiting: seeds that are still to be computed
    """

    values: Mapping[str, Mapping[int, float]]
    failed: Mapping[int, str]
    unconverged: int
    waiting: tuple[int, ...] = ()

    @property
    def runs(self) -> int:
        """How many seeds gave values."""
        return len(self.values[CONVERGED])

    @property
    def planned(self) -> int:
        """How many seeds there are to be."""
        return self.runs + len(self.failed) + len(self.waiting)


Entries = Mapping[Place, Entry]


def read_entries(figure: Figure, outcomes: Mapping[Cell, Outcome]) -> dict[Place, Entry]:
    """Return what the outcomes of a figure's cells, as far as there are any, are at each place."""
    return {place: _entry(place.method, runs, outcomes) for place, runs in figure.points.items()}


def _entry(method: str, runs: Mapping[int, Cell], outcomes: Mapping[Cell, Outcome]) -> Entry:
    values: dict[str, dict[int, float]] = {CONVERGED: {}, SECONDS: {}}
    failed, waiting = dict[int, str](), list[int]()
    for seed, cell in runs.items():
        outcome = outcomes.get(cell)
        if outcome is None:
            waiting.append(seed)
            continue
        if outcome.numbers is None:
            failed[seed] = outcome.failed or ""
            continue
        values[SECONDS][seed] = outcome.seconds
        for metric, value in outcome.numbers[method].items():
            values.setdefault(metric, {})[seed] = float(value)
    unconverged = sum(not value for value in values[CONVERGED].values())
    return Entry(values, failed, unconverged, tuple(waiting))


def mean_and_error(values: Iterable[float]) -> tuple[float | None, float | None]:
    """Return mean and standard error (see above); None where there are too few values for it."""
    given = list(values)
    if not given:
        return None, None
    mean = statistics.fmean(given)
    return mean, statistics.stdev(given) / math.sqrt(len(given)) if len(given) > 1 else None
