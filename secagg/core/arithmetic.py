"""Whether two computers compute the same bits: a fingerprint of floating-point arithmetic.

Libraries for linear algebra choose their code by the processor, and sums in another order round
differently. So equal programs and equal inputs give equal bits only where this arithmetic is the
same. `arithmetic_fingerprint` computes products, decompositions and functions of fixed numbers, and
returns a digest of all bits.

Not covered: a function that no line here calls may still differ.
"""

from __future__ import annotations

import hashlib
from functools import cache

import numpy as np

from secagg.core.threads import single_threaded_blas

_SIZE = 48


@cache
@single_threaded_blas()
def arithmetic_fingerprint() -> str:
    """Return 16 hexadecimal digits, which are equal where the arithmetic is."""
    steps = np.arange(_SIZE * _SIZE, dtype=np.float64).reshape(_SIZE, _SIZE)
    matrix = (steps * 7919 % 1009) / 1009 - 0.5
    square = matrix @ matrix.T + np.eye(_SIZE)
    found = [
        matrix @ matrix, square, np.linalg.cholesky(square), np.linalg.solve(square, matrix),
        np.linalg.eigvalsh(square), np.linalg.svd(matrix, compute_uv=False), np.exp(matrix),
        np.log(matrix + 1), np.tanh(matrix), matrix.sum(axis=0), matrix.sum(axis=1),
        np.linalg.slogdet(square)[1], np.einsum("ij,ij->i", matrix, square),
    ]  # fmt: skip
    bits = b"".join(np.ascontiguousarray(each, dtype=np.float64).tobytes() for each in found)
    return hashlib.sha256(bits).hexdigest()[:16]
