"""Draws of a site's rows near those that its records and its prior make likely (prototype)."""

from __future__ import annotations

import numpy as np

from secagg.core.arrays import Array

_STEPS = 5
_WIDER = 1.15
_KNEE = 0.25  # of the scale


def row_law(
    y: Array, X: Array, centre: Array, w: Array, heat: Array, b_s: float, degree: int
) -> tuple[Array, Array]:
    """Return mean (c, m) and Cholesky factor of the precision (c, m, m) of a normal density.

    y (c, n), X (c, m, n), centre, w (c, m), heat (c,)
    """
    n, m = y.shape[-1], X.shape[1]
    prior = 1 / w
    if n < 3:
        return centre, np.sqrt(prior)[..., None] * np.eye(m)
    X = X - X.mean(axis=-1, keepdims=True)
    gram = X @ np.swapaxes(X, 1, 2)
    theta = centre
    for _ in range(_STEPS):
        e = y - np.einsum("cm,cmn->cn", theta, X)
        e = e - np.median(e, axis=-1, keepdims=True)
        b = ((np.abs(e).sum(axis=-1) + b_s) / n)[:, None]
        pull = np.clip(e / (_KNEE * b), -1, 1) / b
        H = (heat / b[:, 0] ** 2 / _WIDER)[:, None, None] * gram
        H[:, np.arange(m), np.arange(m)] += prior
        g = heat[:, None] * np.einsum("cn,cmn->cm", pull, X) - (theta - centre) * prior
        theta = theta + np.linalg.solve(H, g[..., None])[..., 0]
    return theta, np.linalg.cholesky(H)


def log_row(x: Array, mean: Array, root: Array) -> Array:
    """Return the log density up to a constant that depends on the number of entries only."""
    z = np.einsum("cml,cm->cl", root, x - mean)
    logs = np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=-1)
    return np.asarray(logs - (z * z).sum(axis=-1) / 2)


def draw_row(mean: Array, root: Array, z: Array) -> Array:
    return mean + np.linalg.solve(np.swapaxes(root, 1, 2), z[..., None])[..., 0]


def log_prior_row(d: Array, w: Array) -> Array:
    return np.asarray(-(d * d / w + np.log(w)).sum(axis=-1) / 2)
