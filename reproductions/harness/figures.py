"""Figures of an experiment: points from cells, with means and standard errors over the seeds.

A figure has panels, and a panel has columns (for example numbers of variables or sites). Each
method has one *point* per column and seed. Several points may use the same cell: a method that does
not depend on the number of sites is computed once, and local fits serve every method built on them.
If a cell has numbers "METHOD COLUMN", they are those of the method at this column.

The standard error of a mean over n seeds is s / sqrt(n), where s is the standard deviation with
divisor n - 1; a single seed has none. `paired_comparison` tests the paper's claims.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from secagg.experiments.runner.cells import Cell, Outcome
from secagg.experiments.runner.types import CONVERGED

SECONDS = "seconds"  # processor time of a cell


@dataclass(frozen=True)
class Metric:
    """name: a quantity that is never negative; label: as shown; decimals: of its mean in tables
    top: largest possible value, None if unbounded
    """

    name: str
    label: str
    decimals: int
    top: float | None = None


@dataclass(frozen=True)
class Method:
    """name: as in the cells' numbers; label, note: as shown; drawn: whether the picture shows it"""

    name: str
    label: str
    drawn: bool = True
    note: str = ""


@dataclass(frozen=True)
class Panel:
    """name: as shown; across: label of the column axis; columns: values on it"""

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
    """The claim that a metric's mean is smaller at one place than at another.

    by_more_than: if given, the claim is that this difference exceeds the other comparison's
    """

    metric: str
    smaller: Place
    larger: Place
    by_more_than: Comparison | None = None

    def places(self) -> tuple[Place, ...]:
        """Return all places in the comparison."""
        others = () if self.by_more_than is None else self.by_more_than.places()
        return (self.smaller, self.larger, *others)


@dataclass(frozen=True)
class Statement:
    """A claim in the paper's words, and the comparisons that test it."""

    words: str
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True)
class Remark:
    """A claim that no comparison can test ("close", "stable"), and the relevant differences.

    Each difference is the metric at the first place minus the metric at the second.
    """

    words: str
    metric: str
    differences: tuple[tuple[Place, Place], ...]


@dataclass(frozen=True)
class PublishedValue:
    """A number in the paper: a mean over `runs` runs, rounded to `decimals` decimals."""

    metric: str
    place: Place
    value: float
    runs: int
    decimals: int


@dataclass(frozen=True)
class Figure:
    """name: stem of its files; title, notes: as shown
    methods: all methods, including those without points, which are not run
    points: place -> seed -> cell; the seeds may differ between places
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
    stated: tuple[PublishedValue, ...]
    notes: tuple[str, ...]

    def cells(self) -> list[Cell]:
        """Return every cell once."""
        return list(dict.fromkeys(cell for runs in self.points.values() for cell in runs.values()))

    def methods_not_run(self) -> list[Method]:
        """Return the methods without points."""
        run = {place.method for place in self.points}
        return [method for method in self.methods if method.name not in run]


@dataclass(frozen=True)
class Entry:
    """The results of one method at one column.

    values: metric -> seed -> value, for the seeds with a value, converged or not; the metric
        SECONDS is the processor time of the cell, which several methods may share
    failed: seed -> line of the error; unconverged: number of fits that did not converge
    waiting: seeds not yet computed
    """

    values: Mapping[str, Mapping[int, float]]
    failed: Mapping[int, str]
    unconverged: int
    waiting: tuple[int, ...] = ()

    @property
    def runs(self) -> int:
        """Number of seeds with values."""
        return len(self.values[CONVERGED])

    @property
    def planned(self) -> int:
        """Number of seeds planned."""
        return self.runs + len(self.failed) + len(self.waiting)


Entries = Mapping[Place, Entry]


def read_entries(figure: Figure, outcomes: Mapping[Cell, Outcome]) -> dict[Place, Entry]:
    """Return the entry of each place, from the outcomes computed so far."""
    return {place: _entry(place, runs, outcomes) for place, runs in figure.points.items()}


def _entry(place: Place, runs: Mapping[int, Cell], outcomes: Mapping[Cell, Outcome]) -> Entry:
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
        here = f"{place.method} {place.column:g}"
        name = here if here in outcome.numbers else place.method
        for metric, value in outcome.numbers[name].items():
            values.setdefault(metric, {})[seed] = float(value)
    unconverged = sum(not value for value in values[CONVERGED].values())
    return Entry(values, failed, unconverged, tuple(waiting))


def mean_and_error(values: Iterable[float]) -> tuple[float | None, float | None]:
    """Return mean and standard error (see above), each None if there are too few values."""
    sample = list(values)
    if not sample:
        return None, None
    mean = statistics.fmean(sample)
    return mean, statistics.stdev(sample) / math.sqrt(len(sample)) if len(sample) > 1 else None
