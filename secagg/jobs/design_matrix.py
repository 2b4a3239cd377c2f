"""From declared columns to design variables, and from a site's table to scaled `SiteRecords`.

Everything here runs at the site. Only declared levels and bounds are used; nothing is learned from
the records. A continuous column with bounds [a, b] (after its transform) is carried as
u = (x - (a + b) / 2) / ((b - a) / 2) in [-1, 1]; values outside are clipped and counted,
and where they are many the site is told: its bounds, or its units, may be wrong. Binary and
categorical columns become 0/1 variables `column=level` for every level but the first, scaled alike,
or under differential privacy half as far (`Variable`).
Under differential privacy the records are then clipped as wholes (`secagg.privacy.clipping`), and
nothing is ever computed from others.

=====================================  =====================================================
cell                                   outcome
=====================================  =====================================================
empty, NA, N/A, NaN, null, None, ?     missing: the record is left out and counted
text in a continuous column            `DataError` naming record and column (stays at the site)
inf, -inf                              `DataError` (bounds are for numbers)
a level that was not declared          `DataError` naming record, column, declared levels
1.0, or a boolean                      also the level 1; also 0 and 1, or False and True
below low or above high                clipped to the bound and counted
=====================================  =====================================================
"""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from secagg.contracts import PublicFacts, SiteRecords, Variable
from secagg.contracts.noise import Placement
from secagg.errors import DataError, JobError
from secagg.jobs.job import Binary, Categorical, Column, Continuous, Job
from secagg.models.common.coefficient_table import INTERCEPT
from secagg.privacy.clipping import cap_per_person, choose_clip, clip_rows

_MANY_CLIPPED_SHARE = 0.05
"""Share of a column's values beyond which clipping is no longer a matter of a few odd records."""
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})


def public_facts(job: Job, sites: tuple[str, ...]) -> PublicFacts:
    """Return what the job declares about the data of these sites.

    Raises `JobError` for bounds without a usable scale, two variables of one name, or one named as
    the intercept is in results.
    """
    noised = job.privacy.placement is not Placement.NONE
    half = 1.0 if noised else 0.5  # of an indicator: see `Variable`
    variables = tuple(v for n, column in job.columns.items() for v in _variables(n, column, half))
    named = Counter(v.name for v in variables)
    for v in variables:
        if named[v.name] > 1 or (v.name != v.column and v.name in job.columns):
            raise JobError("columns", f"{v.name!r} names two variables", "Rename the column.")
        if INTERCEPT in (v.name, v.column):
            raise JobError("columns", f"{INTERCEPT!r} names the intercept", "Rename the column.")
    clip = None
    if noised:
        implied = sum(v.max_abs**2 for v in variables)
        clip = choose_clip(job.privacy.record_norm, implied, job.sites.max_rows)
        if clip is None:
            raise JobError("sites.max_rows", "is too large for exact sums under [privacy]")
    privacy = job.privacy
    repeated = privacy.person is not None and privacy.records_per_person > 1
    columns, most = tuple(job.columns), job.sites.max_rows
    return PublicFacts(variables, columns, most, sites, clip, repeated_persons=repeated)


def _variables(name: str, column: Column, half_of_indicator: float) -> list[Variable]:
    if isinstance(column, Continuous):
        low, high = _bounds(column)
        middle, half = (low + high) / 2, (high - low) / 2
        if not (math.isfinite(middle) and math.isfinite(half) and _tells_apart(low, high)):
            raise JobError(
                f"columns.{name}",
                "its bounds are too close together, or too far apart, for double precision",
            )
        return [Variable(name, name, middle, half)]
    if isinstance(column, Binary):
        plain = column.levels == ("0", "1")
        names = [name if plain else f"{name}={column.levels[1]}"]
    else:
        names = [f"{name}={level}" for level in column.levels[1:]]
    return [Variable(own, name, 0.5, half_of_indicator, indicator=True) for own in names]


def _tells_apart(low: float, high: float) -> bool:
    """Return whether a million steps between the bounds are different normal floats."""
    spacing = math.ulp(max(abs(low), abs(high)))
    return high - low >= 1e6 * max(spacing, sys.float_info.min)


def _bounds(column: Continuous) -> tuple[float, float]:
    if column.transform == "log":
        return math.log(column.low), math.log(column.high)
    return column.low, column.high


def read_rows(
    columns: Mapping[str, Column],
    table: pd.DataFrame,
    public: PublicFacts,
    who: str,
    person: str | None = None,
    records_per_person: int = 1,
) -> SiteRecords:
    """Return a site's complete records, scaled. Raises `DataError`; its text stays at the site.

    person: a column that names whose record it is; each keeps the first `records_per_person`. An
        empty name is a person too, whose further records are left out.
    """
    found = Counter(table.columns)
    for name in (*columns, *([] if person is None else [person])):
        if found[name] == 0:
            advice = f"It has {', '.join(map(str, table.columns))}."
            if who in public.sites:  # and not somebody who came later
                advice += " (Every file in sites.folder is a site.)"
            raise DataError(who, f"column {name!r} is missing", advice)
        if found[name] > 1:
            raise DataError(who, f"column {name!r} is there {found[name]} times", "Keep one.")
    if len(table) > public.max_rows:
        raise DataError(
            who, f"has more than sites.max_rows = {public.max_rows} rows", "Raise max_rows."
        )
    parts: list[NDArray[np.float64]] = []
    outside: list[int] = []
    remarks: list[str] = []
    for name, column in columns.items():
        values, clipped = _read_column(column, table[name], f"{who}, column {name!r}")
        parts.append(values)
        outside.append(clipped)
        if clipped > _MANY_CLIPPED_SHARE * np.count_nonzero(~np.isnan(values[:, 0])):
            remarks.append(
                f"{who}, column {name!r}: more than {_MANY_CLIPPED_SHARE:.0%} of the values lie "
                "outside the public bounds and were clipped. Are the bounds right, and the unit?"
            )
    design = np.hstack(parts)
    complete = np.asarray(~np.isnan(design).any(axis=1))
    middle = np.array([v.midpoint for v in public.variables])
    half = np.array([v.half_range for v in public.variables])
    if person is not None:
        rows = np.flatnonzero(complete)
        whose = [_text(table[person].iloc[row]) for row in rows]
        complete[rows] = cap_per_person(whose, records_per_person)
    # The clip only undoes rounding: (x - middle) / half may exceed 1 by an ulp at a bound.
    scaled = np.clip((design[complete] - middle) / half, -1.0, 1.0)
    if public.clip is not None:
        scaled = clip_rows(scaled, public.clip)
    incomplete = int(len(table) - complete.sum())
    return SiteRecords(scaled, incomplete, np.array(outside, dtype=np.float64), tuple(remarks))


def _read_column(
    column: Column, cells: pd.Series[Any], where: str
) -> tuple[NDArray[np.float64], int]:
    """Return the column's variables, shape (rows, k), NaN where missing, and the clip count."""
    if isinstance(column, Continuous):
        numbers = _numbers(cells, where)
        with np.errstate(invalid="ignore"):
            outside = int(np.count_nonzero((numbers < column.low) | (numbers > column.high)))
        clipped = np.clip(numbers, column.low, column.high)
        values = np.log(clipped) if column.transform == "log" else clipped
        return values[:, np.newaxis], outside
    position = _levels(column, cells, where)
    indicators = (position[:, np.newaxis] == np.arange(1, len(column.levels))).astype(np.float64)
    indicators[np.isnan(position)] = np.nan
    return indicators, 0


def _numbers(cells: pd.Series[Any], where: str) -> NDArray[np.float64]:
    numbers = np.empty(len(cells), dtype=np.float64)
    for row, cell in enumerate(cells):
        text = _text(cell)
        try:
            numbers[row] = math.nan if text.lower() in MISSING else _number(text)
        except ValueError:
            raise DataError(
                f"{where}, record {row + 1}",
                f"{text!r} is not a number",
                _not_a_number(cells),
            ) from None
        if math.isinf(numbers[row]):
            raise DataError(
                f"{where}, record {row + 1}", "the value is infinite", "Empty the cell."
            )
    return numbers


def _not_a_number(cells: pd.Series[Any]) -> str:
    """Return the advice for a column in which some cells are not numbers."""
    texts = [text for text in map(_text, cells) if text.lower() not in MISSING]
    wrong = [text for text in texts if not _is_number(text)]
    if all(_is_number(text.replace(",", ".")) for text in wrong):
        return "Write decimal points instead of commas, for instance when you export the table."
    if len(wrong) > len(texts) / 2:
        return (
            f"{len(wrong)} of {len(texts)} cells are not numbers. Declare the column with levels, "
            "or convert it when you export the table (a date to days since a fixed day)."
        )
    return (
        f"{len(wrong)} of {len(texts)} cells are not numbers. Correct them from the source; only a "
        "value that is really missing may be left empty."
    )


def _is_number(text: str) -> bool:
    try:
        _number(text)
    except ValueError:
        return False
    return True


def _number(text: str) -> float:
    if "_" in text:  # Python reads 1_000 as a number; no instrument writes it
        raise ValueError(text)
    return float(text)


def _levels(column: Binary | Categorical, cells: pd.Series[Any], where: str) -> NDArray[np.float64]:
    """Return each cell's position among the declared levels, NaN where missing."""
    known = {level: float(i) for i, level in enumerate(column.levels)}
    positions = np.empty(len(cells), dtype=np.float64)
    for row, cell in enumerate(cells):
        position = next((known[text] for text in _readings(cell) if text in known), None)
        if position is None and _text(cell).lower() not in MISSING:
            raise DataError(
                f"{where}, record {row + 1}",
                f"{str(cell).strip()!r} is not a declared level",
                f"Levels are {', '.join(column.levels)}.",
            )
        positions[row] = math.nan if position is None else position
    return positions


def _text(cell: object) -> str:
    """Return a cell as stripped text; a float or None that means missing becomes empty."""
    if cell is None or cell is pd.NA or cell is pd.NaT:
        return ""
    if isinstance(cell, float) and math.isnan(cell):
        return ""
    if isinstance(cell, bool | np.bool_):
        return str(int(cell))
    return str(cell).strip()


def _readings(cell: object) -> tuple[str, ...]:
    """Return the levels that a cell may mean, the likeliest first.

    Whole numbers that a data frame holds as floats match their level: '1.0' is also '1'. What it
    holds as booleans matches 0 and 1, or False and True.
    """
    text = _text(cell)
    if isinstance(cell, bool | np.bool_):
        return text, str(cell)
    if re.fullmatch(r"[+-]?[0-9]+\.0", text):
        return text, text.removesuffix(".0")
    return (text,)
