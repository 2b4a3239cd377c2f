"""Cholesky factorisation of a correlation-scaled matrix that names the column to blame.

On the correlation scale (unit diagonal) column j's pivot is 1 - R_j^2, the share of its variance
that the columns before it leave unexplained, and 1 / (C^-1)_jj is that share given *all* others
(the reciprocal of the variance inflation factor; Belsley, Kuh & Welsch 1980, section 3.2). Both
are free of units, so one tolerance serves every column. Cholesky's rounding is componentwise small
without pivoting (Higham 2002, section 10.1), so the columns keep the user's order, and of a
collinear group the last one is blamed, as when the last dummy of a full set is one too many.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from secagg.errors import UsageError

# Entries carry relative errors of about the machine epsilon; solving multiplies them by up to
# 1 / (unexplained share). A share above the root of epsilon leaves at least half the digits.
TOLERANCE = float(np.sqrt(np.finfo(np.float64).eps))
_NAMED = 5  # partners listed in a message; a full set of dummies can be long


def factor(
    correlation: NDArray[np.float64], names: Sequence[str], tolerance: float = TOLERANCE
) -> NDArray[np.float64]:
    """Return the lower Cholesky factor L, LL' = correlation, shape (p, p).

    correlation: symmetric with unit diagonal, shape (p, p); names: its p columns
    tolerance: least unexplained share of a column's variance, in (0, 1); more than the default
    where the matrix carries more than float rounding (fixed-point sums).
    Raises UsageError, naming the culprit and what it depends on, where the matrix is singular to
    that tolerance or not positive definite.
    """
    p = len(names)
    lower = np.zeros((p, p))
    for j in range(p):
        row = solve_triangular(lower[:j, :j], correlation[:j, j], lower=True)
        pivot = 1.0 - row @ row
        if pivot < tolerance:
            weights = solve_triangular(lower[:j, :j], row, lower=True, trans=1)
            _refuse(names[j], names[:j], weights, indefinite=bool(pivot < -tolerance))
        lower[j, :j] = row
        lower[j, j] = np.sqrt(pivot)
    inverse_root = solve_triangular(lower, np.eye(p), lower=True)
    inverse = inverse_root.T @ inverse_root
    inflated = np.flatnonzero(np.diagonal(inverse) > 1 / tolerance)
    if inflated.size:  # small pivots, none below the tolerance, whose product is
        j = int(inflated[-1])
        weights = np.delete(-inverse[j] / inverse[j, j], j)
        _refuse(names[j], [*names[:j], *names[j + 1 :]], weights, indefinite=False)
    return lower


def positive_semidefinite(
    correlation: NDArray[np.float64], tolerance: float = TOLERANCE
) -> NDArray[np.float64]:
    """Return the correlation matrix, shape (p, p), with rounding's negative eigenvalues lifted.

    Collinear columns leave eigenvalues of zero, which rounding (of floats, or of fixed-point
    sums) may move below. By adding the same to every eigenvalue and rescaling to unit diagonal
    the matrix changes by at most twice the largest negative, and not at all without one.
    Raises UsageError where that exceeds the tolerance: the moments are then those of no table.
    """
    lift = max(0.0, -float(np.linalg.eigvalsh(correlation)[0]))
    if lift > tolerance:
        raise _indefinite("the pooled moments are those of no table")
    return (correlation + lift * np.eye(len(correlation))) / (1 + lift)


def _refuse(
    culprit: str, others: Sequence[str], weights: NDArray[np.float64], *, indefinite: bool
) -> None:
    if indefinite:
        raise _indefinite(f"column {culprit!r} has negative variance given the others")
    # a column outside the dependence has weight zero up to rounding, times the conditioning
    share = np.abs(weights) / np.max(np.abs(weights))
    partners = [name for name, part in zip(others, share, strict=True) if part > 1e-3]
    more = f" and {len(partners) - _NAMED} more" if len(partners) > _NAMED else ""
    raise UsageError(
        "analysis",
        f"column {culprit!r} is, up to a constant, a linear combination of "
        f"{', '.join(repr(name) for name in partners[:_NAMED])}{more}",
        "Leave one of them out (of a full set of dummies, the reference level).",
    )


def _indefinite(what: str) -> UsageError:
    return UsageError(
        "analysis", what, "Noise or rounding exceeds the signal; use fewer columns or less noise."
    )
