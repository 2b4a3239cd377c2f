"""The posterior of the shared parameters in HM2 by importance sampling.

Yue, Al Kontar and Estrada Gomez (2022), example 4.1: theta_k ~ N(mu, diag(tau)), phi = (mu, log
tau). With few sites p(phi | all records) is far from normal. But given log tau, mu has an exactly
normal posterior. With R, z and W = I + R diag(tau) R' of
`secagg.models.fedlin.hierarchies.pseudo_data`,

    log f_k(mu, tau) = c_k + b_k' mu - mu' A_k mu / 2,                                           (1)
    A_k = R' W^-1 R,   b_k = R' W^-1 z,   c_k = -log|W| / 2 - z' W^-1 z / 2.

So one more round sums A, b and c over sites at given values of log tau, called points. All sites
compute the same points from q.
docs/math/hm2-shared-posterior.md has the weights, the points and their error.

Guarantees. The sums at n points are n (d (d + 3) / 2 + 1) numbers. They are functions of the
K d (d + 3) / 2 numbers in the X'X and X'y of K sites. An observer can solve these equations for
every site's X'X and X'y, without knowing which site is which. The attack `hm2_points` does
this for three or four sites with two coefficients, to twelve digits, from one honest run. Assume
that the coordinator knows these matrices. So points are used only if the job asks for them.

==============================  ====================================================================
site                            contribution
==============================  ====================================================================
no record                       0
fewer records than terms        R has fewer rows; likewise with collinear or constant terms
scales beyond float64           `DataError`, nothing is sent
==============================  ====================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from secagg.contracts import Field, Kind, Spec, Update
from secagg.core.arrays import Array
from secagg.models.fedlin.hierarchies.base import SufficientStatistics
from secagg.models.fedlin.hierarchies.normal import NormalHierarchy
from secagg.models.fedlin.hierarchies.pseudo_data import (
    cholesky_factors,
    log_diagonals,
    pseudo_observation,
    solved,
    spread_covariances,
    variances,
)
from secagg.models.fedlin.round import FIELD_BOUND, FRACTION_BITS
from secagg.models.numerics.natural_gaussian import Natural, symmetric

_T_DEGREES_OF_FREEDOM = 4.0
_BATCHES = 8
_MAX_BISECTIONS = 60  # enough to reach rounding


def points_fields(d: int, count: int) -> Spec:
    return (
        Field("precision", (count * d * (d + 1) // 2,), FIELD_BOUND, FRACTION_BITS, Kind.BOUNDED),
        Field("shift", (count * d,), FIELD_BOUND, FRACTION_BITS, Kind.BOUNDED),
        Field("level", (count,), FIELD_BOUND, FRACTION_BITS, Kind.BOUNDED),
    )


def points_values(d: int, count: int) -> int:
    return count * (d * (d + 3) // 2 + 1)


def quasi_random_points(q: Natural, count: int) -> Array:
    """Return the points, values of log tau: shape (d, count)."""
    mean, cov = q.moments()
    d = len(mean) // 2
    spread = np.linalg.cholesky(cov[d:, d:])
    return mean[d:, None] + spread @ _standard(d, count)


def points_sums(site: SufficientStatistics, log_tau: Array) -> Update:
    """Return a site's part of A, b and c at each point, as `points_fields` has them."""
    d, count = log_tau.shape
    if site.records == 0:
        return {f.name: np.zeros(f.shape) for f in points_fields(d, count)}
    R, z = pseudo_observation(site)
    W = np.eye(len(R))[:, :, None] + spread_covariances(R, variances(log_tau))
    lower = cholesky_factors(W)
    right = np.repeat(np.column_stack([R, z])[:, :, None], count, axis=2)
    reduced = solved(lower, right)
    products = np.einsum("ian,ibn->nab", reduced, reduced, optimize=True)
    level = -log_diagonals(lower) - products[:, d, d] / 2
    return {
        "precision": products[(slice(None), *np.triu_indices(d))].ravel(),
        "shift": products[:, :d, d].ravel(),
        "level": level - np.mean(level),  # a common constant is not needed
    }


@dataclass(frozen=True)
class Mixture:
    """p(phi | records) as a mixture over the points.

    log_tau (d, n): the points; weights (n,), with sum 1; at each point mu ~ N(mean, cov)

    mean (n, d), cov (n, d, d)
    """

    log_tau: Array
    weights: Array
    mean: Array
    cov: Array

    @classmethod
    def of(cls, prior: NormalHierarchy, q: Natural, total: Update) -> Mixture:
        """Weight the points of q. Raises `LinAlgError` if the sums are no sums of (1)."""
        count, d = len(total["level"]), len(q.r) // 2
        log_tau = quasi_random_points(q, count)
        rows = total["precision"].reshape(count, -1)
        P = np.array([symmetric(row, d) for row in rows]) + np.eye(d) / prior.sd**2
        h = total["shift"].reshape(count, d) + prior.mean / prior.sd**2
        lower = np.linalg.cholesky(P)
        mean = np.asarray(np.linalg.solve(P, h[:, :, None])[:, :, 0], dtype=np.float64)
        log_det = np.sum(np.log(np.diagonal(lower, axis1=1, axis2=2)), axis=1)
        log_weights = total["level"] + np.sum(h * mean, axis=1) / 2 - log_det
        log_weights -= np.sum(((log_tau - prior.log_mean) / prior.log_sd) ** 2, axis=0) / 2
        log_weights += (
            (_T_DEGREES_OF_FREEDOM + 1)
            / 2
            * np.sum(np.log1p(_standard(d, count) ** 2 / _T_DEGREES_OF_FREEDOM), axis=0)
        )
        if not np.all(np.isfinite(log_weights)):
            raise np.linalg.LinAlgError("a density is not finite")
        weights = np.exp(log_weights - np.max(log_weights))
        cov = np.asarray(np.linalg.inv(P), dtype=np.float64)
        return cls(log_tau, weights / np.sum(weights), mean, cov)

    @property
    def effective(self) -> float:
        """Return the effective sample size."""
        return 1 / float(self.weights @ self.weights)

    def moments(self) -> tuple[Array, Array]:
        """Return mean and covariance of phi = (mu, log tau)."""
        d = len(self.log_tau)
        at = np.hstack([self.mean, self.log_tau.T])
        mean = self.weights @ at
        away = at - mean
        cov = (away * self.weights[:, None]).T @ away
        cov[:d, :d] += np.einsum("n,nab->ab", self.weights, self.cov)
        return mean, (cov + cov.T) / 2

    def error(self) -> Array:
        """Return the standard error of each mean, (2 d,); too small with few effective points."""
        at = np.hstack([self.mean, self.log_tau.T])
        away = (at - self.weights @ at) * self.weights[:, None]
        batches = np.array([part.sum(axis=0) for part in np.array_split(away, _BATCHES)])
        error: Array = np.sqrt(_BATCHES / (_BATCHES - 1) * np.sum(batches**2, axis=0))
        return error

    def quantile(self, j: int, share: float) -> float:
        d = len(self.log_tau)
        if j < d:
            return self._quantile_of_mean(j, share)
        order = np.argsort(self.log_tau[j - d])
        weights = self.weights[order]
        below = np.cumsum(weights) - weights / 2
        return float(np.interp(share, below, self.log_tau[j - d, order]))

    def _quantile_of_mean(self, j: int, share: float) -> float:
        mean, sd = self.mean[:, j], np.sqrt(self.cov[:, j, j])
        z = float(ndtri(share))
        low, high = float(np.min(mean + z * sd)), float(np.max(mean + z * sd))
        for _ in range(_MAX_BISECTIONS):
            middle = (low + high) / 2
            under = float(self.weights @ ndtr((middle - mean) / sd)) < share
            low, high = (middle, high) if under else (low, middle)
        return (low + high) / 2


def _standard(d: int, count: int) -> Array:
    """Return the points (d, count) of q with mean 0 and covariance I."""
    uniform = np.outer(np.sqrt(_primes(d)), np.arange(1, count + 1)) % 1.0
    return np.asarray(stdtrit(_T_DEGREES_OF_FREEDOM, uniform), dtype=np.float64)


def _primes(count: int) -> Array:
    found: list[int] = []
    number = 2
    while len(found) < count:
        if all(number % prime for prime in found):
            found.append(number)
        number += 1
    return np.array(found, dtype=np.float64)
