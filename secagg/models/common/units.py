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


def guessed_spread(public: PublicFacts, columns: NDArray[np.int64]) -> Array:
    """Return the job's guess of the spread of each column that some sites lack; 0 of others.

    A sum over the sites that have it is not released: less that of another job, whose sites differ
    by several of which one has the column, it would be one site's.
    """
    chosen = [public.variables[i] for i in columns]
    return np.array([v.typical_spread * (v.column in public.partial) for v in chosen])


def centred(X: Array) -> Array:
    """Return X minus its column means. X may have no rows."""
    return X - X.mean(axis=0) if len(X) else X
