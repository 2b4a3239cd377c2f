"""Least squares from moments with noise: intervals that hold the noise as well as the sampling.

Plugging noisy moments into the textbook's formulas understates the error badly: nominal 90 %
intervals then cover 0.45 (500 records, ten predictors with correlations of 0.3, epsilon = 1). With
A = sum z z' over z = (1, predictors), b = sum z y and the noise E, e on them, the estimating
equation at the truth is

    b~ - A~ theta = (b - A theta) + (e - E theta),
    Cov(b - A theta) = sigma^2 A,
    Cov(e - E theta) = s^2 [(1 + |theta|^2) I + theta theta' - diag(theta_j^2)]              (1)

for variances all s^2. Multiplying by A~^-1 (the delta method) is right to first order in E A^-1,
but where the noise's norm comes near A's least eigenvalue, as there, A~ may be singular by chance:
intervals are 2.5 times as long as those below, and cover 0.99. The parametric bootstrap (Ferrando,
Wang & Sheldon 2022) takes over the bias of its estimate, and covers 0.82. So, as in Bernstein &
Sheldon 2019, the exact moments M are treated as missing data:

    p(theta | release) = integral of p(theta | M) p(M | release) dM,                         (2)

with p(theta | M) the textbook's: with a flat prior on theta and log sigma it is Student's t about
the least-squares estimate, with its standard error and n - p - 1 degrees of freedom (Gelman et
al. 2013, section 14.2), so that credible and confidence intervals are the same numbers. For
p(M | release), and the prior that it needs, see `secagg.models.moments.noise_posterior`. (2) is a
mixture of as many t distributions as there are draws; its quantiles are solved for, not simulated.
Without noise there is one M, and everything here is what `secagg.models.moments.ols.ols` says.

With ten predictors and correlations of 0 to 0.65 such intervals cover 0.89 to 0.93 where 0.90 is
asked, the noise's norm being up to 1.4 times A's least eigenvalue; beyond that, with correlations
of 0.65 and 0.8, up to 0.98. What they miss is a few predictors far more alike than the rest, which
the noise hides: of two correlated by 0.95 among others by 0.3 a slope is covered 0.88 where the
noise's norm is half of the eigenvalue, and 0.41 where it is three times that. All of these are
printed by benchmarks/interval_coverage.py.

Not in the intervals: bias from clipping records to a norm (they are for the coefficients of the
clipped records), choice of the variables after seeing a release, and unequal variances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import stdtr, stdtrit

from secagg.errors import UsageError
from secagg.models.common.coefficient_table import (
    INTERCEPT,
    Result,
    Term,
    critical_value,
    regression_columns,
)
from secagg.models.common.noisy_moments import NoisyMoments
from secagg.models.moments.noise_posterior import CHAINS, draw_factors, mixing

Floats = NDArray[np.float64]

_MAX_NOISE_RATIO = (
    0.5  # largest noise ratio without a note: below it coverage hardly depends on the prior
)
_MAX_R_HAT = 1.05  # largest R-hat without a note: Vehtari et al. 2021 ask 1.01 of far longer chains


@dataclass(frozen=True, kw_only=True)
class NoisyLinearFit(Result):
    """A least-squares fit from moments with noise.

    n: noisy number of records, rounded
    terms: the intercept first, then the predictors in the order asked for. `estimate` is the
        median of (2), the interval is between its quantiles and need not be centred on it;
        `std_error` is the interval's length over that of a t distribution of scale 1; `p_value` is
        twice the smaller share of (2) on either side of zero.
    widened: the intervals' length over that without the noise, median over the slopes, at least
        about 1; r_squared, residual_std_error: medians
    noise_ratio: the noise's operator norm over the least eigenvalue of A, as far as the release
        tells without the prior: 2 where it does not tell. Above 1/2 intervals rest on the prior
    r_hat: agreement of the chains, near 1
    """

    method: str = "ols"
    outcome: str
    n: int
    level: float
    terms: tuple[Term, ...]
    r_squared: float
    residual_std_error: float
    residual_dof: int
    model_dof: int
    widened: float
    noise_ratio: float
    r_hat: float
    notes: tuple[str, ...]


def noisy_ols(
    noisy: NoisyMoments, outcome: str, predictors: Sequence[str], level: float = 0.95
) -> NoisyLinearFit:
    """Regress the outcome on an intercept and the predictors.

    noisy: moments with noise of known variance, in scaled units
    outcome, predictors: names as in `secagg.models.moments.ols.ols`, and checked like there
    level: of the intervals, in (0, 1)
    Raises UsageError for a level out of range, or fewer records than terms, as far as one can see.
    """
    critical_value(level)
    pooled = noisy.select(regression_columns(outcome, predictors))
    p = len(predictors)
    n = pooled.records
    dof = n - p - 1
    if dof < 1:
        raise UsageError(
            "analysis",
            f"the number of records comes out of the noise as {n}, give or take "
            f"{pooled.records_error:.2g}, and must be at least {p + 2} to carry {p} predictors, an "
            "intercept and a residual variance",
            "Use fewer predictors, more records or less noise.",
        )
    exact = not pooled.variance.any()
    if exact:
        L = np.asarray(np.linalg.cholesky(pooled.matrix)[None, None], dtype=np.float64)
    else:
        L = draw_factors(np.repeat(pooled.matrix[None], CHAINS, axis=0), pooled.variance)
    fits = fits_of(L, pooled, dof)
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
        r_squared=fits.r_squared,
        residual_std_error=fits.sigma,
        residual_dof=dof,
        model_dof=p,
        widened=float(np.median((lengths / np.median(errors, axis=0))[1:])),
        noise_ratio=_noise_ratio(pooled),
        r_hat=1.0 if exact else mixing(fits.estimates),
        notes=(),
    )
    return replace(fit, notes=_notes(fit))


@dataclass(frozen=True)
class Fits:
    """Textbook fits for every draw of M, in the columns' own units: medians, and over all draws

    estimates, errors: shape (draws, chains, p + 1), intercept first
    """

    estimates: Floats
    errors: Floats
    sigma: float
    r_squared: float


def fits_of(L: Floats, pooled: NoisyMoments, dof: int) -> Fits:
    """Fit by Cholesky factors of M, shape (draws, chains, p + 2, p + 2), the outcome last.

    With L split into L_A, the last row's l' and its pivot r: L_A L_A' = A, b = L_A l and y'y =
    l'l + r^2. So theta = L_A'^-1 l, RSS = r^2, and Cov(theta) = sigma^2 L_A'^-1 L_A^-1.
    """
    root = np.linalg.inv(L[..., :-1, :-1])
    theta = np.einsum("...ij,...i->...j", root, L[..., -1, :-1])
    rss = L[..., -1, -1] ** 2
    half, middle = pooled.half, pooled.middle
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
        sigma=float(half[-1] * np.median(sigma)),
        r_squared=float(1 - np.median(rss / about_mean)),
    )


def _noise_ratio(pooled: NoisyMoments) -> float:
    """Return how large the noise is beside A's least eigenvalue, both where the noise is even.

    The draws of M would not do: collinear predictors that the noise hides they take for others.
    An eigenvalue below the noise's own cannot be told from it, hence 2 at most.
    """
    A = (pooled.matrix / np.outer(pooled.scale, pooled.scale))[:-1, :-1]
    noise = pooled.eigenvalue_noise
    return 2 * noise / max(float(np.linalg.eigvalsh(A)[0]), noise) if noise else 0.0


def mixture_term(name: str, centres: Floats, scales: Floats, dof: int, level: float) -> Term:
    """Summarise the mixture of Student's t at `centres` with `scales`, both of shape (draws,)."""

    def quantile(share: float) -> float:
        """Solve for it; each component's quantile is on one side, so they bracket it."""
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
        "Intervals hold the noise of differential privacy as well as sampling; they are "
        f"{fit.widened:.1f} times as long as without it.",
        "They are for the coefficients of the records as clipped, and assume independent records "
        "of equal variance.",
    ]
    if fit.noise_ratio > _MAX_NOISE_RATIO:
        notes.append(
            "Noise hides how strongly predictors are correlated (it is "
            f"{'at least ' * (fit.noise_ratio >= 2)}{fit.noise_ratio:.1f} times what they vary in "
            "their least variable direction), and intervals rest in part on what is assumed of it. "
            "In simulations 90 % intervals covered 89 to 98 % with predictors correlated alike "
            "(0 to 0.8), but where two were by 0.95, one of these no more than 41 %. Do not rely "
            "on intervals of single predictors that may be nearly the same."
        )
    if fit.r_hat > _MAX_R_HAT:
        notes.append(f"The sampler's chains disagree (R-hat {fit.r_hat:.2f}).")
    return tuple(notes)
