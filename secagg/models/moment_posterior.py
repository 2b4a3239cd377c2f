"""What noisy moments say about the exact ones: draws from the posterior of M given M + E.

M = sum z z', z = (1, predictors, outcome), has m rows; E is symmetric with independent normal
entries of known variance (`secagg.models.noisy_moments`). Bernstein & Sheldon 2019 showed that
treating the exact moments as missing data, and averaging inference over what they may have been,
gives calibrated posteriors. Here M itself is drawn, not a model of the records. Its density is

    p(M | M + E) ~ prod_{j<=k} exp(-E_jk^2 / (2 var E_jk)) pi(M)    over positive definite M,   (1)

so that knowing that M is the moments of *some* table is part of the inference. That is decisive
when the noise is as large as the smallest eigenvalue of M.

The prior pi. With C the correlations of the p = m - 1 columns, C_x those of the predictors and S_jj
the columns' sums of squares about the mean, n, the sums and the S_jj are flat, and given them
(separation of scale and correlation: Barnard, McCulloch & Meng 2000)

    pi(C) ~ |C_x|^(a - 1) over positive definite C,      a = 9 p / 2.                           (2)

So the outcome's correlations are as flat as they can be, and C_x has the distribution of
Lewandowski, Kurowicka & Joe (2009) with parameter a + 1/2. It is free of units, and has a say only
where the noise leaves room: with little noise M is the released matrix whatever (2) is. With this a
the others explain 0.08 of a predictor's variance, on average over C (ten predictors); it was chosen
by coverage at correlations of 0.3. With a = 1, C uniform, they would explain 0.75: where the
noise's norm is the least eigenvalue, intervals become 3.5 times as long and cover 0.995 where 0.90
is asked. With (2), columns far more collinear than it expects (correlations of 0.8) are covered
0.73 there, and 0.87 to 0.90 where the noise is a quarter of that (benchmarks/interval_coverage.py).

The coordinates. With LL' = M (Cholesky), |dM / dL| = 2^m prod_j L_jj^(m - j) (j from 0); L without
its first row and column is the factor of S. So the density of (L_jk, log L_jj) is that of (1) times

    prod_{j>=0} L_jj^(m - j + 1)  prod_{j>0} L_jj^(2 a_j - 2) S_jj^(1 - a_j - (p - 1) / 2)      (3)

with a_j = a for predictors and 1 for the outcome. It is smooth, on a whole space, and Hamiltonian
Monte Carlo (Neal 2011, sections 2 and 3) needs no more. Many short chains run side by side as one
array. The draws are a function of the release alone: the generator has a fixed seed, and nothing
here protects anybody.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

Floats = NDArray[np.float64]

PRIOR = 4.5  # a / p of (2)
CHAINS, WARM_UP, DRAWS = 32, 200, 100
_STEPS = (6, 13)  # leapfrog steps of a trajectory, from a range so that none is periodic
_ACCEPTANCE = 0.8  # aimed at; between 0.6 and 0.9 costs little (Betancourt, Byrne & Girolami 2014)
_SEED = 4


class Target:
    """The log density of X: a batch of L with log L_jj on the diagonal, shape (chains, m, m).

    prior: a / p of (2), at least 1 / p
    """

    def __init__(self, released: Floats, variance: Floats, prior: float = PRIOR) -> None:
        m = len(variance)
        p = m - 1
        a = np.full(p, prior * p)
        a[-1] = 1.0
        self.released = released
        self.lower = np.tril(np.ones((m, m)))
        # each entry off the diagonal stands twice in a sum over all entries
        self.precision = 1 / variance / (2.0 - np.eye(m))
        self.pivots = m + 1.0 - np.arange(m)
        self.pivots[1:] += 2 * a - 2
        self.squares = 1 - a - (p - 1) / 2

    def factor(self, X: Floats) -> Floats:
        """Return L."""
        L = X * self.lower
        diagonal = np.arange(L.shape[1])
        L[:, diagonal, diagonal] = np.exp(X[:, diagonal, diagonal])
        return L

    def __call__(self, X: Floats) -> tuple[Floats, Floats]:
        """Return the log density up to a constant, shape (chains,), and its gradient."""
        L = self.factor(X)
        diagonal = np.arange(L.shape[1])
        E = L @ L.swapaxes(1, 2) - self.released
        pull = E * self.precision
        S = (L[:, 1:, 1:] ** 2).sum(axis=2)
        value = (
            -0.5 * (pull * E).sum(axis=(1, 2))
            + X[:, diagonal, diagonal] @ self.pivots
            + np.log(S) @ self.squares
        )
        slope = -2 * pull @ L
        slope[:, 1:, 1:] += (2 * self.squares / S)[:, :, None] * L[:, 1:, 1:]
        slope *= self.lower
        slope[:, diagonal, diagonal] *= L[:, diagonal, diagonal]
        slope[:, diagonal, diagonal] += self.pivots
        return value, slope


def draw_factors(
    released: Floats, variance: Floats, draws: int = DRAWS, prior: float = PRIOR
) -> Floats:
    """Return draws of L, LL' = M, shape (draws, chains, m, m).

    released: M + E for every chain, shape (chains, m, m), symmetric, the outcome last: the same
        for all, or as many releases as one likes, each with a chain of its own
    variance: of E's entries, shape (m, m), positive
    prior: a / p of (2)
    """
    chains, m = released.shape[:2]
    diagonal = np.arange(m)
    rng = np.random.Generator(np.random.PCG64(_SEED))
    target = Target(released, variance, prior)
    X = _starts(released, variance, rng)
    pivots = X[:, diagonal, diagonal]
    # entry M_jk moves by L_kk dL_jk: so far may the noise move L_jk, if the prior did not hold it
    scale = np.minimum(np.sqrt(variance) / pivots[:, None, :], pivots[:, None, :])
    scale[:, diagonal, diagonal] /= pivots  # there the coordinate is a logarithm
    X[:, diagonal, diagonal] = np.log(pivots)
    kept = np.empty((draws, chains, m, m))
    with np.errstate(all="ignore"):  # a trajectory that flies off to infinity is refused
        value, slope = target(X)
        step = np.full(chains, 0.2)
        for i in range(WARM_UP + draws):
            momentum = rng.standard_normal((chains, m, m)) * target.lower
            jump = (step * rng.uniform(0.8, 1.2, chains))[:, None, None] * scale
            at, to_value, to_slope = X, value, slope
            end = momentum + 0.5 * jump * slope  # leapfrog: Neal 2011, equations 2.28 to 2.30
            for _ in range(rng.integers(*_STEPS)):
                at = at + jump * end
                to_value, to_slope = target(at)
                end = end + jump * to_slope
            end = end - 0.5 * jump * to_slope
            gain = to_value - value + 0.5 * (momentum**2 - end**2).sum(axis=(1, 2))
            chance = np.nan_to_num(np.exp(np.minimum(gain, 0.0)))
            taken = rng.random(chains) < chance
            value = np.where(taken, to_value, value)
            X = np.where(taken[:, None, None], at, X)
            slope = np.where(taken[:, None, None], to_slope, slope)
            if i < WARM_UP:
                step *= np.exp(0.15 * (chance - _ACCEPTANCE))
            else:
                kept[i - WARM_UP] = target.factor(X)
    return kept


def _starts(released: Floats, variance: Floats, rng: np.random.Generator) -> Floats:
    """Return factors to start from: noise is added again, so they are wider apart than (1)."""
    m = released.shape[-1]
    noise = np.triu(rng.standard_normal(released.shape) * np.sqrt(variance))
    noise += np.triu(noise, 1).swapaxes(1, 2)
    eigenvalues, basis = np.linalg.eigh(released + noise)
    lifted = np.maximum(eigenvalues, np.sqrt(variance.sum() / m))  # as `noisy_moments` repairs
    return np.linalg.cholesky((basis * lifted[:, None, :]) @ basis.swapaxes(1, 2))


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
