"""Example 4.1 of FedLin: each coefficient has its own mean and spread over sites.

Yue, Al Kontar and Estrada Gomez (2022), section 4.1: theta_k ~ N(mu, diag(tau)), phi = (mu, log
tau), mu ~ N(m0, s0^2 I), log tau_i ~ N(m, s^2). tau_i is a variance. sigma_k^2 is not part of phi:
it is `SufficientStatistics.variance`, which is known or was estimated earlier.

With R and z of `secagg.models.fedlin.hierarchies.pseudo_data`, and mu | log tau ~ N(a, V) under the
cavity,

    z | log tau ~ N(R a, W),   W = I + R (diag(tau) + V) R',                                     (1)
    mu | z, log tau ~ N(a + V R' W^-1 (z - R a), V - V R' W^-1 R V),                             (2)

Let U = I + R diag(tau) R'. As a function of mu, the power f_k^c is N(z; R mu, U / c) times
|U|^((1 - c) / 2). For f_k^c, W in (1) and (2) is U / c + R V R', and the density has that factor.
All of this is in closed form. Only the integral over log tau (d dimensions) is computed by
importance sampling. Half of the points follow the cavity, and half a normal density with the
moments of the tilted density. docs/math/hm2-shared-posterior.md explains the points and their
error.

Under noise once at the site, f_k is a mean over pseudo-observations (R, z), and the integral is
over these, too. Each point has one of them. They are drawn with chances that are half equal, half
in proportion to their densities at the cavity's mean of log tau; factors are divided by these.

==============================  ====================================================================
site                            result
==============================  ====================================================================
no record                       the cavity's moments, error 0
fewer records than terms        R has fewer rows; likewise with collinear or constant terms
too few effective points        points are first placed by a tempered density, at most 30 times; if
                                they are still too few, `LinAlgError`
cavity or scales beyond float64 `LinAlgError`
==============================  ====================================================================
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.special import ndtri
from scipy.stats import qmc

from secagg.core.arrays import Array
from secagg.models.fedlin.hierarchies.base import (
    Positions,
    PosteriorDraws,
    PseudoObservations,
    SufficientStatistics,
    TiltedMoments,
)
from secagg.models.fedlin.hierarchies.pseudo_data import (
    cholesky_factors,
    log_diagonals,
    pseudo_observation,
    solved,
    spread_covariances,
    variances,
)
from secagg.models.numerics.natural_gaussian import Natural

_BATCHES = 8
_MIN_POINTS = 128  # in each batch
_POINTS_PER_TERM = 16  # in each batch
_MIN_PLACEMENTS = 2  # how often the second half of the points is placed, at least
_MAX_PLACEMENTS = 30
_MIN_EFFECTIVE_SHARE = 0.2  # of the points; below it the moments are of a tempered density
_CANDIDATES_PER_DRAW = 16
_MIN_CANDIDATES = 4096


@dataclass(frozen=True)
class NormalHierarchy:
    """mean, sd: of each mu_i; log_mean, log_sd: of each log tau_i."""

    powers: ClassVar[tuple[float, ...]] = (1.0, 0.5, 0.25, 0.125)

    mean: float = 0.0
    sd: float = 1.0
    log_mean: float = 0.0
    log_sd: float = 1.0

    def components(self, terms: tuple[str, ...]) -> tuple[str, ...]:
        """Return mu and log tau of each coefficient."""
        return (*(f"mu[{name}]" for name in terms), *(f"log tau[{name}]" for name in terms))

    def prior(self, d: int) -> Natural:
        precision = np.repeat([self.sd**-2.0, self.log_sd**-2.0], d)
        return Natural(precision * np.repeat([self.mean, self.log_mean], d), np.diag(precision))

    def tilted(
        self, site: SufficientStatistics, cavity: Natural, rng: np.random.Generator
    ) -> TiltedMoments:
        """Return the moments of phi, with their Monte Carlo error."""
        d = len(site.cross)
        if site.records == 0:
            return TiltedMoments(*cavity.moments(), np.zeros(2 * d))
        within = _GivenScale.of(site, cavity)
        points = _points(d, rng)
        weights, parts = _weighted(within, points, within.shuffled(points.shape[1], rng))
        phi, removed = np.empty((2 * d, weights.size)), np.zeros((d, d))
        for part, columns in zip(parts, np.split(np.arange(weights.size), 2), strict=True):
            mu, reduced = within.mu(part)
            phi[:, columns] = np.vstack([mu, part.log_tau])
            removed += np.einsum("ian,ibn,n->ab", reduced, reduced, weights[columns], optimize=True)
        found = phi @ weights
        away = (phi - found[:, None]) * weights
        cov = away @ (phi - found[:, None]).T
        cov[:d, :d] += within.root @ (np.eye(d) - removed) @ within.root.T
        batches = away.reshape(2 * d, 2, _BATCHES, -1).sum(axis=(1, 3))
        error = np.sqrt(_BATCHES / (_BATCHES - 1) * np.sum(batches**2, axis=1))
        return TiltedMoments(found, (cov + cov.T) / 2, error)

    def draw(
        self, site: SufficientStatistics, cavity: Natural, count: int, rng: np.random.Generator
    ) -> PosteriorDraws:
        """Return draws: log tau by importance resampling of many points, all else exactly.

        Given log tau, mu and z are drawn without using the records. Then mu is corrected by the
        difference between the true z and the drawn z, multiplied by a regression coefficient.
        theta_k given both is drawn in the same way.
        """
        d = len(site.cross)
        within = _GivenScale.of(site, cavity)
        size = max(_CANDIDATES_PER_DRAW * count, _MIN_CANDIDATES)
        points, candidates = _points(d, rng), rng.standard_normal((d, size // 2))
        orders = (within.shuffled(values.shape[1], rng) for values in (points, candidates))
        weights, parts = _weighted(within, points, next(orders), candidates, next(orders))
        edges = np.cumsum(weights)
        chosen = np.searchsorted(edges, edges[-1] * (np.arange(count) + rng.random()) / count)
        # Shuffled, because neighbours in the list have similar values and draws must not.
        chosen = rng.permutation(chosen)
        log_tau = np.hstack([part.log_tau for part in parts])[:, chosen]
        tau = variances(log_tau)
        which = np.concatenate([part.which for part in parts])[chosen]
        within = within.taken(which)

        def drawn(of_mu: Array) -> tuple[Array, Array]:
            """Return draws of theta_k and z given mu, without using the records."""
            theta = of_mu + np.sqrt(tau) * rng.standard_normal((d, count))
            return theta, _applied(within.R, theta) + rng.standard_normal((len(within.z), count))

        def back(W: Array, off: Array) -> Array:
            gain = np.linalg.solve(np.moveaxis(W, -1, 0), off.T[:, :, None])
            return _applied(within.R.swapaxes(0, 1), np.asarray(gain[:, :, 0].T, dtype=np.float64))

        mu = within.given(log_tau) + within.root @ rng.standard_normal((d, count))
        expected = _applied(within.R, mu)
        z = expected + (drawn(mu)[1] - expected) / np.sqrt(within.power)
        mu += within.V @ back(within.covariance(tau), within.z - z)
        theta, z = drawn(mu)
        theta += tau * back(within.of_draw(tau), within.z - z)
        return PosteriorDraws(theta.T, np.vstack([mu, log_tau]).T, which)


@dataclass(frozen=True)
class _Part:
    """Points of log tau (d, n), and the log density of z at each (n,), up to a constant.

    lower: Cholesky factors of W (i, i, n); off: the inverse of each factor times z - R a, (i, n)
    which: the pseudo-observation of each point (n,)
    """

    log_tau: Array
    log_factor: Array
    lower: Array
    off: Array
    which: Positions


@dataclass(frozen=True)
class _GivenScale:
    """A site's records and cavity: R, z; log tau ~ N(mean, spread spread'); a and V given log tau.

    R (i, d), z (i, 1), log_factor (1,); with several pseudo-observations all have a last axis more,
        which `taken` makes the axis of the points. chance: of each, with sum 1
    level, slope: a = level - slope (log tau - mean); root: V = root root'
    """

    R: Array
    z: Array
    log_factor: Array
    mean: Array
    spread: Array
    level: Array
    slope: Array
    V: Array
    root: Array
    power: float
    chance: Array

    @classmethod
    def of(cls, site: SufficientStatistics, cavity: Natural) -> _GivenScale:
        """Compute these quantities from a site's statistics and its cavity."""
        d = len(site.cross)
        mean, cov = cavity.moments()
        factor = cho_factor(cavity.Q[:d, :d])
        V = cho_solve(factor, np.eye(d))
        V = (V + V.T) / 2
        if site.noisy is None:
            R, z = pseudo_observation(site)
            seen = PseudoObservations(R, z[:, None], np.zeros(1))
        else:
            seen = site.noisy
        within = cls(
            R=seen.R,
            z=seen.z,
            log_factor=seen.log_factor,
            mean=mean[d:],
            spread=_root(cov[d:, d:]),
            level=mean[:d],
            slope=cho_solve(factor, cavity.Q[:d, d:]),
            V=V,
            root=_root(V),
            power=site.power,
            chance=np.ones(1),
        )
        return within if site.noisy is None else within._chosen()

    def _chosen(self) -> _GivenScale:
        """Return the same with chances of pseudo-observations: half of them by their densities."""
        n = len(self.log_factor)
        each: Positions = np.arange(n)
        at = self.part(np.repeat(self.mean[:, None], n, axis=1), each)
        chance = (_normalised(at.log_factor) + 1 / n) / 2
        return replace(self, chance=chance, log_factor=self.log_factor - np.log(chance))

    def shuffled(self, n: int, rng: np.random.Generator) -> Positions:
        """Return a pseudo-observation for each of n points, in proportion to `chance`."""
        if self.R.ndim == 2:
            return np.zeros(n, dtype=np.int64)
        edges = np.cumsum(self.chance)
        places = edges[-1] * (np.arange(n) + 0.5) / n
        return rng.permutation(np.searchsorted(edges, places))

    def taken(self, which: Positions) -> _GivenScale:
        """Return the same with these pseudo-observations, one for each point."""
        if self.R.ndim == 2:
            return self
        R, z, log_factor = self.R[..., which], self.z[:, which], self.log_factor[which]
        return replace(self, R=R, z=z, log_factor=log_factor)

    def given(self, log_tau: Array) -> Array:
        """Return a, with one column for each point."""
        return self.level[:, None] - self.slope @ (log_tau - self.mean[:, None])

    def of_draw(self, tau: Array) -> Array:
        """Return U (i, i, n)."""
        return np.eye(len(self.R))[:, :, None] + spread_covariances(self.R, tau)

    def covariance(self, tau: Array) -> Array:
        """Return W (i, i, n)."""
        with np.errstate(over="ignore", invalid="ignore"):  # as in `cholesky_factors`
            return self.of_draw(tau) / self.power + self._spread_of_mean()

    def _spread_of_mean(self) -> Array:
        """Return R V R' (i, i, n or 1)."""
        if self.R.ndim == 2:
            return (self.R @ self.V @ self.R.T)[:, :, None]
        rotated = self._rotated()
        return np.asarray(np.einsum("ian,jan->ijn", rotated, rotated, optimize=True))

    def _rotated(self) -> Array:
        """Return R root (i, d, n or 1)."""
        if self.R.ndim == 2:
            return np.asarray(self.R @ self.root)[:, :, None]
        return np.asarray(np.einsum("ian,ab->ibn", self.R, self.root, optimize=True))

    def part(self, log_tau: Array, which: Positions) -> _Part:
        """Return (1) at these points, with these pseudo-observations."""
        return self.taken(which)._part(log_tau, which)

    def _part(self, log_tau: Array, which: Positions) -> _Part:
        tau = variances(log_tau)
        lower = cholesky_factors(self.covariance(tau))
        with np.errstate(over="ignore", invalid="ignore"):  # as in `cholesky_factors`
            off = solved(lower, (self.z - _applied(self.R, self.given(log_tau)))[:, None])[:, 0]
            log_factor = self.log_factor - log_diagonals(lower) - np.sum(off * off, axis=0) / 2
        if self.power < 1:
            log_factor += (1 - self.power) * log_diagonals(cholesky_factors(self.of_draw(tau)))
        return _Part(log_tau, log_factor, lower, off, which)

    def mu(self, part: _Part) -> tuple[Array, Array]:
        """Return the mean of (2), (d, n), and F (i, d, n): covariance root (I - F'F) root'."""
        right = self.taken(part.which)._rotated()
        if right.shape[-1] == 1:
            right = np.repeat(right, part.off.shape[-1], axis=2)
        reduced = solved(part.lower, right)
        gained = self.root @ np.einsum("ian,in->an", reduced, part.off)
        return self.given(part.log_tau) + gained, reduced


def _weighted(
    within: _GivenScale,
    points: Array,
    which: Positions,
    candidates: Array | None = None,
    which_candidates: Positions | None = None,
) -> tuple[Array, tuple[_Part, _Part]]:
    """Return weights with sum 1, and the points in two halves.

    The first half follows the cavity. The second follows a normal approximation to the tilted
    density.

    points (d, n): standard normal points with which the second half is placed; candidates: points
        for the result
    which, which_candidates: their pseudo-observations, of both halves
    """
    n, cavity = points.shape[1], (within.mean, within.spread)
    first, place = within.part(_moved(points, *cavity), which), cavity
    share = 0.0
    for number in range(_MAX_PLACEMENTS):
        second = within.part(_moved(points, *place), which) if number else first
        log_tau = np.hstack([first.log_tau, second.log_tau])
        log_weights = _log_weights(first, second, cavity, place)
        power = 1.0
        while (
            share := _effective(weights := _normalised(power * log_weights))
        ) < _MIN_EFFECTIVE_SHARE:
            power /= 2
        if power == 1 and number >= _MIN_PLACEMENTS:
            break
        mean = log_tau @ weights
        away = log_tau - mean[:, None]
        place = mean, _root((away * weights) @ away.T)
    else:
        raise np.linalg.LinAlgError(f"{share * 2 * n:.0f} of {2 * n} points count")
    if candidates is None or which_candidates is None:
        return weights, (first, second)
    first, second = (
        within.part(_moved(candidates, *where), which_candidates) for where in (cavity, place)
    )
    return _normalised(_log_weights(first, second, cavity, place)), (first, second)


def _applied(R: Array, x: Array) -> Array:
    """Return R x (i, n); R (i, d) or (i, d, n)."""
    if R.ndim == 2:
        return np.asarray(R @ x, dtype=np.float64)
    return np.asarray(np.einsum("ian,an->in", R, x), dtype=np.float64)


def _root(matrix: Array) -> Array:
    return np.asarray(np.linalg.cholesky(matrix), dtype=np.float64)


def _moved(points: Array, mean: Array, root: Array) -> Array:
    return mean[:, None] + root @ points


def _log_weights(
    first: _Part, second: _Part, cavity: tuple[Array, Array], place: tuple[Array, Array]
) -> Array:
    """Return log weights: f_k x cavity / mixture of the cavity and the second half's density."""
    log_tau = np.hstack([first.log_tau, second.log_tau])
    ratio = _log_normal(log_tau, *place) - _log_normal(log_tau, *cavity)
    return np.hstack([first.log_factor, second.log_factor]) - np.logaddexp(0.0, ratio)


def _log_normal(x: Array, mean: Array, root: Array) -> Array:
    standard = solve_triangular(root, x - mean[:, None], lower=True)
    log: Array = -np.sum(standard**2, axis=0) / 2 - np.sum(np.log(np.diagonal(root)))
    return log


def _normalised(log_weights: Array) -> Array:
    if not np.all(np.isfinite(log_weights)):
        raise np.linalg.LinAlgError("a density is not finite")
    weights: Array = np.exp(log_weights - np.max(log_weights))
    return weights / np.sum(weights)


def _effective(weights: Array) -> float:
    """Return the effective sample size divided by the number of points; the weights' sum is 1."""
    return 1 / float(weights @ weights) / weights.size


def _points(d: int, rng: np.random.Generator) -> Array:
    """Return points (d, n) in batches: each batch has mean 0, all together have covariance I."""
    size = _MIN_POINTS
    while size < _POINTS_PER_TERM * d:
        size *= 2
    uniform = (_sobol(d, size // 2)[None] + rng.random((_BATCHES, 1, d))) % 1.0
    normal = np.swapaxes(ndtri(np.clip(uniform, 1e-15, 1 - 1e-15)), 1, 2)
    points = np.hstack([part for batch in normal for part in (batch, -batch)])
    return solve_triangular(_root(points @ points.T / points.shape[1]), points, lower=True)


@lru_cache(maxsize=8)
def _sobol(d: int, size: int) -> Array:
    return qmc.Sobol(d, scramble=False).random(size)
