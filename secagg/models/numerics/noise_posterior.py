"""Draws from the posterior of the exact moments M, given the noisy moments M + E.

M = sum z z', z = (1, predictors, outcome), has m rows; E is symmetric with independent normal
entries of known variance (`secagg.models.common.noisy_moments`). The exact moments are missing data
(Bernstein & Sheldon 2019) with the density

    p(M | M + E) ~ prod_{j<=k} exp(-E_jk^2 / (2 var E_jk)) pi(M)    over positive definite M.   (1)

The prior is flat in n, the sums and the columns' sums of squares S_jj. For the correlations C of
the p = m - 1 columns, C_x those of the predictors,

    pi(C) = sum_a w_a |C_x|^(a - 1) / Z_a  over positive definite C,    w_a ~ a^(2 p),          (2)

with twelve values of a. In the coordinates (L_jk, log L_jj), LL' = M, (1) is multiplied by

    pi(C)  prod_{j>=0} L_jj^(m - j + 1)  prod_{j>0} S_jj^(-(p - 1) / 2).                        (3)

docs/math/noise-posterior.md derives this, and reports the coverage that decided the prior.

Hamiltonian Monte Carlo runs many short chains in parallel as one array. The random generator has a
fixed seed, so the draws are a function of the release alone. These draws protect nobody, so the
seed need not be secret.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, ndtri

Floats = NDArray[np.float64]

CHAINS, WARM_UP, DRAWS = 32, 200, 100
FIRST_STEP, JITTER = 0.2, (0.8, 1.2)
_LEAPFROG_STEPS = (6, 13)  # range of a trajectory's random length, which prevents periodicity
_ACCEPTANCE = 0.8  # target rate; 0.6 to 0.9 are nearly as good (Betancourt, Byrne & Girolami 2014)
SEED = 4


def factor_of(X: Floats) -> Floats:
    """Return L, of shape (..., m, m); X has log L_jj on the diagonal."""
    L = np.tril(X)
    diagonal = np.arange(X.shape[-1])
    L[..., diagonal, diagonal] = np.exp(X[..., diagonal, diagonal])
    return L


class NoisyFactor(ABC):
    """The log density of X: a batch of L with log L_jj on the diagonal, shape (chains, m, m).

    It consists of the noise's density of (1), a product of powers of the L_jj, and what a subclass
    adds.

    pivots: the powers of L_jj, of shape (m,) or (chains, m)
    """

    def __init__(self, released: Floats, variance: Floats, pivots: Floats) -> None:
        m = released.shape[-1]
        self.released, self.pivots = released, pivots
        self.lower = np.tril(np.ones((m, m)))
        # a sum over all entries counts each entry off the diagonal twice
        self.precision = 1 / variance / (2.0 - np.eye(m))

    def in_released_units(self, L: Floats) -> Floats:
        """Return the Cholesky factor of the moments that were released."""
        return L

    def by_units(self, slope: Floats) -> Floats:
        """Return a derivative by L, from that by the factor in released units."""
        return slope

    @abstractmethod
    def added(self, X: Floats, L: Floats) -> tuple[Floats, Floats, Floats]:
        """Return another term of the log density, and its derivatives by L and by log L_jj.

        The second derivative, of shape (chains, m), is that for a fixed L.
        """

    def __call__(self, X: Floats) -> tuple[Floats, Floats]:
        """Return the log density up to a constant, shape (chains,), and its gradient."""
        L = factor_of(X)
        more, by_L, by_pivot = self.added(X, L)
        diagonal = np.arange(L.shape[1])
        own = self.in_released_units(L)
        E = own @ own.swapaxes(1, 2) - self.released
        weighted = E * self.precision
        value = more - 0.5 * (weighted * E).sum(axis=(1, 2))
        value = value + (X[:, diagonal, diagonal] * self.pivots).sum(axis=1)
        gradient = (by_L - 2 * self.by_units(weighted @ own)) * self.lower
        gradient[:, diagonal, diagonal] *= L[:, diagonal, diagonal]
        gradient[:, diagonal, diagonal] += self.pivots + by_pivot
        return value, gradient


class Target(NoisyFactor):
    """The log density of (1) with the prior (2) of the correlations.

    a: the values of a in (2), shape (values,); None for `shapes`
    """

    def __init__(self, released: Floats, variance: Floats, a: Floats | None = None) -> None:
        m = variance.shape[-1]
        p = m - 1
        super().__init__(released, variance, m + 1.0 - np.arange(m))
        self.excess = (shapes(p) if a is None else a) - 1
        self.log_weight = 2 * p * np.log1p(self.excess) - _log_normaliser(self.excess + 1.5, p - 1)
        self.squares = np.full(p, -(p - 1) / 2)
        self.predictors = np.arange(1, p)

    def added(self, X: Floats, L: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the logarithm of (2) and of the powers of S_jj in (3)."""
        S = (L[:, 1:, 1:] ** 2).sum(axis=2)
        log_S, x = np.log(S), self.predictors
        log_det = 2 * X[:, x, x].sum(axis=1) - log_S[:, : len(x)].sum(axis=1)  # log |C_x|
        terms = log_det[:, None] * self.excess + self.log_weight
        largest = terms.max(axis=1)  # scipy's logsumexp takes most of the time of a trajectory
        prior = largest + np.log(np.exp(terms - largest[:, None]).sum(axis=1))
        # the derivative of (2)'s logarithm by log |C_x|: the mean of a - 1 at this C_x
        mean = (np.exp(terms - prior[:, None]) * self.excess).sum(axis=1)
        by_log_S = np.tile(self.squares, (len(S), 1))
        by_log_S[:, : len(x)] -= mean[:, None]
        by_L, by_pivot = np.zeros_like(L), np.zeros(L.shape[:2])
        by_L[:, 1:, 1:] = (2 * by_log_S / S)[:, :, None] * L[:, 1:, 1:]
        by_pivot[:, x] = 2 * mean[:, None]
        return (log_S * self.squares).sum(axis=1) + prior, by_L, by_pivot


class PredictorsTarget(Target):
    """The same for the moments of (1, predictors): an outcome's row is integrated out.

    For q predictors, C_x has the marginal density of (2), |C_x|^(a - 1/2) in place of |C_x|^(a - 1)
    """

    def __init__(self, released: Floats, variance: Floats, unit: Floats) -> None:
        q = variance.shape[-1] - 1
        super().__init__(released, variance)
        self.unit = unit
        self.excess = shapes(q + 1) - 1
        self.log_weight = 2 * (q + 1) * np.log1p(self.excess) - _log_normaliser(
            self.excess + 1.5, q
        )
        self.excess = self.excess + 0.5
        self.predictors = np.arange(1, q + 1)

    def in_released_units(self, L: Floats) -> Floats:
        return self.unit @ L

    def by_units(self, slope: Floats) -> Floats:
        return self.unit.T @ slope


def shapes(p: int) -> Floats:
    """Return the values of a in (2), from 1 to 9 p / 2."""
    return np.geomspace(1.0, 4.5 * p, 12)


def _log_normaliser(eta: Floats, d: int) -> Floats:
    """Return log of the integral of |C|^(eta - 1) over d x d correlation matrices.

    With r the last column's correlations, |C| is |C of the others| (1 - r' C^-1 r): the integral
    over r is that of (1 - |s|^2)^(eta - 1) over the ball of k = d - 1 dimensions times |C|^(1/2).
    """
    k = np.arange(1, d)
    shape = eta[:, None] + (d - 1 - k) / 2
    parts = gammaln(shape) - gammaln(shape + k / 2) + k / 2 * np.log(np.pi)
    return np.asarray(parts.sum(axis=1), dtype=np.float64)


def draw_factors(
    released: Floats, variance: Floats, draws: int = DRAWS, a: Floats | None = None
) -> Floats:
    """Return draws of L, LL' = M, shape (draws, chains, m, m).

    released: M + E for every chain, shape (chains, m, m), symmetric, the outcome last. All chains
        can have the same release, or each its own.
    variance: of E's entries, shape (m, m), positive
    a: the values of a in (2); None for `shapes`
    """
    rng = np.random.Generator(np.random.PCG64(SEED))
    X, scale = starts(released, variance, rng)
    return _sampled(Target(released, variance, a), X, scale, draws, rng)


def draw_predictors(released: Floats, variance: Floats, unit: Floats, draws: int = DRAWS) -> Floats:
    """Return draws of L for the moments of (1, predictors), as `draw_factors` without an outcome.

    unit: as for `PredictorsTarget`
    """
    rng = np.random.Generator(np.random.PCG64(SEED))
    target = PredictorsTarget(released, variance, unit)
    X, scale = starts(released, variance, rng)
    L = np.linalg.solve(unit, factor_of(X))
    X = L * target.lower
    diagonal = np.arange(len(unit))
    X[:, diagonal, diagonal] = np.log(L[:, diagonal, diagonal])
    return unit @ _sampled(target, X, scale, draws, rng)


def _sampled(
    target: Target, X: Floats, scale: Floats, draws: int, rng: np.random.Generator
) -> Floats:
    """Return draws of L, after a warmup; X: the first points, scale: see `starts`."""
    chains, m = X.shape[:2]
    factors = np.empty((draws, chains, m, m))
    with np.errstate(all="ignore"):  # a trajectory that diverges is rejected
        point, step = (X, *target(X)), np.full(chains, FIRST_STEP)
        for i in range(WARM_UP + draws):
            momentum = rng.standard_normal((chains, m, m)) * target.lower
            jump = (step * rng.uniform(*JITTER, chains))[:, None, None] * scale
            point, probability = move(
                target, point, jump, momentum, steps=int(rng.integers(*_LEAPFROG_STEPS)),
                uniform=rng.random((chains,)),
            )  # fmt: skip
            if i < WARM_UP:
                step *= adapted(probability)
            else:
                factors[i - WARM_UP] = factor_of(point[0])
    return factors


Point = tuple[Floats, Floats, Floats]
"""X, its log density and the gradient."""


def move(
    target: Callable[[Floats], tuple[Floats, Floats]],
    point: Point,
    jump: Floats,
    momentum: Floats,
    steps: int,
    uniform: Floats,
) -> tuple[Point, Floats]:
    """Move every chain along a trajectory of leapfrog steps: Neal 2011, equations 2.28 to 2.30.

    jump: length of a step in each coordinate; momentum: standard normal draws; uniform: on [0, 1)
    Returns the points, old ones where the trajectory's end is rejected, and how probable each end
    was.
    """
    X, value, gradient = point
    new_X, new_value, new_gradient = point
    end = momentum + 0.5 * jump * gradient
    for _ in range(steps):
        new_X = new_X + jump * end
        new_value, new_gradient = target(new_X)
        end = end + jump * new_gradient
    end = end - 0.5 * jump * new_gradient
    gain = new_value - value + 0.5 * (momentum**2 - end**2).sum(axis=(1, 2))
    probability = np.nan_to_num(np.exp(np.minimum(gain, 0.0)))
    accepted = uniform < probability
    rows = accepted[:, None, None]
    return (
        np.where(rows, new_X, X),
        np.where(accepted, new_value, value),
        np.where(rows, new_gradient, gradient),
    ), probability


def adapted(probability: Floats) -> Floats:
    """Return the factor by which the steps change during warmup."""
    return np.exp(0.15 * (probability - _ACCEPTANCE))


def starts(released: Floats, variance: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return the chains' first X, and how far the noise moves each coordinate.

    Noise is added again to the release, so the chains spread wider than (1).
    """
    m = released.shape[-1]
    noise = np.triu(rng.standard_normal(released.shape) * np.sqrt(variance))
    noise += np.triu(noise, 1).swapaxes(1, 2)
    eigenvalues, basis = np.linalg.eigh(released + noise)
    raised = np.maximum(eigenvalues, np.sqrt(variance.sum() / m))  # the repair of `noisy_moments`
    X = np.linalg.cholesky((basis * raised[:, None, :]) @ basis.swapaxes(1, 2))
    diagonal = np.arange(m)
    pivots = X[:, diagonal, diagonal]
    # M_jk changes by L_kk dL_jk: this is how far the noise moves L_jk, ignoring the prior
    scale = np.minimum(np.sqrt(variance) / pivots[:, None, :], pivots[:, None, :])
    scale[:, diagonal, diagonal] /= pivots  # there the coordinate is a logarithm
    X[:, diagonal, diagonal] = np.log(pivots)
    return X, scale


def mixing(draws: Floats) -> float:
    """Return the largest rank-normalised split R-hat; near 1 if the chains agree.

    Follows Vehtari, Gelman, Simpson, Carpenter & Buerkner 2021, sections 3.1 and 4.1. draws: shape
    (draws, chains, quantities)
    """
    length, chains, quantities = draws.shape
    half = length // 2
    split = np.concatenate([draws[:half], draws[-half:]], axis=1).reshape(-1, quantities)
    ranks = np.argsort(np.argsort(split, axis=0), axis=0) + 1
    normal = ndtri((ranks - 0.375) / (len(split) + 0.25)).reshape(half, 2 * chains, quantities)
    within = normal.var(axis=0, ddof=1).mean(axis=0)
    between = normal.mean(axis=0).var(axis=0, ddof=1)
    return float(np.sqrt(np.max((half - 1) / half + between / within)))
