"""The lasso from pooled moments alone (Tibshirani 1996).

It minimises |z - Zg|^2 / (2n) + penalty |g|_1 on standardised columns:
`secagg.models.moments.scaling` defines the scale, `secagg.models.numerics.lasso` has the algorithm.
All of it is post-processing of the released moments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from secagg.errors import UsageError
from secagg.models.common.coefficient_table import (
    INTERCEPT,
    Result,
    Term,
    moments_terms,
    within_notes,
)
from secagg.models.common.pooled_moments import Moments
from secagg.models.moments.scaling import Vector, check_penalty, standardised
from secagg.models.numerics.lasso import lasso_descent, optimality_violation

_PATH_LENGTH, _PATH_RATIO = 100, 1e-3  # glmnet's defaults (Friedman et al. 2010, section 2.5)


@dataclass(frozen=True, kw_only=True)
class LassoFit(Result):
    """A lasso fit; its terms have estimates only.

    penalty: of the objective above, a pure number; penalty_rule: "bic" or "given"
    penalty_max: the smallest penalty at which every slope is zero
    bic: -2 log-likelihood + log(n) (1 + number of nonzero slopes), comparable with `ols`. If each
        site subtracted its own means, the 1 is replaced by the number of sites.
    selected: predictors with nonzero slopes
    kkt_violation: largest violation of the optimality conditions, on the correlation scale
    """

    method: str = "lasso"
    outcome: str
    n: int
    terms: tuple[Term, ...]
    penalty: float
    penalty_rule: str
    penalty_max: float
    bic: float
    r_squared: float
    selected: tuple[str, ...]
    kkt_violation: float
    notes: tuple[str, ...]


def lasso(
    moments: Moments,
    outcome: str,
    predictors: Sequence[str],
    penalty: float | Literal["bic"] = "bic",
) -> LassoFit:
    """Fit the lasso for a decreasing sequence of penalties; at the first, every slope is zero.

    penalty: positive, or "bic". "bic" tries 100 penalties, down to a thousandth of the largest, and
        takes the one with the smallest BIC = -2 log-likelihood + log(n) df. The number of nonzero
        slopes is an unbiased estimate of the lasso's degrees of freedom (Zou, Hastie & Tibshirani
        2007); the intercept adds one. BIC requires n > p + 1. Otherwise the likelihood grows
        without bound as the penalty decreases.

    After selection, the estimates' distribution is not normal and cannot be estimated uniformly
    (Leeb & Poetscher 2005). So there are no standard errors. Those of `ols` on the selected columns
    would be too small.

    Raises UsageError for unknown, repeated or constant columns, the outcome among the predictors,
    moments that no data can have (negative eigenvalues), n <= p + 1 with "bic", or an invalid
    option.
    """
    pooled, R, r = standardised(moments, outcome, predictors)
    rule = check_penalty(penalty, "bic")
    n, p = pooled.n, len(predictors)
    # If no predictor is correlated with the outcome, the maximum is 0 or a rounding error.
    penalty_max = max(float(np.max(np.abs(r))), float(np.finfo(np.float64).eps))
    if isinstance(penalty, str):
        if n <= p + pooled.subtracted_means:
            raise UsageError(
                "analysis",
                f"BIC cannot choose among {p} predictors from {n} records",
                "Give a penalty as a number, or use fewer predictors.",
            )
        path = np.geomspace(penalty_max, _PATH_RATIO * penalty_max, _PATH_LENGTH)
    elif penalty < penalty_max:  # steps of 10 %: each start is near its solution
        steps = 2 + int(np.log(penalty_max / penalty) / 0.1)
        path = np.geomspace(penalty_max, penalty, steps)
        path[-1] = penalty
    else:
        path = np.array([penalty])

    variance = float(pooled.covariance[p, p])

    def unexplained(g: Vector) -> float:
        return max(float(1 - 2 * r @ g + g @ R @ g), float(np.finfo(np.float64).eps))

    def bic(g: Vector) -> float:
        deviance = n * (np.log(2 * np.pi * variance * unexplained(g)) + 1)
        return float(deviance + np.log(n) * (pooled.subtracted_means + np.count_nonzero(g)))

    notes = [
        "No standard errors: none are valid after the lasso's selection.",
        *within_notes(pooled),
    ]
    solutions = lasso_descent(R, r, path)
    chosen = len(path) - 1
    if isinstance(penalty, str):
        chosen = int(np.argmin([bic(g) for g in solutions]))
        if chosen == len(path) - 1:
            notes.append("BIC is lowest at the smallest penalty of the path: compare with `ols`.")
    g, weight = solutions[chosen], float(path[chosen])
    slopes = np.sqrt(variance) / pooled.standard_deviation[:p] * g
    estimates = [float(pooled.mean[p] - slopes @ pooled.mean[:p]), *slopes]
    return LassoFit(
        outcome=outcome,
        n=n,
        terms=moments_terms(
            tuple(
                Term(term=name, estimate=float(estimate))
                for name, estimate in zip((INTERCEPT, *predictors), estimates, strict=True)
            ),
            pooled,
        ),
        penalty=weight,
        penalty_rule=rule,
        penalty_max=penalty_max,
        bic=bic(g),
        r_squared=1 - unexplained(g),
        selected=tuple(name for name, slope in zip(predictors, g, strict=True) if slope != 0),
        kkt_violation=optimality_violation(R, r, weight, g),
        notes=tuple(notes),
    )
