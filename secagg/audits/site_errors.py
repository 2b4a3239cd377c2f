"""Errors of what an attack found about each site; the sites found may be in any order."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from secagg.audits.views import View
from secagg.core.arrays import Array


def relative_errors(found: Array, true: Array) -> Array:
    """Return for each true (K, ...) the error of each found (N, ...): shape (K, N).

    It is the largest error of an entry over the largest entry, and infinite if it is undefined.
    If all entries of a site are 0, it is over the largest entry of any site.
    """
    K, axes = len(true), tuple(range(2, true.ndim + 1))
    error = np.max(np.abs(found[None] - true[:, None]), axis=axes)
    size = np.max(np.abs(true).reshape(K, -1), axis=1)
    with np.errstate(all="ignore"):
        error /= np.where(size > 0, size, np.max(size))[:, None]
    return np.where(np.isfinite(error), error, np.inf)


def order_of(errors: Array) -> list[int]:
    """Return which found belongs to each true, so that the sum of errors is smallest."""
    finite = np.where(np.isfinite(errors), errors, 1e9)
    return [int(j) for j in linear_sum_assignment(finite)[1]]


def errors_by_site(view: View, found: Array, true: Array, order: list[int]) -> dict[str, float]:
    """Return the relative error of each site."""
    errors = relative_errors(found, true)
    return {site: float(errors[i, order[i]]) for i, site in enumerate(view.sites)}


def mean_errors(true: Array) -> Array:
    """Return the relative error of each site if all are taken to be the mean of all sites."""
    return relative_errors(true.mean(axis=0)[None], true)[:, 0]
