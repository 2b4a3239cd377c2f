"""The units that rows and deviations are carried in."""

from __future__ import annotations

import numpy as np

from secagg.contracts import Update
from secagg.core.arrays import Array
from secagg.errors import UsageError
from secagg.models.common.pooled_moments import CONSTANT_COLUMN_ADVICE, unvarying

SQUARES_BITS = 80
"""Of sums of squares: bounds may be much wider than a column's spread."""


def records_in(total: Update) -> int:
    """Return the number of records of all sites. Raises `UsageError` for fewer than 2."""
    records = round(float(total["records"][0]))
    if records < 2:
        raise UsageError("analysis", f"{records} record is too few for this")
    return records


def deviations(variance: Array, least: float, names: list[str]) -> Array:
    """Return standard deviations. Raises `UsageError` where a column is as good as constant.

    variance: pooled, in units of the public bounds; least: what is still told from rounding
    """
    if np.any(variance <= least):
        constant = names[int(np.argmin(variance))]
        raise UsageError("analysis", unvarying(constant), CONSTANT_COLUMN_ADVICE)
    return np.sqrt(variance)


def centred(X: Array) -> Array:
    """Return X less its column means; no record stays no record."""
    return X - X.mean(axis=0) if len(X) else X
