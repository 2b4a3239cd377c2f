"""Moments released with Gaussian noise: what is known of them, and a table that could have been.

With z = (1, u), u the scaled variables, M = sum z z' is released once, its upper triangle under
independent noise of known variance (Analyze Gauss: Dwork, Talwar, Thakurta & Zhang 2014,
algorithm 1). What is seen is M + E, E symmetric. It need not be positive semidefinite, so it may
be the moments of no table at all, and a Cholesky factor of it need not exist.

The number of records was released twice: M's first entry is one release of it, the count that every
run begins with another, with noise of its own. Of two unbiased, independent, normal releases a, b
of one number the mean weighted by inverse variances is sufficient for it,

    n~ = (v_b a + v_a b) / (v_a + v_b),      var n~ = v_a v_b / (v_a + v_b),      (1)

so n~ and its variance stand in the place of that entry of M + E and of its variance, and nothing is
lost. E's entries stay independent and normal. As the count may be much the more exact, the variance
of E's first entry says nothing of the rest of its row; the scale that evens the noise is that of
the constant which M was released with, see `NoisyMoments.scale`.

Repair. E's eigenvalues have mean square |E|_F^2 / m (m rows), so their expected size is

    f = root(sum_jk var E_jk / m),      s root(m) if all variances are s^2,      (2)

half of the operator norm, 2 s root(m), by which an eigenvalue of M can have moved. An eigenvalue
below f cannot be told from noise, and solving with it would multiply the noise by |E| / f and
more. So eigenvalues below f are raised to f, the nearest such matrix in any unitarily invariant
norm. It is the same idea and order of size as the ridge of AdaSSP (Wang 2018, algorithm 2), which
adds root(m) times a logarithm to all eigenvalues rather than to those that need it. With
500 records, ten predictors and noise whose norm is as large as the least eigenvalue, floors of
f / 2, f and 2 f leave root mean squared errors in the slopes of 0.162, 0.129 and 0.168 (no floor:
1.3); with twice the noise 0.195, 0.194 and 0.230; with half of it 0.113, 0.100 and 0.089. Below a
third of it no floor does anything (benchmarks/interval_coverage.py).

All of it is post-processing of the release and costs no privacy. What it does not do: the moments
that come of it carry no trace of the noise, so whatever is computed from them takes them for exact.
Least squares has a remedy (`secagg.models.moments.noisy_ols`); other analyses say so in a note.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import PublicFacts, RecordCount
from secagg.errors import UsageError

Matrix = NDArray[np.float64]

NOISE_NOTE = (
    "Computed from moments with noise as if they were exact. Standard errors and intervals, which "
    "would not hold the noise of differential privacy, are left out; nor does a choice of penalty, "
    "a threshold or a test allow for it."
)


def positions(names: Sequence[str], columns: Sequence[str]) -> NDArray[np.intp]:
    """Return where these names stand among the columns. Raises `UsageError` for another name."""
    unknown = [name for name in names if name not in columns]
    if unknown:
        raise UsageError(
            "analysis",
            f"no column {unknown[0]!r} among the pooled moments",
            f"Columns are {', '.join(columns)}.",
        )
    return np.array([columns.index(name) for name in names], dtype=np.intp)


@dataclass(frozen=True)
class NoisyMoments:
    """What was released, in scaled units.

    names: the p variables
    middle, half: shape (p,): a variable is middle + half u in its own units
    matrix: M + E, shape (p + 1, p + 1), symmetric, its first row and column for the constant 1;
        its first entry is the number of records by (1)
    variance: variances of E's entries, same shape, symmetric, not negative. The entries of the
        upper triangle are independent and normal.
    scale: shape (p + 1,), positive: with row and column j divided by it, the noise off the diagonal
        has the same variance everywhere, and that on it twice as much, but for n~'s, which has
        less. So the variances of every row have nearly the same sum, which is what makes noise as
        large in all directions, and its norm twice (2) (Erdos, Yau & Yin 2012). To give n~'s, too,
        its twice as much would take another scale of its row, and make all else there uneven.
    """

    names: tuple[str, ...]
    middle: NDArray[np.float64]
    half: NDArray[np.float64]
    matrix: Matrix
    variance: Matrix
    scale: NDArray[np.float64]

    def select(self, names: Sequence[str]) -> NoisyMoments:
        """Return the moments of the named variables, in that order. Raises UsageError."""
        index = positions(names, self.names)
        rows = np.ix_([0, *(index + 1)], [0, *(index + 1)])
        return NoisyMoments(
            tuple(names),
            self.middle[index],
            self.half[index],
            self.matrix[rows],
            self.variance[rows],
            self.scale[[0, *(index + 1)]],
        )

    @property
    def records(self) -> int:
        """The number of records by (1), rounded. With much noise it may be negative."""
        return round(float(self.matrix[0, 0]))

    @property
    def records_error(self) -> float:
        """Standard deviation of the noise in the number of records."""
        return math.sqrt(float(self.variance[0, 0]))

    @property
    def even_variance(self) -> Matrix:
        """Variances of the noise after division by `scale`."""
        return self.variance / np.outer(self.scale, self.scale) ** 2

    @property
    def eigenvalue_noise(self) -> float:
        """Root mean square of the noise's eigenvalues, by (2), after division by `scale`."""
        return math.sqrt(float(self.even_variance.sum()) / len(self.variance))


def noisy_moments(
    upper: NDArray[np.float64],
    public: PublicFacts,
    variance: float,
    counted: RecordCount,
    constant: float = 1.0,
) -> NoisyMoments:
    """Return what two releases say: M's noisy upper triangle, row by row, and the count of records.

    variance: of the noise off the diagonal, positive; on it, it is twice that
    counted: the number of the same records, with independent noise
    constant: c, if M was released for z = (c, u); M is brought to z = (1, u), and the noise with it
    """
    m = len(public.variables) + 1
    matrix = np.zeros((m, m))
    matrix[np.triu_indices(m)] = upper
    unit = np.array([1 / constant, *np.ones(m - 1)])
    matrix = (matrix + np.triu(matrix, 1).T) * np.outer(unit, unit)
    variances = variance * (1 + np.eye(m)) * np.outer(unit, unit) ** 2
    n, own, other = matrix[0, 0], variances[0, 0], counted.variance
    matrix[0, 0] = (other * n + own * counted.records) / (own + other)  # (1)
    variances[0, 0] = own * other / (own + other)
    return NoisyMoments(
        tuple(v.name for v in public.variables),
        np.array([v.middle for v in public.variables]),
        np.array([v.half for v in public.variables]),
        matrix,
        variances,
        unit,
    )


@dataclass(frozen=True)
class Repair:
    """A table's moments near the released ones, and how far they are from them.

    matrix: shape (m, m), in scaled units; matrix[0, 0] is a whole number >= 1
    floor: f of (2): every eigenvalue is at least that. These, and the norms below, are after
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
    """Return the nearest moments with no eigenvalue below the noise's, (2).

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
