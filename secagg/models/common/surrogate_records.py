"""Records that have given moments, for methods that read their records through moments only.

Under differential privacy a site may draw noise for its moments once and then forget its records
(`secagg.sessions.site_moments`): whatever it computes from the noisy moments is as private as these
(post-processing; Dwork and Roth 2014, proposition 2.1). Methods are written for records. So they
get a table that has the repaired noisy moments exactly, and in which every row is a function of
these moments alone:

    u_i = m + sum_k C_ik root(l_k) v_k,      C_ik = root(2 / n) cos(pi k (i + 1/2) / n)      (1)

with i from 0 to n - 1, m the means, l_k the eigenvalues, largest first, and v_k the eigenvectors of
the scatter matrix about m. The columns of C have length 1 and are orthogonal to each other and to
the ones vector (the discrete cosine transform, k from 1). So the table's number of records, means
and scatter are n, m and the sum of l_k v_k v_k', up to rounding.

==============================  ====================================================================
moments                         table
==============================  ====================================================================
one record                      the mean
n at most the number of columns the largest n - 1 eigenvalues: a table of n records has no more
negative eigenvalue             as 0
sum of squares above n a^2      the column is divided by root(sum / (n a^2)), a the largest root
                                mean square: no table has such a sum
==============================  ====================================================================

Not protected: a method that reads more than moments gets a table that is as private, but says
nothing else about the records. So a method has to declare that moments are enough
(`secagg.contracts.MomentsOnly`), and a test mixes records to check it.
"""

from __future__ import annotations

import numpy as np

from secagg.core.arrays import Array


def surrogate_records(moments: Array, n: int, largest: Array) -> Array:
    """Return the table (1), shape (n, p).

    moments: sum of z z' with z = (1, u), shape (p + 1, p + 1), symmetric; the first entry is the
        number of records, above 0. If it is not n, means and scatter per record are kept
    n: number of rows, at least 1
    largest: a of each column, shape (p,): `secagg.models.common.clipped_moments.largest_values`
    """
    second = moments / moments[0, 0]
    too_large = np.sqrt(np.maximum(np.diagonal(second)[1:], 0)) / largest
    shrink = np.concatenate([[1.0], 1 / np.maximum(too_large, 1.0)])
    second = second * np.outer(shrink, shrink)
    mean = second[0, 1:]
    values, vectors = np.linalg.eigh(second[1:, 1:] - np.outer(mean, mean))
    many = min(n - 1, len(values))
    values, vectors = np.maximum(values[::-1][:many], 0), vectors[:, ::-1][:, :many]
    i, k = np.arange(n)[:, None], np.arange(1, many + 1)
    waves = np.sqrt(2.0) * np.cos(np.pi * k * (i + 0.5) / n)
    found: Array = mean + (waves * np.sqrt(values)) @ vectors.T
    return found
