"""Moments released with Gaussian noise: what is known of them, and a table that could have been.

With z = (1, u), u the scaled variables, M = sum z z' is released once, its upper triangle under
independent noise of known variance (Analyze Gauss: Dwork, Talwar, Thakurta & Zhang 2014,
algorithm 1). What is seen is M + E, E symmetric. It need not be positive semidefinite, so it may
be the moments of no table at all, and a Cholesky factor of it need not exist.

Repair. E's eigenvalues have mean square |E|_F^2 / m (m rows), so their expected size is

    f = root(sum_jk var E_jk / m),      s root(m) if all variances are s^2,      (1)

half of the operator norm, 2 s root(m), by which an eigenvalue of M can have moved. An eigenvalue
below f cannot be told from noise, and solving with it would multiply the noise by |E| / f and
more. So eigenvalues below f are raised to f, the nearest such matrix in any unitarily invariant
norm. It is the same idea and order of size as the ridge of AdaSSP (Wang 2018, algorithm 2), which
adds root(m) times a logarithm to all eigenvalues rather than to those that need it. In trials
with 500 records, ten predictors and noise whose norm was one to four times the least eigenvalue,
floors of f / 2, f and 2 f left root mean squared errors in the coefficients of, for example, 0.16,
0.12 and 0.16, or 0.12, 0.09 and 0.12; where the noise is small no floor does anything.

All of it is post-processing of the release and costs no privacy. What it does not do: the moments
that come of it carry no trace of the noise, so whatever is computed from them takes them for exact.
Least squares has a remedy (`secagg.models.noisy_linear`); other analyses say so in a note.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import Public
from secagg.errors import UsageError

Matrix = NDArray[np.float64]

NOISE_NOTE = (
    "Computed from moments with noise as if they were exact. Standard errors and intervals, which "
    "would not hold the noise of differential privacy, are left out; nor does a choice of penalty, "
    "a threshold or a test allow for it."
)


@dataclass(frozen=True)
class NoisyMoments:
    """What was released, in scaled units.

    names: the p variables
    middle, half: shape (p,): a variable is middle + half u in its own units
    matrix: M + E, shape (p + 1, p + 1), symmetric, its first row and column for the constant 1
    variance: variances of E's entries, same shape, symmetric, not negative. The entries of the
        upper triangle are independent and normal.
    """

    names: tuple[str, ...]
    middle: NDArray[np.float64]
    half: NDArray[np.float64]
    matrix: Matrix
    variance: Matrix

    def select(self, names: Sequence[str]) -> NoisyMoments:
        """Return the moments of the named variables, in that order. Raises UsageError."""
        unknown = [name for name in names if name not in self.names]
        if unknown:
            raise UsageError(
                "analysis",
                f"no column {unknown[0]!r} among the pooled moments",
                f"Columns are {', '.join(self.names)}.",
            )
        index = np.array([self.names.index(name) for name in names], dtype=np.intp)
        rows = np.ix_([0, *(index + 1)], [0, *(index + 1)])
        return NoisyMoments(
            tuple(names),
            self.middle[index],
            self.half[index],
            self.matrix[rows],
            self.variance[rows],
        )

    @property
    def scale(self) -> NDArray[np.float64]:
        """Shape (p + 1,), at least 1: with row and column j divided by it, the noise is even.

        Then its variances are all the smallest, but for what the diagonal has more; a constant of
        1/2 in the release, say, makes that of row 0 four times as large here.
        """
        own = np.sqrt(np.sqrt(np.diagonal(self.variance)))
        return np.ones(len(own)) if own.min() == 0 else own / own.min()

    @property
    def even_variance(self) -> Matrix:
        """Variances of the noise after division by `scale`."""
        return self.variance / np.outer(self.scale, self.scale) ** 2

    @property
    def eigenvalue_noise(self) -> float:
        """Root mean square of the noise's eigenvalues, by (1), after division by `scale`."""
        return math.sqrt(float(self.even_variance.sum()) / len(self.variance))


def noisy_moments(
    upper: NDArray[np.float64], public: Public, variance: float, constant: float = 1.0
) -> NoisyMoments:
    """Return what a release says: M's noisy upper triangle, row by row, in scaled units.

    variance: of the noise off the diagonal, not negative; on it, it is twice that
    constant: c, if M was released for z = (c, u); M is brought to z = (1, u), and the noise with it
    """
    m = len(public.variables) + 1
    matrix = np.zeros((m, m))
    matrix[np.triu_indices(m)] = upper
    unit = np.array([1 / constant, *np.ones(m - 1)])
    return NoisyMoments(
        tuple(v.name for v in public.variables),
        np.array([v.middle for v in public.variables]),
        np.array([v.half for v in public.variables]),
        (matrix + np.triu(matrix, 1).T) * np.outer(unit, unit),
        variance * (1 + np.eye(m)) * np.outer(unit, unit) ** 2,
    )


@dataclass(frozen=True)
class Repair:
    """A table's moments near the released ones, and how far they are from them.

    matrix: shape (m, m), in scaled units; matrix[0, 0] is a whole number >= 1
    floor: f of (1): every eigenvalue is at least that. These, and the norms below, are after
        division by `NoisyMoments.scale`
    smallest: smallest eigenvalue that was released
    lifted: how many eigenvalues were below the floor
    moved: Frobenius norm of the change over the noise's own, root(sum_jk var E_jk): above 1 more
        was repaired than noise was expected
    """

    matrix: Matrix
    floor: float
    smallest: float
    lifted: int
    moved: float

    def note(self) -> str:
        """Return it in words, for a result."""
        if not self.lifted:
            return "The released moments are those of a possible table and were not repaired."
        of = f"{self.lifted} of {len(self.matrix)} eigenvalues of the released moments"
        return (
            f"{of} were below the noise's own, {self.floor:.3g} (the smallest {self.smallest:.3g}),"
            f" and were raised to it: a change of {self.moved:.2g} times the noise."
        )


def repaired(noisy: NoisyMoments) -> Repair:
    """Return the nearest moments with no eigenvalue below the noise's, (1).

    Nearest, and eigenvalues, after division by `NoisyMoments.scale`, where the noise is even.

    The number of records is rounded up to a whole one, and at least 1: that adds to the diagonal,
    so no eigenvalue falls. With no noise nothing is changed but rounding.
    """
    floor, scale = noisy.eigenvalue_noise, np.outer(noisy.scale, noisy.scale)
    eigenvalues, basis = np.linalg.eigh(noisy.matrix / scale)
    low = eigenvalues < floor
    added = (basis[:, low] * (floor - eigenvalues[low])) @ basis[:, low].T
    moved = float(np.linalg.norm(added))
    matrix = noisy.matrix + added * scale
    matrix[0, 0] = max(1.0, math.ceil(matrix[0, 0]))
    return Repair(
        matrix=matrix,
        floor=floor,
        smallest=float(eigenvalues[0]),
        lifted=int(low.sum()),
        moved=moved / math.sqrt(float(noisy.even_variance.sum())) if moved else 0.0,
    )
