"""Metropolis steps over the entries of a graph: equation (5) of
`secagg.models.sparse_bayes.laplace_graph`.

With b_kj integrated out of (3) there, and A = I - Theta, S_j = SUM_i |e_ij|, the entry theta_jh has

    log density = (n - 1) log|det A| - (a_s + n) log(b_s + S_j) + log of its Cauchy prior

where the spectral radius rho(Theta) < 1. A move of theta_jh by d changes e_j by -d Y_h, and
nothing else of the errors. While row j is gone through, its cofactors stay as they are: with g the
column j of A^-1 at the row's beginning, det A / (det A then) = 1 - SUM_h d_h g_h over the row's
moves so far, one product for each. A^-1 is computed anew for every row, so that rounding does not
pile up.

rho < 1 is tested in three steps, and only for moves that all else would take.

1. rho(Theta) <= rho(|Theta|). Let X = |Theta|, X_0 the same with row j zero, and rho(X) < 1 at the
   row's beginning, which for X >= 0 is the same as (I - X)^-1 >= 0 (Berman and Plemmons,
   Nonnegative Matrices in the Mathematical Sciences, chapter 6). For a new row j, let X_s go from
   X_0 to X' as s goes from 0 to 1. rho(X_s) starts below 1, never falls, and is an eigenvalue
   (Perron and Frobenius): where it reaches 1, det(I - X_s) is 0. That determinant is linear in s
   and starts above 0. So rho(X') < 1 if and only if det(I - X') > 0, which is
   1 - SUM_h (change of |theta_jh|) N_h > 0 for N the column j of (I - X)^-1.
2. rho(Theta)^16 = rho(Theta^16) <= |Theta^16|, the Frobenius norm, by four products.
3. Otherwise the eigenvalues decide. 2 and 3 are for graphs in which positive and negative ways
   round cancel, among them many small ones.

Where rho(Theta) < 1 all of det(I - s Theta), s in [0, 1], are above 0: |det A| is det A, and a
move to det A <= 0 never passes the test.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from secagg.core.arrays import Array
from secagg.models.sparse_bayes.horseshoe import NoisePrior

ACCEPTANCE = 0.4
"""The share of moves to be taken (of a normal density in one dimension 0.44 is best, and flat)."""

_STRIDE = 2 / math.tan(math.pi * ACCEPTANCE / 2)
"""A random walk of so many standard deviations a step over a normal density takes that share:
(2 / pi) arctan(2 / stride) (Gelman, Roberts and Gilks 1996)."""

_MIN_DETERMINANT = 1e-300  # of a determinant, for its logarithm


def step_sizes(reach: Array, square: Array) -> Array:
    """Return standard deviations of the moves, where reach is that of the likelihood alone.

    square: of the prior's scale, given which theta is drawn; it changes by orders of magnitude from
        sweep to sweep. A product of two normal densities has variance 1 / (1 / reach^2 +
        1 / square); neither depends on theta, so that the walk is symmetric.
    """
    return _STRIDE / np.sqrt(1 / reach**2 + 1 / square)


def adapted(reach: Array, taken: NDArray[np.bool_], sweeps: int) -> Array:
    """Return reach after one more sweep of warmup, by Robbins and Monro (1951).

    sweeps: how many there were, this one among them. Gains sweeps^-0.6 have an infinite sum, and a
    finite one of squares.
    """
    log = np.log(reach) + sweeps**-0.6 * (taken - ACCEPTANCE)
    return np.asarray(np.exp(np.clip(log, -20.0, 20.0)))


def move_entries(
    Y: Array, graph: Array, errors: Array, steps: Array, toll: Array, prior: NoisePrior
) -> tuple[NDArray[np.bool_], Array]:
    """Propose to move every entry once, row by row; return which were moved, and S (chains, p).

    Y: (p, n) or (chains, p, n); graph: (chains, p, p) and errors: (chains, p, n) are changed
    steps: the moves proposed, (chains, p (p - 1)); toll: log of a uniform, plus what the move loses
        in the prior: the gain in likelihood has to be larger
    """
    chains, p, n = errors.shape
    power, taken = prior.shape + n, np.zeros((p * (p - 1), chains), dtype=bool)
    sums, unit = np.empty((chains, p)), np.eye(p)
    steps, toll = np.ascontiguousarray(steps.T), np.ascontiguousarray(toll.T)
    i = 0
    for j in range(p):
        inverse = np.linalg.inv(unit - np.array([graph, np.abs(graph)]))
        g, N = np.ascontiguousarray(np.swapaxes(inverse[..., j], 1, 2))
        # Without rho(X) < 1 the first test is not passed in this row.
        slack = np.where(np.all(inverse[1] >= 0, axis=(1, 2)), 1.0, -np.inf)
        volume, error = np.ones(chains), errors[:, j]
        size = prior.scale + np.abs(error).sum(axis=-1)
        for h in range(p):
            if h == j:
                continue
            step, was = steps[i], graph[:, j, h]
            now = was + step
            moved = error - step[:, None] * Y[..., h, :]
            larger = prior.scale + np.abs(moved).sum(axis=-1)
            shrunk = volume - step * g[h]
            gain = power * np.log(size / larger)
            if n > 1:
                gain += (n - 1) * np.log(np.maximum(shrunk, _MIN_DETERMINANT) / volume)
            accept = gain > toll[i]
            left = slack - (np.abs(now) - np.abs(was)) * N[h]
            doubt = accept & (left <= 0)
            if doubt.any():
                changed = graph[doubt]
                changed[:, j, h] = now[doubt]
                accept[doubt] = is_stable(changed)
            taken[i] = accept
            graph[:, j, h] = np.where(accept, now, was)
            error = np.where(accept[:, None], moved, error)
            size, volume = np.where(accept, larger, size), np.where(accept, shrunk, volume)
            slack = np.where(accept, left, slack)
            i += 1
        errors[:, j] = error
        sums[:, j] = size - prior.scale
    return taken.T, sums


def is_stable(graphs: Array) -> NDArray[np.bool_]:
    """Tell of each matrix (..., p, p) whether its spectral radius is below 1: tests 2 and 3."""
    power = graphs
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is not below 1
        for _ in range(4):
            power = power @ power
        small: NDArray[np.bool_] = np.sum(power * power, axis=(-2, -1)) < 1
    if not small.all():
        small[~small] = np.abs(np.linalg.eigvals(graphs[~small])).max(axis=-1) < 1
    return small
