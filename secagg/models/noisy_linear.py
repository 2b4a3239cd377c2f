"""Least squares from moments with noise: intervals that hold the noise as well as the sampling.

Plugging noisy moments into the textbook's formulas understates the error badly: nominal 90 %
intervals then cover less than half (500 records, ten predictors, epsilon = 1). With A = sum z z'
over z = (1, predictors), b = sum z y and the noise E, e on them, the estimating equation at the
truth is

    b~ - A~ theta = (b - A theta) + (e - E theta),
    Cov(b - A theta) = sigma^2 A,
    Cov(e - E theta) = s^2 [(1 + |theta|^2) I + theta theta' - diag(theta_j^2)]              (1)

for variances all s^2. Multiplying by A~^-1 (the delta method) is right to first order in E A^-1,
but where the noise's norm comes near A's least eigenvalue A~ may be singular by chance: intervals
then are several times as long as those below, and cover nearly always. The parametric bootstrap
(Ferrando, Wang & Sheldon 2022) takes over the bias of its estimate. So, as in Bernstein & Sheldon
2019, the exact moments M are treated as missing data:

    p(theta | release) = integral of p(theta | M) p(M | release) dM,                         (2)

with p(theta | M) the textbook's: with a flat prior on theta and log sigma it is Student's t about
the least-squares estimate, with its standard error and n - p - 1 degrees of freedom (Gelman et
al. 2013, section 14.2), so that credible and confidence intervals are the same numbers. For
p(M | release), and the prior that it needs, see `secagg.models.moment_posterior`. (2) is a mixture
of as many t distributions as there are draws; its quantiles are solved for, not simulated. Without
noise there is one M, and everything here is what `secagg.models.linear.ols` says.

How well it covers, at which noise, and what the alternatives do is printed by
benchmarks/interval_coverage.py. Once the noise's norm exceeds A's least eigenvalue, the prior has a
say in how long intervals are; they may then cover less for strong effects, and for predictors that
are strongly collinear, and the result says so.

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
from secagg.models.moment_posterior import CHAINS, draw_factors, mixing
from secagg.models.noisy_moments import NoisyMoments
from secagg.models.terms import INTERCEPT, Result, Term, critical_value, regression_columns

Floats = NDArray[np.float64]

_MIXED = 1.05  # largest R-hat without a note: Vehtari et al. 2021 ask 1.01 of far longer chains


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
    noise_ratio: the noise's operator norm over the least eigenvalue of A (median): above 1
        the intervals rest on the prior
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
    outcome, predictors: names as in `secagg.models.linear.ols`, and checked like there
    level: of the intervals, in (0, 1)
    Raises UsageError for a level out of range, or fewer records than terms, as far as one can see.
    """
    critical_value(level)
    pooled = noisy.select(regression_columns(outcome, predictors))
    p = len(predictors)
    n = round(float(pooled.matrix[0, 0]))
    dof = n - p - 1
    if dof < 1:
        raise UsageError(
            "analysis",
            f"{n} records (noise included) cannot carry {p} predictors, an intercept and a "
            "residual variance",
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
        noise_ratio=2 * pooled.eigenvalue_noise / fits.least,
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
    least: float


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
    least = 1 / np.linalg.norm(root, ord=2, axis=(-2, -1)) ** 2
    return Fits(
        estimates=estimates,
        errors=half[-1] * sigma[..., None] * spread,
        sigma=float(half[-1] * np.median(sigma)),
        r_squared=float(1 - np.median(rss / about_mean)),
        least=float(np.median(least)),
    )


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
    if fit.noise_ratio > 1:
        notes.append(
            f"The noise is {fit.noise_ratio:.1f} times what the predictors vary in their least "
            "variable direction: intervals rest on the prior there, and may miss strong effects."
        )
    if fit.r_hat > _MIXED:
        notes.append(f"The sampler's chains disagree (R-hat {fit.r_hat:.2f}).")
    return tuple(notes)
