"""Figures of an experiment: points read from cells; means and standard errors over the seeds.

A figure has panels; a panel has columns (numbers of variables, of sites); at each column stand
methods, and for each method one *point* a seed. Several points may read one cell: a method that
does not depend on the number of sites is computed once, and local fits serve every method built on
them.

The standard error of a mean over n seeds is s / sqrt(n), with s the standard deviation of divisor
n - 1; one seed has none. Differences are *paired*: methods of one seed share their data, so the
difference is taken seed by seed, over the seeds that both have, and its mean has a standard error
of its own, smaller than that of two independent means.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from secagg.reproductions.cells import Cell, Outcome
from secagg.reproductions.plain import CONVERGED

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
    columns: tuple[int, ...]


@dataclass(frozen=True)
class Place:
    """One entry of a figure's tables."""

    panel: str
    column: int
    method: str


@dataclass(frozen=True)
class Comparison:
    """That the mean of a metric is smaller in one place than in another."""

    metric: str
    smaller: Place
    larger: Place


@dataclass(frozen=True)
class Statement:
    """What the paper says in words, and the comparisons that it amounts to."""

    words: str
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True)
class Stated:
    """A number that the paper gives."""

    metric: str
    place: Place
    value: float


@dataclass(frozen=True)
class Figure:
    """name: of its files; title, notes: as shown; the points' seeds may differ between places"""

    name: str
    title: str
    metrics: tuple[Metric, ...]
    costs: tuple[Metric, ...]
    methods: tuple[Method, ...]
    panels: tuple[Panel, ...]
    points: Mapping[Place, Mapping[int, Cell]]
    statements: tuple[Statement, ...]
    stated: tuple[Stated, ...]
    notes: tuple[str, ...]

    def cells(self) -> list[Cell]:
        """Return every cell once."""
        return list(dict.fromkeys(cell for runs in self.points.values() for cell in runs.values()))


@dataclass(frozen=True)
class Entry:
    """What came of one method at one column.

    values: metric -> seed -> value, of the seeds that gave one, converged or not; the metric
        SECONDS is the processor time of the cell, which other methods may share
    failed: seed -> line of the error; unconverged: how many of the values are of such fits
    """

    values: Mapping[str, Mapping[int, float]]
    failed: Mapping[int, str]
    unconverged: int

    @property
    def runs(self) -> int:
        """How many seeds gave values."""
        return len(self.values[CONVERGED])


Entries = Mapping[Place, Entry]


def read_entries(figure: Figure, outcomes: Mapping[Cell, Outcome]) -> dict[Place, Entry]:
    """Return what the outcomes of a figure's cells, all of them, are at each place."""
    return {place: _entry(place.method, runs, outcomes) for place, runs in figure.points.items()}


def _entry(method: str, runs: Mapping[int, Cell], outcomes: Mapping[Cell, Outcome]) -> Entry:
    values: dict[str, dict[int, float]] = {CONVERGED: {}, SECONDS: {}}
    failed = dict[int, str]()
    for seed, cell in runs.items():
        outcome = outcomes[cell]
        if outcome.numbers is None:
            failed[seed] = outcome.failed or ""
            continue
        values[SECONDS][seed] = outcome.seconds
        for metric, value in outcome.numbers[method].items():
            values.setdefault(metric, {})[seed] = float(value)
    unconverged = sum(not value for value in values[CONVERGED].values())
    return Entry(values, failed, unconverged)


def mean_and_error(values: Iterable[float]) -> tuple[float | None, float | None]:
    """Return mean and standard error (see above); None where there are too few values for it."""
    given = list(values)
    if not given:
        return None, None
    mean = statistics.fmean(given)
    return mean, statistics.stdev(given) / math.sqrt(len(given)) if len(given) > 1 else None


def paired_difference(
    entries: Entries, comparison: Comparison
) -> tuple[float | None, float | None]:
    """Return mean and standard error of larger - smaller, over the seeds that both places have."""
    smaller, larger = (
        entries[place].values.get(comparison.metric, {}) if place in entries else {}
        for place in (comparison.smaller, comparison.larger)
    )
    return mean_and_error(larger[seed] - smaller[seed] for seed in smaller if seed in larger)


@dataclass(frozen=True)
class Verdict:
    """How the comparisons of a statement came out; those of places without values are missing.

    clearly: by more than two standard errors of the paired difference. Equal means are not as
    stated.
    """

    clearly_so: Sequence[Comparison]
    so: Sequence[Comparison]
    not_so: Sequence[Comparison]
    clearly_not_so: Sequence[Comparison]
    missing: Sequence[Comparison]


def judge(entries: Entries, statement: Statement) -> Verdict:
    """Compare what a statement says with the entries."""
    clearly_so, so, not_so, clearly_not_so, missing = (list[Comparison]() for _ in range(5))
    for comparison in statement.comparisons:
        mean, error = paired_difference(entries, comparison)
        clearly = mean is not None and error is not None and abs(mean) > 2 * error
        if mean is None:
            missing.append(comparison)
        elif mean > 0:
            (clearly_so if clearly else so).append(comparison)
        else:
            (clearly_not_so if clearly else not_so).append(comparison)
    return Verdict(clearly_so, so, not_so, clearly_not_so, missing)
