"""The likelihood of (mu, Sigma) as if all sites had equal designs, matched to the exact one.

Site k's least squares are b_k ~ N(mu, Sigma + C_k). If all C_k were equal to C, the mean m of the
K vectors b_k and the scatter S about it would be sufficient, with

    -2 log L = K log|T| + tr(T^-1 S) + K (m - mu)' T^-1 (m - mu),  T = Sigma + C.                (1)

C_k differ, and the coordinator knows sums of A_k = (Sigma_0 + C_k)^-1 at its estimate Sigma_0 only
(`secagg.models.fedlin.full.site_sums`). It takes T_0 = K (SUM A_k)^-1, the harmonic mean of
Sigma_0 + C_k, so that C = T_0 - Sigma_0 is positive semidefinite (a parallel sum is superadditive:
Anderson and Duffin, "Series and parallel addition of matrices", J. Math. Anal. Appl. 1969), and

    m = (SUM A_k)^-1 SUM A_k b_k,
    S = T_0 [SUM A_k (b_k - m)(b_k - m)' A_k + A_k G A_k - A_0] T_0,  G = (SUM A_k)^-1,          (2)

with A_0 = T_0^-1. Then (1) has at Sigma_0, with mu integrated out under a flat prior, exactly the
score of the restricted likelihood of all sites, and given Sigma_0 the exact density of mu. Its
curvature is that of the exact one up to the variation of A_k between sites. If designs are equal,
(1) is exact everywhere. The posterior under (1) is therefore a proposal that importance sampling
corrects (`secagg.models.fedlin.full.posterior`), and its mode a fixed point of exact scores.

Prior (Huang and Wand, "Simple marginally noninformative prior distributions for covariance
matrices", Bayesian Analysis 2013): Sigma | a ~ IW(nu + d - 1, 2 nu diag(1 / a)), a_j ~ IG(1/2,
1 / A^2) with nu = 2. Then each sd root Sigma_jj is half-t with nu degrees of freedom and scale A,
and each correlation is uniform on (-1, 1).

`mode` is the EM algorithm for (1) and that prior, with theta_k, mu and a as missing data. Without
the prior, the fixed point over rounds is the restricted maximum likelihood estimate (REML). With
it, the maximum is that of the density with respect to |Sigma|^-((d+1)/2) dSigma, which no change of
units and no inversion of Sigma affects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from secagg.core.arrays import Array
from secagg.models.numerics.natural_gaussian import symmetric

NU = 2.0
"""Degrees of freedom of the half-t priors; correlations are uniform for this value only."""
_EM_STEPS, _EM_TOLERANCE = 2000, 1e-12
_LEAST_SHARE = 1e-12  # eigenvalues of S and C below this share of the largest are raised to it


@dataclass(frozen=True)
class EqualSites:
    """The likelihood (1); sites: K; mean: m (d,); C, S (d, d)."""

    sites: int
    mean: Array
    C: Array
    S: Array

    @classmethod
    def of(
        cls, total: Mapping[str, Array], mu: Array, spread: Array, Sigma: Array, sites: int
    ) -> EqualSites:
        """Match (1) to a round's sums at mu, spread and Sigma.

        The sites' terms of (2) have the mu and G of the round before. The difference is taken off
        as if designs were equal; it is 0 where rounds converge. Raises `LinAlgError` if SUM A_k is
        singular.
        """
        P = symmetric(total["precision"], len(Sigma))
        M = symmetric(total["scatter"], len(Sigma))
        G = np.linalg.inv(P)
        G = (G + G.T) / 2
        T, mean = sites * G, G @ total["slope"]
        off = mean - mu
        S = T @ (M - P / sites) @ T + sites * (G - spread - np.outer(off, off))
        return cls(sites, mean, _positive(T - Sigma, T), _positive(S, T))

    @property
    def wide(self) -> Array:
        """Return an unbiased estimate of T if sites have equal designs: S / (K - 1)."""
        return self.S / (self.sites - 1)

    def mode(self, start: Array, scale: float | None) -> Array:
        """Return the maximum over Sigma by EM; scale: A of the prior, None without a prior."""
        d, K = len(self.mean), self.sites
        Sigma = start
        for _ in range(_EM_STEPS):
            shrink = np.linalg.solve(Sigma + self.C, Sigma).T  # Sigma T^-1
            scatter = shrink @ (self.S + Sigma + self.C) @ shrink.T  # of theta_k about mu
            scatter = scatter + K * (Sigma - shrink @ Sigma)
            if scale is None:
                new = scatter / K
            else:
                precision = np.diagonal(np.linalg.inv(Sigma))
                latent = (NU + d) / 2 / (NU * precision + scale**-2.0)
                new = (scatter + np.diag(2 * NU * latent)) / (K + NU + d - 1)
            new = (new + new.T) / 2
            moved = float(np.max(np.abs(new - Sigma))) / float(np.max(np.diagonal(new + self.C)))
            Sigma = new
            if moved < _EM_TOLERANCE:
                break
        return Sigma

    def log_density(self, Sigma: Array, ratio: Array) -> tuple[Array, Array, Array]:
        """Return log of (1) with mu integrated out, and its derivatives by Sigma and by r.

        Sigma (n, d, d); ratio (n,): r, with C replaced by r C. Values are up to a constant.
        """
        T = Sigma + ratio[:, None, None] * self.C
        inverse = _inverses(T)
        inverse = (inverse + np.swapaxes(inverse, 1, 2)) / 2
        _, log_det = np.linalg.slogdet(T)
        left = self.sites - 1
        value = -(left * log_det + np.einsum("nij,ij->n", inverse, self.S)) / 2
        by_sigma = (inverse @ self.S @ inverse - left * inverse) / 2
        return value, by_sigma, np.einsum("nij,ij->n", by_sigma, self.C)

    def draw_means(self, Sigma: Array, ratio: Array, rng: np.random.Generator) -> Array:
        """Return mu (n, d), drawn given Sigma (n, d, d) and r (n,): N(m, T / K)."""
        T = Sigma + ratio[:, None, None] * self.C
        step = np.linalg.cholesky(T) @ rng.standard_normal((*T.shape[:2], 1))
        return np.asarray(self.mean + step[:, :, 0] / np.sqrt(self.sites), dtype=np.float64)

    def log_joint(self, mu: Array, Sigma: Array, ratio: Array) -> Array:
        """Return log of (1) at draws of mu, Sigma and r, up to a constant (n,)."""
        T = Sigma + ratio[:, None, None] * self.C
        off = (mu - self.mean)[:, :, None]
        squares = np.sum(off * np.linalg.solve(T, off), axis=(1, 2))
        value, _, _ = self.log_density(Sigma, ratio)
        _, log_det = np.linalg.slogdet(T)
        return np.asarray(value - (log_det + self.sites * squares) / 2, dtype=np.float64)

    def state(self) -> dict[str, Any]:
        """Return plain data."""
        return {"sites_used": self.sites, "mean": self.mean, "C": self.C, "S": self.S}

    @classmethod
    def read(cls, state: Mapping[str, Any]) -> EqualSites:
        return cls(state["sites_used"], state["mean"], state["C"], state["S"])


def _positive(matrix: Array, unit: Array) -> Array:
    """Return the matrix with eigenvalues, in units of `unit`, of at least rounding."""
    root = np.linalg.cholesky(unit)
    scaled = np.linalg.solve(root, np.linalg.solve(root, matrix).T)
    values, vectors = np.linalg.eigh((scaled + scaled.T) / 2)
    values = np.maximum(values, _LEAST_SHARE * max(float(values[-1]), 1.0))
    half = root @ vectors * np.sqrt(values)
    return np.asarray(half @ half.T, dtype=np.float64)


def _inverses(matrices: Array) -> Array:
    """Return the inverses (n, d, d); NaN for a matrix that is singular in float64."""
    try:
        return np.asarray(np.linalg.inv(matrices), dtype=np.float64)
    except np.linalg.LinAlgError:
        singular = np.linalg.matrix_rank(matrices) < matrices.shape[1]
        usable = np.where(singular[:, None, None], np.eye(matrices.shape[1]), matrices)
        found = np.asarray(np.linalg.inv(usable), dtype=np.float64)
        return np.where(singular[:, None, None], np.nan, found)
