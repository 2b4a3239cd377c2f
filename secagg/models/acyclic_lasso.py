"""Least squares on a covariance, with an l1 penalty and the acyclicity function's multipliers.

The problems inside NOTEARS (`secagg.models.notears`), for `secagg.models.proximal_newton`:
f(W) = 1/2 tr((I - W)' S (I - W)). For a fixed multiplier mu of the linearised h, every column of V
is a lasso by itself, with ridge weights 2 mu E_ij: solved by coordinate descent (Friedman, Hastie
and Tibshirani, J. Stat. Softw. 33, 2010), the same coordinate of all columns at once. The root of
mu = alpha + rho max(0, linearised h) lies between any mu and its right side, which falls with mu,
and is found by bisection of the exponent, each lasso starting from the one before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.models.linear_graph import LinearGraph
from secagg.models.proximal_newton import Multipliers, Step, descend

Matrix = NDArray[np.float64]

STEPS = 10  # in one call; 30 double the time, and neither objectives nor graphs are better
SETTLED = 1e-5  # largest change of an entry, at which the steps end
_SWEEPS = 4  # over all coordinates for one mu: a step needs a direction of descent, not a minimum
_BISECTIONS = 12
_CLOSE = 1.05  # ratio of the bounds on mu that is near enough


@dataclass(frozen=True)
class LeastSquares:
    """The `Fit`; S: (p, p) covariance; penalty: of every entry off the diagonal."""

    S: Matrix
    penalty: float

    def value(self, W: Matrix) -> tuple[float, Matrix]:
        """Return 1/2 tr((I - W)' S (I - W)) and its gradient -S (I - W)."""
        residual = np.eye(len(self.S)) - W
        product = self.S @ residual
        return 0.5 * float(np.vdot(residual, product)), -product

    def solve(self, W: Matrix, E: Matrix, rest: float, multipliers: Multipliers) -> Matrix:
        """Return V near the minimum of the convex problem; see `Fit`."""
        V, explained = W.copy(), self.S @ W

        def right_side(mu: float) -> float:
            """Descend for this mu; return alpha + rho max(0, linearised h)."""
            self._descend(V, explained, 2 * mu * E)
            linearised = rest + float(np.vdot(E, V * V))
            return multipliers.alpha + multipliers.rho * max(linearised, 0)

        # h(W) = rest + <E, W o W>
        mu = multipliers.alpha + multipliers.rho * max(rest + float(np.vdot(E, W * W)), 0)
        low, high = sorted((mu, right_side(mu)))
        for _ in range(_BISECTIONS):
            if high <= _CLOSE * low or high == 0:
                break
            mu = math.sqrt(low) * math.sqrt(high) if low > 0 else high / 10
            right = right_side(mu)
            if right > mu:
                low, high = mu, min(high, right)
            else:
                low, high = max(low, right), mu
        return V

    def _descend(self, V: Matrix, explained: Matrix, ridge: Matrix) -> None:
        """Descend on 1/2 tr(V'SV) - tr(SV) + penalty |V|_1 + 1/2 <ridge, V o V>, diagonal 0.

        V: changed in place; explained: S V, kept up to date
        """
        S, variances = self.S, np.diagonal(self.S)
        for _ in range(_SWEEPS):
            largest = 0.0
            for i, variance in enumerate(variances):
                slopes = S[i] - explained[i] + variance * V[i]
                curvature = variance + ridge[i]
                shrunk = np.maximum(np.abs(slopes) - self.penalty, 0)
                # A variable without variance has slopes of zero: so does its quotient.
                row = np.copysign(shrunk, slopes) / np.maximum(curvature, np.finfo(float).tiny)
                row[i] = 0
                change = row - V[i]
                moved = float(np.max(np.abs(change)))
                if moved > 0:
                    V[i] = row
                    explained += S[:, i, None] * change
                    largest = max(largest, moved)
            if largest <= SETTLED / 3:
                break


def acyclic_lasso(S: Matrix, start: Matrix, penalty: float, multipliers: Multipliers) -> Step:
    """Minimise f(W) + penalty |W|_1 + alpha h(W) + rho/2 h(W)^2 with W_ii = 0, from `start`."""
    graph = LinearGraph(len(S), penalties=(penalty, 0.0), zero_diagonal=True)
    fit = LeastSquares(S, penalty)
    return descend(graph, fit, start, multipliers, steps=STEPS, settled=SETTLED)
