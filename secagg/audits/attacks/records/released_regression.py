"""The regressions in a run's result, in the units of the stored records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from secagg.audits.views import View
from secagg.contracts import Family, PublicFacts
from secagg.core.arrays import Array
from secagg.models.common.coefficient_table import INTERCEPT

_KNOWN = frozenset(Family)
_RIDGE = 1e-3  # weight of the penalty, in records
_STEPS = 100
_LONGEST = 2.0  # change of a log odds in one step: a longer step may overshoot


@dataclass(frozen=True)
class Regression:
    """Coefficients of one variable on others. Records are scaled by the public bounds.

    name: of the analysis; outcome, predictors: positions of the variables
    slopes: of the scaled outcome, or of the log odds; intercept: None if it is not released
    """

    name: str
    logistic: bool
    outcome: int
    predictors: tuple[int, ...]
    slopes: Array
    intercept: float | None

    def outcomes(self, records: Array) -> Array:
        """Return the outcome of each record; 0 or 1 in a logistic regression."""
        y = records[:, self.outcome]
        return (y > 0).astype(np.float64) if self.logistic else y

    def design(self, records: Array) -> Array:
        """Return a column of ones, and the predictors."""
        return np.column_stack([np.ones(len(records)), records[:, list(self.predictors)]])

    def linear(self, records: Array) -> Array:
        """Return each record's sum of slopes times predictors."""
        return np.asarray(records[:, list(self.predictors)] @ self.slopes)


def released_regressions(view: View) -> list[Regression]:
    """Return the regressions of the result: estimates or posterior means, whether converged or not.

    Of methods with a model for each site, the means over sites.
    """
    public = view.planned.public
    found = [
        _read(public, each, family)
        for each in _tables(view)
        if (family := _family(view, each)) in _KNOWN
    ]
    return [each for each in found if each is not None]


def why_no_regression(view: View) -> str:
    """Return why the result has no regression of a known family; "" if it has one."""
    if released_regressions(view):
        return ""
    unknown = {_family(view, each) for each in _tables(view)} - _KNOWN
    return "family unknown" if unknown else "the result has no coefficients of one model"


def _tables(view: View) -> list[Mapping[str, Any]]:
    summary = view.result.summary
    return [each for each in summary.get("analyses", [summary]) if "outcome" in each]


def _family(view: View, table: Mapping[str, Any]) -> str:
    """Return the family that a table or the method's facts state; "" if neither does.

    A regression that is computed from moments alone is linear.
    """
    facts = view.planned.facts
    stated = "" if facts.regression is None else facts.regression.family.value
    if not stated and facts.moments_only:
        stated = Family.GAUSSIAN.value
    return str(table.get("family", stated))


def _read(public: PublicFacts, table: Mapping[str, Any], family: str) -> Regression | None:
    positions = {v.name: i for i, v in enumerate(public.variables)}
    if "terms" in table:
        own = {row["term"]: row["estimate"] for row in table["terms"]}
    else:
        rows = table.get("across_sites") or table.get("coefficients") or ()
        own = {row["term"]: row["own_units"]["mean"] for row in rows}
    intercept = own.pop(INTERCEPT, None)
    known = own and all(name in positions for name in own)  # not powers of a column
    if not known or table["outcome"] not in positions or None in own.values():
        return None
    outcome = positions[table["outcome"]]
    chosen = [public.variables[positions[name]] for name in own]
    half = np.array([v.half_range for v in chosen])
    slopes = np.array(list(own.values()), dtype=np.float64)
    at_middle = float(slopes @ [v.midpoint for v in chosen])
    logistic = family == Family.BINOMIAL
    middle, unit = 0.0, 1.0
    if not logistic:
        middle, unit = public.variables[outcome].midpoint, public.variables[outcome].half_range
    return Regression(
        str(table["method"]),
        logistic,
        outcome,
        tuple(positions[name] for name in own),
        slopes * half / unit,
        None if intercept is None else (intercept + at_middle - middle) / unit,
    )


def means_and_weights(eta: Array, *, logistic: bool) -> tuple[Array, Array]:
    """Return the expected outcome of each record, and its derivative."""
    if not logistic:
        return eta, np.ones_like(eta)
    mean = np.asarray(expit(eta))
    return mean, np.maximum(mean * (1 - mean), 1e-12)


def fitted(X: Array, y: Array, *, logistic: bool) -> tuple[Array, Array]:
    """Return the maximum likelihood estimate, and R with R R' = (X'WX)^-1.

    A slight ridge penalty keeps both finite.
    """
    b, H = np.zeros(X.shape[1]), _RIDGE * np.eye(X.shape[1])
    for _ in range(_STEPS):
        mean, weight = means_and_weights(X @ b, logistic=logistic)
        H = (X * weight[:, None]).T @ X + _RIDGE * np.eye(len(b))
        step = np.linalg.solve(H, X.T @ (y - mean) - _RIDGE * b)
        largest = float(np.max(np.abs(X @ step)))
        b += step * (min(1.0, _LONGEST / largest) if logistic and largest > 0 else 1.0)
        if largest < 1e-10:
            break
    return b, np.asarray(np.linalg.inv(np.linalg.cholesky(H)).T, dtype=np.float64)
