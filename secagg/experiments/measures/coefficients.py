"""How far the coefficients of a regression are from the true ones, and whether intervals cover.

Let b be the estimated slopes, t the true ones, both in the columns' own units, and s the standard
deviations of the variables.

error     |s (b - t)| / |s t|: 0 is exact, and 1 is no better than slopes of zero
coverage  the share of slopes whose interval contains the true one
width     the median over slopes of the interval's width times s, in units of the outcome
pip_error the mean distance of a posterior inclusion probability from the true result's
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from secagg.contracts import TableKind
from secagg.core.arrays import Array
from secagg.models.common.coefficient_table import INTERCEPT


@dataclass(frozen=True)
class Coefficients:
    """Slopes in own units, in the order of `names`, float64 of shape (slopes,).

    intercept: None if the result has none
    low, high: the intervals' ends; None without intervals
    inclusion: posterior inclusion probabilities; None if the method has none
    """

    names: tuple[str, ...]
    slopes: Array
    intercept: float | None = None
    low: Array | None = None
    high: Array | None = None
    inclusion: Array | None = None


def read_coefficients(summary: Mapping[str, Any], kind: TableKind) -> Coefficients | None:
    """Return the coefficients in the summary of a result or an analysis; None for other kinds."""
    match kind:
        case TableKind.REGRESSION:
            return _of_regression(summary["terms"])
        case TableKind.POSTERIOR:
            rows = summary["coefficients"]
            own = [row["own_units"] for row in rows]
            return Coefficients(
                _names(rows), _column(own, "mean"), low=_column(own, "low"),
                high=_column(own, "high"), inclusion=_column(rows, "pip"),
            )  # fmt: skip
        case TableKind.SITES:
            return _across_sites(summary)
    return None


def _of_regression(rows: Sequence[Mapping[str, Any]]) -> Coefficients:
    slopes = [row for row in rows if row["term"] != INTERCEPT]
    intercept = [float(row["estimate"]) for row in rows if row["term"] == INTERCEPT]
    bounds = all(row.get("ci_low") is not None for row in slopes)
    return Coefficients(
        _names(slopes), _column(slopes, "estimate"), intercept[0] if intercept else None,
        _column(slopes, "ci_low") if bounds else None,
        _column(slopes, "ci_high") if bounds else None,
    )  # fmt: skip


def _across_sites(summary: Mapping[str, Any]) -> Coefficients:
    """Return what the sites have in common: its estimate and interval, or the mean over sites."""
    rows = summary["across_sites"]
    names, shared = _names(rows), summary.get("shared", [])[: len(rows)]
    if not shared:
        return Coefficients(names, _column([row["own_units"] for row in rows], "mean"))
    return Coefficients(
        names, _column(shared, "estimate"), low=_column(shared, "low"), high=_column(shared, "high")
    )


def distances(
    found: Coefficients, true: Coefficients, scale: Mapping[str, float]
) -> dict[str, float]:
    """Return the metrics of this module. scale: each variable's standard deviation."""
    order = [found.names.index(name) for name in true.names]
    s = np.array([scale[name] for name in true.names])
    slopes = found.slopes[order]
    metrics = {
        "error": float(np.linalg.norm(s * (slopes - true.slopes)) / np.linalg.norm(s * true.slopes))
    }
    if found.low is not None and found.high is not None:
        low, high = found.low[order], found.high[order]
        metrics["coverage"] = float(np.mean((low <= true.slopes) & (true.slopes <= high)))
        metrics["width"] = float(np.median((high - low) * s))
    if found.inclusion is not None and true.inclusion is not None:
        metrics["pip_error"] = float(np.mean(np.abs(found.inclusion[order] - true.inclusion)))
    return metrics


def _names(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(row["term"] for row in rows)


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> Array:
    return np.array([row[name] for row in rows], dtype=np.float64)
