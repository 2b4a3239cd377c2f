"""Moments released with Gaussian noise, and their repair to moments that some data set can have.

Let u be the scaled variables of a record and z = (1, u). M = sum z z' is released once. Its upper
triangle has independent noise of known variance (Analyze Gauss: Dwork, Talwar, Thakurta & Zhang
2014, algorithm 1). The release is M + E, with E symmetric. It may fail to be positive semidefinite.
Then no data set has these moments, and there is no Cholesky factor.

The number of records is released twice: as M's first entry, and as the count with which every run
begins, which has independent noise. For two unbiased, independent, normal releases a and b of one
number, with variances v_a and v_b, the mean weighted by inverse variances is sufficient:

    n~ = (v_b a + v_a b) / (v_a + v_b),      var n~ = v_a v_b / (v_a + v_b).      (1)

So n~ and its variance replace the first entry of M + E and its variance, and no information is
lost. E's entries stay independent and normal. The count may be much more precise than the rest of
M, so the new variance of E's first entry does not describe the rest of its row. Division by
`NoisyMoments.scale` makes the noise even. The scale depends only on the constant with which M was
released.

Weighted records. If records are weighted by their length (`Clip.whole`), M's first entry is the sum
a of weights, which are at most 1, and not the number n of records. With independent normal errors
of a and of the count b, and nothing known of a and n but a <= n, a has the mean and the variance
(Johnson, Kotz and Balakrishnan 1994, section 13.10: a normal variable beyond a limit)

    a - v_a h / root(v_a + v_b),   v_a - v_a^2 h (d + h) / (v_a + v_b),                       (3)
    d = (b - a) / root(v_a + v_b),   h = phi(d) / Phi(d).

Repair. E's eigenvalues have mean square |E|_F^2 / m (m rows), so their expected size is

    f = root(sum_jk var E_jk / m),      s root(m) if all variances are s^2.      (2)

This is half of the operator norm, 2 s root(m), by which an eigenvalue of M can have moved. An
eigenvalue below f cannot be distinguished from noise, and solving with it would multiply the noise
by |E| / f or more. So eigenvalues below f are raised to f. The result is the nearest matrix without
smaller eigenvalues, in any unitarily invariant norm. docs/math/noise-posterior.md compares other
floors.

The repair is post-processing of the release and costs no privacy. The repaired moments contain no
information about the noise, so most analyses treat them as exact, and their results have a note.
Least squares does allow for the noise (`secagg.models.moments.noisy_ols`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from secagg.contracts import PublicFacts, RecordCount
from secagg.errors import UsageError

Matrix = NDArray[np.float64]

NOISE_NOTE = (
    "Computed from moments with noise as if they were exact. Standard errors and intervals are "
    "left out, because they would ignore the noise of differential privacy. The choice of a "
    "penalty, a threshold and tests ignore it too."
)
REPEATED_NOTE = (
    "Several records may belong to one person (privacy.records_per_person), but intervals assume "
    "independent records. They are too short if a person's records are similar."
)


def positions(names: Sequence[str], columns: Sequence[str]) -> NDArray[np.intp]:
    """Return the positions of these names in `columns`. Raises `UsageError` for an unknown name."""
    unknown = [name for name in names if name not in columns]
    if unknown:
        raise UsageError(
            "analysis",
            f"the pooled moments have no column {unknown[0]!r}",
            f"Columns are {', '.join(columns)}.",
        )
    return np.array([columns.index(name) for name in names], dtype=np.intp)


@dataclass(frozen=True)
class NoisyMoments:
    """The release, in scaled units.

    names: the p variables
    midpoint, half_range: shape (p,): a variable is midpoint + half_range u in its own units
    matrix: M + E, shape (p + 1, p + 1), symmetric; the first row and column are of the constant 1,
        and the first entry is the number of records by (1)
    variance: variances of E's entries, same shape, symmetric, not negative. The entries of the
        upper triangle are independent and normal.
    scale: shape (p + 1,), positive. With row and column j divided by scale[j], all noise off the
        diagonal has the same variance, and noise on the diagonal twice that (n~'s has less). So the
        variances of each row have nearly the same sum, the noise is about equally large in all
        directions, and its norm is twice (2) (Erdos, Yau & Yin 2012). A scale that also gave n~
        twice the variance would make the rest of its row uneven.
    counted: the noisy number of records; `records` is the sum of their weights
    within: None, or the number of sites, if each site subtracted its own means
    """

    names: tuple[str, ...]
    midpoint: NDArray[np.float64]
    half_range: NDArray[np.float64]
    matrix: Matrix
    variance: Matrix
    scale: NDArray[np.float64]
    counted: float = 0.0
    within: int | None = None

    def select(self, names: Sequence[str]) -> NoisyMoments:
        """Return the moments of the named variables, in that order. Raises UsageError."""
        index = positions(names, self.names)
        rows = np.ix_([0, *(index + 1)], [0, *(index + 1)])
        return NoisyMoments(
            tuple(names),
            self.midpoint[index],
            self.half_range[index],
            self.matrix[rows],
            self.variance[rows],
            self.scale[[0, *(index + 1)]],
            self.counted,
            self.within,
        )

    @property
    def records(self) -> int:
        """The number of records by (1), rounded. It may be negative if the noise is large."""
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
    """Return the noisy moments from two releases: M and the number of records.

    upper: M's noisy upper triangle, row by row
    variance: of the noise off the diagonal, positive; on the diagonal it is twice that
    counted: the number of the same records, with independent noise
    constant: c, if M was released for z = (c, u). M and its noise are rescaled to z = (1, u).
    """
    m = len(public.variables) + 1
    matrix = np.zeros((m, m))
    matrix[np.triu_indices(m)] = upper
    unit = np.array([1 / constant, *np.ones(m - 1)])
    matrix = (matrix + np.triu(matrix, 1).T) * np.outer(unit, unit)
    variances = variance * (1 + np.eye(m)) * np.outer(unit, unit) ** 2
    n, own, other = matrix[0, 0], variances[0, 0], counted.variance
    weighted = public.clip is not None and public.clip.whole
    if weighted:
        matrix[0, 0], variances[0, 0] = _at_most(n, own, counted.records, other)
    else:
        matrix[0, 0] = (other * n + own * counted.records) / (own + other)  # (1)
        variances[0, 0] = own * other / (own + other)
    return NoisyMoments(
        tuple(v.name for v in public.variables),
        np.array([v.midpoint for v in public.variables]),
        np.array([v.half_range for v in public.variables]),
        matrix,
        variances,
        unit,
        counted.records if weighted else float(matrix[0, 0]),
    )


def _at_most(a: float, of_a: float, b: float, of_b: float) -> tuple[float, float]:
    """Return (3)."""
    both = of_a + of_b
    d = (b - a) / math.sqrt(both)
    h = math.exp(-d * d / 2 - math.log(2 * math.pi) / 2 - float(log_ndtr(d)))
    return a - of_a / math.sqrt(both) * h, of_a - of_a**2 / both * h * (d + h)


@dataclass(frozen=True)
class Repair:
    """Moments near the released ones that some data set can have, and the size of the change.

    matrix: shape (m, m), in scaled units; matrix[0, 0] is a whole number >= 1
    floor: f of (2), the smallest eigenvalue allowed. Eigenvalues and norms are those after division
        by `NoisyMoments.scale`.
    smallest: the smallest eigenvalue of the release
    raised: the number of eigenvalues below the floor
    relative_change: Frobenius norm of the change divided by that of the noise,
        root(sum_jk var E_jk). Above 1, the repair is larger than the expected noise.
    """

    matrix: Matrix
    floor: float
    smallest: float
    raised: int
    relative_change: float

    def note(self) -> str:
        if not self.raised:
            return "The released moments are those of a possible table and were not repaired."
        return (
            f"{self.raised} of {len(self.matrix)} eigenvalues of the released moments were below "
            f"the size of the noise's eigenvalues, {self.floor:.3g} (the smallest was "
            f"{self.smallest:.3g}), and were raised to it. The change is "
            f"{self.relative_change:.2g} times the noise."
        )


def repaired(noisy: NoisyMoments) -> Repair:
    """Return the nearest moments whose eigenvalues are all at least f of (2).

    Distances and eigenvalues are those after division by `NoisyMoments.scale`, where the noise is
    even. The number of records is rounded up to a whole number, at least 1. This adds to the
    diagonal, so no eigenvalue falls. Without noise only rounding changes.
    """
    floor, scale = noisy.eigenvalue_noise, np.outer(noisy.scale, noisy.scale)
    eigenvalues, basis = np.linalg.eigh(noisy.matrix / scale)
    low = eigenvalues < floor
    added = (basis[:, low] * (floor - eigenvalues[low])) @ basis[:, low].T
    change = float(np.linalg.norm(added))
    matrix = noisy.matrix + added * scale
    matrix[0, 0] = max(1.0, math.ceil(matrix[0, 0]))
    return Repair(
        matrix=matrix,
        floor=floor,
        smallest=float(eigenvalues[0]),
        raised=int(low.sum()),
        relative_change=change / math.sqrt(float(noisy.even_variance.sum())) if change else 0.0,
    )
