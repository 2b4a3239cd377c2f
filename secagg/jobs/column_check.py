"""Check one column of a site's table: what is missing, unreadable, or outside the job's bounds.

A value far outside the bounds often has another unit or is a typing error. Many equal values
outside are often a code, for instance 999 for a missing value. A run sets both to the nearer bound,
so they bias the result. What is found is for the site's own eyes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from secagg.jobs.cells import read_column
from secagg.jobs.columns import Column, Number

_MANY = 0.1  # a share of the values
_EQUAL = 3
"""At least this many equal values, and half of the values outside on that side, look like a code"""
_PLACES = 5  # that are listed


@dataclass(frozen=True)
class ColumnCheck:
    """One column at one site.

    missing, unreadable: numbers of cells
    outside: share of the values that are outside the job's bounds; values_outside: their number
    constant: whether all values are equal after those outside are set to the bound
    quartiles: of the numbers as they are in the table, also those outside the bounds. Empty if
        there are none, and for a column with levels
    levels: for a column with levels, the number of cells with each, as declared
    note: what the site should look at, in a few words; remarks: the same in sentences
    """

    name: str
    missing: int
    unreadable: int
    outside: float
    constant: bool
    values_outside: int = 0
    note: str = ""
    remarks: tuple[str, ...] = ()
    quartiles: tuple[float, ...] = ()
    levels: Mapping[str, int] = field(default_factory=dict)


def check_column(
    table: pd.DataFrame, name: str, column: Column, place: Callable[[int], str]
) -> tuple[ColumnCheck, NDArray[np.bool_]]:
    """Return the check, and for each row of the table whether it has a value.

    place: where a row is
    """
    if list(table.columns).count(name) != 1:  # `read_rows` raises the error
        nothing = np.zeros(len(table), dtype=np.bool_)
        return ColumnCheck(name, len(table), 0, 0.0, constant=False), nothing
    read = read_column(column, table[name], name, unreadable_is_missing=True)
    present = ~np.isnan(read.variables[:, 0])
    there = read.variables[present]
    constant = len(there) > 0 and bool(np.all(there == there[0]))
    missing = len(table) - len(there) - read.unreadable
    share = read.outside / max(len(there), 1)
    remarks = _unreadable(name, read.unreadable_rows, place)
    strange: list[str] = []
    quartiles: tuple[float, ...] = ()
    levels: dict[str, int] = {}
    values = read.values[present]
    if isinstance(column, Number):
        strange = [*_strange(name, column, read.values_outside), *_untypical(name, column, values)]
        if len(values):
            quartiles = tuple(map(float, np.quantile(values, [0.25, 0.5, 0.75])))
    else:
        numbers = np.bincount(values.astype(np.intp), minlength=len(column.levels)).tolist()
        levels = dict(zip(column.levels, numbers, strict=True))
        strange = _unused(name, levels)
    note = ""
    if constant:
        note = _constant(column, read.values_outside, share)
    elif strange:
        note = "unused levels: see below" if levels else "strange values: see below"
    elif read.outside:
        note = "check the bounds and the unit" if share > _MANY else "values outside"
    check = ColumnCheck(
        name,
        missing,
        read.unreadable,
        share,
        constant,
        read.outside,
        note,
        (*remarks, *strange),
        quartiles,
        levels,
    )
    return check, present


def _unused(name: str, levels: Mapping[str, int]) -> list[str]:
    """Return which declared levels no value has; a level that no site has tells nothing."""
    unused = [repr(level) for level, number in levels.items() if not number]
    if not unused or len(unused) == len(levels):
        return []
    have = f"no record here has the level{'s' if len(unused) > 1 else ''} {', '.join(unused)}"
    return [
        f"column {name!r}: {have}. If no site has one, most methods refuse the column; take it out "
        "of [columns] before the first exact run, because sites then keep to the declared levels"
    ]


def _constant(column: Column, outside: NDArray[np.float64], share: float) -> str:
    if not len(outside) or not isinstance(column, Number):
        return "all values are equal"
    side, bound = ("below", "low") if outside[0] < column.low else ("above", "high")
    rest = "" if share == 1 else f" or equal to {bound}"
    return f"all values are {side} the bounds{rest}: check the unit"


def _unreadable(name: str, rows: tuple[int, ...], place: Callable[[int], str]) -> list[str]:
    """Return where the cells are that are neither numbers nor declared levels."""
    if not rows:
        return []
    listed = ", ".join(map(place, rows[:_PLACES]))
    more = f" and {len(rows) - _PLACES} more" if len(rows) > _PLACES else ""
    return [f"column {name!r}: cells that cannot be read: {listed}{more}"]


def _strange(name: str, column: Number, outside: NDArray[np.float64]) -> list[str]:
    """Return remarks on values far outside the bounds, and on values that look like a code."""
    remarks = []
    codes = []
    for side, values in (
        ("below", outside[outside < column.low]),
        ("above", outside[outside > column.high]),
    ):
        (value, number), *_ = Counter(values.tolist()).most_common(1) or [(0.0, 0)]
        if number >= max(_EQUAL, len(values) / 2):
            codes.append(value)
            remarks.append(
                f"column {name!r}: {number} of {len(values)} values {side} the bounds are "
                f"{value:g}. If {value:g} is a code, for instance for a missing value, empty these "
                "cells."
            )
    far = outside[_is_far(column, outside) & ~np.isin(outside, codes)]
    if len(far):
        scale = " on the log scale" if column.transform == "log" else ""
        extremes = " to ".join(sorted({f"{far.min():g}", f"{far.max():g}"}, key=float))
        remarks.append(
            f"column {name!r}: {len(far)} far outside the bounds ({extremes}), by more than the "
            f"distance between the bounds{scale}. Check the unit, and look for typing errors."
        )
    return remarks


def _untypical(name: str, column: Number, values: NDArray[np.float64]) -> list[str]:
    """Return a remark if most values are more than three guessed standard deviations away."""
    if column.typical is None or not len(values):
        return []
    on_log = column.transform == "log"
    low, high = np.log(column.typical) if on_log else column.typical
    x = np.log(np.clip(values, column.low, column.high)) if on_log else values
    if abs(float(np.median(x)) - (low + high) / 2) <= 1.5 * (high - low):
        return []
    guess = " to ".join(f"{end:g}" for end in column.typical)
    return [
        f"column {name!r}: most values are far from the typical range ({guess}). Check the unit. "
        "With noise, slopes will be wrong. Correct `typical` from earlier studies, not from here."
    ]


def _is_far(column: Number, values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which values are farther outside the bounds than the bounds are apart."""
    low, high = column.low, column.high
    if column.transform == "log":
        with np.errstate(divide="ignore", invalid="ignore"):
            values = np.where(values > 0, np.log(values), -np.inf)
        low, high = float(np.log(low)), float(np.log(high))
    width = high - low
    return np.asarray((values < low - width) | (values > high + width))
