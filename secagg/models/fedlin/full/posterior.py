"""The posterior of (mu, Sigma) and of the residual variance, as draws, from sums over sites.

Draws are from the posterior under the likelihood of equal sites (`EqualSites`), which differs from
the exact one if designs differ. With points, each site adds the logarithm of its exact likelihood
at some of these draws. In importance sampling, a draw's weight is the exact likelihood of all sites
divided by that of equal sites; the prior and r's density cancel. Weighted draws are then from the
exact posterior, up to their Monte Carlo error. The effective sample size, 1 / SUM w^2 for weights
with sum 1, is the number of draws if designs are equal, and small if they differ too much.

A draw is a row of a message: mu, the upper triangle of Sigma, and r.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from secagg.core.arrays import Array
from secagg.errors import PeerError
from secagg.models.common.posterior_summary import Posterior, summarise
from secagg.models.fedlin.full.equal_sites import EqualSites
from secagg.models.fedlin.full.hamiltonian import CHAINS, CovarianceDraws

_ROUNDING = 1e-9  # a negative eigenvalue may be so large, relative to the largest one


@dataclass(frozen=True)
class SharedDraws:
    """Draws of mu (n, d), Sigma (n, d, d) and r (n,)."""

    mu: Array
    Sigma: Array
    ratio: Array

    @classmethod
    def of(
        cls, drawn: CovarianceDraws, likelihood: EqualSites, rng: np.random.Generator
    ) -> SharedDraws:
        """Draw mu for each draw of Sigma. The draws of a chain are `CHAINS` apart."""
        d = drawn.Sigma.shape[-1]
        Sigma, ratio = drawn.Sigma.reshape(-1, d, d), drawn.ratio.ravel()
        return cls(likelihood.draw_means(Sigma, ratio, rng), Sigma, ratio)

    def thinned(self, count: int) -> SharedDraws:
        """Return so many of the draws, evenly spaced; all of them if there are fewer."""
        total = len(self.mu)
        return self.at(np.linspace(0, total - 1, min(count, total)).astype(np.int64))

    def resampled(self, weights: Array, count: int, rng: np.random.Generator) -> SharedDraws:
        """Return equally likely draws, by systematic resampling in a random order."""
        places = (np.arange(count) + rng.random()) / count
        found = np.searchsorted(np.cumsum(weights), places * np.sum(weights))
        return self.at(rng.permutation(np.minimum(found, len(weights) - 1)))

    def at(self, which: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> SharedDraws:
        """Return the draws at these positions."""
        return SharedDraws(self.mu[which], self.Sigma[which], self.ratio[which])

    def rows(self) -> Array:
        """Return the draws as rows of a message (n, `row_size`)."""
        upper = np.triu_indices(self.mu.shape[1])
        return np.column_stack([self.mu, self.Sigma[:, upper[0], upper[1]], self.ratio])

    @classmethod
    def read(cls, rows: Array, d: int) -> SharedDraws:
        """Return the draws of a message. Raises `PeerError` for a Sigma that is no covariance."""
        mu, ratio = rows[:, :d], rows[:, -1]
        Sigma = covariances(rows[:, d:-1], d)
        if np.any(ratio <= 0):
            raise PeerError("message", "the coordinator's ratio of variances is not above 0")
        return cls(mu, Sigma, ratio)

    def quantities(self) -> Array:
        """Return mu, log variances between sites, correlations (upper triangle), log r (n, q)."""
        d = self.mu.shape[1]
        upper = np.triu_indices(d, 1)
        variance = np.diagonal(self.Sigma, axis1=1, axis2=2)
        sd = np.sqrt(variance)
        correlation = self.Sigma[:, upper[0], upper[1]] / (sd[:, upper[0]] * sd[:, upper[1]])
        return np.column_stack([self.mu, np.log(variance), correlation, np.log(self.ratio)])


def row_size(d: int) -> int:
    """Return the number of values of a draw in a message."""
    return d + d * (d + 1) // 2 + 1


def covariances(triangles: Array, d: int) -> Array:
    """Return covariance matrices (n, d, d) of upper triangles (n, d (d + 1) / 2).

    Negative eigenvalues that rounding may cause are kept. Raises `PeerError` for larger ones.
    """
    upper = np.triu_indices(d)
    full = np.zeros((len(triangles), d, d))
    full[:, upper[0], upper[1]] = triangles
    full[:, upper[1], upper[0]] = triangles
    values = np.linalg.eigvalsh(full)
    if np.any(values[:, 0] < -_ROUNDING * np.maximum(values[:, -1], 0.0)):
        raise PeerError("message", "the coordinator's covariance matrix is none")
    return full


def weights_of(drawn: SharedDraws, likelihood: EqualSites, exact: Array) -> Array:
    """Return the draws' weights with sum 1; exact: sums of the sites' log likelihoods (n,)."""
    logarithm = exact - likelihood.log_joint(drawn.mu, drawn.Sigma, drawn.ratio)
    weights = np.exp(logarithm - np.max(logarithm))
    return np.asarray(weights / np.sum(weights), dtype=np.float64)


def agreement_of_chains(drawn: SharedDraws) -> Posterior:
    """Return summaries of `quantities`, with R-hat over the chains; r's is undefined if known."""
    values = drawn.quantities()
    return summarise(values.reshape(-1, CHAINS, values.shape[1]))
