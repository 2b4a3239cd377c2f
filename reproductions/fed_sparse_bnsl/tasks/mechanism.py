"""A participant of DP-Fed-Sparse-BNSL: private proximal greedy coordinate descent (DP-PGCD).

El Fehri, Bellet and Bastien, "Differentially private and federated structure learning in Bayesian
networks" (AISTATS 2026, PMLR 300; arXiv 2512.01708). **This is our reading of the paper.** Its full
text and its program could not be read; `reproductions.fed_sparse_bnsl.figures` lists what the
sources state and what we chose.

Participant p minimises over B (d, d), with W, beta and rho2 of the consensus fixed,

    1/(2 n) |X - X B|_F^2 + lambda |B|_1 + <beta, B - W> + rho2/2 |B - W|_F^2.                  (1)

Its data enter (1) through the gradient of the first term alone, G_jk = mean over records of
-x_j r_k, r = x - x B. One step changes one entry of B:

    entry    (j, k) with the largest score u_jk = root(M_jk) |T_jk - B_jk|,
             T_jk = soft(B_jk - g_jk / M_jk, lambda / M_jk), g = G + beta + rho2 (B - W),       (2)
             the proximal greedy rule (GS-r; Nutini et al., ICML 2015), with the scale root(M) of
             DP-GCD (Mangold, Bellet, Salmon and Tommasi, AISTATS 2023)
    step     B_jk = T_jk                                                                        (3)

with M_jk = L_j + rho2, L_j the square of the public scale of column j, in place of the mean of
x_j^2.

Privacy: neighbours differ in one record of one participant (added or removed); n is public.
Each record's term of G_jk is clipped to [-C_jk, C_jk], so a record moves G_jk by at most C_jk / n.
soft is nonexpansive, so it moves u_jk by at most C_jk / (n root(M_jk)). One step costs

    selection   exponential mechanism on u with the sensitivity D_u = max C_jk / (n root(M_jk)):
                probabilities proportional to exp(e u / (2 D_u)); e^2 / 8-zCDP                  (4)
    gradient    G_jk + N(0, (s C_jk / n)^2) in place of G_jk in (3); 1 / (2 s^2)-zCDP           (5)

so T steps are T (e^2 / 8 + 1 / (2 s^2))-zCDP. Everything else that is sent (zeros, beta, W) is
computed from what these two released. Neither sensitivity grows with d: this is what makes greedy
steps cheap. Random numbers are floating point from numpy's generator: a simulation, not a program
that protects records (Mironov, CCS 2012).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class StepNoise:
    """The noise of one step. e: exponent of (4), inf for the largest score; s: of (5)"""

    e: float = math.inf
    s: float = 0.0

    @property
    def rho(self) -> float:
        """The cost of one step, in zCDP."""
        return self.e**2 / 8 + (1 / (2 * self.s**2) if self.s > 0 else math.inf)


def step_noise(rho: float, steps: int, selection: float) -> StepNoise:
    """Return the noise with which `steps` steps are rho-zCDP; infinite rho gives none.

    selection: share of rho for (4), between 0 and 1; the rest is for (5)
    """
    if rho == math.inf:
        return StepNoise()
    each = rho / steps
    return StepNoise(math.sqrt(8 * selection * each), 1 / math.sqrt(2 * (1 - selection) * each))


@dataclass(frozen=True, eq=False)
class LocalProblem:
    """(1) with its privacy parameters.

    X: (n, d), records; n: their public number, which does not change with one record
    scale: (d,), public scale of each column; clip: (d, d), C; penalty: lambda
    """

    X: Array
    n: int
    scale: Array
    clip: Array
    penalty: float

    def gradients(self, B: Array, k: int) -> Array:
        """Return column k of G, clipped record by record, (d,)."""
        residual = self.X[:, k] - self.X @ B[:, k]
        terms = self.X * -residual[:, None]
        return np.asarray(np.clip(terms, -self.clip[:, k], self.clip[:, k]).sum(axis=0) / self.n)

    def curvature(self, rho2: float) -> Array:
        """Return M, (d, 1): equal for all effects of a column."""
        return np.asarray(self.scale[:, None] ** 2 + rho2)

    def score_sensitivity(self, rho2: float) -> float:
        """Return D_u of (4)."""
        off = ~np.eye(len(self.scale), dtype=bool)
        return float(np.max((self.clip / np.sqrt(self.curvature(rho2)))[off])) / self.n

    def targets(self, G: Array, B: Array, pull: Array, rho2: float) -> Array:
        """Return T of (2) for all entries. pull: beta + rho2 (B - W)"""
        M = self.curvature(rho2)
        moved = B - (G + pull) / M
        return np.asarray(np.sign(moved) * np.maximum(np.abs(moved) - self.penalty / M, 0))

    def scores(self, G: Array, B: Array, pull: Array, rho2: float) -> Array:
        """Return u of (2), (d, d); the diagonal is -inf: no variable causes itself."""
        u = np.sqrt(self.curvature(rho2)) * np.abs(self.targets(G, B, pull, rho2) - B)
        np.fill_diagonal(u, -np.inf)
        return np.asarray(u)


def select(scores: Array, sensitivity: float, e: float, rng: Generator) -> tuple[int, int]:
    """Return (j, k) by the exponential mechanism (4); the largest score if e is infinite.

    The entry with the largest e u / (2 D_u) plus standard Gumbel noise has these probabilities.
    """
    if e < math.inf:
        scores = scores * (e / (2 * sensitivity)) + rng.gumbel(size=scores.shape)
    j, k = divmod(int(np.argmax(scores)), scores.shape[1])
    return j, k


def descend(
    problem: LocalProblem,
    B: Array,
    G: Array,
    beta: Array,
    W: Array,
    rho2: float,
    steps: int,
    noise: StepNoise,
    rng: Generator,
) -> tuple[Array, Array, set[tuple[int, int]]]:
    """Make `steps` steps of DP-PGCD; return B, G = G(B), and the entries that were changed.

    G: the clipped gradient at B, which only the participant knows
    """
    B, G = B.copy(), G.copy()
    sensitivity = problem.score_sensitivity(rho2)
    changed = set[tuple[int, int]]()
    for _ in range(steps):
        pull = beta + rho2 * (B - W)
        j, k = select(problem.scores(G, B, pull, rho2), sensitivity, noise.e, rng)
        error = rng.normal(0, noise.s * problem.clip[j, k] / problem.n) if noise.s else 0.0
        M = problem.curvature(rho2)[j, 0]
        moved = B[j, k] - (G[j, k] + error + pull[j, k]) / M
        B[j, k] = math.copysign(max(abs(moved) - problem.penalty / M, 0.0), moved)
        G[:, k] = problem.gradients(B, k)
        changed.add((j, k))
    return B, G, changed
