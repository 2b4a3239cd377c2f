"""Tests that two columns are not associated given all others, from the records' correlations.

Wilks' Lambda of the partial canonical correlations of the columns' variables, by Rao's F (Rao,
Bull. Int. Stat. Inst. 33, 1951; Mardia, Kent and Bibby 1979, sections 3.7 and 10.2.3). F is exact
if one of two columns has one or two variables, is normal and depends linearly on the rest. For two
single variables it is the t test of their partial correlation.

For indicators F is an approximation. It is poor if both columns have rare levels: one record with
both can then be significant. So such a pair is not tested (`MIN_EXPECTED`; the rule of Cochran,
Biometrics 10, 1954, for contingency tables). Numbers of which nearly all are equal have the same
problem, and no such rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, fdtrc

Matrix = NDArray[np.float64]
Graph = NDArray[np.bool_]

MIN_EXPECTED = 5.0
"""Records that must be expected to have the rarer values of two variables with two values each,
on average over the variables of two columns. With fewer, the columns are not tested."""


def rarity_of(values: Matrix) -> Matrix:
    """Return the share of the rarer value of each variable with two values, infinite for others."""
    high = values == values.max(axis=0)
    two = np.all(high | (values == values.min(axis=0)), axis=0)
    return rarity_of_share(np.where(two, high.mean(axis=0), np.nan))


def rarity_of_share(share: Matrix) -> Matrix:
    """Return the share of the rarer value from that of one of two values; infinite for NaN."""
    return np.where(np.isnan(share), np.inf, np.minimum(share, 1 - share))


def associated(R: Matrix, n: int, owner: NDArray[np.int_], rarity: Matrix, alpha: float) -> Graph:
    """Return which variables' columns a test of zero partial association joins."""

    def level(first: NDArray[np.intp], second: NDArray[np.intp]) -> float:
        expected = n * float(np.mean(np.outer(rarity[first], rarity[second])))
        return alpha if expected >= MIN_EXPECTED else -1.0

    return _joined(R, n, owner, level)


def kept_by_aic(R: Matrix, n: int, owner: NDArray[np.int_]) -> Graph:
    """Return which variables' columns are joined at the level at which AIC keeps an association.

    P(chi-squared of p q degrees of freedom > 2 p q), for columns of p and q variables.
    """

    def level(first: NDArray[np.intp], second: NDArray[np.intp]) -> float:
        freedom = len(first) * len(second)
        return float(chdtrc(freedom, 2 * freedom))

    return _joined(R, n, owner, level)


def _joined(
    R: Matrix,
    n: int,
    owner: NDArray[np.int_],
    level: Callable[[NDArray[np.intp], NDArray[np.intp]], float],
) -> Graph:
    """Return which variables' columns are joined; level: of the test of two columns' variables."""
    joined = np.zeros(R.shape, dtype=np.bool_)
    if n - 1 <= len(R):
        return joined
    K = np.asarray(np.linalg.inv(R), dtype=np.float64)
    blocks = [np.flatnonzero(owner == column) for column in np.unique(owner)]
    for i, first in enumerate(blocks):
        for second in blocks[i + 1 :]:
            alpha = level(first, second)
            if alpha >= 0 and association_p_value(K, first, second, n) <= alpha:
                joined[np.ix_(first, second)] = True
    return joined


def association_p_value(K: Matrix, a: NDArray[np.intp], b: NDArray[np.intp], n: int) -> float:
    """Return the p value of Rao's F for no association of variables a and b given all others.

    K: inverse of the correlation matrix of n records. With A and B the positions of a and b,
    Lambda = det K_AB,AB / (det K_AA det K_BB), the product of 1 - r^2 over the partial canonical
    correlations r, which are the singular values of K_AA^(-1/2) K_AB K_BB^(-1/2).
    """
    left, right = (np.linalg.cholesky(K[np.ix_(block, block)]) for block in (a, b))
    half = np.linalg.solve(left, K[np.ix_(a, b)])
    r = np.linalg.svd(np.linalg.solve(right, half.T), compute_uv=False)
    log_lambda = float(np.sum(np.log1p(-(r**2))))
    p, q = len(a), len(b)
    residual = n - 1 - (len(K) - p - q) - q  # degrees of freedom of a given the others and b
    square = p**2 + q**2 - 5
    t = math.sqrt((p**2 * q**2 - 4) / square) if square > 0 else 1.0
    freedom = (residual - (p - q + 1) / 2) * t - (p * q - 2) / 2
    if freedom <= 0:
        return 1.0
    ratio = math.expm1(-log_lambda / t) * freedom / (p * q)
    return float(fdtrc(p * q, freedom, ratio))
