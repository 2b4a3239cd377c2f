"""The array type of all statistical computations, and rows on a grid."""

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def row_norms(values: Array) -> Array:
    """Return the rows' norms, shape (n, 1). Each depends on its row alone, to the last bit."""
    square = np.zeros(len(values))
    for column in values.T:
        square += column**2
    found: Array = np.sqrt(square)[:, None]
    return found


def shortened(values: Array, norm: float = 1.0) -> Array:
    """Return rows whose norms are at most `norm`, up to rounding."""
    found: Array = values / np.maximum(row_norms(values) / norm, 1.0)
    return found


def truncated(values: Array, bits: int) -> Array:
    """Return the values, truncated towards zero to multiples of 2^-bits."""
    found: Array = np.trunc(values * 2.0**bits) * 2.0**-bits
    return found


def shortened_to_grid(values: Array, squared_norm: float, grid_bits: int) -> Array:
    """Return rows whose norms are at most root(squared_norm), in multiples of 2^-grid_bits.

    A longer row is multiplied by a factor; then every number is truncated towards zero. Norms are
    computed in integers, so the limit holds exactly. Each row depends on itself alone.

    values: shape (n, p); (|entry| 2^grid_bits)^2 p fits into 63 bits
    """
    steps = 2.0**grid_bits
    max_square = math.floor(Fraction(squared_norm) * 4**grid_bits)
    integers = np.trunc(values * steps).astype(np.int64)
    long = (integers**2).sum(axis=1) > max_square
    shrink = math.sqrt(squared_norm) * (1 - 2.0**-40)  # exceeds the errors of root and quotient
    while np.any(long):
        norms = np.sqrt((values[long] ** 2).sum(axis=1, keepdims=True))
        integers[long] = np.trunc(values[long] * (shrink / norms) * steps).astype(np.int64)
        long = (integers**2).sum(axis=1) > max_square
        shrink *= 1 - 2.0**-10  # one pass is enough; the guarantee does not depend on it
    return integers / steps


def square(triangle: Array, size: int) -> Array:
    """Return the symmetric matrix with this upper triangle."""
    matrix = np.zeros((size, size))
    matrix[np.triu_indices(size)] = triangle
    return np.asarray(matrix + np.triu(matrix, 1).T)
