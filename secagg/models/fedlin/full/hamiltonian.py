"""Draws of Sigma from its prior times the likelihood of equal sites, by Hamiltonian Monte Carlo.

Neal ("MCMC using Hamiltonian dynamics", Handbook of Markov Chain Monte Carlo 2011), many chains at
once. The coordinator does this alone, from sums that it has: no round is needed. Coordinates are
those in which the prior of `secagg.models.fedlin.full.equal_sites` is independent. With psi_j =
2 nu / a_j and Sigma = B^-1 diag(D) B'^-1, B = I - beta lower triangular, the inverse Wishart prior
IW(nu + d - 1, diag(psi)) is (Bartlett's decomposition)

    D_j = psi_j / (2 g_j),  g_j ~ Gamma((nu + j - 1) / 2),  j = 1, ..., d,                       (1)
    beta_ji = z_ji root(D_j / psi_i),  z_ji ~ N(0, 1),  i < j,                                   (2)
    a_j ~ IG(1/2, 1 / A^2).                                                                      (3)

A chain's position has the log g_j, log a_j, z_ji, and log r: the residual variance is r times its
estimate, with r ~ f / chi^2_f for an estimate with f degrees of freedom (r = 1 if it is known).

Steps are adapted during warmup only: their size to an acceptance rate of 0.8, and their directions
to the covariance matrix of all chains' positions. Logarithms beyond 40 (variances of 10^-17 and
10^17 times the prior's) are left out, so that matrices stay regular in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from secagg.core.arrays import Array
from secagg.models.fedlin.full.equal_sites import NU, EqualSites
from secagg.models.numerics.gaussian_draws import transpose

CHAINS = 16
_MAX_WARMUP = 600
_MIN_STEPS, _MAX_STEPS = 16, 32
_RANGE, _DISPERSION = 40.0, 0.5
_ACCEPTANCE, _FIRST_STEP, _RATE = 0.8, 0.1, 0.2


@dataclass(frozen=True)
class CovarianceDraws:
    """Draws (draws, chains, ...) of Sigma and r; acceptance: the share of accepted trajectories."""

    Sigma: Array
    ratio: Array
    acceptance: float


@dataclass(frozen=True)
class Target:
    """The posterior of a position; scale: A; freedom: f, 0 if the residual variance is known."""

    likelihood: EqualSites
    scale: float
    freedom: float

    @property
    def size(self) -> int:
        """Number of coordinates."""
        d = len(self.likelihood.mean)
        return 2 * d + d * (d - 1) // 2 + 1

    @cached_property
    def _below(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Rows j and columns i of z_ji."""
        return np.tril_indices(len(self.likelihood.mean), -1)

    def first(self, Sigma: Array, chains: int, rng: np.random.Generator) -> Array:
        """Return first positions (chains, size), dispersed about Sigma (d, d)."""
        d, (rows, columns) = len(Sigma), self._below
        L = np.linalg.cholesky(Sigma)
        D, beta = np.diagonal(L) ** 2, np.eye(d) - np.linalg.inv(L / np.diagonal(L))
        a = NU * np.diagonal(np.linalg.inv(Sigma)) + self.scale**-2.0
        psi = 2 * NU / a
        z = beta[rows, columns] * np.sqrt(psi[columns] / D[rows])
        middle = np.concatenate([np.log(psi / (2 * D)), np.log(a), z, [0.0]])
        return middle + _DISPERSION * rng.standard_normal((chains, self.size))

    def covariances(self, at: Array) -> tuple[Array, Array]:
        """Return Sigma and r at positions (n, size)."""
        parts = self._parts(at)
        return parts[-1], self._ratio(at)

    def log_density(self, at: Array) -> tuple[Array, Array]:
        """Return the log density (n,) and its gradient (n, size), -inf and 0 beyond the range."""
        d = len(self.likelihood.mean)
        inside = np.all(np.abs(at) <= _RANGE, axis=1)
        at = np.where(inside[:, None], at, 0.0)
        rows, columns = self._below
        log_g, log_a, z = at[:, :d], at[:, d : 2 * d], at[:, 2 * d : -1]
        psi, D, beta, inverse, Sigma = self._parts(at)
        ratio = self._ratio(at)
        value, slope, by_ratio = self.likelihood.log_density(Sigma, ratio)
        shape = (NU + np.arange(d)) / 2
        rate = self.scale**-2.0
        value = value + (shape * log_g - np.exp(log_g)).sum(axis=1)
        value += (-log_a / 2 - rate * np.exp(-log_a)).sum(axis=1) - (z**2).sum(axis=1) / 2
        # d Sigma = B^-1 (d beta) Sigma + Sigma (d beta)' B'^-1 + B^-1 (d D) B'^-1
        left = transpose(inverse) @ slope
        by_beta = 2 * (left @ Sigma)[:, rows, columns]
        by_log_D = np.diagonal(left @ inverse, axis1=1, axis2=2) * D
        half = by_beta * beta[:, rows, columns] / 2  # derivative by log D_j, and minus log psi_i
        by_log_D = by_log_D + half @ np.eye(d)[rows]
        by_log_psi = by_log_D - half @ np.eye(d)[columns]
        gradient = np.empty_like(at)
        gradient[:, :d] = -by_log_D + shape - np.exp(log_g)
        gradient[:, d : 2 * d] = -by_log_psi - 0.5 + rate * np.exp(-log_a)
        gradient[:, 2 * d : -1] = by_beta * np.sqrt(D[:, rows] / psi[:, columns]) - z
        if self.freedom:
            value += -self.freedom * (at[:, -1] + 1 / ratio) / 2
            gradient[:, -1] = by_ratio * ratio - self.freedom * (1 - 1 / ratio) / 2
        else:  # a coordinate that nothing depends on
            value -= at[:, -1] ** 2 / 2
            gradient[:, -1] = -at[:, -1]
        usable = inside & np.isfinite(value) & np.all(np.isfinite(gradient), axis=1)
        return np.where(usable, value, -np.inf), np.where(usable[:, None], gradient, 0.0)

    def _ratio(self, at: Array) -> Array:
        return np.exp(at[:, -1]) if self.freedom else np.ones(len(at))

    def _parts(self, at: Array) -> tuple[Array, Array, Array, Array, Array]:
        """Return psi, D (n, d), beta, B^-1 and Sigma (n, d, d)."""
        d, (rows, columns) = len(self.likelihood.mean), self._below
        psi = 2 * NU * np.exp(-at[:, d : 2 * d])
        D = psi / 2 * np.exp(-at[:, :d])
        beta = np.zeros((len(at), d, d))
        beta[:, rows, columns] = at[:, 2 * d : -1] * np.sqrt(D[:, rows] / psi[:, columns])
        inverse = np.tile(np.eye(d), (len(at), 1, 1))
        for j in range(1, d):  # forward substitution: B^-1 = I + beta B^-1
            inverse[:, j, :j] = (beta[:, j, None, :j] @ inverse[:, :j, :j])[:, 0]
        return psi, D, beta, inverse, (inverse * D[:, None, :]) @ transpose(inverse)


def draw_covariances(
    target: Target, start: Array, kept: int, rng: np.random.Generator
) -> CovarianceDraws:
    """Run the chains and return so many draws of each, after warmup; start: Sigma (d, d)."""
    with np.errstate(all="ignore"):  # positions beyond float64 are rejected
        return _run(target, start, kept, rng)


def _run(target: Target, start: Array, keep: int, rng: np.random.Generator) -> CovarianceDraws:
    warmup = min(keep, _MAX_WARMUP)
    at = target.first(start, CHAINS, rng)
    value, slope = target.log_density(at)
    step, root = _FIRST_STEP, np.eye(target.size)
    kept, accepted = list[Array](), 0.0
    recent = list[Array]()
    for number in range(warmup + keep):
        momentum = rng.standard_normal(at.shape)
        e = step * rng.uniform(0.8, 1.2)
        to, force, p = at, slope, momentum + e / 2 * slope @ root
        steps = int(rng.integers(_MIN_STEPS, _MAX_STEPS + 1))
        for i in range(steps):
            to = to + e * p @ root.T
            reached, force = target.log_density(to)
            p = p + e / (1 if i + 1 < steps else 2) * force @ root
        gain = reached - value + ((momentum**2).sum(axis=1) - (p**2).sum(axis=1)) / 2
        chance = np.where(np.isfinite(gain), np.exp(np.minimum(gain, 0.0)), 0.0)
        moves = rng.random(CHAINS) < chance
        at = np.where(moves[:, None], to, at)
        value, slope = np.where(moves, reached, value), np.where(moves[:, None], force, slope)
        if number >= warmup:
            kept.append(at)
            accepted += float(chance.mean()) / keep
            continue
        step *= float(np.exp(_RATE * (chance.mean() - _ACCEPTANCE)))
        recent.append(at)
        if number + 1 in (warmup // 4, warmup // 2, 3 * warmup // 4):
            root, recent, step = _root(np.array(recent[len(recent) // 2 :])), [], _FIRST_STEP
    positions = np.array(kept)
    Sigma, ratio = target.covariances(positions.reshape(-1, target.size))
    shape = positions.shape[:2]
    return CovarianceDraws(Sigma.reshape(*shape, *Sigma.shape[1:]), ratio.reshape(shape), accepted)


def _root(positions: Array) -> Array:
    """Return a root of the covariance matrix of positions (draws, chains, size), shrunk to its
    diagonal: successive draws count as a quarter, and there may be fewer than coordinates.
    """
    flat = positions.reshape(-1, positions.shape[-1])
    share = len(flat) / 4 / (len(flat) / 4 + flat.shape[1])
    covariance = np.cov(flat.T)
    shrunk = share * covariance + (1 - share) * np.diag(np.diagonal(covariance))
    return np.asarray(np.linalg.cholesky(shrunk), dtype=np.float64)
