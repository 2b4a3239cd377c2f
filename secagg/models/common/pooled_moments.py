"""The pooled moments that every linear-Gaussian analysis reads, and nothing else of the data.

For p variables and n records, `Moments` holds n, the mean vector and the scatter matrix
S = sum_i (x_i - mean)(x_i - mean)'. Anything computed from it is post-processing: it sees no more
of any site than the secure sum already released.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.errors import UsageError
from secagg.models.common.noisy_moments import NoisyMoments, positions
from secagg.models.numerics.precision import ROUNDING

# The mean of n equal numbers is off by at most log2(n) half-units in the last place (pairwise
# summation) and their scatter's root by as much: below 64 units for any n < 2**64.
MAX_CORRELATION_ERROR = 1e-4  # of a correlation: beyond it no analysis is offered

CONSTANT_COLUMN_ADVICE = "Narrow its bounds, or leave it out."


def unvarying(column: str, within: int | None = None) -> str:
    """Return what is wrong with a column that looks constant; `CONSTANT_COLUMN_ADVICE` is what to
    do.

    within: as in `Moments`
    What does not vary and what hardly does within its bounds cannot be told apart: sums are rounded
    to steps of these.
    """
    where = "" if within is None else " within any site"
    return f"column {column!r} does not vary{where}, or too little to be told within its bounds"


@dataclass(frozen=True)
class Moments:
    """n records' first and second moments, in the columns' own units.

    names: p column names (categorical columns already expanded to indicators; no intercept)
    n: number of records, at least 1
    mean: float64, shape (p,)
    scatter: float64, shape (p, p), symmetric: sum of (x - mean)(x - mean)' over the records.
        Whoever computes it as a difference, sum xx' - n mean mean', knows that difference's
        rounding, and sets the rows of columns that do not vary beyond it to exactly 0.
    errors: float64, shape (p,), or None for float rounding only: a bound e_j for each column such
        that |error of scatter_jk| <= root(e_j e_k S_jj S_kk). On the correlation scale, where every
        analysis works, entries are off by at most max(e).
    noisy: what was released, where these moments were repaired from moments with noise; an analysis
        that knows how reads it, and the others take the moments for exact
    within: None, or the number of sites that took off their own means, each its own: `mean` is then
        not known and 0, and scatter that within sites (`secagg.models.moments.within_sites`)
    """

    names: tuple[str, ...]
    n: int
    mean: NDArray[np.float64]
    scatter: NDArray[np.float64]
    errors: NDArray[np.float64] | None = None
    noisy: NoisyMoments | None = None
    within: int | None = None

    def select(self, names: Sequence[str]) -> Moments:
        """Return the moments of the named columns, in that order (marginalising the others)."""
        index = positions(names, self.names)
        errors = None if self.errors is None else self.errors[index]
        scatter = self.scatter[np.ix_(index, index)]
        noisy = None if self.noisy is None else self.noisy.select(names)
        return Moments(tuple(names), self.n, self.mean[index], scatter, errors, noisy, self.within)

    @property
    def means(self) -> int:
        """How many means were taken off: one, or one a site."""
        return 1 if self.within is None else self.within

    @property
    def freedom(self) -> int:
        """Degrees of freedom of the scatter, n - means."""
        return self.n - self.means

    @property
    def error(self) -> float:
        """Largest error of a correlation; at least the machine epsilon."""
        epsilon = float(np.finfo(np.float64).eps)
        return epsilon if self.errors is None else float(np.max(self.errors, initial=epsilon))

    @property
    def tolerance(self) -> float:
        """Least unexplained share of a column's variance that may be divided by.

        Entries err by e, the largest eigenvalue of the error by up to p e, and solving multiplies
        that by up to 1 / share: a share above root(p e) leaves at least half the digits.
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
        """Correlation matrix, shape (p, p); a constant column is a usage error that names it."""
        if np.any(self.constant):
            constant = self.names[int(np.argmax(self.constant))]
            raise UsageError("analysis", unvarying(constant, self.within), CONSTANT_COLUMN_ADVICE)
        if self.error > MAX_CORRELATION_ERROR:
            assert self.errors is not None
            blurred = self.names[int(np.argmax(self.errors))]
            raise UsageError(
                "analysis",
                f"column {blurred!r} varies so little within its public bounds that its pooled "
                f"moments have fewer than 4 digits",
                "Narrow its bounds, or raise method.fraction_bits.",
            )
        # divided in two steps: the product of two small deviations may underflow
        deviation = self.standard_deviation
        correlation = self.covariance / deviation[:, None] / deviation[None, :]
        np.fill_diagonal(correlation, 1.0)
        return correlation
