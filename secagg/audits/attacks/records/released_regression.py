"""The regressions in a run's result, in the units of the stored records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from secagg.audits.views import View
from secagg.contracts import Family, PublicFacts, Variable
from secagg.core.arrays import Array
from secagg.models.common.coefficient_table import INTERCEPT
from secagg.models.common.gaussian import GAUSSIAN
from secagg.models.glm.exposure import Exposure

_RIDGE = 1e-3  # weight of the penalty, in records
_STEPS = 100
_LONGEST = 2.0  # change of a linear predictor in one step: a longer step may overshoot
_LEAST_WEIGHT = 1e-12


@dataclass(frozen=True)
class Regression:
    """Coefficients of one variable on others. Records are scaled by the public bounds.

    name: of the analysis; outcome, predictors: positions of the variables
    slopes, intercept: of the linear predictor, of the scaled outcome in a linear regression; the
        intercept is None if it is not released
    exposure: whose logarithm is added to the linear predictor; None if there is none
    """

    name: str
    family: Family
    outcome: int
    predictors: tuple[int, ...]
    slopes: Array
    intercept: float | None
    variable: Variable
    exposure: Exposure | None = None

    def outcomes(self, records: Array) -> Array:
        """Return the outcome of each record, as the family takes it."""
        return self.family.outcomes(records[:, self.outcome], self.variable)

    def design(self, records: Array) -> Array:
        """Return a column of ones, and the predictors."""
        return np.column_stack([np.ones(len(records)), records[:, list(self.predictors)]])

    def linear(self, records: Array) -> Array:
        """Return each record's sum of slopes times predictors, and its offset."""
        return np.asarray(records[:, list(self.predictors)] @ self.slopes) + self.offset(records)

    def offset(self, records: Array) -> Array:
        """Return the offset of each record; 0 without an exposure."""
        return np.zeros(len(records)) if self.exposure is None else self.exposure.offset(records)

    def dispersion(self, scores: Array) -> float:
        """Return 1, or its estimate from the records' scores at the estimate."""
        return max(float(np.mean(scores**2)), 1e-300) if self.family.dispersed else 1.0


def released_regressions(view: View) -> list[Regression]:
    """Return the regressions of the result: estimates or posterior means, whether converged or not.

    Of methods with a model for each site, the means over sites.
    """
    public = view.planned.public
    found = [
        _read(public, each, family)
        for each in _tables(view)
        if (family := _family(view, each)) is not None
    ]
    return [each for each in found if each is not None]


def why_no_regression(view: View) -> str:
    """Return why the result has no regression of a known family; "" if it has one."""
    if released_regressions(view):
        return ""
    unknown = any(_family(view, each) is None for each in _tables(view))
    return "family unknown" if unknown else "the result has no coefficients of one model"


def _tables(view: View) -> list[Mapping[str, Any]]:
    summary = view.result.summary
    return [each for each in summary.get("analyses", [summary]) if "outcome" in each]


def _family(view: View, table: Mapping[str, Any]) -> Family | None:
    """Return the family that the method's facts or the table state; None if it is unknown.

    A regression that is computed from moments alone is linear.
    """
    facts = view.planned.facts
    stated = None if facts.regression is None else facts.regression.family
    if stated is None and facts.moments_only:
        stated = GAUSSIAN
    named = table.get("family", None if stated is None else stated.name)
    return next((each for each in (stated, GAUSSIAN) if each and each.name == named), None)


def _read(public: PublicFacts, table: Mapping[str, Any], family: Family) -> Regression | None:
    positions = {v.name: i for i, v in enumerate(public.variables)}
    columns = Counter(v.column for v in public.variables)
    positions |= {v.column: positions[v.name] for v in public.variables if columns[v.column] == 1}
    if "terms" in table:
        own = {row["term"]: row["estimate"] for row in table["terms"]}
    else:
        rows = table.get("across_sites") or table.get("coefficients") or ()
        rows = [
            row for row in rows if "own_units" in row
        ]  # an intercept in analysed units has none
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
    variable, exposure = public.variables[outcome], None
    middle, unit = (variable.midpoint, variable.half_range) if family.linear else (0.0, 1.0)
    if "exposure" in table:
        exposure = Exposure.of(public, table["exposure"], (table["outcome"],))
        middle -= exposure.middle
    return Regression(
        str(table["method"]),
        family,
        outcome,
        tuple(positions[name] for name in own),
        slopes * half / unit,
        None if intercept is None else (intercept + at_middle - middle) / unit,
        variable,
        exposure,
    )


def fitted(X: Array, y: Array, family: Family, offset: Array | float = 0.0) -> tuple[Array, Array]:
    """Return the maximum likelihood estimate, and R with R R' = (X'WX)^-1.

    A slight ridge penalty keeps both finite.
    """
    b, H = np.zeros(X.shape[1]), _RIDGE * np.eye(X.shape[1])
    for _ in range(_STEPS):
        eta = X @ b + offset
        H = (X * weights(family, eta)[:, None]).T @ X + _RIDGE * np.eye(len(b))
        step = np.linalg.solve(H, X.T @ family.score(y, eta) - _RIDGE * b)
        largest = float(np.max(np.abs(X @ step)))
        b += step * (1.0 if family.linear or largest <= _LONGEST else _LONGEST / largest)
        if largest < 1e-10:
            break
    return b, np.asarray(np.linalg.inv(np.linalg.cholesky(H)).T, dtype=np.float64)


def weights(family: Family, eta: Array) -> Array:
    """Return the Fisher weight of each record, above 0."""
    return np.maximum(family.weight(eta), _LEAST_WEIGHT)
