"""Declarations of columns that are read from tables, and notes on the records that are used.

Columns are declared as in a job. Without a declaration, bounds and levels are read from the tables
(`columns_of`). In a study over real sites this would be a leak: bounds and levels are public there,
and they would reveal about the smallest and largest number of each column. The result has a note
about this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from secagg.errors import DataError
from secagg.jobs.cells import MISSING, read_column
from secagg.jobs.columns import Number
from secagg.jobs.job import Job

Tables = Mapping[Any, pd.DataFrame]

BOUNDS_READ_NOTE = (
    "Bounds and levels of columns were read from the tables. In a run they are public, so they "
    "would reveal extreme values: give `columns` for a study over real sites."
)
_BOUNDS_MARGIN = 0.1  # share of a column's range added on both sides to bounds read from tables
_MAX_LEVELS = 50
_MANY_CLIPPED_SHARE = 0.01  # share of a column's values outside its bounds that causes a note


def incomplete_rows(job: Job, tables: Tables) -> int:
    """Return the number of rows that lack a value of a declared column."""
    found = 0
    for site, table in tables.items():
        missing = np.zeros(len(table), dtype=np.bool_)
        for name, column in job.columns.items():
            missing |= np.isnan(read_column(column, table[name], str(site)).variables[:, 0])
        found += int(missing.sum())
    return found


def left_out(incomplete: int, rows: int) -> list[str]:
    """Return a note on the rows that were left out, if there are any."""
    what = "rows lack a value of a declared column and were left out."
    return [f"{incomplete} of {rows} {what}"] if incomplete else []


def clipped_values(job: Job, tables: Tables) -> list[str]:
    """Return a note on each column that has many values outside its bounds."""
    notes = []
    for name, column in job.columns.items():
        if isinstance(column, Number):
            cells = pd.concat([table[name] for table in tables.values()])
            numbers = pd.to_numeric(cells, errors="coerce")
            outside = int(((numbers < column.low) | (numbers > column.high)).sum())
            if outside > _MANY_CLIPPED_SHARE * len(cells):
                notes.append(
                    f"{outside} of {len(cells)} values of {name!r} were outside its bounds and "
                    "were replaced by the bound, which changes the result."
                )
    return notes


def columns_of(tables: Tables, names: list[str] | None = None) -> dict[str, dict[str, Any]]:
    """Return declarations of the tables' columns, read from their cells.

    names: of columns, or of variables `column=level`; None for all columns of the first table

    Numeric columns get bounds a tenth of their range beyond the extremes. Other columns are
    categorical, with at most 50 levels, or binary with two. Raises `DataError` for anything else.
    """
    first = next(iter(tables.values()))
    declarations = {}
    every = [str(column) for column in first.columns]
    requested = every if names is None else names
    for name in dict.fromkeys(n if n in every else n.partition("=")[0] for n in requested):
        cells = pd.concat([_column(table, name, site) for site, table in tables.items()])
        declarations[name] = _declared(name, cells)
    return declarations


def _column(table: pd.DataFrame, name: str, site: str) -> pd.Series[Any]:
    if name not in table.columns:
        raise DataError(site, f"column {name!r} is missing")
    return table[name]


def _declared(name: str, cells: pd.Series[Any]) -> dict[str, Any]:
    if pd.api.types.is_numeric_dtype(cells) and not pd.api.types.is_bool_dtype(cells):
        numbers = cells.to_numpy(np.float64)
        numbers = numbers[np.isfinite(numbers)]
        if not len(numbers) or np.ptp(numbers) == 0:
            raise DataError(f"column {name!r}", "is constant", "Leave it out of the analysis.")
        if set(np.unique(numbers)) == {0.0, 1.0}:
            return {"type": "binary"}
        margin = _BOUNDS_MARGIN * float(np.ptp(numbers))
        low, high = float(numbers.min()) - margin, float(numbers.max()) + margin
        return {"type": "continuous", "low": low, "high": high}
    texts = {str(cell).strip() for cell in cells.dropna()}
    levels = sorted(text for text in texts if text.lower() not in MISSING)
    if not 2 <= len(levels) <= _MAX_LEVELS:
        what = f"is not numeric and has {len(levels)} levels"
        raise DataError(f"column {name!r}", what, "Declare it in `columns`, or leave it out.")
    kind = "binary" if len(levels) == 2 else "categorical"
    return {"type": kind, "levels": levels}
