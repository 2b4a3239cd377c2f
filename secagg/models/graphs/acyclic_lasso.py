"""Least squares on a covariance, with an l1 penalty and the acyclicity function's multipliers.

NOTEARS (`secagg.models.graphs.notears`) solves these problems with
`secagg.models.graphs.proximal_newton`: f(W) = 1/2 tr((I - W)' S (I - W)). For a fixed multiplier mu
of the linearised h, each column of V is a separate lasso with ridge weights 2 mu E_ij.
`secagg.models.numerics.column_lassos` solves them all, as accurately as a proximal Newton step
needs, also for strongly correlated variables. The required mu is the solution of
mu = alpha + rho max(0, linearised h). The right side decreases as mu grows, so the solution lies
between any mu and the right side at that mu. It is found by bisection of the exponent. Each lasso
starts from the solution of the previous one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from secagg.core.arrays import Array
from secagg.models.graphs.proximal_newton import LinearGraph, Multipliers, Step, descend
from secagg.models.numerics.column_lassos import ColumnLassos

MAX_STEPS = 10  # in one call
STEP_TOLERANCE = 1e-5  # the steps end when no entry changes by more than this
_BISECTIONS = 12
_MU_TOLERANCE_RATIO = 1.05  # bisection ends when the bounds on mu are this close


@dataclass(frozen=True)
class LeastSquares:
    """The `Fit`; S: (p, p) covariance; penalty: of off-diagonal entries, one or (p, p).

    An infinite penalty fixes an entry at zero.
    """

    S: Array
    penalty: Array | float

    def value(self, W: Array) -> tuple[float, Array]:
        """Return 1/2 tr((I - W)' S (I - W)) and its gradient -S (I - W)."""
        residual = np.eye(len(self.S)) - W
        product = self.S @ residual
        return 0.5 * float(np.vdot(residual, product)), -product

    def solve(self, W: Array, E: Array, rest: float, multipliers: Multipliers) -> Array:
        """Return V near the minimum of the convex problem; see `Fit`."""
        V = W

        def right_side(mu: float) -> float:
            """Descend for this mu; return alpha + rho max(0, linearised h)."""
            nonlocal V
            V = self._lassos.minimise(V, 2 * mu * E, centre=W)
            linearised = rest + float(np.vdot(E, V * V))
            return multipliers.alpha + multipliers.rho * max(linearised, 0)

        # h(W) = rest + <E, W o W>
        mu = multipliers.alpha + multipliers.rho * max(rest + float(np.vdot(E, W * W)), 0)
        low, high = sorted((mu, right_side(mu)))
        for _ in range(_BISECTIONS):
            if high <= _MU_TOLERANCE_RATIO * low or high == 0:
                break
            mu = math.sqrt(low) * math.sqrt(high) if low > 0 else high / 10
            right = right_side(mu)
            if right > mu:
                low, high = mu, min(high, right)
            else:
                low, high = max(low, right), mu
        return V

    @cached_property
    def _lassos(self) -> ColumnLassos:
        free = ~np.eye(len(self.S), dtype=bool) & np.isfinite(self.penalty)
        return ColumnLassos(self.S, finite_penalty(self.penalty), free)


def finite_penalty(penalty: Array | float) -> Array | float:
    """Return the penalties with 0 for infinite ones, whose entries are left out."""
    return np.where(np.isfinite(penalty), penalty, 0.0) if np.any(np.isinf(penalty)) else penalty


def acyclic_lasso(S: Array, start: Array, penalty: Array | float, multipliers: Multipliers) -> Step:
    """Minimise f(W) + <penalty, |W|> + alpha h(W) + rho/2 h(W)^2 with W_ii = 0, from `start`."""
    graph = LinearGraph(len(S), penalties=(0.0, 0.0), zero_diagonal=True, at_least=penalty)
    fit = LeastSquares(S, penalty)
    return descend(graph, fit, start, multipliers, steps=MAX_STEPS, tolerance=STEP_TOLERANCE)
