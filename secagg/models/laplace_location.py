"""Exact draws of the median-like location of Laplace errors: equation (4) of `laplace_graph`.

Given x_1 <= .. <= x_n and a flat prior, m has density proportional to exp(-SUM |x_i - m| / b):
between x_i and x_i+1 it is exp(s_i m) up to a constant, s_i = (n - 2i) / b, so that it is drawn by
inversion twice, of the piece and of the place within it. No step is rejected, and none is tuned.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_FLATTEST = 1e-100  # for a slope of 0: expm1 and log1p lose nothing at it


def draw_location(x: Array, b: Array, uniforms: Array) -> Array:
    """Return one draw of m for each row of x: shape (...), 0 for rows that are empty.

    x: (..., n); b: (...), above 0; uniforms: (2, ...), in [0, 1)
    """
    n = x.shape[-1]
    if n == 0:
        return np.zeros_like(b)
    x = np.sort(x, axis=-1)
    slope = (n - 2.0 * np.arange(n + 1)) / b[..., None]
    rate = np.maximum(np.abs(slope), _FLATTEST)
    beyond = np.full((*b.shape, 1), np.inf)
    width = np.concatenate([beyond, np.diff(x, axis=-1), beyond], axis=-1)
    # The log density at x_i, and the larger one of each piece's ends.
    rise = np.cumsum(slope[..., 1:-1] * width[..., 1:-1], axis=-1)
    height = np.concatenate([np.zeros_like(beyond), rise], axis=-1)
    height -= np.max(height, axis=-1, keepdims=True)
    top = np.maximum(height[..., [0, *range(n)]], height[..., [*range(n), n - 1]])
    below = np.cumsum(np.exp(top) * -np.expm1(-rate * width) / rate, axis=-1)
    piece = np.sum(below <= (uniforms[0] * below[..., -1])[..., None], axis=-1, keepdims=True)

    def there(values: Array) -> Array:
        return np.take_along_axis(values, piece, axis=-1)[..., 0]

    # From the end where the density is larger: the right one where it rises.
    steep = there(rate)
    away = -np.log1p(uniforms[1] * np.expm1(-steep * there(width))) / steep
    left, right = x[..., [0, *range(n)]], x[..., [*range(n), n - 1]]
    return np.where(there(slope) > 0, there(right) - away, there(left) + away)
