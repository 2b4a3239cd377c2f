"""The scale on which ridge regression and the lasso penalise.

Every predictor and the outcome are centred and divided by their standard deviation (divisor n).
With Z and z so scaled, g the standardised slopes, R = Z'Z / n and r = Z'z / n (correlations, so
moments are enough), the objectives are

    ridge   |z - Zg|^2 / n      + penalty |g|_2^2     (Hoerl & Kennard 1970)
    lasso   |z - Zg|^2 / (2n)   + penalty |g|_1       (Tibshirani 1996)

so a penalty is a pure number. In scikit-learn's terms, on z-scored columns, it is alpha / n of
`Ridge` and alpha of `Lasso`. The intercept is never penalised. Slopes return to the columns' own
units by b_j = g_j sd_y / sd_j, and the intercept is mean_y - b'm, m the predictors' means.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from secagg.errors import UsageError
from secagg.models.common.coefficient_table import regression_moments
from secagg.models.common.pooled_moments import Moments
from secagg.models.numerics.cholesky import positive_semidefinite

Vector = NDArray[np.float64]


def standardised(
    moments: Moments, outcome: str, predictors: Sequence[str]
) -> tuple[Moments, Vector, Vector]:
    """Return the moments of (predictors, outcome), and R (p, p) and r (p,). Raises UsageError."""
    pooled = regression_moments(moments, outcome, predictors)
    correlation = positive_semidefinite(pooled.correlation, pooled.tolerance)
    p = len(predictors)
    return pooled, correlation[:p, :p], correlation[:p, p]


def check_penalty(penalty: float | str, rule: str) -> str:
    """Return `rule` if the penalty is its name, or "given" for a positive number."""
    if isinstance(penalty, str):
        if penalty == rule:
            return rule
    elif 0 < penalty < np.inf:
        return "given"
    raise UsageError("analysis", f"penalty is {penalty!r}; it must be above 0 or {rule!r}")
