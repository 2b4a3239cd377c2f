"""Exact draws of the location of Laplace errors, (4) of `secagg.models.sparse_bayes.laplace_graph`.

Given x_1 <= .. <= x_n and a flat prior, m has density proportional to exp(-SUM |x_i - m| / b).
Between x_i and x_i+1 that is exp(s_i m) up to a constant, s_i = (n - 2i) / b. m is drawn by two
inversions: of its piece, and of its position in the piece. No step is rejected or tuned.
"""

from __future__ import annotations

import numpy as np

from secagg.core.arrays import Array

_FLATTEST = 1e-100  # replaces a slope of 0: expm1 and log1p are accurate at it


def draw_location(x: Array, b: Array, uniforms: Array) -> Array:
    """Return one draw of m for each row of x: shape (...), 0 for empty rows.

    x: (..., n); b: (...), above 0; uniforms: (2, ...), in [0, 1)
    """
    n = x.shape[-1]
    if n == 0:
        return np.zeros_like(b)
    x = np.sort(x, axis=-1)
    slope = (n - 2.0 * np.arange(n + 1)) / b[..., None]
    rate = np.maximum(np.abs(slope), _FLATTEST)
    infinite = np.full((*b.shape, 1), np.inf)
    width = np.concatenate([infinite, np.diff(x, axis=-1), infinite], axis=-1)
    # The log density at x_i, and at the higher end of each piece.
    rise = np.cumsum(slope[..., 1:-1] * width[..., 1:-1], axis=-1)
    height = np.concatenate([np.zeros_like(infinite), rise], axis=-1)
    height -= np.max(height, axis=-1, keepdims=True)
    lefts, rights = [0, *range(n)], [*range(n), n - 1]
    top = np.maximum(height[..., lefts], height[..., rights])
    below = np.cumsum(np.exp(top) * -np.expm1(-rate * width) / rate, axis=-1)
    # Never beyond the last piece: a uniform times the total may be rounded up to the total.
    reached = np.sum(below <= (uniforms[0] * below[..., -1])[..., None], axis=-1, keepdims=True)
    piece = np.minimum(reached, n)

    def at_piece(values: Array) -> Array:
        return np.take_along_axis(values, piece, axis=-1)[..., 0]

    steep = at_piece(rate)
    distance = -np.log1p(uniforms[1] * np.expm1(-steep * at_piece(width))) / steep
    rising = at_piece(slope) > 0  # then measure from the right end, where the density is higher
    return np.asarray(
        np.where(rising, at_piece(x[..., rights]) - distance, at_piece(x[..., lefts]) + distance)
    )
