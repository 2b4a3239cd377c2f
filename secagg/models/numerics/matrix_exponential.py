"""exp(A) - I for a nonnegative matrix A, without cancellation in small entries.

NOTEARS ends when h = tr exp(W o W) - p is 1e-8 or less. Computed as written, with any general
exponential, h is a difference of numbers near p and has an absolute error of about 1e-14 p: no
correct digit remains when the penalties reach 1e16. Here the identity is never added. All terms of
the Taylor series of a nonnegative matrix are nonnegative, and sums and products of nonnegative
numbers cancel nothing. So each entry of the sum has a small relative error (Shao, Gao and Xue, SIAM
J. Matrix Anal. Appl. 35, 2014, take the same argument further). Truncation of the series can lose
part or all of an entry that only long paths reach: see the end.

The series is summed by Paterson and Stockmeyer (SIAM J. Computing 2, 1973): with A, A^2, A^3 and
A^4 the degrees 4, 8, 12 and 16 take 3, 4, 5 and 6 products. If that is not enough, A is halved s
times and F(A) = exp(A) - I doubled back by F(2A) = F(A)^2 + 2 F(A).

Which degree is enough. If |A^k|_1 <= x^k for all k > m, degree m omits at most
sum_{k>m} x^k / k!; the degree is chosen so that this is below 2^-52 x. One such x is
max(|A^2|^(1/2), |A^3|^(1/3)): every k >= 2 is a sum of twos and threes (Al-Mohy and Higham,
SIAM J. Matrix Anal. Appl. 31, 2009, theorem 4.2). The 1-norm of a power of a nonnegative matrix is
the largest entry of 1'A^k, which needs only products with a vector. So x is small for nearly
acyclic A, however large single entries are. It bounds the norm, not each entry: an entry that only
paths of more than m 2^s edges reach is zero here. Do not use this function to find which nodes
reach which: a trace that is zero or small does not exclude a long cycle. A cycle of k edges with
A_ij = a adds a^k / (k - 1)! to it, 1e-16 for k = 10 and a = 0.09, edges of 0.3 in NOTEARS.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dgemm

Matrix = NDArray[np.float64]

DEGREES = (4, 8, 12, 16)
# Row j: 1/(4j+1)!, ..., 1/(4j+4)!, the coefficients of A, ..., A^4 in the j-th block of the series.
_BLOCKS = np.array([[1 / math.factorial(4 * j + i) for i in range(1, 5)] for j in range(4)])


def _max_norm(degree: int) -> float:
    """Return the largest x for which the degree is enough."""
    low, high = 0.0, 2.0
    for _ in range(60):
        x = (low + high) / 2
        rest = sum(x ** (k - 1) / math.factorial(k) for k in range(degree + 1, degree + 40))
        low, high = (x, high) if rest <= 2**-52 else (low, x)
    return low


_MAX_NORMS = tuple(map(_max_norm, DEGREES))


def exponential_minus_identity(A: Matrix) -> Matrix:
    """Return exp(A) - I, shape (p, p), for a matrix A >= 0 (not checked).

    If truncation loses nothing (no entry depends on long paths only), each entry has a relative
    error of at most about 12 p units in the last place, and every halving at most doubles it;
    `tests/models/numerics/test_matrix_exponential.py` derives and checks the bound. Entries are inf
    where exp(A) overflows (others may then be NaN). All are inf if A is not finite or overflows
    when cubed.
    """
    p = len(A)
    with np.errstate(over="ignore", invalid="ignore"):
        squared = np.ones(p) @ A @ A
        x = max(math.sqrt(squared.max()), float((squared @ A).max()) ** (1 / 3))
        if not math.isfinite(x):
            return np.full((p, p), np.inf)
        blocks = next(
            (j + 1 for j, max_norm in enumerate(_MAX_NORMS) if x <= max_norm), len(DEGREES)
        )
        halvings = max(0, math.ceil(math.log2(x / _MAX_NORMS[-1]))) if x > 0 else 0

        # BLAS expects columns. Rows of a buffer, read as columns, are transposes of A, its powers
        # and sums of these, which all commute.
        powers, sums = np.empty((4, p * p)), np.empty((blocks, p * p))
        A1, A2, A3, A4 = (row.reshape(p, p, order="F") for row in powers)
        block = [row.reshape(p, p, order="F") for row in sums]
        np.multiply(A, 2.0**-halvings, out=A1)
        dgemm(1, A1, A1, 0, A2, overwrite_c=True)
        dgemm(1, A1, A2, 0, A3, overwrite_c=True)
        dgemm(1, A2, A2, 0, A4, overwrite_c=True)
        np.matmul(_BLOCKS[:blocks], powers, out=sums)
        for j in range(blocks - 2, -1, -1):  # Horner's rule in A^4
            dgemm(1, A4, block[j + 1], 1, block[j], overwrite_c=True)
        F, doubled = block[0], A1
        for _ in range(halvings):
            np.multiply(F, 2, out=doubled)
            dgemm(1, F, F, 1, doubled, overwrite_c=True)
            F, doubled = doubled, F
        return F
