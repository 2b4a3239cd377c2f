"""Metropolis steps over the entries of a graph, (5) of `secagg.models.sparse_bayes.laplace_graph`.

With b_kj integrated out of (3) there, and A = I - Theta, S_j = SUM_i |e_ij|, the entry theta_jh has

    log density = (n - 1) log|det A| - (a_s + n) log(b_s + S_j) + log of its Cauchy prior

where the spectral radius rho(Theta) < 1. (For normal errors S_j is half the sum of squares, and
(n - 1) / 2 takes the place of n in the second term: `secagg.models.sparse_bayes.normal_graph`.) A
move of theta_jh by d changes e_j by -d Y_h and no other errors. Moves in row j leave its cofactors
unchanged: with g the column j of A^-1 at the row's start, det A / (det A then) = 1 - SUM_h d_h g_h
over the row's moves so far, one product per move. A^-1 is recomputed for every row, so that
rounding errors do not add up.

Four tests check rho < 1, and only for moves that would otherwise be accepted.

1. rho(Theta) <= rho(|Theta|). Let X = |Theta|, X_0 the same with row j zero, and rho(X) < 1 at the
   row's start, which for X >= 0 is equivalent to (I - X)^-1 >= 0 (Berman and Plemmons, Nonnegative
   Matrices in the Mathematical Sciences, chapter 6). For a new row j, let X_s go from X_0 to X' as
   s goes from 0 to 1. rho(X_s) starts below 1, never falls, and is an eigenvalue (Perron and
   Frobenius): where it reaches 1, det(I - X_s) is 0. That determinant is linear in s and starts
   above 0. So rho(X') < 1 if and only if det(I - X') > 0, which is
   1 - SUM_h (change of |theta_jh|) N_h > 0 for N the column j of (I - X)^-1.
2. rho(Theta)^16 = rho(Theta^16) <= |Theta^16|, the Frobenius norm, by four products.
3. The same for powers up to 256, with |trace Theta^k| <= p rho(Theta)^k for the other side.
4. Otherwise the eigenvalues decide. Tests 2 to 4 are for graphs whose positive and negative cycles
   cancel, including many with small entries.

If rho(Theta) < 1, det(I - s Theta) > 0 for all s in [0, 1]: |det A| is det A, and a move to
det A <= 0 never passes the test.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.core.arrays import Array
from secagg.models.sparse_bayes.horseshoe import NoisePrior

ACCEPTANCE = 0.4
"""Target acceptance rate (for a normal density in one dimension 0.44 is best, by little)."""

_STRIDE = 2 / math.tan(math.pi * ACCEPTANCE / 2)
"""A random walk over a normal density with steps of this many standard deviations has that rate:
(2 / pi) arctan(2 / stride) (Gelman, Roberts and Gilks 1996)."""

_SQUARINGS = 4  # of a graph, for each of tests 2 and 3
_MIN_DETERMINANT = 1e-300  # of a determinant, for its logarithm


@dataclass(frozen=True)
class ErrorLaw:
    """The distribution of a site's errors: their log density is -SUM_i |e_ij / b_j|^r / r.

    degree: r. 1: Laplace errors of scale b_j; 2: normal errors of variance b_j^2. b_j^r has the
        inverse gamma prior
    records: n. With normal errors the records are replaced by columns with the same sums of squares
        and products about the means, and the constants are integrated out
    heat: the power beta of each chain, (chains,), in (0, 1]; None: 1
        (`secagg.models.sparse_bayes.joint.tempering`)
    full: which columns have the power 1 in all chains, (p,): those that the site lacks
        (`secagg.models.sparse_bayes.latent.lacking`); None: none
    """

    degree: int
    records: int
    heat: Array | None = None
    full: NDArray[np.bool_] | None = None

    def size(self, errors: Array) -> Array:
        """Return S of errors (..., columns)."""
        if self.degree == 1:
            return np.asarray(np.abs(errors).sum(axis=-1))
        return np.asarray((errors * errors).sum(axis=-1) / 2)

    @property
    def powers(self) -> Array:
        """beta, of shape (chains,) or (1,)."""
        return np.ones(1) if self.heat is None else self.heat

    @property
    def row_powers(self) -> Array:
        """The power of each column's errors, of shape (chains, 1) or, with `full`, (chains, p)."""
        powers = self.powers[:, None]
        return powers if self.full is None else np.where(self.full, 1.0, powers)

    @property
    def contrasts(self) -> int:
        """nu, the power of |det A|: the constants mu_k take one from n."""
        return max(self.records - 1, 0)

    def shape(self, prior: NoisePrior) -> Array:
        """Return the shape of b^r's inverse gamma law given its errors, as `row_powers`."""
        own = self.row_powers * (prior.shape + self.contrasts / self.degree)
        return own + (self.degree == 1 and self.records > 0)  # of m, whose density b has


def step_sizes(reach: Array, square: Array) -> Array:
    """Return standard deviations of the moves; reach is that of the likelihood alone.

    square: squared scale of the prior, given which theta is drawn; it changes by orders of
        magnitude from sweep to sweep. A product of two normal densities has variance 1 / (1 /
        reach^2 + 1 / square). Neither depends on theta, so the walk is symmetric.
    """
    return _STRIDE / np.sqrt(1 / reach**2 + 1 / square)


def adapted(reach: Array, accepted: NDArray[np.bool_], sweeps: int) -> Array:
    """Return reach after one more sweep of warmup, by Robbins and Monro (1951).

    sweeps: number of sweeps so far, including this one. The gains sweeps^-0.6 have an infinite sum
    and a finite sum of squares.
    """
    log = np.log(reach) + sweeps**-0.6 * (accepted - ACCEPTANCE)
    return np.asarray(np.exp(np.clip(log, -20.0, 20.0)))


def move_entries(
    Y: Array,
    graph: Array,
    errors: Array,
    steps: Array,
    threshold: Array,
    prior: NoisePrior,
    law: ErrorLaw,
    allowed: NDArray[np.bool_],
) -> tuple[NDArray[np.bool_], Array]:
    """Propose to move every entry once, row by row; return which moved, and S (chains, p).

    Y: (p, n) or (chains, p, n); graph: (chains, p, p) and errors: (chains, p, n), changed in place
    steps: the proposed moves, (chains, entries)
    allowed: which entries there are, (p, p)
    threshold: log of a uniform plus the move's loss in the prior; the gain in likelihood must
        exceed it
    """
    chains, p, _ = errors.shape
    power = np.broadcast_to(law.shape(prior), (chains, p))
    accepted = np.zeros(steps.shape[::-1], dtype=bool)
    determinants = law.powers * law.contrasts
    sums, unit = np.empty((chains, p)), np.eye(p)
    steps, threshold = np.ascontiguousarray(steps.T), np.ascontiguousarray(threshold.T)
    i = 0
    for j in range(p):
        inverse = np.linalg.inv(unit - np.array([graph, np.abs(graph)]))
        g, N = np.ascontiguousarray(np.swapaxes(inverse[..., j], 1, 2))
        # Without rho(X) < 1 the first test always fails in this row.
        slack = np.where(np.all(inverse[1] >= 0, axis=(1, 2)), 1.0, -np.inf)
        volume, error = np.ones(chains), errors[:, j]
        size = prior.scale + law.size(error)
        for h in np.flatnonzero(allowed[j]).tolist():
            step, old = steps[i], graph[:, j, h]
            new = old + step
            moved = error - step[:, None] * Y[..., h, :]
            larger = prior.scale + law.size(moved)
            shrunk = volume - step * g[h]
            gain = power[:, j] * np.log(size / larger)
            if law.contrasts:
                gain += determinants * np.log(np.maximum(shrunk, _MIN_DETERMINANT) / volume)
            accept = gain > threshold[i]
            new_slack = slack - (np.abs(new) - np.abs(old)) * N[h]
            doubt = accept & (new_slack <= 0)
            if doubt.any():
                changed = graph[doubt]
                changed[:, j, h] = new[doubt]
                accept[doubt] = is_stable(changed)
            accepted[i] = accept
            graph[:, j, h] = np.where(accept, new, old)
            error = np.where(accept[:, None], moved, error)
            size, volume = np.where(accept, larger, size), np.where(accept, shrunk, volume)
            slack = np.where(accept, new_slack, slack)
            i += 1
        errors[:, j] = error
        sums[:, j] = size - prior.scale
    return accepted.T, sums


def is_stable(graphs: Array) -> NDArray[np.bool_]:
    """Return for each matrix (..., p, p) whether its spectral radius is below 1: tests 2 to 4."""
    power = graphs
    with np.errstate(over="ignore", invalid="ignore"):  # values that are not finite decide nothing
        for _ in range(_SQUARINGS):
            power = power @ power
        small: NDArray[np.bool_] = np.sum(power * power, axis=(-2, -1)) < 1
        if small.all():
            return small
        unsure, power = np.argwhere(~small), power[~small]
        for _ in range(_SQUARINGS):
            power = power @ power
            below = np.sum(power * power, axis=(-2, -1)) < 1
            small[*unsure[below].T] = True
            trace = np.abs(np.trace(power, axis1=-2, axis2=-1))
            left = ~(below | ((trace > power.shape[-1]) & np.isfinite(trace)))
            unsure, power = unsure[left], power[left]
    if len(unsure):
        at = tuple(unsure.T)
        small[at] = np.abs(np.linalg.eigvals(graphs[at])).max(axis=-1) < 1
    return small
