"""The lasso by coordinate descent on a Gram matrix, with exact steps on the support.

Minimises g'Rg / 2 - r'g + penalty |g|_1 over g, shape (p,). Coordinate j's minimiser given the
others is S(g_j + r_j - (Rg)_j, penalty), S soft thresholding (Friedman, Hastie & Tibshirani 2010,
section 2.2, covariance updates; R has unit diagonal). Such sweeps are slow along directions in
which the columns are nearly collinear. A feature-sign search on the support therefore follows each
sweep (Lee, Battle, Raina & Ng 2007, algorithm 1): while no slope changes sign the objective is a
quadratic, minimised by one solve. A slope that would change sign stops at zero and leaves the
support; a later sweep can let it in again. No step of either kind increases the objective.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secagg.errors import UsageError
from secagg.models.numerics.precision import ROUNDING

Vector = NDArray[np.float64]

TOLERANCE = 1e-10  # of the optimality conditions, whose terms are correlations (at most 1)
_MAX_SWEEPS = 10_000


def optimality_violation(R: Vector, r: Vector, penalty: float, g: Vector) -> float:
    """Return the largest violation of the lasso's Karush-Kuhn-Tucker conditions, at least 0.

    With c = r - Rg: c_j = penalty sign(g_j) where g_j != 0, and |c_j| <= penalty where g_j = 0
    (Tibshirani 2013, equations 2 and 3). It is zero exactly at the minimisers.
    """
    residual = r - R @ g
    at_zero = np.maximum(np.abs(residual) - penalty, 0.0)
    return float(np.max(np.where(g != 0, np.abs(residual - penalty * np.sign(g)), at_zero)))


def lasso_descent(R: Vector, r: Vector, path: Vector) -> list[Vector]:
    """Return a minimiser for each penalty of the path, each started from the previous one.

    R: correlation matrix, shape (p, p), positive semidefinite; r: shape (p,)
    path: positive penalties, decreasing, shape (m,); the first starts from zero
    Raises UsageError if the solution at a penalty does not reach TOLERANCE.
    """
    g = np.zeros(len(r))
    solutions = []
    for penalty in path:
        g = _descend(R, r, float(penalty), g)
        solutions.append(g)
    return solutions


def _descend(R: Vector, r: Vector, penalty: float, start: Vector) -> Vector:
    g = start.copy()
    for _ in range(_MAX_SWEEPS):
        residual = r - R @ g  # recomputed in each sweep: rounding errors of updates would add up
        for j in range(len(r)):
            target = residual[j] + g[j]
            slope = np.sign(target) * max(abs(target) - penalty, 0.0)
            if slope != g[j]:
                residual += R[:, j] * (g[j] - slope)
                g[j] = slope
        g = _solve_on_support(R, r, penalty, g)
        if optimality_violation(R, r, penalty, g) <= TOLERANCE:
            return g
    raise UsageError(
        "analysis",
        f"the lasso did not converge at penalty {penalty:.3g}",
        "Leave out predictors that are nearly collinear, or give a larger penalty.",
    )


def _solve_on_support(R: Vector, r: Vector, penalty: float, g: Vector) -> Vector:
    """Minimise over the nonzero slopes; those that reach zero stay there."""
    g = g.copy()
    while True:
        support = np.flatnonzero(g)
        current, signs = g[support], np.sign(g[support])
        gram = R[np.ix_(support, support)]
        downhill = r[support] - penalty * signs - gram @ current
        # The added rounding of the eigenvalues makes the matrix positive definite, even for
        # collinear columns. So this step decreases the objective, along such columns up to a
        # change of sign.
        lifted = gram + ROUNDING * len(support) * np.eye(len(support))
        target = current + np.linalg.solve(lifted, downhill)
        crossing = np.flatnonzero(np.sign(target) != signs)
        if crossing.size == 0:
            g[support] = target
            return g
        fractions = current[crossing] / (current[crossing] - target[crossing])
        first = int(np.argmin(fractions))
        g[support] = current + fractions[first] * (target - current)
        g[support[crossing[first]]] = 0.0  # exactly: the sum above leaves rounding
