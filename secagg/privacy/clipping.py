"""What a site does to its records before anything else, under differential privacy.

Every record's scaled variables u (|u_j| <= 1 by the public bounds) are brought to an L2 norm of at
most R and onto the grid of multiples of 2^-g. From there on all that a method computes for its
stages are integers, in steps of its own grid, and float64 holds them exactly: so the sensitivity
that is promised holds for the very numbers that leave the site, and no argument about rounding is
needed (Mironov, *On significance of the least significant bits for differential privacy*, 2012,
shows what happens otherwise).

Guarantees, for the integers q = u 2^g of every record that is returned
    * sum of q_j^2 <= floor(R^2 4^g), computed in integers: the norm is at most R exactly.
    * |q_j| <= 2^g; a record depends on nothing but itself, so that adding one changes no other.
    * Truncation goes towards zero: it lengthens nothing. It moves a variable by less than 2^-g of
      half its public range.

==================================  ==========================================================
record                              outcome
==================================  ==========================================================
norm below R, on the grid           unchanged
norm below R                        truncated to the grid
norm exactly R, on the grid         unchanged
norm above R, by however little     scaled to R, truncated; at most R exactly
zero                                zero
R^2 at its largest by the bounds    no record is scaled
a person's records beyond the cap   left out: those that come first in the file stay
==================================  ==========================================================

Not protected: the bias that clipping brings, if many records are longer than R. How many are is
itself a fact about the records, and is not released.
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
    """Return the clipping, or None if no grid is both fine and exact.

    norm: asked for; implied: the largest squared norm that the public bounds allow

    A sum over max_rows records of products of two variables has to be exact in float64: in steps of
    2^-2g it is at most max_rows 4^g, and that must not exceed 2^53.
    """
    bits = min(_MAX_GRID_BITS, (53 - (max_rows - 1).bit_length()) // 2)
    if bits < _MIN_GRID_BITS:
        return None
    return Clip(implied if norm is None else min(norm**2, implied), bits)


def clip_rows(values: NDArray[np.float64], clip: Clip) -> NDArray[np.float64]:
    """Return the records, shape (n, p), entries in [-1, 1], as clipped; see the module's text."""
    steps = 2.0**clip.grid_bits
    most = math.floor(Fraction(clip.squared_norm) * 4**clip.grid_bits)
    whole = np.trunc(values * steps).astype(np.int64)
    long = (whole**2).sum(axis=1) > most
    shrink = clip.norm * (1 - 2.0**-40)  # the root and the quotient err by less
    while np.any(long):
        norms = np.sqrt((values[long] ** 2).sum(axis=1, keepdims=True))
        whole[long] = np.trunc(values[long] * (shrink / norms) * steps).astype(np.int64)
        long = (whole**2).sum(axis=1) > most
        shrink *= 1 - 2.0**-10  # never needed, by the line above; the guarantee is not left to it
    return whole / steps


def cap_per_person(persons: Sequence[Hashable], most: int) -> NDArray[np.bool_]:
    """Return which records stay, if each person keeps the first `most` of theirs."""
    seen: Counter[Hashable] = Counter()
    keep = np.zeros(len(persons), dtype=np.bool_)
    for i, person in enumerate(persons):
        seen[person] += 1
        keep[i] = seen[person] <= most
    return keep
