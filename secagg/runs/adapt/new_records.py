"""Further records, as a finished linear regression reads them: in own units.

The bounds that a job declares are for sums; records to predict are not summed, so that theirs may
lie outside, and are not clipped. How far a regression may be trusted there is not for us to say.
Only what has no logarithm is read as the job reads it: as the least value that the job allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from secagg.contracts import Variable
from secagg.core.arrays import Array
from secagg.errors import DataError
from secagg.jobs.design_matrix import public_facts, read_rows
from secagg.jobs.job import Column, Continuous, Job
from secagg.models.fedlin.design import Layout

NEW_RECORDS_SOURCE = "the table to predict"
_SITES = ("a", "b")  # any: nothing here depends on them


def predictors_of(job: Job, layout: Layout, table: pd.DataFrame) -> Array:
    """Return (records, slopes), in the columns' own units, or powers of a polynomial's column.

    Raises `DataError` for records that lack a predictor, or a table that does not fit.
    """
    variables = public_facts(job, _SITES).variables
    raw = _read(job, [variables[i] for i in layout.columns[1:]], table, "a predictor")
    if layout.degree == 1:
        return raw
    return layout.powers((raw[:, 0] - layout.midpoint[1]) / layout.half_range[1])


def outcomes_of(job: Job, layout: Layout, table: pd.DataFrame) -> Array:
    """Return the outcome of each record, as `as_recorded` has it; of two levels 0 and 1.

    Raises `DataError` for records that lack it, or a table that does not fit.
    """
    outcome = public_facts(job, _SITES).variables[layout.columns[0]]
    return as_recorded(job, layout, _read(job, [outcome], table, "the outcome")[:, 0])


def as_recorded(job: Job, layout: Layout, y: Array) -> Array:
    """Return values of the outcome as records have them: a logarithm, if it was taken, is undone.

    y: in the outcome's own units, after its transform
    """
    outcome = public_facts(job, _SITES).variables[layout.columns[0]]
    column = job.columns[outcome.column]
    return np.exp(y) if isinstance(column, Continuous) and column.transform == "log" else y


def _read(job: Job, variables: Sequence[Variable], table: pd.DataFrame, what: str) -> Array:
    """Return these variables, in that order, in own units (records, variables)."""
    used = {v.column for v in variables}
    columns = {name: column for name, column in job.columns.items() if name in used}
    there = {name: column for name, column in columns.items() if (table.columns == name).sum() == 1}
    table = table.assign(**{n: _raised(c, table[n]) for n, c in there.items()})
    wide = columns | {name: _wide(column, table[name]) for name, column in there.items()}
    most = job.sites.model_copy(update={"max_rows": max(len(table), 1)})
    here = public_facts(job.model_copy(update={"columns": wide, "sites": most}), _SITES)
    rows = read_rows(wide, table, here, NEW_RECORDS_SOURCE)
    if rows.incomplete:
        one = rows.incomplete == 1
        lack = f"{rows.incomplete} record{' lacks' if one else 's lack'} {what}"
        raise DataError(NEW_RECORDS_SOURCE, lack, f"Leave {'it' if one else 'them'} out.")
    at = {v.name: i for i, v in enumerate(here.variables)}
    order = [at[v.name] for v in variables]
    middle = np.array([here.variables[i].midpoint for i in order])
    half = np.array([here.variables[i].half_range for i in order])
    raw: Array = middle + half * rows.values[:, order]
    return raw


def _numbers(cells: pd.Series[Any]) -> Array:
    return pd.to_numeric(cells, errors="coerce").to_numpy(np.float64)


def _raised(column: Column, cells: pd.Series[Any]) -> pd.Series[Any]:
    """Return cells of which all numbers have a logarithm, where the job takes it."""
    if not (isinstance(column, Continuous) and column.transform == "log"):
        return cells
    numbers = _numbers(cells)
    return cells.astype(object).mask((numbers <= 0) & np.isfinite(numbers), column.low)


def _wide(column: Column, cells: pd.Series[Any]) -> Column:
    """Return a column's declaration with bounds that hold all of the cells, too."""
    if not isinstance(column, Continuous):
        return column
    numbers = _numbers(cells)
    numbers = numbers[np.isfinite(numbers)]
    low, high = min([column.low, *numbers]), max([column.high, *numbers])
    return column.model_copy(update={"low": float(low), "high": float(high)})
