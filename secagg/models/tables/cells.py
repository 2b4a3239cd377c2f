"""The columns of tables, and the counts of a site's records in their cells.

A record is in one cell of every table, whatever its values are: of a column with levels, in the
cell of its level (the first level, if it has none of the others); of a column of numbers, between
two cut points. So the bounds on what one record moves hold for all records.

Values are compared with cut points after both are scaled in the same way. With noise, values are on
a grid (`secagg.privacy.clipping`): a value below a cut point by less than 2^-16 of half the
column's range may count as one at the cut point.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import PublicFacts, SiteRecords
from secagg.core.arrays import Array
from secagg.core.validation import did_you_mean
from secagg.errors import JobError
from secagg.models.tables.strategy import Columns, Strategy

MOST_NUMBERS = 100_000
MOST_COLUMNS = 16
_WHERE = "method.columns"


@dataclass(frozen=True)
class Classified:
    """A column of tables.

    levels: the names of its levels or classes
    variables: positions of its indicators, one for each level but the first; or of its number
    cuts: cut points of a number, scaled, increasing; () for levels
    """

    name: str
    levels: tuple[str, ...]
    variables: tuple[int, ...]
    cuts: tuple[float, ...] = ()

    def codes(self, values: Array) -> NDArray[np.int64]:
        """Return the position of each record's level. values: shape (records, variables)"""
        if self.cuts:
            return np.searchsorted(self.cuts, values[:, self.variables[0]], side="right")
        has = values[:, self.variables] > 0
        return np.where(has.any(axis=1), 1 + has.argmax(axis=1), 0)


@dataclass(frozen=True)
class Tables:
    """The asked tables.

    columns: those of all tables, in the order of the job
    orders: for each table, the positions of its columns, as the job orders them
    by_table: as for `Strategy`
    """

    columns: tuple[Classified, ...]
    orders: tuple[Columns, ...]
    by_table: bool = False

    @classmethod
    def of(
        cls,
        tables: Sequence[Sequence[str]],
        cut_points: Mapping[str, Sequence[float]],
        public: PublicFacts,
        *,
        by_table: bool = False,
    ) -> Tables:
        """Raises `JobError` for tables that do not fit the columns."""
        if not tables:
            raise JobError(_WHERE, "is empty", "Name the columns of at least one table.")
        used = {name for table in tables for name in table}
        for name in used:
            if name not in public.columns:
                advice = f"Columns are {', '.join(public.columns)}."
                advice = f"{did_you_mean(name, public.columns)} {advice}".strip()
                raise JobError(_WHERE, f"no column {name!r}", advice)
        for name in cut_points:
            if name not in used:
                raise JobError("method.cut_points", f"{name!r} is in no table", "Leave it out.")
        names = [name for name in public.columns if name in used]
        columns = tuple(_classified(name, cut_points.get(name), public) for name in names)
        orders = tuple(tuple(names.index(name) for name in table) for table in tables)
        for i, (table, order) in enumerate(zip(tables, orders, strict=True)):
            if not table or len(set(table)) < len(table):
                what = "names a column twice" if table else "has no column"
                raise JobError(_WHERE, f"table {i + 1} {what}", "Name each column once.")
            if any(set(order) == set(other) for other in orders[:i]):
                what = f"{' x '.join(table)} is asked twice"
                raise JobError(_WHERE, what, "Leave one of them out.")
        found = cls(columns, orders, by_table)
        found._check_size(noised=public.clip is not None)
        return found

    def _check_size(self, *, noised: bool) -> None:
        most = max(math.prod(len(self.columns[i].levels) for i in o) for o in self.orders)
        wide = max(map(len, self.orders)) > MOST_COLUMNS or (
            noised and len(self.columns) > MOST_COLUMNS
        )
        if wide or most > MOST_NUMBERS or self.numbers(noised=noised) > MOST_NUMBERS:
            what = f"more than {MOST_NUMBERS:,} numbers, or more than {MOST_COLUMNS} columns"
            raise JobError(_WHERE, what, "Ask for smaller tables, or fewer.")

    def numbers(self, *, noised: bool) -> int:
        """Return how many numbers a site sends."""
        return self.strategy.numbers if noised else sum(map(self.strategy.cells, self.largest))

    @cached_property
    def strategy(self) -> Strategy:
        sizes = tuple(len(column.levels) for column in self.columns)
        asked = tuple(tuple(sorted(order)) for order in self.orders)
        return Strategy(sizes, asked, self.by_table)

    @cached_property
    def largest(self) -> list[Columns]:
        """Return the tables of which no other one has all columns; the others are their margins."""
        asked = self.strategy.asked
        return [A for A in asked if not any(set(A) < set(B) for B in asked)]

    def names(self, columns: Columns) -> str:
        return " x ".join(self.columns[i].name for i in columns)

    def counts(self, rows: SiteRecords) -> list[Array]:
        """Return the numbers of records in the cells of each of the largest tables."""
        codes = [column.codes(rows.values) for column in self.columns]
        shape = tuple(len(column.levels) for column in self.columns)
        found = []
        for columns in self.largest:
            sides = tuple(shape[i] for i in columns)
            flat = np.ravel_multi_index(tuple(codes[i] for i in columns), sides)
            counts = np.bincount(flat, minlength=math.prod(sides)).reshape(sides)
            found.append(counts.astype(np.float64))
        return found

    def persons(self, rows: SiteRecords) -> list[Array]:
        """Return the numbers of persons with a record in each of these cells."""
        codes = np.column_stack([column.codes(rows.values) for column in self.columns])
        found = []
        for columns in self.largest:
            pairs = np.column_stack([codes[:, columns], rows.person_codes])
            _, first = np.unique(pairs, axis=0, return_index=True)
            found += replace(self, orders=(columns,)).counts(
                replace(rows, values=rows.values[first])
            )
        return found

    def margins(self, counts: Sequence[Array], tables: Sequence[Columns]) -> list[Array]:
        """Return these tables. counts: of the largest tables, which have their columns"""
        found = []
        for A in tables:
            own = next(j for j, B in enumerate(self.largest) if set(A) <= set(B))
            others = tuple(axis for axis, i in enumerate(self.largest[own]) if i not in A)
            found.append(np.asarray(counts[own].sum(axis=others)))
        return found


def _classified(name: str, cuts: Sequence[float] | None, public: PublicFacts) -> Classified:
    variables = public.positions[name]
    first = public.variables[variables[0]]
    if first.indicator:
        if cuts is not None:
            what = f"{name!r} has levels"
            raise JobError("method.cut_points", what, "Leave it out: each level is a row.")
        return Classified(name, public.levels[name], variables)
    if not cuts:
        what = f"{name!r} is a column of numbers without cut points"
        raise JobError("method.cut_points", what, f"Set them, for example {name} = [40, 65].")
    if public.clip is None:
        what = f"{name!r} needs [privacy]: exact counts at shifted cut points single out records"
        raise JobError(
            "method.cut_points", what, "Declare a categorical column, which sites derive."
        )
    low, high = first.midpoint - first.half_range, first.midpoint + first.half_range
    on_scale = [math.log(c) if first.log and c > 0 else c for c in cuts]
    if (first.log and min(cuts) <= 0) or not all(low < c < high for c in on_scale):
        raise JobError("method.cut_points", f"{name!r}: must lie within the column's bounds")
    steps = 2.0**public.clip.grid_bits
    scaled = [math.trunc((c - first.midpoint) / first.half_range * steps) / steps for c in on_scale]
    if any(a >= b for a, b in pairwise(scaled)):
        what = f"{name!r}: must increase, by more than a ten thousandth of the column's range"
        raise JobError("method.cut_points", what, "Sort them.")
    written = [f"{c:g}" for c in cuts]
    between = [f"{a} to < {b}" for a, b in pairwise(written)]
    levels = (f"< {written[0]}", *between, f">= {written[-1]}")
    return Classified(name, levels, variables, tuple(scaled))
