"""Clip each record before anything is computed from it, under differential privacy.

A record consists of scaled variables u_1, u_2, ..., with |u_j| <= 1 by the public bounds. Clipping
has two steps. If the record's L2 norm, the root of the sum of the u_j^2, exceeds a limit R, all its
variables are multiplied by a common factor so that the norm is at most R. Then every variable is
truncated to a multiple of 2^-g; these multiples are called the grid.

A person's records together can have a limit P, too: if the sum of their squared norms exceeds P^2,
all of them are multiplied by a common factor and truncated again.

After that, every sum that is computed from the records is a multiple of a fixed power of two, which
float64 holds exactly. So no rounding occurs, and the sensitivity (the largest change of a sum that
one record can cause) also holds for the numbers that leave the site. Without a grid, rounding can
break this guarantee (Mironov, *On significance of the least significant bits for differential
privacy*, 2012).

Guarantees, for the integers q_j = u_j 2^g of every returned record
    * The sum of q_j^2 is at most floor(R^2 4^g). It is computed in integers, so the norm is at most
      R exactly.
    * |q_j| <= 2^g. Each record is clipped without regard to other records.
    * Truncation goes towards zero, so no norm grows. A scaled variable changes by less than 2^-g.
    * With a limit P for a person, the sum of q_j^2 over all records of a person is at most
      floor(P^2 4^g), also computed in integers: 64 bits hold the squares of 2^31 values. The common
      factor of a person's records depends on these records only, and not on their order.

==================================  ==========================================================
record                              result
==================================  ==========================================================
norm below R, on the grid           unchanged
norm below R                        truncated to the grid
norm exactly R, on the grid         unchanged
norm above R, by any amount         scaled to R, then truncated; at most R exactly
zero                                zero
any, if no norm can exceed R         truncated to the grid, never scaled
above a person's number of records  left out; the person's first records in the file stay
a person with a sum of at most P^2  unchanged, also if the sum is exactly P^2
a person with a larger sum          all records scaled by one factor, then truncated
==================================  ==========================================================

Not protected: if many records have a norm above R, clipping biases the result. The number of
clipped records is not released, because it is itself a fact about the records.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from secagg.contracts.noise import Clip
from secagg.core.arrays import shortened, shortened_to_grid

_MAX_GRID_BITS = 16
_MIN_GRID_BITS = 8


def choose_clip(
    norm: float | None,
    implied: float,
    max_rows: int,
    person_norm: float | None = None,
    records_per_person: int = 1,
) -> Clip | None:
    """Return the clipping rule, or None if every grid that keeps sums exact is too coarse.

    norm: the requested R, or None if no record shall be scaled down
    implied: the largest squared norm that the public bounds allow
    max_rows: the largest number of records of a site
    person_norm: the requested P, or None if a person's records shall not be scaled down together
    records_per_person: the largest number of records of a person at a site

    A sum over max_rows records of products of two variables must be exact in float64. In steps of
    2^-2g the sum is at most max_rows 4^g, which must not exceed 2^53.
    """
    bits = _grid_bits(max_rows, 1.0)
    if bits < _MIN_GRID_BITS:
        return None
    square = implied if norm is None else min(norm**2, implied)
    return Clip(square, bits, None if person_norm is None else person_norm**2, records_per_person)


def choose_whole_clip(
    square: float,
    constant: float,
    max_rows: int,
    person_norm: float | None = None,
    records_per_person: int = 1,
) -> Clip | None:
    """Return the rule for whole records, or None as `choose_clip`.

    square: R^2, the limit of |(c, u)|^2; constant: c, a multiple of 2^-`_MIN_GRID_BITS`
    """
    bits = _grid_bits(max_rows, square)
    if bits < _MIN_GRID_BITS:
        return None
    person_square = None if person_norm is None else person_norm**2
    return Clip(square, bits, person_square, records_per_person, constant, whole=True)


def _grid_bits(max_rows: int, largest: float) -> int:
    """Return g, if a record's product is at most `largest`, or 1."""
    doubled = math.ceil(math.log2(largest)) if largest > 1 else 0
    return min(_MAX_GRID_BITS, (53 - doubled - (max_rows - 1).bit_length()) // 2)


def clip_rows(values: NDArray[np.float64], clip: Clip) -> NDArray[np.float64]:
    """Return the clipped records. values: shape (n, p), entries in [-1, 1]."""
    return shortened_to_grid(values, clip.squared_norm, clip.grid_bits)


def clip_whole(values: NDArray[np.float64], clip: Clip) -> NDArray[np.float64]:
    """Return (c, u) of each record, shortened to R, shape (n, 1 + p); values: u, shape (n, p)."""
    whole = np.column_stack([np.full(len(values), clip.constant), values])
    return shortened_to_grid(shortened(whole, clip.norm), clip.squared_norm, clip.grid_bits)


def clip_persons(
    values: NDArray[np.float64], persons: Sequence[Hashable], clip: Clip
) -> NDArray[np.float64]:
    """Return clipped records whose squared norms add up to at most P^2 for each person.

    values: from `clip_rows`; persons: of each record, each with at most `records_per_person`
    """
    if clip.person_square is None:
        return values
    steps = 2.0**clip.grid_bits
    max_square = math.floor(Fraction(clip.person_square) * 4**clip.grid_bits)
    numbers: dict[Hashable, int] = {}
    person = np.array([numbers.setdefault(p, len(numbers)) for p in persons], dtype=np.int64)

    def total(integers: NDArray[np.int64]) -> NDArray[np.int64]:
        squares = np.zeros(len(numbers), dtype=np.int64)
        np.add.at(squares, person, (integers**2).sum(axis=1))
        return squares

    integers = (values * steps).astype(np.int64)  # exact: the values are on the grid
    before = total(integers)
    long = before > max_square
    shrink = math.sqrt(clip.person_square) * steps * (1 - 2.0**-40)  # as in `clip_rows`
    while np.any(long):
        rows = long[person]
        factors = shrink / np.sqrt(before[person[rows]].astype(np.float64))
        integers[rows] = np.trunc(values[rows] * factors[:, None] * steps).astype(np.int64)
        long = total(integers) > max_square
        shrink *= 1 - 2.0**-10
    return integers / steps


def cap_per_person(persons: Sequence[Hashable], max_records: int) -> NDArray[np.bool_]:
    """Return a mask of the records to keep: the first `max_records` of each person."""
    seen: Counter[Hashable] = Counter()
    keep = np.zeros(len(persons), dtype=np.bool_)
    for i, person in enumerate(persons):
        seen[person] += 1
        keep[i] = seen[person] <= max_records
    return keep
