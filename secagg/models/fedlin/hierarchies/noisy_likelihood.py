"""The likelihood of a site's coefficients under noise once at the site.

A site has its moments with noise: M~ = M + E, the sums of z z' with z = (1, x) over records, b~ =
b + e, those of z y, and that of y^2, with independent normal noise of known variances, V in b~
(`secagg.sessions.site_moments`). With y = z' beta + normal errors of variance s,

    b~ given M ~ N(M beta, s M + V)                                                              (1)

exactly. So the likelihood of beta is the mean of (1) over the density of M given M~ (Bernstein and
Sheldon 2019 treat exact moments as missing data, too). Its draws are from
`secagg.models.numerics.noise_posterior.draw_predictors`; they replace M by values that the noise
and the prior allow, so noise in the predictors does not shrink coefficients. Each draw gives a
normal density of theta_k, in the units analysed and with the site's own intercept integrated out
under a flat prior: one of `secagg.models.fedlin.hierarchies.base.PseudoObservations`.

The prior of M shrinks correlations towards those of all sites: with one site's noise alone,
predictors would look less correlated than they are, and coefficients would be biased. So the first
sum has the predictors' cross products, from the noisy moments. From these every site computes units
in which predictors are uncorrelated over all sites. If an eigenvalue of the sum is below the size
of the noise's eigenvalues, it is raised to it.

Error variance. With M the posterior mean, m the mean of beta given M under a prior, C its
covariance, and K b~ its part that is linear in b~,

    E[y'y~ - 2 m' b~ + m' M m + 2 tr(K V) - tr(C M)] = n s                                       (2)

is solved for s by iteration, because C depends on s (docs/math/noise-posterior.md).

Not included: the uncertainty of s, and that M's draws ignore b~ and y'y~ except through (1).

All of this is post-processing of the noisy moments, and costs no privacy.

==============================  ====================================================================
moments                         result
==============================  ====================================================================
fewer records than predictors   M has full rank in all draws, as the noise allows
(2) negative, or above y'y~     at least a hundredth of the outcome's variance, at most all of it
M~ not positive semidefinite    all draws are; nothing is repaired
==============================  ====================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from secagg.contracts import NoisyMatrix
from secagg.core.arrays import Array
from secagg.models.fedlin.design import Layout
from secagg.models.fedlin.hierarchies.base import Positions, PseudoObservations
from secagg.models.numerics.natural_gaussian import symmetric, triangle
from secagg.models.numerics.noise_posterior import CHAINS, draw_predictors

_DRAWS_PER_CHAIN, _THIN = 96, 3  # of 32 chains: 1024 draws are kept
_ITERATIONS = 20  # of (2)
_MIN_SHARE = 0.01  # of the outcome's variance


def _at(layout: Layout) -> Positions:
    """Return the rows of the constant and the predictors in the noisy moments."""
    return np.concatenate([[0], 1 + layout.columns[1:]])


def predictors_scatter(noisy: NoisyMatrix, layout: Layout) -> Array:
    """Return the upper triangle of the predictors' cross products about the site's means."""
    at = _at(layout)
    M = noisy.matrix[np.ix_(at, at)]
    records = max(float(M[0, 0]), 1.0)
    return triangle(M[1:, 1:] - np.outer(M[0, 1:], M[0, 1:]) / records)


def uncorrelated_units(scatter: Array, variance: Array, sites: int) -> Array:
    """Return U, lower triangular with ones on the diagonal: z = U v, v uncorrelated over all sites.

    scatter: the sum of `predictors_scatter` over sites
    variance: of the noise of one site, of constant and predictors
    """
    q = len(variance) - 1
    values, vectors = np.linalg.eigh(symmetric(scatter, q))
    floor = np.sqrt(sites * np.sum(variance[1:, 1:]) / q)
    root = np.linalg.cholesky((vectors * np.maximum(values, floor)) @ vectors.T)
    unit = np.eye(q + 1)
    unit[1:, 1:] = root / np.diagonal(root)
    return unit


def drawn_moments(noisy: NoisyMatrix, layout: Layout, scatter: Array, sites: int) -> Array:
    """Return draws of the lower triangle of L, LL' = M, shape (draws, entries)."""
    at = _at(layout)
    square = np.ix_(at, at)
    variance = noisy.variance[square]
    unit = uncorrelated_units(scatter, variance, sites)
    released = np.repeat(noisy.matrix[square][None], CHAINS, axis=0)
    L = draw_predictors(released, variance, unit, _DRAWS_PER_CHAIN)[::_THIN]
    rows, columns = np.tril_indices(len(at))
    return np.ascontiguousarray(L.reshape(-1, len(at), len(at))[:, rows, columns])


@dataclass(frozen=True)
class NoisyRegression:
    """A site's regression from noisy moments.

    M (draws, m, m); b, V (m,): b~ and the variances of its noise; square: y'y~, square_variance: of
    its noise. All are in scaled units, with the outcome's centre subtracted, so that z' beta = z'
    unit (alpha, theta), alpha the intercept in the units analysed
    """

    M: Array
    b: Array
    V: Array
    square: float
    square_variance: float
    unit: Array
    intercept: str
    outcome_scale: float

    @classmethod
    def of(
        cls,
        noisy: NoisyMatrix,
        layout: Layout,
        drawn: Array,
        centre: Array,
        scale: Array,
    ) -> NoisyRegression:
        """Return the regression, from the draws that a site stores."""
        at, y = _at(layout), 1 + int(layout.columns[0])
        L = np.zeros((len(drawn), len(at), len(at)))
        rows, columns = np.tril_indices(len(at))
        L[:, rows, columns] = drawn
        M = L @ L.swapaxes(1, 2)
        unit = np.diag(np.concatenate([[1.0], scale[1:]])) / scale[0]
        unit[0, 1:] = -centre[1:] * scale[1:] / scale[0]
        sums, own = noisy.matrix[y, at], float(centre[0])
        return cls(
            M=M,
            b=sums - own * M[:, :, 0],
            V=noisy.variance[y, at],
            square=float(noisy.matrix[y, y] - 2 * own * sums[0] + own**2 * np.mean(M[:, 0, 0])),
            square_variance=float(noisy.variance[y, y] + 4 * own**2 * noisy.variance[y, 0]),
            unit=unit,
            intercept=layout.intercept,
            outcome_scale=float(scale[0]),
        )

    def _normal(self, variance: float) -> tuple[Array, Array, Array]:
        """Return precision and linear term of (1) in (alpha, theta), and the log of its factor."""
        S = variance / self.outcome_scale**2 * self.M
        S[:, range(len(self.V)), range(len(self.V))] += self.V
        lower = np.linalg.cholesky(S)
        W = np.linalg.solve(lower, self.M @ self.unit)
        w = np.linalg.solve(lower, self.b[..., None])
        log_factor = -np.sum(np.log(np.diagonal(lower, axis1=1, axis2=2)), axis=1)
        back = W.swapaxes(1, 2)
        return back @ W, (back @ w)[..., 0], log_factor

    def observations(self, variance: float) -> PseudoObservations:
        """Return the likelihood of theta_k; variance: of the errors, in the units analysed."""
        P, h, log_factor = self._normal(variance)
        if self.intercept == "site":
            a = P[:, 0, 0]
            log_factor = log_factor - np.log(a) / 2
            h = h[:, 1:] - P[:, 1:, 0] * (h[:, 0] / a)[:, None]
            P = P[:, 1:, 1:] - P[:, 1:, :1] * P[:, :1, 1:] / a[:, None, None]
        elif self.intercept == "none":
            log_factor = log_factor - _explained(P, h) / 2
            P, h = P[:, 1:, 1:], h[:, 1:]
            log_factor = log_factor + _explained(P, h) / 2
        lower = np.asarray(np.linalg.cholesky(P), dtype=np.float64)
        z = np.asarray(np.linalg.solve(lower, h[..., None]), dtype=np.float64)[..., 0]
        R = np.ascontiguousarray(np.moveaxis(lower, 0, -1).swapaxes(0, 1))
        return PseudoObservations(R, np.ascontiguousarray(z.T), log_factor)

    def intercepts(
        self, theta: Array, which: Positions, variance: float, rng: np.random.Generator
    ) -> Array:
        """Return draws of the site's own intercept alpha, given draws of theta_k and of M."""
        P, h, _ = self._normal(variance)
        a = P[which, 0, 0]
        mean = (h[which, 0] - np.sum(P[which, 0, 1:] * theta, axis=1)) / a
        drawn: Array = mean + rng.standard_normal(len(theta)) / np.sqrt(a)
        return drawn

    def error_variance(self) -> tuple[float, float]:
        """Return s by (2) in the outcome's scaled unit, and the variance of the noise in n s."""
        M, b, V = self.M.mean(axis=0), np.mean(np.atleast_2d(self.b), axis=0), self.V
        n, D = float(M[0, 0]), self.unit
        total = max(self.square - b[0] ** 2 / n, 1e-300) / n
        squares = np.diagonal(M) - M[0] ** 2 / n  # of the predictors; 0 of the constant
        prior = squares * np.diagonal(D) ** 2 / (n * total)
        s, m, fit = total, np.zeros(len(V)), M @ D
        for _ in range(_ITERATIONS):
            spread = np.cov((self.M @ m).T)
            G = np.linalg.solve(s * M + np.diag(V) + spread, fit).T
            C = np.linalg.inv(G @ fit + np.diag(prior))
            m = D @ C @ G @ b
            K = D @ C @ G
            found = self.square - 2 * m @ b + m @ M @ m
            found += 2 * np.sum(np.diagonal(K) * V) - np.sum((D @ C @ D.T) * M)
            s = float(np.clip(found / n, _MIN_SHARE * total, total))
        return s, self.square_variance + float(4 * m**2 @ V)

    def own_error_variance(self, pooled: float, freedom: int) -> float:
        """Return s in the units analysed, shrunk to the pooled one as if by 4 more records.

        The noise in (2) makes s worth fewer degrees of freedom than `freedom`.
        """
        own, noise = self.error_variance()
        squares = 2 * freedom * (pooled / self.outcome_scale**2) ** 2
        weight = freedom * squares / (squares + noise)
        return float((weight * own * self.outcome_scale**2 + 4 * pooled) / (weight + 4))


def _explained(P: Array, h: Array) -> Array:
    found: Array = np.sum(np.linalg.solve(P, h[..., None])[..., 0] * h, axis=1)
    return found
