"""Means, standard deviations and correlations from noisy moments, each with the noise's error.

With n records, sums s_j of the scaled variables and sums of products q_jk, all released with
independent normal noise of known variance (`secagg.models.common.noisy_moments`),

    mean_j = s_j / n,                                                                       (1)
    A_jk = q_jk - (s_j s_k - [j = k] var s_j) / n,                                          (2)
    sd_j = root(A_jj / (n - 1)),      r_jk = A_jk / root(A_jj A_kk).                        (3)

In (2), var s_j removes the bias that squaring the noise of s_j brings. The error of each number is
the standard deviation of its noise to first order (the delta method): the released numbers are
independent, so the variance is the sum of squared derivatives times variances, with

    d mean_j / d s_j = 1 / n,               d mean_j / d n = -mean_j / n,
    d A_jk / d q_jk = 1,                    d A_jk / d n = mean_j mean_k,
    d A_jk / d s_j = -mean_k (j != k),      d A_jj / d s_j = -2 mean_j.

The repaired moments are not used here. The repair raises small eigenvalues of the whole matrix. A
column whose values fill a small part of its bounds, such as days in hospital within 0 to 365, is
almost a multiple of the constant. That is a small eigenvalue, and raising it moves the column's
mean and inflates its standard deviation by many times the noise.

A standard deviation is given if A_jj is larger than three times its own error; otherwise the noise
hides it, and a note says how large it may be. Correlations are given between columns with a
standard deviation. They are computed pair by pair, so together they need not be those of a possible
table.

The errors describe the noise only. They contain neither the sampling of records nor the bias from
clipping records to `privacy.record_norm`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.errors import UsageError
from secagg.models.common.noisy_moments import NoisyMoments
from secagg.models.moments.ols import ColumnSummary, Description

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

DETECTED = 3.0
"""A spread is given if the sum of squares is larger than this many of its own errors. A constant
column then gets one in about 1 of 700 releases."""
_LIMIT = 2.0
"""Errors of the noise above the released value, for the upper limit of a hidden spread."""
_NOTE = (
    "Each ± is the standard deviation of the noise alone. The numbers are those of the clipped "
    "records."
)


@dataclass(frozen=True, kw_only=True)
class NoisyColumnSummary(ColumnSummary):
    """One column.

    mean_error, sd_error: standard deviation of the noise in `mean` and `sd`; None beside None
    """

    mean_error: float | None
    sd_error: float | None


@dataclass(frozen=True, kw_only=True)
class NoisyDescription(Description):
    """The columns and their correlations.

    correlation_error: standard deviation of the noise in each correlation; None beside None
    """

    columns: tuple[NoisyColumnSummary, ...]
    correlation_error: tuple[tuple[float | None, ...], ...]
    notes: tuple[str, ...]


def describe_noisy(noisy: NoisyMoments) -> NoisyDescription:
    """Return means, standard deviations and correlations, each with the error of the noise.

    Raises `UsageError` if the noise hides the number of records.
    """
    n, error = noisy.records, noisy.records_error
    if n < 2 or n < error:
        what = f"the noisy number of records is {n} (standard deviation {error:.2g})"
        raise UsageError("analysis", what, "Use more records or less noise.")
    mean, var_s, var_n = noisy.matrix[0, 1:] / n, noisy.variance[0, 1:], noisy.variance[0, 0]
    mean_error = np.sqrt(var_s + mean**2 * var_n) / n  # (1)
    squares = np.diag(noisy.matrix)[1:] - n * mean**2 + var_s / n  # A_jj of (2)
    var_q = np.diag(noisy.variance)[1:]
    squares_error = np.sqrt(var_q + 4 * mean**2 * var_s + mean**4 * var_n)
    given = squares > DETECTED * squares_error
    spread = np.where(given, squares, np.nan)
    sd = noisy.half_range * np.sqrt(spread / (n - 1))  # (3)
    sd_error = sd * squares_error / (2 * spread)
    most = np.maximum(squares, 0.0) + _LIMIT * squares_error
    limit = noisy.half_range * np.sqrt(most / (n - 1))
    own, errors = (
        noisy.midpoint + noisy.half_range * np.clip(mean, -1, 1),
        noisy.half_range * mean_error,
    )
    correlation, correlation_error = _correlations(noisy, n, mean, spread)
    return NoisyDescription(
        n=n,
        columns=tuple(
            NoisyColumnSummary(
                column=name,
                mean=None if noisy.within is not None else float(own[j]),
                sd=float(sd[j]) if given[j] else None,
                mean_error=None if noisy.within is not None else float(errors[j]),
                sd_error=float(sd_error[j]) if given[j] else None,
            )
            for j, name in enumerate(noisy.names)
        ),
        correlation=_rows(correlation),
        correlation_error=_rows(correlation_error),
        notes=(_NOTE, *_hidden(noisy.names, given, limit)),
    )


def _hidden(names: Sequence[str], given: NDArray[np.bool_], limit: Vector) -> list[str]:
    """Return a note with the upper limits of the spreads that the noise hides, if it hides any."""
    limits = [f"{name} {limit[j]:.3g}" for j, name in enumerate(names) if not given[j]]
    if not limits:
        return []
    return [
        "The noise hides some standard deviations and their correlations. Upper limits, the "
        f"released value plus {_LIMIT:g} standard deviations of its noise: {', '.join(limits)}."
    ]


def _correlations(
    noisy: NoisyMoments, n: int, mean: Vector, spread: Vector
) -> tuple[Matrix, Matrix]:
    """Return the correlations of (3) and their errors; NaN where a spread is NaN.

    spread: A_jj of (2), shape (p,), NaN where the noise hides it
    """
    scale = np.sqrt(np.outer(spread, spread))
    r = np.clip((noisy.matrix[1:, 1:] - n * np.outer(mean, mean)) / scale, -1, 1)
    np.fill_diagonal(r, np.where(np.isnan(spread), np.nan, 1.0))
    var_s, var_q = noisy.variance[0, 1:], np.diag(noisy.variance)[1:]
    relative = mean / spread
    by_s = r * relative[:, None] - mean[None, :] / scale  # d r_jk / d s_j
    by_n = np.outer(mean, mean) / scale - r * ((mean * relative)[:, None] + mean * relative) / 2
    of_column = by_s**2 * var_s[:, None] + (r / (2 * spread[:, None])) ** 2 * var_q[:, None]
    variance = noisy.variance[1:, 1:] / scale**2 + of_column + of_column.T
    variance += by_n**2 * noisy.variance[0, 0]
    np.fill_diagonal(variance, np.where(np.isnan(spread), np.nan, 0.0))
    return r, np.sqrt(variance)


def _rows(matrix: Matrix) -> tuple[tuple[float | None, ...], ...]:
    return tuple(tuple(None if np.isnan(x) else float(x) for x in row) for row in matrix)
