"""Ridge regression from pooled moments alone (Hoerl & Kennard 1970).

It minimises |z - Zg|^2 / n + penalty |g|_2^2 on standardised columns
(`secagg.models.moments.scaling`). With R = V D V' (eigenvalues d_i) and c = V'r,

    slopes      g = V (D + penalty I)^-1 c                                              (1)
    fit         RSS / S_yy = 1 - sum_i c_i^2 (d_i + 2 penalty) / (d_i + penalty)^2      (2)
    hat matrix  H = 11'/n + Z (R + penalty I)^-1 Z'/n
    its trace   tr H = 1 + sum_i d_i / (d_i + penalty)                                  (3)
    GCV         (RSS / n) / (1 - tr H / n)^2          (Golub, Heath & Wahba 1979)       (4)
    variance    sigma^2 = RSS / (n - tr H)                                              (5)
    sandwich    cov b = sigma^2 / n F^-1 (R + penalty I)^-1 R (R + penalty I)^-1 F^-1   (6)

where b are the slopes in the columns' own units and F is the diagonal matrix of their standard
deviations. If each of K sites subtracted its own means, 11'/n is the projection on the sites and
tr H = K + ... All of it is post-processing of the released moments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import minimize_scalar

from secagg.errors import UsageError
from secagg.models.common.coefficient_table import (
    INTERCEPT,
    Result,
    Term,
    critical_value,
    moments_terms,
    within_notes,
)
from secagg.models.common.pooled_moments import Moments
from secagg.models.moments.scaling import check_penalty, standardised
from secagg.models.numerics.precision import ROUNDING

# The range in which GCV is searched. Eigenvalues are at most p, so at 1e3 p the slopes have shrunk
# a thousandfold; 1e-6 changes least squares only along eigenvalues of that order.
_LOWEST, _HIGHEST_PER_COLUMN, _GRID = 1e-6, 1e3, 200


@dataclass(frozen=True, kw_only=True)
class RidgeFit(Result):
    """A ridge fit.

    penalty: of the objective above, a pure number; penalty_rule: "gcv" or "given"
    gcv: the criterion at that penalty, in squared units of the outcome
    effective_dof: trace of the hat matrix, including 1 for the intercept (or for each site's)
    residual_std_error: root of RSS / (n - effective_dof)
    """

    method: str = "ridge"
    outcome: str
    n: int
    level: float
    terms: tuple[Term, ...]
    penalty: float
    penalty_rule: str
    gcv: float
    effective_dof: float
    r_squared: float
    residual_std_error: float
    notes: tuple[str, ...]


def ridge(
    moments: Moments,
    outcome: str,
    predictors: Sequence[str],
    penalty: float | Literal["gcv"] = "gcv",
    level: float = 0.95,
) -> RidgeFit:
    """Fit by ridge regression; collinear predictors and p >= n are allowed.

    penalty: positive, or "gcv" to minimise generalised cross-validation (4), in which the
        unpenalised intercept counts as one degree of freedom
    level: of the intervals, in (0, 1)

    Standard errors are the sandwich (6), and for the intercept the root of
    sigma^2 / n + m' (cov b) m. They and the intervals (Student's t, n - effective_dof) cover the
    estimator's sampling variation around *its own mean*, given the predictors and the penalty. They
    cover neither its bias towards zero nor the choice of the penalty. So they are not confidence
    intervals for the true slopes, and there are no p-values.

    Raises UsageError for unknown, repeated or constant columns, the outcome among the predictors,
    moments that no data can have (negative eigenvalues), a residual variance of zero, or an invalid
    option.
    """
    pooled, R, r = standardised(moments, outcome, predictors)
    rule = check_penalty(penalty, "gcv")
    n, p = pooled.n, len(predictors)
    eigenvalues, basis = np.linalg.eigh(R)
    eigenvalues = np.maximum(eigenvalues, 0.0)  # only rounding: `standardised` checked the rest
    projected = basis.T @ r

    def unexplained(weight: float) -> float:
        """RSS / S_yy, by (2)."""
        shrunk = eigenvalues + weight
        return float(1 - np.sum(projected**2 * (eigenvalues + 2 * weight) / shrunk**2))

    def effective_dof(weight: float) -> float:
        """The trace of H, by (3)."""
        return float(pooled.subtracted_means + np.sum(eigenvalues / (eigenvalues + weight)))

    variance = float(pooled.covariance[p, p])

    def gcv(weight: float) -> float:
        return variance * unexplained(weight) / (1 - effective_dof(weight) / n) ** 2

    notes = [
        "Standard errors and intervals describe the estimator around its own mean: they cover "
        "neither its bias nor the choice of the penalty.",
        *within_notes(pooled),
    ]
    if isinstance(penalty, str):
        penalty, at_edge = _minimise(gcv, _LOWEST, _HIGHEST_PER_COLUMN * p)
        if at_edge:
            notes.append(f"GCV is still falling at the {at_edge} end of the penalties searched.")
    dof = n - effective_dof(penalty)
    residual_share = unexplained(penalty)
    if not (residual_share > ROUNDING and dof > 0):  # otherwise (2) is a rounding error
        raise UsageError(
            "analysis",
            "the ridge fit leaves no residual variance",
            "Give a larger penalty, or leave out predictors that determine the outcome.",
        )
    sigma = np.sqrt(residual_share * variance * n / dof)  # (5)
    sd, mean = pooled.standard_deviation[:p], pooled.mean[:p]
    inverse = basis / (eigenvalues + penalty)  # (R + penalty I)^-1 = inverse @ basis'
    slopes = np.sqrt(variance) / sd * (inverse @ projected)  # (1)
    # a square root of (6): cov b = root root'
    root = sigma / np.sqrt(n) * (inverse * np.sqrt(eigenvalues)) / sd[:, None]
    errors = np.sqrt([sigma**2 / n + np.sum((mean @ root) ** 2), *np.sum(root**2, axis=1)])
    estimates = [float(pooled.mean[p] - slopes @ mean), *slopes]
    quantile = critical_value(level, dof)
    return RidgeFit(
        outcome=outcome,
        n=n,
        level=level,
        terms=moments_terms(
            tuple(
                Term(
                    term=name,
                    estimate=float(estimate),
                    std_error=float(error),
                    ci_low=float(estimate - quantile * error),
                    ci_high=float(estimate + quantile * error),
                )
                for name, estimate, error in zip(
                    (INTERCEPT, *predictors), estimates, errors, strict=True
                )
            ),
            pooled,
        ),
        penalty=float(penalty),
        penalty_rule=rule,
        gcv=gcv(penalty),
        effective_dof=effective_dof(penalty),
        r_squared=1 - residual_share,
        residual_std_error=float(sigma),
        notes=tuple(notes),
    )


def _minimise(
    criterion: Callable[[float], float], low: float, high: float
) -> tuple[float, Literal["", "lower", "upper"]]:
    """Return the minimiser over [low, high] on a log scale, and the end at which it lies, if any.

    GCV can have several minima: a grid brackets the lowest, and Brent's method finds it.
    """
    grid = np.linspace(np.log(low), np.log(high), _GRID)
    best = int(np.argmin([criterion(float(np.exp(point))) for point in grid]))
    if best in (0, len(grid) - 1):
        return float(np.exp(grid[best])), "upper" if best else "lower"
    minimum = minimize_scalar(
        lambda point: criterion(float(np.exp(point))),
        bounds=(grid[best - 1], grid[best + 1]),
        method="bounded",
        options={"xatol": 1e-8},  # rounded function values locate a minimum no better
    )
    return float(np.exp(minimum.x)), ""
