"""The coefficient table of every regression, and results as plain data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit  # scipy.stats would take half a second to import

from secagg.errors import UsageError
from secagg.models.common.pooled_moments import Moments

INTERCEPT = "(intercept)"
WITHIN_NOTE = (
    "Each site subtracted its own means: slopes and R² describe differences within sites. Every "
    "site has its own intercept, and none of these is known."
)


@dataclass(frozen=True, kw_only=True)
class Term:
    """One row of a coefficient table, in the column's own units.

    std_error, statistic, p_value, ci_low and ci_high are None where the method has none.
    statistic is estimate / std_error; p_value is two-sided, against a coefficient of zero.
    """

    term: str
    estimate: float
    std_error: float | None = None
    statistic: float | None = None
    p_value: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None


class Result:
    """Base of the frozen result dataclasses."""

    def to_dict(self) -> dict[str, object]:
        """Return the fields as JSON-able data; a number that is not finite becomes None."""
        data = plain(self)
        assert isinstance(data, dict)
        return data


def plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def tested_terms(
    names: Sequence[str],
    estimate: NDArray[np.float64],
    std_error: NDArray[np.float64],
    level: float,
    dof: float = math.inf,
) -> tuple[Term, ...]:
    """Return Wald tests and intervals by Student's t with `dof` (normal where infinite).

    names: p terms; estimate, std_error: shape (p,), std_error > 0; level: between 0 and 1.
    """
    quantile = critical_value(level, dof)
    statistic = estimate / std_error
    p_value = 2 * stdtr(dof, -np.abs(statistic))
    return tuple(
        Term(
            term=name,
            estimate=float(estimate[j]),
            std_error=float(std_error[j]),
            statistic=float(statistic[j]),
            p_value=float(p_value[j]),
            ci_low=float(estimate[j] - quantile * std_error[j]),
            ci_high=float(estimate[j] + quantile * std_error[j]),
        )
        for j, name in enumerate(names)
    )


def identified(terms: tuple[Term, ...], moments: Moments) -> tuple[Term, ...]:
    """Return the terms without the intercept (the first) if each site has its own intercept.

    The pooled means are then not known and stand as 0, and so would the intercept.
    """
    return terms if moments.within is None else terms[1:]


def within_notes(moments: Moments) -> tuple[str, ...]:
    """Return the note for results in which each site subtracted its own means."""
    return () if moments.within is None else (WITHIN_NOTE,)


def critical_value(level: float, dof: float = math.inf) -> float:
    """Return the half length, in standard errors, of a two-sided interval of this level.

    Raises UsageError unless 0 < level < 1.
    """
    if not 0 < level < 1:
        raise UsageError("analysis", f"confidence level {level!r} is not between 0 and 1")
    return float(-stdtrit(dof, (1 - level) / 2))


def regression_columns(outcome: str, predictors: Sequence[str]) -> tuple[str, ...]:
    """Return (predictors, outcome).

    Raises UsageError for no predictor, a repeated one, or the outcome among them.
    """
    if not predictors:
        raise UsageError("analysis", "no predictors", "Name at least one.")
    if outcome in predictors:
        raise UsageError("analysis", f"outcome {outcome!r} is also a predictor", "Leave it out.")
    repeated = [name for j, name in enumerate(predictors) if name in predictors[:j]]
    if repeated:
        raise UsageError("analysis", f"predictor {repeated[0]!r} is named twice", "Name it once.")
    return (*predictors, outcome)


def regression_moments(moments: Moments, outcome: str, predictors: Sequence[str]) -> Moments:
    """Return the moments of `regression_columns`, in that order. Raises UsageError."""
    return moments.select(regression_columns(outcome, predictors))
