"""Clip each record before anything is computed from it, under differential privacy.

The scaled variables u of a record (|u_j| <= 1 by the public bounds) are scaled down to an L2 norm
of at most R and truncated to the grid, the multiples of 2^-g. Every sum that is later computed from
them is then a multiple of a fixed power of two, which float64 holds exactly. So the sensitivity,
the bound on how much one record can change a sum, also holds for the rounded numbers that leave the
site (Mironov, *On significance of the least significant bits for differential privacy*, 2012, shows
what goes wrong otherwise).

Guarantees, for the integers q = u 2^g of every returned record
    * sum of q_j^2 <= floor(R^2 4^g), computed in integers: the norm is at most R exactly.
    * |q_j| <= 2^g. A record depends on no other record, so adding one changes no other.
    * Truncation goes towards zero, so no norm grows. It moves a variable by less than 2^-g times
      half its public range.

==================================  ==========================================================
record                              result
==================================  ==========================================================
norm below R, on the grid           unchanged
norm below R                        truncated to the grid
norm exactly R, on the grid         unchanged
norm above R, by any amount         scaled to R, then truncated; at most R exactly
zero                                zero
any, where the bounds imply R       not scaled
more of a person than allowed       dropped; the first ones in the file stay
==================================  ==========================================================

Not protected: clipping biases the result if many records are longer than R. How many records were
clipped is itself a fact about the records and is not released.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from secagg.contracts.noise import Clip

_MAX_GRID_BITS = 16
_MIN_GRID_BITS = 8


def choose_clip(norm: float | None, implied: float, max_rows: int) -> Clip | None:
    """Return the clipping, or None if no grid is fine enough and also exact.

    norm: requested R; implied: the largest squared norm that the public bounds allow

    A sum over max_rows records of products of two variables must be exact in float64. In steps of
    2^-2g it is at most max_rows 4^g, which must not exceed 2^53.
    """
    bits = min(_MAX_GRID_BITS, (53 - (max_rows - 1).bit_length()) // 2)
    if bits < _MIN_GRID_BITS:
        return None
    return Clip(implied if norm is None else min(norm**2, implied), bits)


def clip_rows(values: NDArray[np.float64], clip: Clip) -> NDArray[np.float64]:
    """Return the clipped records. values: shape (n, p), entries in [-1, 1]."""
    steps = 2.0**clip.grid_bits
    max_square = math.floor(Fraction(clip.squared_norm) * 4**clip.grid_bits)
    integers = np.trunc(values * steps).astype(np.int64)
    long = (integers**2).sum(axis=1) > max_square
    shrink = clip.norm * (1 - 2.0**-40)  # more than the rounding errors of root and quotient
    while np.any(long):
        norms = np.sqrt((values[long] ** 2).sum(axis=1, keepdims=True))
        integers[long] = np.trunc(values[long] * (shrink / norms) * steps).astype(np.int64)
        long = (integers**2).sum(axis=1) > max_square
        shrink *= 1 - 2.0**-10  # one pass is enough; the guarantee does not depend on it
    return integers / steps


def cap_per_person(persons: Sequence[Hashable], max_records: int) -> NDArray[np.bool_]:
    """Return a mask of the records to keep: the first `max_records` of each person."""
    seen: Counter[Hashable] = Counter()
    keep = np.zeros(len(persons), dtype=np.bool_)
    for i, person in enumerate(persons):
        seen[person] += 1
        keep[i] = seen[person] <= max_records
    return keep
