"""Predictors of further records, as a finished linear regression reads them: in own units.

The bounds that a job declares are for sums; records to predict are not summed, so that theirs may
lie outside, and are not clipped. How far a regression may be trusted there is not for us to say.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from secagg.errors import DataError
from secagg.job import Column, Continuous, Job
from secagg.models.regression_layout import Layout
from secagg.schema import public_facts, read_rows

Array = NDArray[np.float64]

WHO = "the table to predict"


def predictors_of(job: Job, layout: Layout, table: pd.DataFrame) -> Array:
    """Return (records, slopes), in the columns' own units, or powers of a polynomial's column.

    Raises `DataError` for records that lack a predictor, or a table that does not fit.
    """
    sites = ("a", "b")  # any: nothing here depends on them
    public = public_facts(job, sites)
    variables = [public.variables[i] for i in layout.columns[1:]]
    used = {v.column for v in variables}
    columns = {name: column for name, column in job.columns.items() if name in used}
    wide = {name: _wide(column, table.get(name)) for name, column in columns.items()}
    most = job.sites.model_copy(update={"max_rows": max(len(table), 1)})
    here = public_facts(job.model_copy(update={"columns": wide, "sites": most}), sites)
    rows = read_rows(wide, table, here, WHO)
    if rows.incomplete:
        raise DataError(WHO, f"{rows.incomplete} records lack a predictor", "Leave them out.")
    at = {v.name: i for i, v in enumerate(here.variables)}
    order = [at[v.name] for v in variables]
    middle = np.array([here.variables[i].middle for i in order])
    half = np.array([here.variables[i].half for i in order])
    raw: Array = middle + half * rows.values[:, order]
    if layout.degree == 1:
        return raw
    return layout.powers((raw[:, 0] - layout.middle[1]) / layout.half[1])


def _wide(column: Column, cells: pd.Series[Any] | None) -> Column:
    """Return a column's declaration with bounds that hold all of the cells, too."""
    if not isinstance(column, Continuous) or cells is None:
        return column
    numbers = pd.to_numeric(cells, errors="coerce").to_numpy(np.float64)
    numbers = numbers[np.isfinite(numbers)]
    if column.transform == "log":
        numbers = numbers[numbers > 0]
    low, high = min([column.low, *numbers]), max([column.high, *numbers])
    return column.model_copy(update={"low": float(low), "high": float(high)})
