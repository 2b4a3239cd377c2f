"""The last sum of a FedLin method: coefficients over sites, and errors of predictions.

The method's predictions are compared with two others. "site_ols" is the site's own least squares
(if several solutions exist, the one with the smallest norm). "mean_only" is the site's own mean, or
0 if the site has no own intercept. With `holdout`, prediction errors are also computed for the
held-out records. The report shows the paper's A-RMSE: the mean over sites of each site's root mean
squared error.

Coefficients are summed over sites with records, because the coefficients of a site without records
estimate nothing. In a run every site has records (`min_records` is at least 1). In a simulation
some sites may have none.

Prediction errors are divided by half the width of the outcome's bounds, clipped at 2^20 and summed.
The number of clipped values is counted, because the least squares of a site with few records may
predict very large values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from secagg.contracts import Family, Field, Kind, Spec, Update
from secagg.core.arrays import Array
from secagg.models.fedlin.round import FRACTION_BITS, Round, within_range
from secagg.models.fedlin.site import Site

_FIELD_BOUND = 2.0**20
FEW_SITES = 2


def ending_fields(d: int, models: int, max_rows: int, sites: int, *, holdout: bool) -> Spec:
    """Return the fields of the sum, for d coefficients and the predictions of `models` models.

    With two sites the squares of coefficients are not summed: together with the mean they would
    determine the coefficients of each site. (If a larger job continues with two sites, the squares
    are summed and do determine them. A `min_sites` of 3 prevents this.)
    """
    rows, each = float(max_rows), (models,)
    spec: Spec = (
        Field("with_records", (1,), 1.0, 0, Kind.COUNT),
        Field("coefficients", (d,), _FIELD_BOUND, FRACTION_BITS, Kind.BOUNDED),
        Field("training", each, rows * _FIELD_BOUND**2, FRACTION_BITS, Kind.WEIGHT),
    )
    if sites > FEW_SITES:
        spec = (*spec, Field("squares", (d,), _FIELD_BOUND**2, FRACTION_BITS, Kind.WEIGHT))
    if not holdout:
        return spec
    return (
        *spec,
        Field("held", (2,), rows, 0, Kind.COUNT),
        Field("held_squares", each, rows * _FIELD_BOUND**2, FRACTION_BITS, Kind.WEIGHT),
        Field("held_rmse", each, _FIELD_BOUND, FRACTION_BITS, Kind.WEIGHT),
    )


def ending_sees(sites: int, *, holdout: bool) -> str:
    """Return what the sum reveals, in words."""
    squares = ", of their squares" if sites > FEW_SITES else ""
    held_out = (
        ", of root mean squared errors of records held out; how many records are held out and at "
        "how many sites"
    )
    return (
        "how many sites have records; sums over these of coefficients"
        f"{squares}, of squared errors of predictions{held_out if holdout else ''}"
    )


def ending_sums(
    site: Site,
    fitted: Sequence[Array],
    now: Round,
    sites: int,
    held_out: Array | None,
    link: Family,
) -> tuple[Update, dict[str, Any]]:
    """Return a site's contribution, and its prediction errors, which stay at the site.

    fitted: coefficients of each model, the method's own first
    held_out: the held-out records, None without holdout; link: the family of the outcome
    """
    theta, unit, takes_part = fitted[0], float(now.scale[0]), float(site.records > 0)
    within_range({"coefficients": theta}, _FIELD_BOUND)  # clipping would falsify the mean

    def squared(values: Array) -> Array:
        wrong = [
            site.errors(each, now.layout, values, now.centre, now.scale, link.mean) / unit
            for each in fitted
        ]
        return np.array([float(w @ w) for w in wrong])

    update = {
        "with_records": np.array([takes_part]),
        "coefficients": takes_part * theta,
        "training": squared(now.values),
    }
    if sites > FEW_SITES:
        update["squares"] = takes_part * theta**2
    errors: dict[str, Any] = {"training": update["training"], "here": site.records}
    if held_out is not None:
        count = len(held_out)
        update["held"] = np.array([float(count), float(count > 0)])
        update["held_squares"] = squared(held_out)
        update["held_rmse"] = np.sqrt(update["held_squares"] / max(count, 1))
        errors |= {"held": update["held_squares"], "held_here": count}
    return update, errors
