"""Draws from Gaussian and inverse-gamma laws, many at once."""

from __future__ import annotations

import numpy as np

from secagg.core.arrays import Array

SMALLEST, LARGEST = 1e-30, 1e30

MIN_GAMMA = 1e-200  # with a tiny shape half of all draws are below a float's smallest number


def inverse_gamma(shape: Array | float, scale: Array, rng: np.random.Generator) -> Array:
    """Draw IG(shape, scale) for each entry of `scale`."""
    return scale / np.maximum(rng.standard_gamma(shape, size=scale.shape), MIN_GAMMA)


def clip_variance(value: Array) -> Array:
    """Clip a variance to a range in which floats can square it and divide by it."""
    return np.minimum(np.maximum(value, SMALLEST), LARGEST)


def factor(root: Array, gram: Array) -> tuple[Array, Array]:
    """Return K = I + R gram R as in (7), for R = diag(root) and gram >= 0, and L with K = L L'."""
    K = np.eye(root.shape[-1]) + root[..., :, None] * gram * root[..., None, :]
    try:
        return K, np.asarray(np.linalg.cholesky(K), dtype=np.float64)
    except np.linalg.LinAlgError:
        pairs = [_factor_single(matrix) for matrix in K.reshape(-1, *K.shape[-2:])]
        repaired, L = (np.reshape(parts, K.shape) for parts in zip(*pairs, strict=True))
        return repaired, L


def normal_draw(K: Array, L: Array, slope: Array, noise: Array) -> Array:
    """Return a draw of N(K^-1 slope, K^-1) from standard normal `noise`: K^-1 slope + L'^-1 noise.

    One linear system gives both terms, since L'^-1 = K^-1 L.
    """
    right = slope[..., None] + L @ noise[..., None]
    return np.asarray(np.linalg.solve(K, right)[..., 0], dtype=np.float64)


def _factor_single(K: Array) -> tuple[Array, Array]:
    """Return K and L of a single K, which may be indefinite by rounding."""
    try:
        return K, np.asarray(np.linalg.cholesky(K), dtype=np.float64)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(K)
        weighted = np.sqrt(np.maximum(values, 1.0))[:, None] * vectors.T
        L = np.asarray(np.linalg.qr(weighted, mode="r"), dtype=np.float64).T
        return L @ L.T, L


def times(matrix: Array, vector: Array) -> Array:
    return (matrix @ vector[..., None])[..., 0]


def dot(a: Array, b: Array) -> Array:
    return (a[..., None, :] @ b[..., None])[..., 0, 0]


def transpose(matrix: Array) -> Array:
    return np.swapaxes(matrix, -1, -2)
