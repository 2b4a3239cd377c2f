"""The pooled moments, the only statistics of the data that a linear-Gaussian analysis needs.

For p variables and n records, `Moments` holds n, the mean vector and the scatter matrix
S = sum_i (x_i - mean)(x_i - mean)'. Anything computed from it is post-processing: it reveals no
more than the secure sum already released.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.errors import UsageError
from secagg.models.common.noisy_moments import NoisyMoments, positions
from secagg.models.numerics.precision import ROUNDING

MAX_CORRELATION_ERROR = 1e-4  # with a larger rounding error, analyses are refused

_KEEP_DECLARED = (
    "Keep the column as it is declared: after an exact sum, sites refuse other bounds or levels."
)
CONSTANT_COLUMN_ADVICE = (
    "Leave it out of the method's columns. If it does vary, its bounds may be much too wide, or "
    f"values outside them were clipped. {_KEEP_DECLARED}"
)


def constant_column(name: str, within: int | None = None) -> str:
    """Return the error text for a variable that looks constant; name: a column, or `column=level`.

    within: as in `Moments`

    Sums are rounded to steps proportional to the bounds, so a column that hardly varies within its
    bounds cannot be distinguished from a constant one.
    """
    column, _, level = name.partition("=")
    where = "" if within is None else " of any site"
    if level:
        return f"no record{where}, or every one, has the level {level!r} of column {column!r}"
    where = "" if within is None else " within any site"
    return f"column {name!r} does not vary{where}, or too little to measure within its bounds"


def constant_column_error(name: str, within: int | None = None) -> UsageError:
    """Return the error of every method for such a variable."""
    column, _, level = name.partition("=")
    advice = CONSTANT_COLUMN_ADVICE
    if level:
        advice = (
            f"In the method's columns, name the other levels in place of {column!r}, as "
            f"'{column}=LEVEL', without the first one, which is the reference. {_KEEP_DECLARED}"
        )
    return UsageError("analysis", constant_column(name, within), advice)


@dataclass(frozen=True)
class Moments:
    """n records' first and second moments, in the columns' own units.

    names: p column names (categorical columns already expanded to indicators; no intercept)
    n: number of records, at least 1
    mean: float64, shape (p,)
    scatter: float64, shape (p, p), symmetric: sum of (x - mean)(x - mean)' over the records.
        If it is computed as a difference, sum xx' - n mean mean', the rows of columns that do not
        vary beyond the rounding of that difference must be exactly 0.
    errors: float64, shape (p,), or None if there is only float rounding: a bound e_j for each
        column such that |error of scatter_jk| <= root(e_j e_k S_jj S_kk). On the correlation scale,
        where every analysis works, entries are off by at most max(e).
    noisy: the release, if these moments were repaired from moments with noise. Analyses that can
        use it read it; the others treat the moments as exact.
    within: None, or the number of sites, if each site subtracted its own means. Then `mean` is not
        known and stands as 0, and `scatter` is that within sites
        (`secagg.models.moments.within_sites`).
    columns: the column of each name; indicators of one column share it. Left out: each its own.
    """

    names: tuple[str, ...]
    n: int
    mean: NDArray[np.float64]
    scatter: NDArray[np.float64]
    errors: NDArray[np.float64] | None = None
    noisy: NoisyMoments | None = None
    within: int | None = None
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.columns:
            object.__setattr__(self, "columns", self.names)

    def select(self, names: Sequence[str]) -> Moments:
        """Return the moments of the named columns, in that order (marginalising the others)."""
        index = positions(names, self.names)
        errors = None if self.errors is None else self.errors[index]
        scatter = self.scatter[np.ix_(index, index)]
        noisy = None if self.noisy is None else self.noisy.select(names)
        columns = tuple(self.columns[i] for i in index)
        return Moments(
            tuple(names), self.n, self.mean[index], scatter, errors, noisy, self.within, columns
        )

    @property
    def subtracted_means(self) -> int:
        """How many mean vectors were subtracted: one, or one for each site."""
        return 1 if self.within is None else self.within

    @property
    def degrees_of_freedom(self) -> int:
        """Degrees of freedom of the scatter, n - subtracted_means."""
        return self.n - self.subtracted_means

    @property
    def error(self) -> float:
        """Largest error of a correlation; at least the machine epsilon."""
        epsilon = float(np.finfo(np.float64).eps)
        return epsilon if self.errors is None else float(np.max(self.errors, initial=epsilon))

    @property
    def tolerance(self) -> float:
        """Smallest unexplained share of a column's variance that an analysis may divide by.

        Entries are off by at most e, so the error matrix has eigenvalues up to p e, and solving
        multiplies these by up to 1 / share. A share above root(p e) leaves at least half the
        digits.
        """
        return float(np.sqrt(len(self.names) * self.error))

    @property
    def covariance(self) -> NDArray[np.float64]:
        """Maximum-likelihood covariance S / n, shape (p, p)."""
        return self.scatter / self.n

    @property
    def standard_deviation(self) -> NDArray[np.float64]:
        """Root of the diagonal of S / n, shape (p,)."""
        return np.sqrt(np.maximum(np.diagonal(self.scatter), 0.0) / self.n)

    @property
    def constant(self) -> NDArray[np.bool_]:
        """Which columns do not vary beyond the rounding of their own mean, shape (p,)."""
        return self.standard_deviation <= ROUNDING * np.abs(self.mean)

    @property
    def correlation(self) -> NDArray[np.float64]:
        """Correlation matrix, shape (p, p). Raises UsageError that names a constant column."""
        if np.any(self.constant):
            name = self.names[int(np.argmax(self.constant))]
            raise constant_column_error(name, self.within)
        if self.error > MAX_CORRELATION_ERROR:
            assert self.errors is not None
            name = self.names[int(np.argmax(self.errors))]
            raise UsageError(
                "analysis",
                f"column {name!r} varies so little within its public bounds that its pooled "
                f"moments have fewer than 4 correct digits",
                "Narrow its bounds, or raise method.fraction_bits.",
            )
        # divided in two steps: the product of two small deviations may underflow
        deviation = self.standard_deviation
        correlation = self.covariance / deviation[:, None] / deviation[None, :]
        np.fill_diagonal(correlation, 1.0)
        return correlation
