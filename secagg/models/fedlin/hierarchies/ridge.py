"""Ridge regression's hierarchy of HM2: sites share how strongly coefficients shrink, and the noise.

Yue, Al Kontar and Estrada Gomez ("Federated data analytics: a study on linear models", 2022),
section 4.3. With phi = (log lambda, log sigma^2), for all sites k and coefficients i,

    y_k ~ N(X_k theta_k, sigma^2 I),  theta_ki ~ N(0, sigma^2 / lambda)                          (1)

and each entry of phi has a normal prior. The paper does not give its mean and sd. The defaults are
0 and 1, as in the paper's example 4.1. The paper prints sigma / lambda for the variance in (1). But
only with sigma^2 / lambda is the posterior mode of theta_k the ridge regression estimate.

f_k is (2) in `secagg.models.fedlin.hierarchies.ridge_likelihood`. The moments of f_k times the
cavity are computed by two-dimensional Gauss-Hermite quadrature, with points placed by a normal
density. This density first approximates the mode. It then gets the moments just computed, and the
quadrature is repeated until the moments no longer change. Their error is estimated by comparison
with a rule of fewer points.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from secagg.core.arrays import Array
from secagg.models.fedlin.hierarchies.base import (
    PenaltyPrior,
    PosteriorDraws,
    SufficientStatistics,
    TiltedMoments,
)
from secagg.models.fedlin.hierarchies.ridge_likelihood import SpectralLeastSquares, normal_start
from secagg.models.numerics.natural_gaussian import Natural

_POINTS, _FEWER = 40, 30  # quadrature points in each dimension
_MAX_ITERATIONS = 60
_TOLERANCE_SD = 1e-9  # iteration ends at this change of the moments, in sds
_REACH, _STEP = 8.0, 0.08  # half width and step of the grid from which phi is drawn, in sds


@dataclass(frozen=True)
class Ridge(PenaltyPrior):
    """The same penalty for all coefficients."""

    def tilted(
        self, site: SufficientStatistics, cavity: Natural, rng: np.random.Generator
    ) -> TiltedMoments:
        """Return the moments of f_k times a proper cavity, and their quadrature error."""
        if site.records == 0:
            return TiltedMoments(*cavity.moments(), np.zeros(2))
        rotated = SpectralLeastSquares.of(site)
        mean, cov = _fixed_moments(rotated, cavity)
        rough = _moments(rotated, cavity, mean, cov, _FEWER)[0]
        return TiltedMoments(mean, cov, np.abs(mean - rough))

    def draw(
        self, site: SufficientStatistics, cavity: Natural, count: int, rng: np.random.Generator
    ) -> PosteriorDraws:
        """Return draws of (theta_k, phi), independent.

        phi is drawn from the density of f_k times the cavity, interpolated linearly on a grid. This
        increases its variance by a share of `_STEP`^2 / 6. theta given phi is drawn exactly.
        """
        rotated = SpectralLeastSquares.of(site)
        phi = _drawn(rotated, cavity, count, rng)
        ratio, s = np.exp(phi[:, :1]), np.exp(phi[:, 1:])
        # A draw from the prior, corrected by regression on its residual (Bhattacharya 2016)
        theta = np.sqrt(s / ratio) * rng.standard_normal((count, len(site.cross)))
        noise = np.sqrt(s) * rng.standard_normal((count, len(rotated.t)))
        missing = (rotated.t - theta @ rotated.R.T - noise) / (rotated.values + ratio)
        return PosteriorDraws(theta + missing @ rotated.R, phi)


def _log_density(site: SpectralLeastSquares, cavity: Natural, phi: Array) -> Array:
    """Return log f_k times the cavity at phi (..., 2), up to a constant."""
    prior = phi @ cavity.r - np.sum((phi @ cavity.Q) * phi, axis=-1) / 2
    found: Array = prior + site.evidence(phi[..., 0], phi[..., 1])
    return found


def _moments(
    site: SpectralLeastSquares, cavity: Natural, mean: Array, cov: Array, points: int
) -> tuple[Array, Array]:
    """Return the moments of f_k times the cavity, by quadrature with points from N(mean, cov)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(points)
    grid = np.stack(np.meshgrid(nodes, nodes), axis=-1).reshape(-1, 2)
    phi = mean + grid @ np.linalg.cholesky(cov).T
    log_weights = np.log(np.outer(weights, weights).ravel()) + np.sum(grid**2, axis=-1) / 2
    with np.errstate(over="ignore"):
        log_density = _log_density(site, cavity, phi) + log_weights
    shares = np.exp(log_density - np.max(log_density))
    shares /= np.sum(shares)
    found = shares @ phi
    return found, (shares[:, None] * (phi - found)).T @ (phi - found)


def _fixed_moments(site: SpectralLeastSquares, cavity: Natural) -> tuple[Array, Array]:
    """Return the moments at which the iteration ends: quadrature points from them give them."""
    mean, cov = normal_start(site, cavity, _chart)
    for _ in range(_MAX_ITERATIONS):
        old = mean, np.sqrt(np.diagonal(cov))
        mean, cov = _moments(site, cavity, mean, cov, _POINTS)
        sd = np.sqrt(np.diagonal(cov))
        if np.all(np.abs(mean - old[0]) + np.abs(sd - old[1]) <= _TOLERANCE_SD * sd):
            break
    return mean, cov


def _drawn(
    site: SpectralLeastSquares, cavity: Natural, count: int, rng: np.random.Generator
) -> Array:
    mean, cov = _fixed_moments(site, cavity)
    side = np.arange(-_REACH, _REACH + _STEP / 2, _STEP)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    root = np.linalg.cholesky(cov)
    with np.errstate(over="ignore"):
        log_density = _log_density(site, cavity, mean + grid @ root.T)
    shares = np.exp(log_density - np.max(log_density))
    chosen = grid[rng.choice(len(grid), count, p=shares / np.sum(shares))]
    between = rng.random((count, 2)) - rng.random((count, 2))  # triangular: linear interpolation
    return mean + (chosen + _STEP * between) @ root.T


def _chart(phi: Array) -> tuple[Array, Array, Array]:
    return phi, np.eye(2), np.zeros((2, 2))
