"""Ordinary least squares and descriptive statistics from pooled moments alone.

Follows Seber & Lee, *Linear Regression Analysis* (2003), chapters 3 and 4, on the correlation
scale. With R the correlation matrix of the p predictors, r their correlations with the outcome y,
LL' = R (Cholesky), v = L^-1 r, and s the roots of the diagonal of the scatter matrix S:

    slope_j    b_j = s_y / s_j (R^-1 r)_j                                  (1)
    fit        R^2 = v'v,  RSS = S_yy (1 - v'v),  sigma^2 = RSS / (n-p-1)  (2)
    slope      var b_j = sigma^2 (R^-1)_jj / S_jj                          (3)
    intercept  b_0 = mean_y - b'm,  var b_0 = sigma^2 (1/n + |L^-1 (m/s)|^2)   (4)

m is the predictors' mean. (3) and (4) are sums of squares, so no digits cancel in them however far
the means are from zero. If each of K sites subtracted its own means (`Moments.within`), n - p - 1
becomes n - K - p, R^2 describes the variation within sites, and there is no common intercept. This
is least squares with an indicator of every site (`secagg.models.moments.within_sites`).

All of it is post-processing of the released moments. The standard errors describe sampling only;
they ignore noise that was added to the moments for differential privacy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import fdtrc

from secagg.errors import UsageError
from secagg.models.common.coefficient_table import (
    INTERCEPT,
    Result,
    Term,
    moments_terms,
    regression_moments,
    tested_terms,
    within_notes,
)
from secagg.models.common.pooled_moments import Moments
from secagg.models.numerics.cholesky import factor


@dataclass(frozen=True, kw_only=True)
class LinearFit(Result):
    """A least-squares fit, with the names of a textbook's summary table.

    terms: the intercept first (if there is one), then the predictors in the given order
    f_statistic: tests that all slopes are zero, on model_dof = p and residual_dof = n - p - 1 (or
        n - p - K with K sites that subtracted their own means)
    log_likelihood: Gaussian, at the maximum-likelihood variance RSS / n
    aic, bic: count the p + 1 coefficients (or p + K), not the variance
    """

    method: str = "ols"
    outcome: str
    n: int
    level: float
    terms: tuple[Term, ...]
    r_squared: float
    adjusted_r_squared: float
    residual_std_error: float
    residual_dof: int
    model_dof: int
    f_statistic: float
    f_p_value: float
    log_likelihood: float
    aic: float
    bic: float
    notes: tuple[str, ...]


def ols(
    moments: Moments, outcome: str, predictors: Sequence[str], level: float = 0.95
) -> LinearFit:
    """Regress the outcome on an intercept and the predictors.

    level: of the confidence intervals, in (0, 1)
    Raises UsageError for unknown, repeated, constant or collinear columns (the message names one),
    no residual degree of freedom, an outcome among the predictors or determined by them, or a level
    out of range.
    """
    pooled = regression_moments(moments, outcome, predictors)
    n, p = pooled.n, len(predictors)
    dof = pooled.degrees_of_freedom - p
    if dof < 1:
        levels = "an intercept" if pooled.within is None else f"{pooled.within} sites' means"
        raise UsageError(
            "analysis",
            f"{n} records are too few for {p} predictors, {levels} and a residual variance",
            f"Use at most {max(pooled.degrees_of_freedom - 1, 0)} predictors, or `ridge`.",
        )
    correlation = pooled.correlation
    lower = factor(correlation[:p, :p], predictors, pooled.tolerance)
    v = solve_triangular(lower, correlation[:p, p], lower=True)
    unexplained = float(1.0 - v @ v)
    if unexplained < pooled.tolerance:  # residuals and p-values would be rounding errors
        raise UsageError(
            "analysis",
            f"outcome {outcome!r} is a linear combination of the predictors",
            "Leave out the predictors that it is computed from.",
        )
    root = np.sqrt(np.diagonal(pooled.scatter))
    scale, mean = root[:p], pooled.mean[:p]
    slopes = root[p] / scale * solve_triangular(lower, v, lower=True, trans=1)  # (1)
    rss = float(pooled.scatter[p, p]) * unexplained  # (2)
    sigma = np.sqrt(rss / dof)
    inverse_root = solve_triangular(lower, np.eye(p), lower=True)  # R^-1 = its square
    slope_errors = sigma * np.sqrt(np.sum(inverse_root**2, axis=0)) / scale  # (3)
    intercept = pooled.mean[p] - slopes @ mean
    intercept_error = sigma * np.sqrt(1 / n + np.sum((inverse_root @ (mean / scale)) ** 2))  # (4)
    f_statistic = float(v @ v / p / (unexplained / dof))
    log_likelihood = -n / 2 * (np.log(2 * np.pi * rss / n) + 1)
    return LinearFit(
        outcome=outcome,
        n=n,
        level=level,
        terms=moments_terms(
            tested_terms(
                (INTERCEPT, *predictors),
                np.array([intercept, *slopes]),
                np.array([intercept_error, *slope_errors]),
                level,
                dof,
            ),
            pooled,
        ),
        r_squared=1 - unexplained,
        adjusted_r_squared=1 - unexplained * pooled.degrees_of_freedom / dof,
        residual_std_error=float(sigma),
        residual_dof=dof,
        model_dof=p,
        f_statistic=f_statistic,
        f_p_value=float(fdtrc(p, dof, f_statistic)),
        log_likelihood=float(log_likelihood),
        aic=float(-2 * log_likelihood + 2 * (p + pooled.subtracted_means)),
        bic=float(-2 * log_likelihood + np.log(n) * (p + pooled.subtracted_means)),
        notes=(
            "Classical standard errors: they assume independent records of equal variance.",
            "AIC and BIC count the coefficients, not the residual variance.",
            *within_notes(pooled),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class ColumnSummary:
    """One column.

    mean: None if each site subtracted its own
    sd: with the divisor n - 1, or n - K with K sites that subtracted their own means; None if the
        divisor is 0
    """

    column: str
    mean: float | None
    sd: float | None


@dataclass(frozen=True, kw_only=True)
class Description(Result):
    """The columns and their correlation matrix (rows in the columns' order).

    A correlation with a constant column does not exist and is None, also on the diagonal.
    """

    n: int
    columns: tuple[ColumnSummary, ...]
    correlation: tuple[tuple[float | None, ...], ...]


def describe(moments: Moments) -> Description:
    """Return n, means, standard deviations and correlations of all columns."""
    n, p = moments.n, len(moments.names)
    unbiased = np.sqrt(n / moments.degrees_of_freedom) if moments.degrees_of_freedom > 0 else None
    deviation = moments.standard_deviation
    varying = np.flatnonzero(~moments.constant)
    table: list[list[float | None]] = [[None] * p for _ in range(p)]
    correlation = moments.select([moments.names[j] for j in varying]).correlation
    for row, j in enumerate(varying):
        for column, k in enumerate(varying):
            table[j][k] = float(correlation[row, column])
    return Description(
        n=n,
        columns=tuple(
            ColumnSummary(
                column=name,
                mean=float(moments.mean[j]) if moments.within is None else None,
                sd=None if unbiased is None else float(unbiased * deviation[j]),
            )
            for j, name in enumerate(moments.names)
        ),
        correlation=tuple(tuple(row) for row in table),
    )
