"""The coefficient table of every regression, and results as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

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
class PerSD:
    """A coefficient for one standard deviation of its predictor, in place of one unit.

    estimate, ci_low and ci_high are those of the term, times sd. They treat sd as known: its own
    sampling error is not in the interval. The ends are None if the term has no interval.

    sd: of the predictor, over the pooled complete records, as `describe` gives it
    """

    sd: float
    estimate: float
    ci_low: float | None = None
    ci_high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Term:
    """One row of a coefficient table, in the column's own units.

    std_error, statistic, p_value, ci_low and ci_high are None where the method has none.
    statistic is estimate / std_error; p_value is two-sided, against a coefficient of zero.
    per_sd is None for the intercept, and where the method does not know the predictors' standard
    deviations, or knows them only with noise.
    """

    term: str
    estimate: float
    std_error: float | None = None
    statistic: float | None = None
    p_value: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    per_sd: PerSD | None = None


def plain_terms(terms: Sequence[Term], effect: str = "") -> list[dict[str, Any]]:
    """Return the terms as plain data, with the exponentials of estimate and interval.

    effect: what the exponential is a ratio of: "odds" gives odds_ratio, odds_low and odds_high, per
        unit of the column, and the same per standard deviation. For the intercept it is the odds if
        every column is 0. A number beyond the float range becomes None, and so do the ends if there
        is no interval. "" adds nothing
    """
    found = []
    for term in terms:
        row: Any = plain(term)
        if effect:
            row |= _ratios(term, effect)
            if term.per_sd is not None:
                row["per_sd"] |= _ratios(term.per_sd, effect)
        found.append(row)
    return found


def effect_of(terms: Sequence[Mapping[str, Any]]) -> str:
    """Return the effect of `plain_terms`, from its result; "" if there is none."""
    keys = [key for term in terms for key in term if key.endswith("_ratio")]
    return keys[0].removesuffix("_ratio") if keys else ""


def ratios_of(term: Mapping[str, Any], effect: str) -> list[float | None]:
    """Return the ratio of a term of `plain_terms`, and the ends of its interval."""
    return [term[f"{effect}_{part}"] for part in ("ratio", "low", "high")]


def _ratios(term: Term | PerSD, effect: str) -> dict[str, object]:
    logs = {"ratio": term.estimate, "low": term.ci_low, "high": term.ci_high}
    return {f"{effect}_{part}": plain(_exp(log)) for part, log in logs.items()}


def _exp(log: float | None) -> float | None:
    try:
        return None if log is None else math.exp(log)
    except OverflowError:
        return math.inf


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


def per_sd(terms: Sequence[Term], deviations: Sequence[float]) -> tuple[Term, ...]:
    """Return the terms, each also for one standard deviation of its predictor.

    terms: the intercept first; deviations: of the other terms' predictors. One that is not positive
    and finite is not used.
    """
    first, *slopes = terms
    return (first, *(_per_sd(term, sd) for term, sd in zip(slopes, deviations, strict=True)))


def _per_sd(term: Term, sd: float) -> Term:
    if not 0 < sd < math.inf:
        return term
    low, high = (None if end is None else sd * end for end in (term.ci_low, term.ci_high))
    return replace(term, per_sd=PerSD(sd=sd, estimate=sd * term.estimate, ci_low=low, ci_high=high))


def moments_terms(terms: tuple[Term, ...], moments: Moments) -> tuple[Term, ...]:
    """Return the terms of a fit from these moments, as they stand in its result.

    terms: the intercept first, then the predictors in the order of the moments' columns

    If each site subtracted its own means, there is no common intercept: the pooled means are not
    known and stand as 0. Standard deviations with noise are not used: the intervals would not
    account for their noise.
    """
    if not moments.noisy and moments.degrees_of_freedom > 0:
        unbiased = math.sqrt(moments.n / moments.degrees_of_freedom)
        terms = per_sd(terms, (unbiased * moments.standard_deviation[: len(terms) - 1]).tolist())
    return terms if moments.within is None else terms[1:]


def within_notes(moments: Moments) -> tuple[str, ...]:
    """Return the note for results in which each site subtracted its own means."""
    return () if moments.within is None else (WITHIN_NOTE,)


def critical_value(level: float, dof: float = math.inf) -> float:
    """Return the half length, in standard errors, of a two-sided interval of this level.

    Raises UsageError unless 0 < level < 1.
    """
    if not 0 < level < 1:
        what = f"{level!r} is not between 0 and 1"
        raise UsageError("level", what, "Write 0.95 for intervals of 95 %.")
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
