"""The location of Laplace errors with their scale integrated out: integrals and exact draws.

x_1 <= .. <= x_n have a location m with a flat prior and a scale b. With b integrated out the
density of m is proportional to

    (c + S(m))^-q,   S(m) = SUM_i |x_i - m|,   q > 1, c > 0                                      (1)

Between x_i and x_i+1, S is linear with slope 2 i - n. So each piece has a known integral, with L
and H the smaller and the larger value of c + S at its ends (H is infinite outside the x_i),

    L^(1-q) (1 - (L / H)^(q-1)) / ((q - 1) |2 i - n|), or the width times L^-q if 2 i = n        (2)

m is drawn by two inversions: of its piece, and of its position in the piece. No step is rejected or
tuned, and the sum of (2) is the integral of (1).
"""

from __future__ import annotations

import numpy as np

from secagg.core.arrays import Array

_FARTHEST = 230.0  # of the logarithm of c + S, beyond that of its least value


class Locations:
    """The pieces of (1) for each row of x (..., n), n at least 1; c: above 0."""

    def __init__(self, x: Array, c: float) -> None:
        n = x.shape[-1]
        self.x = np.sort(x, axis=-1)
        self.gaps = np.diff(self.x, axis=-1)
        self.slopes = 2.0 * np.arange(n + 1) - n
        knots = np.empty_like(self.x)
        knots[..., 0] = np.sum(self.x - self.x[..., :1], axis=-1)
        np.cumsum(self.slopes[1:n] * self.gaps, axis=-1, out=knots[..., 1:])
        knots[..., 1:] += knots[..., :1]
        logs = np.log(c + np.maximum(knots, 0.0))  # below 0 by rounding only
        half = (n + 1) // 2  # S falls in the pieces before it
        self.log_low = np.concatenate([logs[..., :half], logs[..., half - 1 :]], axis=-1)
        ratio = np.full(self.log_low.shape, np.inf)
        np.abs(np.diff(logs, axis=-1), out=ratio[..., 1:-1])
        self.log_ratio = ratio

    def _logs(self, q: Array) -> Array:
        """Return the logarithms of (2), (..., n + 1); q broadcasts against rows."""
        more, n = q[..., None] - 1, self.x.shape[-1]
        with np.errstate(divide="ignore"):  # an empty piece
            found = np.log(-np.expm1(-more * self.log_ratio))
            found -= more * self.log_low
            found -= np.log(more * np.maximum(np.abs(self.slopes), 1.0))
            if n % 2 == 0:
                middle = np.log(self.gaps[..., n // 2 - 1])
                found[..., n // 2] = middle - q * self.log_low[..., n // 2]
        return np.asarray(found)

    def log_integral(self, q: Array) -> Array:
        """Return the logarithm of the integral of (1) over m, (...)."""
        logs = self._logs(q)
        top = logs.max(axis=-1)
        return np.asarray(top + np.log(np.exp(logs - top[..., None]).sum(axis=-1)))

    def draw(self, q: Array, uniforms: Array) -> Array:
        """Return one draw of m for each row; uniforms: (2, ...), in [0, 1)."""
        n, logs = self.x.shape[-1], self._logs(q)
        below = np.cumsum(np.exp(logs - logs.max(axis=-1, keepdims=True)), axis=-1)
        # Never beyond the last piece: a uniform times the total may be rounded up to the total.
        reached = np.sum(below <= (uniforms[0] * below[..., -1])[..., None], axis=-1, keepdims=True)
        piece = np.minimum(reached, n)

        def at_piece(values: Array) -> Array:
            return np.take_along_axis(values, piece, axis=-1)[..., 0]

        more, slope = q - 1, self.slopes[piece[..., 0]]
        share = uniforms[1] * -np.expm1(-more * at_piece(self.log_ratio))
        rise = np.expm1(np.minimum(-np.log1p(-share) / more, _FARTHEST))
        far = np.exp(at_piece(self.log_low)) * rise / np.maximum(np.abs(slope), 1.0)
        start = np.take_along_axis(self.x, np.maximum(piece - 1, 0), axis=-1)[..., 0]
        end = np.take_along_axis(self.x, np.minimum(piece, n - 1), axis=-1)[..., 0]
        flat = start + uniforms[1] * (end - start)
        outward = np.where(slope < 0, end - far, start + far)
        return np.asarray(np.where(slope == 0, flat, outward))
