"""A site that took no part in a run: its own coefficients, and predictions for its records.

Kidd, Wang, Xu and Ni (PSB 2023), section 2.2: a site's coefficients are drawn around common ones,

    theta_*j ~ N(theta_j, lambda_*j^2 t_j),  lambda_*j ~ C+(0, 1)                                (1)

and so are those of a new site. Given each recorded draw (theta, t) of a finished run, Gibbs sweeps
over the new site's own parameters (`secagg.models.sparse_bayes.horseshoe`) draw from

    p(theta_*, s_* | its records, theta, t)                                                      (2)

one draw for each (theta, t), all computed together. The new site's records never leave it. They
determine its own posterior, but do not change the common posterior, to which the site did not
contribute (a "cut" posterior: Plummer 2015, "Cuts in Bayesian graphical models"). Without records,
(2) is the prior (1), which describes a further site as far as the run's sites determine it.

Predictions. Records are centred at the site's own means, with a flat prior on its intercept, so
that for m records with means x-bar and y-bar

    y = y-bar + (x - x-bar)' theta_* + e,  e ~ N(0, s_* (1 + 1/m))                               (3)

where 1/m is the uncertainty of the intercept. At least one record is needed.

theta_*j has a mean and a variance if the site has at least two records and predictor j varies in
them. Otherwise it has neither. Quantiles always exist. Even if the variance exists, the fourth
moment may not, and then the standard deviation has no Monte Carlo error. The mean of exp(y) of (3)
is infinite, because y has power-law tails. docs/math/spike-and-slab.md derives this.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.core.arrays import Array
from secagg.models.numerics.gaussian_draws import clip_variance, inverse_gamma
from secagg.models.sparse_bayes.horseshoe import NoisePrior, Regression, SiteDraw, draw_noise, sweep

_MAX_SHIFT = 5.0  # standard errors


@dataclass(frozen=True)
class NewSiteDraws:
    """Draws of a new site's coefficients (draws, q) and error variance (draws,), in units analysed.

    shift: the largest difference, in standard errors, between the coefficients' means after half
        the sweeps and after all; above 5, more sweeps are needed. It says nothing on the agreement
        of the run's own chains: see R-hat.
    """

    theta: Array
    s: Array
    shift: float

    @property
    def has_converged(self) -> bool:
        """Whether more sweeps, given the run's draws, would make no visible difference."""
        return self.shift <= _MAX_SHIFT


def fit_new_site(
    theta: Array,
    t: Array,
    z: Array,
    prior: NoisePrior,
    sweeps: int,
    rng: np.random.Generator,
) -> NewSiteDraws:
    """Draw a new site's parameters by (2), one for each draw of the run.

    theta, t: draws (draws, q); z: its records (m, 1 + q), the outcome first, centred, in the units
    of theta; sweeps: at least 2
    """
    gram, records = z.T @ z, max(len(z) - 1, 0)  # one less, for the intercept
    data = Regression(gram[1:, 1:], gram[1:, 0], np.asarray(gram[0, 0]))
    w = clip_variance(t * rng.standard_cauchy(t.shape) ** 2)
    v = inverse_gamma(1.0, 1 + t / w, rng)
    s = inverse_gamma(prior.shape, np.full(t.shape[:-1], prior.scale), rng)
    draw = SiteDraw(theta, s, w, v)
    half = theta
    for number in range(sweeps):
        noise = draw_noise(t.shape, records, prior, rng)
        draw = sweep(data, draw, theta, t, prior, noise)
        if number + 1 == sweeps // 2:
            half = draw.theta
    difference = np.abs(draw.theta.mean(axis=0) - half.mean(axis=0))
    error = np.sqrt((draw.theta.var(axis=0) + half.var(axis=0)) / len(theta))
    return NewSiteDraws(draw.theta, draw.s, float(np.max(difference / np.maximum(error, 1e-300))))


def have_moments(predictors: Array) -> NDArray[np.bool_]:
    """Return which coefficients have a mean and a variance, from the predictors' values (m, q)."""
    if len(predictors) < 2:
        return np.zeros(predictors.shape[1], dtype=bool)
    return np.asarray(np.ptp(predictors, axis=0) > 0)


def predict(draws: NewSiteDraws, x: Array, records: int, rng: np.random.Generator) -> Array:
    """Return draws (draws, n) of outcomes by (3), less y-bar, in the units analysed.

    x: predictors (n, q), less the site's own means; records: m, at least 1
    """
    mean = draws.theta @ x.T
    spread = np.sqrt(draws.s * (1 + 1 / records))
    return mean + spread[:, None] * rng.standard_normal(mean.shape)
