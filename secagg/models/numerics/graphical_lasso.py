"""The graphical lasso, and the maximum-likelihood precision matrix of a graph.

    minimise  tr(R Theta) - log det Theta + sum_{i != j} P_ij |Theta_ij|    (G)

over positive definite Theta with the entries that are not free at zero (Friedman, Hastie and
Tibshirani, Biostatistics 9, 2008, equation 2.1; the diagonal is not penalised). R: a correlation
matrix; P: symmetric, at least 0. With P = 0 the minimiser is the maximum-likelihood estimate of the
Gaussian graphical model whose edges are the free entries (Dempster, Biometrics 28, 1972).

W = Theta^-1 is optimal exactly if (Witten, Friedman and Simon, JCGS 20, 2011, equation 6), over the
free entries i != j,

    W_ij - R_ij = P_ij sign(Theta_ij)   if Theta_ij != 0,
    |W_ij - R_ij| <= P_ij               if Theta_ij  = 0,    and W_ii = R_ii.    (K)

The search is that of `secagg.models.numerics.lasso`, with Newton steps. (Friedman et al. descend on
one column of W at a time, whose slopes need not be zero at the same places as those of other
columns. Here Theta is symmetric and its zeros are exact.) While no sign changes, (G) is smooth and
convex in the nonzero entries, with Hessian entries from products of W (Hsieh, Sustik, Dhillon and
Ravikumar, JMLR 15, 2014, section 3.1). Zeros that violate (K) enter, with the sign that decreases
(G). Each step is along Newton's direction; it ends at the first change of sign, where that entry
leaves, unless the step beyond with all such entries at zero decreases (G). No step increases (G).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secagg.errors import UsageError
from secagg.models.numerics.precision import ROUNDING

Matrix = NDArray[np.float64]
Mask = NDArray[np.bool_]

TOLERANCE = 1e-8
"""Of (K), whose terms are correlations (at most 1). W has relative rounding errors of about 1e-16
times its condition number; at 1e6 or less, 1e-10, this leaves room."""

_MAX_STEPS = 500
_MAX_HALVINGS = 40
_SUFFICIENT = 1e-4  # share of the decrease along the tangent that a step must achieve (Armijo)


def graphical_lasso(
    R: Matrix, penalty: Matrix, *, free: Mask | None = None, start: Matrix | None = None
) -> Matrix:
    """Return the minimiser of (G), shape (p, p): positive definite, exactly symmetric.

    R: correlation matrix, shape (p, p), positive semidefinite
    penalty: P, shape (p, p); its diagonal is ignored
    free: symmetric, the entries that may differ from zero; None for all. The diagonal is free.
    start: positive definite, zero where not free; None starts from the identity
    Raises UsageError if (K) is not met to `TOLERANCE`: without a penalty, no minimum may exist.
    """
    p = len(R)
    may = np.ones((p, p), dtype=np.bool_) if free is None else free | np.eye(p, dtype=np.bool_)
    P = np.where(np.eye(p, dtype=np.bool_), 0.0, penalty)
    Theta = np.eye(p) if start is None else start.copy()
    value = _objective(R, P, Theta)
    for _ in range(_MAX_STEPS):
        W = np.asarray(np.linalg.inv(Theta), dtype=np.float64)
        wrong = _violations(R, W, P, may, Theta)
        if float(np.max(wrong)) <= TOLERANCE:
            if np.linalg.eigvalsh(Theta)[-1] * p * TOLERANCE >= 1:
                break  # W is singular to the tolerance: there may be no minimum
            return Theta
        active = np.triu((Theta != 0) | (wrong > TOLERANCE))
        sign = np.where(Theta != 0, np.sign(Theta), np.sign(W - R))
        rows, columns, direction, slope = _newton(R, W, P, sign, Theta, active)
        moved = _step(R, P, Theta, value, rows, columns, direction, slope)
        if moved is None:
            break
        Theta, value = moved
    raise UsageError(
        "analysis",
        "the graphical lasso did not converge",
        "Leave out variables that the others determine, or give a larger penalty.",
    )


def _violations(R: Matrix, W: Matrix, P: Matrix, free: Mask, Theta: Matrix) -> Matrix:
    off = W - R
    at_zero = np.maximum(np.abs(off) - P, 0.0)
    return np.where(free, np.where(Theta != 0, np.abs(off - P * np.sign(Theta)), at_zero), 0.0)


def _objective(R: Matrix, P: Matrix, Theta: Matrix) -> float:
    """Return (G); infinite if Theta is not positive definite."""
    try:
        root = np.linalg.cholesky(Theta)
    except np.linalg.LinAlgError:
        return np.inf
    log_det = 2 * float(np.sum(np.log(np.diagonal(root))))
    return float(np.sum(R * Theta) + np.sum(P * np.abs(Theta))) - log_det


def _newton(
    R: Matrix, W: Matrix, P: Matrix, sign: Matrix, Theta: Matrix, active: Mask
) -> tuple[NDArray[np.intp], NDArray[np.intp], Matrix, float]:
    """Return the entries that move, Newton's direction in them, and the slope of (G) along it.

    An entering entry does not move if its direction has the other sign than the one it would get.
    The direction of the others is then computed again.
    """
    rows, columns = np.nonzero(active)
    while True:
        twice = np.where(rows == columns, 1.0, 2.0)
        gradient = twice * (R - W + P * sign)[rows, columns]
        hessian = log_det_hessian(W, rows, columns)
        direction = np.asarray(-np.linalg.solve(hessian, gradient), dtype=np.float64)
        penalised = P[rows, columns] > 0
        against = direction * sign[rows, columns] < 0
        refused = penalised & (Theta[rows, columns] == 0) & against
        if not refused.any():
            return rows, columns, direction, float(gradient @ direction)
        rows, columns = rows[~refused], columns[~refused]


def log_det_hessian(W: Matrix, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Matrix:
    """Return the second derivatives of -log det Theta in the entries Theta_ij = Theta_ji.

    W: Theta^-1; rows, columns: of the entries, each pair once
    """
    twice = np.where(rows == columns, 1.0, 2.0)
    hessian = W[np.ix_(rows, rows)] * W[np.ix_(columns, columns)]
    hessian += W[np.ix_(rows, columns)] * W[np.ix_(columns, rows)]
    hessian *= 0.5 * twice[:, None] * twice
    return hessian


def _step(
    R: Matrix,
    P: Matrix,
    Theta: Matrix,
    value: float,
    rows: NDArray[np.intp],
    columns: NDArray[np.intp],
    direction: Matrix,
    slope: float,
) -> tuple[Matrix, float] | None:
    """Return Theta and (G) after the longest step that is accepted; None if none is."""
    current, penalised = Theta[rows, columns], P[rows, columns] > 0
    opposite = penalised & (current != 0) & (current * direction < 0)
    shares = np.full(len(rows), np.inf)
    shares[opposite] = -current[opposite] / direction[opposite]
    first = min(1.0, float(shares.min(initial=np.inf)))
    slack = ROUNDING * (abs(value) + len(R))
    for length in (1.0, *(first * 0.5**halving for halving in range(_MAX_HALVINGS))):
        target = np.where(shares <= length, 0.0, current + length * direction)
        after = Theta.copy()
        after[rows, columns] = after[columns, rows] = target
        reached = _objective(R, P, after)
        if reached <= value + _SUFFICIENT * length * slope + slack:
            return after, reached
    return None
