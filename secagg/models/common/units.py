"""Numbers of records, standard deviations and centring, for methods that scale their columns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import PublicFacts, Update
from secagg.core.arrays import Array
from secagg.errors import UsageError
from secagg.models.common.pooled_moments import constant_column_error

SQUARES_BITS = 80
"""Fraction bits of sums of squares: bounds may be much wider than a column's standard deviation."""


def records_in(total: Update) -> int:
    """Return the number of records of all sites. Raises `UsageError` for fewer than 2."""
    records = round(float(total["records"][0]))
    if records < 2:
        what = f"all sites together have {records} records, and at least 2 are required"
        raise UsageError("analysis", what)
    return records


def deviations(variance: Array, min_variance: float, names: list[str]) -> Array:
    """Return standard deviations. Raises `UsageError` for a column that is nearly constant.

    variance: pooled, in units of the public bounds
    min_variance: a variance up to this may be rounding
    """
    if np.any(variance <= min_variance):
        name = names[int(np.argmin(variance))]
        raise constant_column_error(name)
    return np.sqrt(variance)


def site_ratios(public: PublicFacts, columns: NDArray[np.int64]) -> Array:
    """Return the number of all sites by that of the sites that have each of these columns.

    The number of records of the latter is not released: less that of all, it may be one site's. So
    a variance over all records is multiplied by this number. The result is that of the column if
    sites have equally many records, and a unit in any case.
    """
    names = [public.variables[i].column for i in columns]
    having = [len(public.partial.get(name, public.sites)) for name in names]
    return np.array([len(public.sites) / max(count, 1) for count in having])


def centred(X: Array) -> Array:
    """Return X minus its column means. X may have no rows."""
    return X - X.mean(axis=0) if len(X) else X
