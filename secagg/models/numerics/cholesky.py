"""Cholesky factorisation of a correlation matrix that names the column at fault.

On the correlation scale (unit diagonal) column j's pivot is 1 - R_j^2: the share of its variance
that the columns before it leave unexplained. 1 / (C^-1)_jj is that share given *all* others (the
reciprocal of the variance inflation factor; Belsley, Kuh & Welsch 1980, section 3.2). Both have no
units, so one tolerance serves every column. The rounding errors of Cholesky are componentwise small
without pivoting (Higham 2002, section 10.1). The columns therefore keep the user's order, and of a
collinear group the error names the last one, such as the last dummy of a full set.
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
_MAX_NAMED = 5  # columns listed in a message; a full set of dummies can be long


def factor(
    correlation: NDArray[np.float64], names: Sequence[str], tolerance: float = TOLERANCE
) -> NDArray[np.float64]:
    """Return the lower Cholesky factor L, LL' = correlation, shape (p, p).

    correlation: symmetric with unit diagonal, shape (p, p); names: its p columns
    tolerance: smallest unexplained share of a column's variance, in (0, 1); larger than the default
        if the matrix has more than float rounding errors (fixed-point sums)
    Raises UsageError if the matrix is singular to that tolerance or not positive definite. It names
    the column and those it depends on.
    """
    p = len(names)
    lower = np.zeros((p, p))
    for j in range(p):
        row = solve_triangular(lower[:j, :j], correlation[:j, j], lower=True)
        pivot = 1.0 - row @ row
        if pivot < tolerance:
            weights = solve_triangular(lower[:j, :j], row, lower=True, trans=1)
            _raise_collinear(names[j], names[:j], weights, indefinite=bool(pivot < -tolerance))
        lower[j, :j] = row
        lower[j, j] = np.sqrt(pivot)
    inverse_root = solve_triangular(lower, np.eye(p), lower=True)
    inverse = inverse_root.T @ inverse_root
    inflated = np.flatnonzero(np.diagonal(inverse) > 1 / tolerance)
    if inflated.size:  # no pivot is below the tolerance, but their product is
        j = int(inflated[-1])
        weights = np.delete(-inverse[j] / inverse[j, j], j)
        _raise_collinear(names[j], [*names[:j], *names[j + 1 :]], weights, indefinite=False)
    return lower


def positive_semidefinite(
    correlation: NDArray[np.float64], tolerance: float = TOLERANCE
) -> NDArray[np.float64]:
    """Return the correlation matrix, shape (p, p), without the negative eigenvalues of rounding.

    Collinear columns have eigenvalues of zero, which rounding (of floats, or of fixed-point sums)
    may make negative. The function adds the same number to every eigenvalue and rescales to unit
    diagonal. It changes the matrix by at most twice the size of the most negative eigenvalue, and
    not at all if there is none.
    Raises UsageError if that size exceeds the tolerance: no table has such moments.
    """
    lift = max(0.0, -float(np.linalg.eigvalsh(correlation)[0]))
    if lift > tolerance:
        raise _indefinite("no table has these pooled moments")
    return (correlation + lift * np.eye(len(correlation))) / (1 + lift)


def _raise_collinear(
    column: str, others: Sequence[str], weights: NDArray[np.float64], *, indefinite: bool
) -> None:
    if indefinite:
        raise _indefinite(f"column {column!r} has negative variance given the others")
    # a column outside the dependence has weight zero up to rounding, times the conditioning
    share = np.abs(weights) / np.max(np.abs(weights))
    related = [name for name, part in zip(others, share, strict=True) if part > 1e-3]
    rest = f" and {len(related) - _MAX_NAMED} more" if len(related) > _MAX_NAMED else ""
    raise UsageError(
        "analysis",
        f"column {column!r} is, up to a constant, a linear combination of "
        f"{', '.join(repr(name) for name in related[:_MAX_NAMED])}{rest}",
        "Leave one of them out (of a full set of dummies, the reference level).",
    )


def _indefinite(what: str) -> UsageError:
    return UsageError(
        "analysis", what, "Noise or rounding exceeds the signal; use fewer columns or less noise."
    )
