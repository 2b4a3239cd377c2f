"""Least squares from noisy moments, with intervals that cover both the noise and the sampling.

Textbook formulas ignore the noise in the moments, so their intervals are far too short. With 500
records, ten predictors with correlations of 0.3 and epsilon = 1, nominal 90 % intervals have a
coverage of 0.45. Let A = sum z z' with z = (1, predictors), b = sum z y, and A~ = A + E and
b~ = b + e their released values with noise E and e. At the true coefficients theta, the estimating
equation is

    b~ - A~ theta = (b - A theta) + (e - E theta),
    Cov(b - A theta) = sigma^2 A,
    Cov(e - E theta) = s^2 [(1 + |theta|^2) I + theta theta' - diag(theta_j^2)]              (1)

if all noise variances are s^2. The exact moments M are treated as missing data (Bernstein & Sheldon
2019):

    p(theta | release) = integral of p(theta | M) p(M | release) dM,                         (2)

where p(theta | M) is the textbook posterior: with a flat prior on theta and log sigma, Student's t
about the least-squares estimate (Gelman et al. 2013, section 14.2), so credible and confidence
intervals are the same. For p(M | release) see `secagg.models.numerics.noise_posterior`. (2) is a
mixture of t distributions, one for each draw; its quantiles are computed by root finding, not by
simulation. Without noise, M is known, and all results equal those of
`secagg.models.moments.ols.ols`. docs/math/noise-posterior.md compares other methods, and has the
coverage in simulations.

The intervals do not allow for three things: the bias from clipping records to a norm (they are for
the coefficients of the clipped records), a choice of variables after seeing a release, and unequal
error variances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import stdtr, stdtrit

from secagg.errors import UsageError
from secagg.models.common.coefficient_table import (
    INTERCEPT,
    WITHIN_NOTE,
    Result,
    Term,
    critical_value,
    regression_columns,
)
from secagg.models.common.noisy_moments import NoisyMoments, repaired
from secagg.models.common.posterior_summary import MAX_R_HAT
from secagg.models.moments.noisy_description import describe_noisy
from secagg.models.numerics.noise_posterior import CHAINS, DRAWS, draw_factors, mixing

Floats = NDArray[np.float64]

_MAX_NOISE_RATIO = 0.5  # above it a note: coverage depends on the prior
_MORE = 4  # times the draws, if the chains disagree


@dataclass(frozen=True, kw_only=True)
class NoisyLinearFit(Result):
    """A least-squares fit from moments with noise.

    n: noisy number of records, rounded
    terms: the intercept first, then the predictors in the given order. `estimate` is the median of
        (2). The interval is between its quantiles and need not be centred on the median.
        `std_error` is the interval's length divided by that of a t distribution of scale 1.
        `p_value` is twice the smaller share of (2) on either side of zero.
    widened: the intervals' length divided by that without the noise, median over the slopes, at
        least about 1; r_squared, residual_std_error: medians
    noise_ratio: the noise's operator norm divided by the smallest eigenvalue of A, estimated
        without the prior; 2 if the noise hides that eigenvalue. Above 1/2 the intervals depend on
        the prior.
    r_squared_range, residual_std_error_range: between these, the noise leaves the value that the
        exact moments would give, with the probability `level`. All four are None if the noise hides
        how much the outcome varies, or `noise_ratio` is above 1/2: then the prior decides
    r_hat: agreement of the chains, near 1
    converged: whether the chains agree; otherwise the fit must not be used
    """

    method: str = "ols"
    outcome: str
    n: int
    level: float
    terms: tuple[Term, ...]
    r_squared: float | None
    r_squared_range: tuple[float, float] | None
    residual_std_error: float | None
    residual_std_error_range: tuple[float, float] | None
    residual_dof: int
    model_dof: int
    widened: float
    noise_ratio: float
    r_hat: float
    converged: bool
    notes: tuple[str, ...]


def noisy_ols(
    noisy: NoisyMoments, outcome: str, predictors: Sequence[str], level: float = 0.95
) -> NoisyLinearFit:
    """Regress the outcome on an intercept and the predictors.

    noisy: moments with noise of known variance, in scaled units
    outcome, predictors: as in `secagg.models.moments.ols.ols`, with the same checks
    level: of the intervals, in (0, 1)
    Raises UsageError for a level out of range, or a noisy number of records that is too small.
    """
    critical_value(level)
    pooled = noisy.select(regression_columns(outcome, predictors))
    p = len(predictors)
    n = pooled.records
    dof = n - p - (pooled.within or 1)
    if dof < 1:
        raise UsageError(
            "analysis",
            f"the noisy number of records is {n} (standard deviation {pooled.records_error:.2g}), "
            f"and must be at least {n - dof + 1} for {p} predictors, means and a residual variance",
            "Use fewer predictors, more records or less noise.",
        )
    if pooled.variance.any():
        fits, r_hat = _drawn_fits(pooled, dof)
    else:
        L = np.asarray(np.linalg.cholesky(pooled.matrix)[None, None], dtype=np.float64)
        fits, r_hat = fits_of(L, pooled, dof), 1.0
    noise_ratio = _noise_ratio(pooled)
    hidden = noise_ratio > _MAX_NOISE_RATIO or _spread_is_hidden(pooled)
    estimates = fits.estimates.reshape(-1, p + 1)
    errors = fits.errors.reshape(-1, p + 1)
    columns = zip((INTERCEPT, *predictors), estimates.T, errors.T, strict=True)
    terms = tuple(mixture_term(name, centre, scale, dof, level) for name, centre, scale in columns)
    lengths = np.array([term.std_error for term in terms])
    fit = NoisyLinearFit(
        outcome=outcome,
        n=n,
        level=level,
        terms=terms,
        r_squared=None if hidden else float(np.median(fits.r_squared)),
        r_squared_range=None if hidden else _range(fits.r_squared, level),
        residual_std_error=None if hidden else float(np.median(fits.sigma)),
        residual_std_error_range=None if hidden else _range(fits.sigma, level),
        residual_dof=dof,
        model_dof=p,
        widened=float(np.median((lengths / np.median(errors, axis=0))[1:])),
        noise_ratio=noise_ratio,
        r_hat=r_hat,
        converged=r_hat <= MAX_R_HAT,
        notes=(),
    )
    notes = _notes(fit)
    if pooled.within is not None:  # there is no common intercept
        fit, notes = replace(fit, terms=terms[1:]), (WITHIN_NOTE, *notes)
    return replace(fit, notes=notes)


def first_order(
    noisy: NoisyMoments, outcome: str, predictors: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the slopes' terms with errors to first order in the noise, without drawing M.

    Estimates solve the repaired moments; errors are the roots of A^-1 (sigma^2 A + (1)) A^-1. For
    predictions before data is read: the intervals of `noisy_ols` need draws.
    noisy, outcome, predictors: as for `noisy_ols`
    """
    pooled = noisy.select(regression_columns(outcome, predictors))
    M, V = repaired(pooled).matrix, pooled.variance[:-1, :-1]
    A, b = M[:-1, :-1], M[:-1, -1]
    theta = np.linalg.solve(A, b)
    dof = max(1.0, M[0, 0] - len(A))
    of_noise = V * np.outer(theta, theta)
    np.fill_diagonal(of_noise, pooled.variance[:-1, -1] + V @ theta**2)
    inverse = np.linalg.inv(A)
    covariance = (M[-1, -1] - b @ theta) / dof * inverse + inverse @ of_noise @ inverse
    units = pooled.half_range[-1] / pooled.half_range[:-1]
    found = zip(
        predictors, units * theta[1:], units * np.sqrt(np.diagonal(covariance))[1:], strict=True
    )
    return [{"term": name, "estimate": b, "std_error": error} for name, b, error in found]


@dataclass(frozen=True)
class Fits:
    """Textbook fits for every draw of M, in the columns' own units.

    estimates, errors: shape (draws, chains, p + 1), intercept first
    sigma, r_squared: shape (draws, chains)
    """

    estimates: Floats
    errors: Floats
    sigma: Floats
    r_squared: Floats


def _drawn_fits(pooled: NoisyMoments, dof: int) -> tuple[Fits, float]:
    """Return the fits of all draws of M, and R-hat; if the chains disagree, draw more."""
    releases = np.repeat(pooled.matrix[None], CHAINS, axis=0)
    fits = fits_of(draw_factors(releases, pooled.variance), pooled, dof)
    r_hat = mixing(fits.estimates)
    if r_hat > MAX_R_HAT:
        fits = fits_of(draw_factors(releases, pooled.variance, _MORE * DRAWS), pooled, dof)
        r_hat = mixing(fits.estimates)
    return fits, r_hat


def _spread_is_hidden(pooled: NoisyMoments) -> bool:
    """Return whether the noise hides how much the outcome, the last column, varies."""
    try:
        return describe_noisy(pooled).columns[-1].sd is None
    except UsageError:  # it hides the number of records
        return True


def _range(draws: Floats, level: float) -> tuple[float, float]:
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def fits_of(L: Floats, pooled: NoisyMoments, dof: int) -> Fits:
    """Fit from Cholesky factors of M, shape (draws, chains, p + 2, p + 2), the outcome last.

    With L split into L_A, the last row's l' and its pivot r: L_A L_A' = A, b = L_A l and y'y =
    l'l + r^2. So theta = L_A'^-1 l, RSS = r^2, and Cov(theta) = sigma^2 L_A'^-1 L_A^-1.
    """
    root = np.linalg.inv(L[..., :-1, :-1])
    theta = np.einsum("...ij,...i->...j", root, L[..., -1, :-1])
    rss = L[..., -1, -1] ** 2
    half, middle = pooled.half_range, pooled.midpoint
    # y = m_y + h_y (theta_0 + sum theta_j (x_j - m_j) / h_j)
    units = np.diag([1.0, *(1 / half[:-1])])
    units[0, 1:] = -middle[:-1] / half[:-1]
    estimates = half[-1] * theta @ units.T
    estimates[..., 0] += middle[-1]
    spread = np.sqrt(((root @ units.T) ** 2).sum(axis=-2))
    sigma = np.sqrt(rss / dof)
    about_mean = rss + (L[..., -1, 1:-1] ** 2).sum(axis=-1)
    return Fits(
        estimates=estimates,
        errors=half[-1] * sigma[..., None] * spread,
        sigma=half[-1] * sigma,
        r_squared=1 - rss / about_mean,
    )


def _noise_ratio(pooled: NoisyMoments) -> float:
    """Return the noise's norm divided by A's smallest eigenvalue, on the scale of even noise.

    It is not computed from the draws of M: where the noise hides collinear predictors, the draws
    treat them as not collinear. An eigenvalue below the noise's own cannot be distinguished from
    noise, so the ratio is at most 2.
    """
    A = (pooled.matrix / np.outer(pooled.scale, pooled.scale))[:-1, :-1]
    noise = pooled.eigenvalue_noise
    return 2 * noise / max(float(np.linalg.eigvalsh(A)[0]), noise) if noise else 0.0


def mixture_term(name: str, centres: Floats, scales: Floats, dof: int, level: float) -> Term:
    """Summarise the mixture of Student's t at `centres` with `scales`, both of shape (draws,)."""

    def quantile(share: float) -> float:
        """Return a quantile by root finding; the components' quantiles bracket it."""
        each = centres + scales * stdtrit(dof, share)
        low, high = float(each.min()), float(each.max())
        if low == high:
            return low
        return float(
            brentq(
                lambda x: float(np.mean(stdtr(dof, (x - centres) / scales))) - share,
                low,
                high,
                xtol=1e-6 * (high - low),
            )
        )

    estimate, low, high = (quantile(share) for share in (0.5, (1 - level) / 2, (1 + level) / 2))
    std_error = (high - low) / (2 * critical_value(level, dof))
    sides = [float(np.mean(stdtr(dof, sign * centres / scales))) for sign in (-1, 1)]
    return Term(
        term=name,
        estimate=estimate,
        std_error=std_error,
        statistic=estimate / std_error,
        p_value=2 * min(sides),
        ci_low=low,
        ci_high=high,
    )


def _notes(fit: NoisyLinearFit) -> tuple[str, ...]:
    notes = [
        "Intervals cover the noise of differential privacy as well as sampling; they are "
        f"{fit.widened:.1f} times as long as without the noise.",
        "They are for the coefficients of the clipped records, and assume independent records of "
        "equal variance.",
    ]
    if fit.noise_ratio > _MAX_NOISE_RATIO:
        notes.append(
            "The noise hides how strongly the predictors are correlated: it is "
            f"{'at least ' * (fit.noise_ratio >= 2)}{fit.noise_ratio:.1f} times their variation in "
            "the direction in which they vary least. The intervals partly depend on prior "
            "assumptions. In simulations 90 % intervals covered 89 to 98 % with equally "
            "correlated predictors (0 to 0.8), but only 41 % for one of two predictors with a "
            "correlation of 0.95. Do not rely on intervals of predictors that may be nearly the "
            "same."
        )
    if fit.r_squared_range is None or fit.residual_std_error_range is None:
        notes.append(
            "The noise hides how much the outcome varies, or how strongly the predictors are "
            "correlated, so there is no R² and no residual standard error."
        )
    elif fit.noise_ratio:
        (r_low, r_high), (s_low, s_high) = fit.r_squared_range, fit.residual_std_error_range
        notes.append(
            f"The noise leaves R² between {r_low:.2f} and {r_high:.2f}, and the residual standard "
            f"error between {s_low:.3g} and {s_high:.3g} (probability {fit.level:.0%})."
        )
    if not fit.converged:
        reason = (
            f"The sampler's chains disagree (R-hat {fit.r_hat:.2f}, at most {MAX_R_HAT} allowed): "
            "the noise is too large for this regression. Use fewer predictors, narrower bounds, "
            "more records or a larger epsilon."
        )
        notes.insert(0, reason)
    return tuple(notes)
