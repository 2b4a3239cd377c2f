"""Outcomes of other families: each site's records as one normal observation of its coefficients.

A generalised linear model at each site, y_ki ~ family(eta_ki), eta_k = X_k theta_k, with the same
hierarchy theta_k ~ N(mu, Sigma) (the outlook of Yue, Al Kontar and Estrada Gomez 2022, section 7).
The likelihood L_k of theta_k is not normal. In each round, a site replaces it by the normal one,

    exp(h'theta - theta'G theta / 2),  G = V^-1 - Sigma^-1,  h = V^-1 m - Sigma^-1 mu,           (1)

with which theta_k has the same posterior mean m and covariance matrix V given the round's mu and
Sigma. All other computations of `fedlin_full` then remain. By Fisher's identity, the score of a
site's marginal likelihood is

    d / d(mu, Sigma) log INTEGRAL L_k(theta) N(theta; mu, Sigma) d theta
        = E[d / d(mu, Sigma) log N(theta_k; mu, Sigma) | y_k],                                   (2)

which depends on L_k through m and V only. So at the round's mu and Sigma, the score of (1) is that
of the exact likelihood, and where rounds converge, no approximation of L_k is left in it: this is
maximum likelihood. (Breslow and Clayton's penalised quasi-likelihood, JASA 1993, takes the mode for
m and the curvature there for V^-1, and underestimates Sigma for few binary outcomes a site. A
meta-analysis of the sites' estimates fails where a site's outcomes are separated.) L_k is log-
concave for the families here, so V is at most Sigma (Brascamp and Lieb, J. Funct. Anal. 1976) and G
has no negative eigenvalue; those of rounding are set to 0.

m and V are computed by importance sampling from a normal density at the mode, with fixed
quasi-random normals, so that rounds can converge. Between the draws of the posterior, Sigma varies,
and L_k differs from (1). A site draws theta_k from (1) first, `_CANDIDATES` times for each draw of
(mu, Sigma), and keeps one with probability proportional to L_k / (1) (sampling importance
resampling, Rubin 1988). With `points`, the mean of this ratio corrects the marginal likelihood.

Not here: offsets, dispersions, and intercepts of a site that have no distribution. Errors of
importance sampling grow with the number of coefficients; `tests/oracles` compares with quadrature.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from scipy.special import logsumexp, ndtri
from scipy.stats import qmc

from secagg.contracts import MAX_PREDICTOR, Family, PublicFacts
from secagg.core.arrays import Array
from secagg.errors import PeerError
from secagg.models.fedlin.full.site_sums import coefficient_draws
from secagg.models.fedlin.hierarchies.base import SufficientStatistics
from secagg.models.fedlin.round import Round
from secagg.models.glm.logistic import BINOMIAL
from secagg.models.glm.newton import check_predictors
from secagg.models.glm.poisson import POISSON
from secagg.models.numerics.precision import ROUNDING

FAMILIES: Final[Mapping[str, Family]] = {"binomial": BINOMIAL, "poisson": POISSON}
_POINTS = 1024
_WIDER = 1.1  # the proposal's sds, relative to those at the mode
_CANDIDATES = 32
_NEWTON_STEPS, _NEWTON_TOLERANCE, _LONGEST_STEP = 100, 1e-10, 3.0
_BLOCK = 2**21  # linear predictors at a time
_SMALLEST = 1e-12  # eigenvalue of a Sigma, relative to its largest


@dataclass(frozen=True)
class Records:
    """A site's X (n, d) in the units analysed, and outcomes y (n,) in their own unit."""

    family: Family
    X: Array
    y: Array

    @classmethod
    def of(cls, family: Family, now: Round, public: PublicFacts) -> Records:
        """Read the training records."""
        X, _ = now.layout.design(now.values, now.centre, now.scale)
        outcome = public.variables[int(now.layout.columns[0])]
        return cls(family, X, family.outcomes(now.values[:, 0], outcome))

    def log_likelihood(self, theta: Array) -> Array:
        """Return log L_k at each of theta (n, d), shape (n,)."""
        found = np.zeros(len(theta))
        size = max(_BLOCK // max(len(theta), 1), 1)
        for i in range(0, len(self.y), size):
            eta = np.clip(self.X[i : i + size] @ theta.T, -MAX_PREDICTOR, MAX_PREDICTOR)
            found += self.family.log_likelihood(self.y[i : i + size, None], eta).sum(axis=0)
        return found

    def mode(self, mu: Array, P: Array) -> tuple[Array, Array]:
        """Return the mode of L_k N(theta; mu, P^-1), and minus its second derivative there."""
        theta, value = mu, float(self.log_likelihood(mu[None])[0])
        for _ in range(_NEWTON_STEPS):
            eta = self.X @ theta
            score = self.X.T @ self.family.score(self.y, eta) - P @ (theta - mu)
            step = np.linalg.solve(self._curvature(eta, P), score)
            change = float(np.max(np.abs(self.X @ step), initial=np.max(np.abs(step))))
            step *= min(1.0, _LONGEST_STEP / max(change, _NEWTON_TOLERANCE))
            while change > _NEWTON_TOLERANCE:  # halve a step that goes beyond the mode
                off = theta + step - mu
                new = float(self.log_likelihood((theta + step)[None])[0] - off @ P @ off / 2)
                if new >= value - ROUNDING * abs(value):
                    value = new
                    break
                step, change = step / 2, change / 2
            theta = theta + step
            if change <= _NEWTON_TOLERANCE:
                break
        return theta, self._curvature(self.X @ theta, P)

    def _curvature(self, eta: Array, P: Array) -> Array:
        return np.asarray((self.X.T * self.family.weight(eta)) @ self.X + P)


def observation(records: Records, mu: Array, Sigma: Array) -> SufficientStatistics:
    """Return G and h of (1). Raises `PeerError` for mu and Sigma that no fit has."""
    check_predictors(records.X @ mu)
    values = np.linalg.eigvalsh(Sigma)
    if not values[0] > _SMALLEST * values[-1]:
        raise PeerError("message", "the coordinator's covariance matrix is singular")
    P = np.linalg.inv(Sigma)
    P = (P + P.T) / 2
    mean, V = _moments(records, mu, P)
    # in coordinates in which Sigma is I, the eigenvalues of V are at most 1
    L = np.linalg.cholesky(Sigma)
    half = np.linalg.solve(L, V)
    values, vectors = np.linalg.eigh(np.linalg.solve(L, half.T))
    G = np.linalg.solve(L.T, vectors * np.sqrt(np.maximum(1 / values - 1, 0.0)))
    G = G @ G.T
    return SufficientStatistics(G, G @ mean + P @ (mean - mu), 0.0, len(records.y), 1.0)


def _moments(records: Records, mu: Array, P: Array) -> tuple[Array, Array]:
    """Return mean and covariance of theta under L_k N(theta; mu, P^-1).

    Those of the normal density at the mode are known. The importance samples estimate only the
    difference from it. If Sigma is small, L_k is nearly normal over its range, and the difference,
    which (1) multiplies by Sigma^-1 twice, must have a small error, too.
    """
    middle, H = records.mode(mu, P)
    normals = _normals(len(mu))
    root = np.linalg.cholesky(H)
    theta = middle + _WIDER * np.linalg.solve(root.T, normals.T).T
    off, squares = theta - mu, np.sum(normals**2, axis=1)
    log = records.log_likelihood(theta) - np.sum((off @ P) * off, axis=1) / 2
    first, second = np.zeros(len(mu)), np.zeros_like(H)
    for sign, density in ((1, log), (-1, -(_WIDER**2) * squares / 2)):
        weights = np.exp(density - np.max(density) + squares / 2 - np.max(squares) / 2)
        weights /= weights.sum()
        mean = weights @ theta
        first += sign * mean
        second += sign * ((theta - mean).T * weights) @ (theta - mean)
    return middle + first, np.linalg.inv(H) + second


@cache
def _normals(d: int) -> Array:
    """Return quasi-random standard normals (`_POINTS`, d), the same at all sites."""
    uniform = qmc.Sobol(d, scramble=True, seed=0).random(_POINTS)
    return np.asarray(ndtri(np.clip(uniform, 1e-12, 1 - 1e-12)), dtype=np.float64)


def candidates(
    records: Records,
    known: SufficientStatistics,
    mu: Array,
    Sigma: Array,
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """Return draws of theta (candidates, draws, d) given (1), and log(L_k / (1)) at them.

    mu (draws, d); Sigma (draws, d, d): draws of what sites share
    """
    draws, d = mu.shape
    theta = np.empty((_CANDIDATES, draws, d))
    for i in range(_CANDIDATES):
        theta[i], _ = coefficient_draws(known, mu, Sigma, np.ones(draws), rng)
    flat = theta.reshape(-1, d)
    normal = flat @ known.cross - np.sum((flat @ known.gram) * flat, axis=1) / 2
    return theta, (records.log_likelihood(flat) - normal).reshape(_CANDIDATES, draws)


def correction(log_ratio: Array) -> Array:
    """Return log(exact marginal likelihood / that of (1)), from the mean ratio (draws,)."""
    return np.asarray(logsumexp(log_ratio, axis=0) - np.log(len(log_ratio)), dtype=np.float64)


def resampled(theta: Array, log_ratio: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return one candidate for each draw (draws, d), and the weighted mean of all (d,)."""
    weights = np.exp(log_ratio - logsumexp(log_ratio, axis=0))
    places = np.sum(np.cumsum(weights, axis=0) < rng.random(weights.shape[1]), axis=0)
    chosen = theta[np.minimum(places, len(theta) - 1), np.arange(theta.shape[1])]
    return chosen, np.einsum("cn,cnd->d", weights, theta) / theta.shape[1]
