"""A site's own posterior in HM2, as draws.

Equation numbers are those of Yue, Al Kontar and Estrada Gomez (2022). If a site subtracted its own
means, its intercept is drawn for each draw of theta_k and sigma_k^2. With a flat prior, the
intercept is N(mean of y - theta_k' mean of x, sigma_k^2 / n_k); under noise once at the site, its
density is in `secagg.models.fedlin.hierarchies.noisy_likelihood`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from secagg.core.arrays import Array
from secagg.errors import DataError
from secagg.models.fedlin.design import Layout, Level
from secagg.models.fedlin.hierarchies.base import (
    Hierarchy,
    PosteriorDraws,
    SufficientStatistics,
    usable_powers,
)
from secagg.models.fedlin.posterior.selection import select
from secagg.models.fedlin.round import Round
from secagg.models.fedlin.site import Site
from secagg.models.numerics.natural_gaussian import Natural


def posterior_draws(
    hierarchy: Hierarchy,
    known: SufficientStatistics,
    q: Natural,
    own: Natural,
    count: int,
    rng: np.random.Generator,
) -> tuple[PosteriorDraws, bool]:
    """Return draws of equation (8), and whether their cavity is without the site's own q_k.

    own: the site's q_k. The cavity is q without q_k, or without a part of it (power expectation
    propagation). If no such cavity is a density that can be drawn from, q is used instead, and then
    a narrow density at q's mean. The reason is that the run's sums have already been released, and
    this failure should not waste them. If nothing can be drawn, raises `DataError`.
    """
    mean, cov = q.moments()
    attempts = [(q - own.times(power), power, True) for power in usable_powers(hierarchy, known)]
    attempts += [(q, 1.0, False), (Natural.of(mean, 1e-4 * cov), 1.0, False)]
    for others, power, without_own in attempts:
        if not others.proper:
            continue
        try:
            with np.errstate(all="ignore"):  # the draws are checked below
                drawn = hierarchy.draw(replace(known, power=power), others, count, rng)
        except np.linalg.LinAlgError:
            continue
        if np.all(np.isfinite(drawn.theta)) and np.all(np.isfinite(drawn.phi)):
            return drawn, without_own
    raise DataError("finish", "this site's posterior cannot be drawn from", "Take wider priors.")


def drawn_level(layout: Layout, site: Site, variance: Array, rng: np.random.Generator) -> Level:
    """Return the site's means, with a random intercept for each draw of the noise variance."""
    y: Array = np.full(len(variance), site.level.y)
    if layout.intercept == "site" and site.records:
        y = y + np.sqrt(variance / site.records) * rng.standard_normal(len(variance))
    return Level(site.level.x, y)


def site_posterior(
    drawn: PosteriorDraws, variance: Array, site: Site, now: Round, level: float, rope: float
) -> dict[str, Array]:
    """Return mean, sd, interval and selection of intercept and slopes, in own units.

    variance: of the noise, (draws,), in the units analysed
    """
    layout, theta = now.layout, drawn.theta
    if now.noisy is not None and drawn.which is not None and layout.intercept == "site":
        alpha = now.noisy.intercepts(theta, drawn.which, now.noise, now.rng)
        at = Level(np.zeros(layout.d), alpha)
    else:
        at = drawn_level(layout, site, variance, now.rng)
    draws = layout.in_own_units(theta, now.centre, now.scale, at)
    own, analysed = select(draws, level), select(theta, level, rope)
    table = {
        "mean": own.mean,
        "sd": own.sd,
        "low": own.low,
        "high": own.high,
        "mcse_mean": own.mcse_mean,
        "mcse_low": own.mcse_low,
        "mcse_high": own.mcse_high,
        "included": own.included.astype(np.float64),
        "doubtful": own.doubtful.astype(np.float64),
        "direction": own.direction,
    }
    first = len(own.included) - len(analysed.null)  # 1 if theta has no intercept
    return table | {"null": np.concatenate([np.full(first, np.nan), analysed.null])}
