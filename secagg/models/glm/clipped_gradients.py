"""One site's sums for a round of gradient descent, with a proven bound on each record's part.

Follows Abadi et al., *Deep learning with differential privacy* (2016), section 3.1: every record's
gradient is clipped to an L2 norm C, which bounds how far a record can move the sum. With a design
row z = (1, x) and a residual r, a generalised linear model with its canonical link has the gradient
r z. So clipping it to C is the same as clipping the residual to C / |z|:

    g_i = clip(r_i, +- C / |z_i|) z_i                                  (1)

As the linear predictor rises, the residual falls, and so does the clipped residual. So the sum of
(1) is the gradient of a concave objective. (For linear regression this is Huber's objective of
1964, with threshold C / |z_i|.) In absolute value, its Hessian is at most that of the unclipped
objective.

A record also contributes its size, |z_i|^2 in units in which it is at most C / 4:

    h_i = min(|z_i|^2, B^2) C / (4 B^2)                                (2)

The sum of |z_i|^2 is the trace of sum z z', so at least its largest eigenvalue. It gives a step
size that is safe for any number of records, and needs 3 % more noise than the gradients alone.

Threat model and guarantee: the adversary sees the sums, knows all other records and chose the
coefficients. Every record's part is truncated towards zero to a multiple of 2^-f. Then, in L2 norm,

    adding or removing a record moves (gradient, size) by at most    C root(17) / 4,
    replacing one by another, or by an incomplete one,               C root(65) / 4.

Proof. Gradients are clipped to C (1 - 2^-30), computed in float64. With u = 2^-53 and at most 2^20
columns, the computed |z| is off by less than a factor (1 + 2^20 u), the quotient and the product by
(1 + u) each. Together these factors are below 1 + 2^-32, so the computed g_i has a norm below
C (1 - 2^-31). Scaling by 2^f is exact. h_i is off by a factor below 1 + 4u and is in [0, C / 4].
`secagg.models.common.clipped_sums` derives the two bounds from this. The other records' parts do
not change: a part is computed from its own record by operations on single elements, column by
column, and not by a matrix product, whose rounding may depend on a row's position. Sums are exact:
they are integers of at most max_rows C 2^f in total, which `exact_bits` keeps within 2^53, so no
partial sum in any order is rounded.

Not protected: this file does not add the noise, and it does not choose the unit of privacy. One
record here is one row.
Without `bits` nothing is clipped or truncated, and the effect of one record is unbounded.
"""

from __future__ import annotations

import numpy as np

from secagg.contracts import Family
from secagg.core.arrays import Array
from secagg.models.common.clipped_sums import NORM_SLACK


def residuals(x: Array, y: Array, beta: Array, family: Family) -> Array:
    """Return y minus its expectation at beta, shape (n,). Each depends on its own record alone.

    x: shape (n, p), without the column of ones; y: shape (n,); beta: shape (p + 1,)
    """
    eta = np.full(len(x), beta[0])
    for j in range(x.shape[1]):
        eta += x[:, j] * beta[j + 1]
    return np.asarray(y - family.mean(eta))


def site_sums(
    x: Array, residual: Array, square: float, clip: float, bits: int | None
) -> tuple[Array, float]:
    """Return the sums over records of (1), shape (p + 1,), and of (2).

    x: shape (n, p), without the column of ones; residual: shape (n,)
    square: B^2, the largest |z|^2 that is expected; in (2) longer records count as this long
    clip: C, the largest norm of a gradient
    bits: parts are clipped, and truncated to multiples of 2^-bits; None does neither
    """
    length = np.ones(len(x))
    for j in range(x.shape[1]):
        length += x[:, j] ** 2
    size = np.minimum(length, square) * (clip / (4 * square))
    columns = (np.ones(len(x)), *x.T)
    if bits is None:
        return np.array([residual @ column for column in columns]), float(size.sum())
    limit = clip * NORM_SLACK / np.sqrt(length)
    clipped = np.clip(residual, -limit, limit)
    parts = (*(clipped * column for column in columns), size)
    sums = np.array([np.trunc(part * 2.0**bits).sum() for part in parts]) * 2.0**-bits
    return sums[:-1], float(sums[-1])
