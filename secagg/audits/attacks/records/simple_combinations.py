"""Combinations of columns with simple coefficients, from the columns' scatter matrix.

Each column is regressed on one, two, three or all others, and the slopes are rounded. If a column
is a combination of others in all records but a few, these few hardly move the slopes. So rounding
finds the combination.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from secagg.core.arrays import Array

_MOST_DIRECTIONS = 200
_MOST_SUBSETS = 3000
_DIGITS = (1, 2, 3)  # significant ones, of slopes
_NEGLIGIBLE = 0.02  # of the outcome's deviation; slopes that explain less are rounded to 0


def simple_combinations(C: Array) -> Iterator[Array]:
    """Yield combinations b of columns, the most nearly constant ones first, then single columns.

    C: their scatter matrix, in their own units
    """
    p, sd = len(C), np.sqrt(np.maximum(np.diagonal(C), 0.0))
    varying = [j for j in range(p) if sd[j] > 0]
    found: dict[bytes, tuple[float, Array]] = {}

    def add(j: int, slopes: Array) -> None:
        b = -slopes
        b[j] = 1.0
        left = float(b @ C @ b) / sd[j] ** 2
        found.setdefault((b + 0.0).tobytes(), (left, b))

    for j in varying:
        add(j, np.zeros(p))
        others = [i for i in varying if i != j]
        sizes = [s for s in (1, 2, 3) if len(varying) * _subsets(len(others), s) <= _MOST_SUBSETS]
        subsets = {s for size in sizes for s in itertools.combinations(others, size)}
        for chosen in (*subsets, *((tuple(others),) if others else ())):
            own = list(chosen)
            slopes = np.zeros(p)
            slopes[own] = np.linalg.lstsq(C[np.ix_(own, own)], C[own, j], rcond=1e-12)[0]
            slopes[np.abs(slopes) * sd < _NEGLIGIBLE * sd[j]] = 0.0
            for rounded in (
                np.rint(slopes),
                _to_125(slopes),
                *(_to_digits(slopes, k) for k in _DIGITS),
            ):
                add(j, rounded)
    units = [b for _, b in found.values() if np.count_nonzero(b) == 1]
    related = sorted(
        (e for e in found.values() if np.count_nonzero(e[1]) > 1), key=lambda e: e[0]
    )  # fmt: skip
    yield from (b for _, b in related[:_MOST_DIRECTIONS])
    yield from units


def _subsets(n: int, size: int) -> int:
    return (
        int(np.prod(range(n - size + 1, n + 1)) / np.prod(range(1, size + 1))) if n >= size else 0
    )


def _to_125(values: Array) -> Array:
    """Return numbers rounded to 1, 2 or 5 times a power of ten: 0.93 is 1, not 0.9."""
    size = np.log10(np.where(values == 0, 1.0, np.abs(values)))
    whole, steps = np.floor(size), np.log10([1, 2, 5, 10])
    nearest = np.argmin(np.abs((size - whole)[..., None] - steps), axis=-1)
    return np.asarray(np.sign(values) * np.array([1.0, 2.0, 5.0, 10.0])[nearest] * 10.0**whole)


def _to_digits(values: Array, digits: int) -> Array:
    """Return numbers rounded to significant digits."""
    size = np.where(values == 0, 1.0, np.abs(values))
    step = 10.0 ** (np.floor(np.log10(size)) - digits + 1)
    return np.asarray(np.rint(values / step) * step)
