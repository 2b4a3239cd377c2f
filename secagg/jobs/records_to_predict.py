"""Reads records to predict for a finished run.

A job declares bounds for sums. Records to predict are not summed, so they may lie outside the
bounds and are not clipped; how far to trust a prediction there is the user's decision. Only a value
without a logarithm is read as in the job: as the smallest allowed value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from secagg.contracts import Variable
from secagg.core.arrays import Array
from secagg.errors import DataError
from secagg.jobs.columns import Column, Continuous, Number
from secagg.jobs.design_matrix import public_facts, read_rows, unshortened
from secagg.jobs.job import Job

NEW_RECORDS_SOURCE = "the table to predict"
SITES = ("newcomer", "run")
"""Names of sites for `public_facts`; they do not affect the result."""


def in_own_units(job: Job, variables: Sequence[Variable], table: pd.DataFrame, what: str) -> Array:
    """Return these variables of the records, in that order, in own units (records, variables).

    Raises `DataError` for records that lack a value; `what` they lack.
    """
    used = {v.column for v in variables}
    columns = {name: column for name, column in job.columns.items() if name in used}
    present = {
        name: column for name, column in columns.items() if (table.columns == name).sum() == 1
    }
    table = table.assign(**{n: _raised(c, table[n]) for n, c in present.items()})
    wide = columns | {name: _wide(column, table[name]) for name, column in present.items()}
    sites = job.sites.model_copy(update={"max_rows": max(len(table), 1)})
    wide_job = job.model_copy(update={"columns": wide, "sites": sites})
    public = unshortened(public_facts(wide_job, SITES))
    rows = read_rows(wide, table, public, NEW_RECORDS_SOURCE)
    if rows.incomplete:
        one = rows.incomplete == 1
        lack = f"{rows.incomplete} record{' lacks' if one else 's lack'} {what}"
        raise DataError(NEW_RECORDS_SOURCE, lack, f"Leave {'it' if one else 'them'} out.")
    position = {v.name: i for i, v in enumerate(public.variables)}
    order = [position[v.name] for v in variables]
    midpoints = np.array([public.variables[i].midpoint for i in order])
    half = np.array([public.variables[i].half_range for i in order])
    return midpoints + half * rows.values[:, order]


def _numbers(cells: pd.Series[Any]) -> Array:
    return pd.to_numeric(cells, errors="coerce").to_numpy(np.float64)


def _raised(column: Column, cells: pd.Series[Any]) -> pd.Series[Any]:
    """Return the cells, with numbers that have no logarithm raised to `low` if the job takes it."""
    if not (isinstance(column, Continuous) and column.transform == "log"):
        return cells
    numbers = _numbers(cells)
    return cells.astype(object).mask((numbers <= 0) & np.isfinite(numbers), column.low)


def _wide(column: Column, cells: pd.Series[Any]) -> Column:
    """Return a column's declaration with bounds widened to contain all cells."""
    if not isinstance(column, Number):
        return column
    numbers = _numbers(cells)
    numbers = numbers[np.isfinite(numbers)]
    low, high = min([column.low, *numbers]), max([column.high, *numbers])
    return column.model_copy(update={"low": float(low), "high": float(high)})
