"""Partial correlations and slopes from moments with noise, and how far the noise moves each.

M = sum z z' was released as M + E, E's entries independent and normal with known variances
(`secagg.models.common.noisy_moments`). Let S be the covariance matrix, and for a direction a of the
variables let a0 = -a'mean be its coefficient of the constant 1, so that a'S b = (a0, a)' M (b0, b)
/ n for the means of M.

Noise in a residual covariance. Take the residuals of x and y given the variables K and a constant:
directions a and b with a_x = b_y = 1 and K'S a = K'S b = 0. M moves by E, and a and b move with it,
but only in K and the constant, where M a and M b are 0. So to first order the residual covariance
moves by

    a'E b / n                                                                               (1)

alone, a and b with their coefficients of the constant; the same holds for the variances a'S a and
b'S b. The variance of (1) is the sum over j <= k of var E_jk times the square of E_jk's factor,

    n^2 v = sum_jk var E_jk a_j^2 b_k^2 + sum_(j != k) var E_jk a_j b_j a_k b_k.            (2)

For K = nothing, (1) is formula (1) of `secagg.models.graphs.noise_size`. Chance, for normal
records, gives the residual covariance the variance a'S a b'S b / n if x and y are independent given
K. So the partial correlation r = a'S b / root(a'S a b'S b) has without a dependence the variance

    1 / n + v / (a'S a b'S b).                                                              (3)

The noise does not become smaller as columns explain one another, but a'S a and b'S b do: with a
residual share of 5 % on both sides, noise of .02 in a correlation is noise of .4 in r, or more. An
effective number of records by the noise of correlations (`NoiseSize.effective_records`) misses
that: among closely related columns it counts far too many.

Noise in slopes. The slopes of y on K are beta with S_KK beta = S_Ky. With the residual direction b
of y they move to first order by S_KK^-1 (E b)_K / n, and by (2) with a = S_KK^-1 e_k for the slope
of k. Chance gives it the variance (S_KK^-1)_kk b'S b / n.

Not covered. All of this is of first order, at the repaired moments. Where the noise is as large as
the eigenvalues of S_KK, the repair has raised these eigenvalues, which moves slopes towards 0 and
leaves a part of dependences that go through K. Then r is not 0 without a direct dependence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from secagg.core.arrays import Array
from secagg.models.common.pooled_moments import Moments


@dataclass(frozen=True, eq=False)
class NoisyPartials:
    """The moments in standard deviations, and the noise in them.

    correlation: S, shape (p, p), of full rank; means: shape (p,); records: n
    variance: var E / n^2, shape (p + 1, p + 1), of z = (1, standardised variables)
    """

    correlation: Array
    means: Array
    variance: Array
    records: int

    def noise(self, a: Array, b: Array) -> float:
        """Return v of (2). a, b: directions of the variables, shape (p,)."""
        a, b = (np.array([-self.means @ each, *each]) for each in (a, b))
        both = a * b
        twice = both @ self.variance @ both - both**2 @ np.diagonal(self.variance)
        return max(float(a**2 @ self.variance @ b**2 + twice), 0.0)

    def partial(self, x: int, y: int, given: Sequence[int]) -> tuple[float, float]:
        """Return the partial correlation of x and y, and the variance of the noise in it."""
        K = list(given)
        a, b = np.zeros((2, len(self.means)))
        a[x] = b[y] = 1
        if K:
            slopes = np.linalg.solve(
                self.correlation[np.ix_(K, K)], self.correlation[np.ix_(K, [x, y])]
            )
            a[K], b[K] = -slopes.T
        left_a, left_b = a @ self.correlation @ a, b @ self.correlation @ b
        r = a @ self.correlation @ b / math.sqrt(left_a * left_b)
        return float(np.clip(r, -1, 1)), self.noise(a, b) / float(left_a * left_b)

    def slopes(self, y: int, given: Sequence[int]) -> tuple[Array, Array]:
        """Return y's slopes on at least one variable, and their variances by noise and chance."""
        K = list(given)
        inverse = np.linalg.inv(self.correlation[np.ix_(K, K)])
        slopes = inverse @ self.correlation[K, y]
        b = np.zeros(len(self.means))
        b[y], b[K] = 1, -slopes
        a = np.zeros((len(K), len(b)))
        a[:, K] = inverse
        chance = np.diagonal(inverse) * float(b @ self.correlation @ b) / self.records
        return slopes, chance + np.array([self.noise(each, b) for each in a])


def noisy_partials(moments: Moments) -> NoisyPartials | None:
    """Return the moments in standard deviations with their noise; None for moments without noise.

    Raises `UsageError` for a constant column.
    """
    noisy = moments.noisy
    if noisy is None:
        return None
    correlation = moments.correlation
    spread = moments.standard_deviation
    unit = np.array([1.0, *noisy.half_range / spread])
    variance = noisy.variance * np.outer(unit, unit) ** 2 / moments.n**2
    means = (moments.mean - noisy.midpoint) / spread
    return NoisyPartials(correlation, means, variance, moments.n)
