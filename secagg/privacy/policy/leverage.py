"""Leverage: whether a combination of columns depends on a few records only.

Suppose that cancer = breast + colon in all patients but one. Then the cross products of the three
columns with another column give this patient's value. Let Z be the matrix of all columns in the
sums, with a column of ones. The leverage of record i is the largest value of (Zc)_i^2 / |Zc|^2 over
all combinations c (Hoaglin and Welsch 1978, The American Statistician 32). It is 1 if some
combination is record i alone, and near 1 if some combination is almost record i alone, as when one
cost is far larger than all others.

**Groups.** In the same way, a combination may be zero outside a few records: for instance the
difference of two copies of a column that differ in three patients, or the days in intensive care,
if ten patients were added, of whom two were in intensive care. The leverage of a group is the
largest share of |Zc|^2 on the group; here it must be below 1. With a column of persons, all records
of a person count as one, in both rules: the leverage of a person is that of all its records
together. So two jobs must differ in `min_records` + d - 1 records or more, with d independent
columns. docs/math/differencing.md explains this and the search, which finds a local maximum.

Threat model: a coordinator that knows, or guesses, the combination, and holds exact sums of Z'Z.
`null_combination` (`secagg.audits`) is the attack.

Not protected:

* A group outside which a combination is small but not zero. Such combinations exist in every small
  table. To use one, the coordinator has to know it, which is easy only where values repeat.
* A group that the search misses, because it ends at a smaller local maximum.

The rule is stricter than necessary, because records of other sites add to a combination, unless it
is zero for them, too.
"""

from __future__ import annotations

from itertools import chain

import numpy as np
from numpy.typing import NDArray

from secagg.privacy.ledger.records import Decision

GROUP_LEVERAGE = 1 - 1e-9
"""A group of fewer than `min_records` records has a leverage of at most this. In other words, no
combination of columns is zero outside the group, but for rounding."""
_RANK_TOLERANCE = 1e-12
"""Singular values below this share of the largest are rounding, for columns of length 1. Rounding
of up to a million records with 64-bit numbers is smaller."""
_STEPS = 10  # of the truncated power method; it hardly ever takes more than three
_NUMBERS = 1 << 22  # in the largest array of the search


def on_leverage(
    z: NDArray[np.float64], minimum: int, max_leverage: float,
    persons: NDArray[np.int64] | None = None,
) -> Decision:  # fmt: skip
    """Return the decision about Z. minimum: the site's `min_records`.

    persons: of each row, numbered from 0 without gaps; None if each row is a person
    """
    basis = orthonormal(z)
    largest = largest_leverage(basis, persons)
    one, several = ("record", "records") if persons is None else ("person", "persons")
    if largest > max_leverage:
        text = f"the largest leverage of a {one} is {largest:.3g}; at most {max_leverage:g} allowed"
        return Decision("max_leverage", False, text)
    few = f"zero for all but fewer than {minimum} {several}"
    searched = max_leverage < 1 and groups_are_possible(basis, minimum - 1, persons)
    if searched and group_leverage(basis, z, minimum - 1, persons) > GROUP_LEVERAGE:
        return Decision("max_leverage", False, f"a combination of columns is {few}")
    text = (
        f"the largest leverage of a {one} is {largest:.3g}, and no combination of columns is {few}"
    )
    return Decision("max_leverage", True, text)


def orthonormal(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return an orthonormal basis of all combinations of columns."""
    left, singular, _ = np.linalg.svd(z / np.linalg.norm(z, axis=0), full_matrices=False)
    return np.asarray(left[:, singular > _RANK_TOLERANCE * singular.max(initial=0.0)])


def largest_leverage(basis: NDArray[np.float64], persons: NDArray[np.int64] | None = None) -> float:
    """Return the largest leverage of a record, or of all records of a person together.

    The latter is the largest eigenvalue of the person's rows and columns of the hat matrix.

    basis: orthonormal columns; persons: of each row, numbered from 0 without gaps
    """
    own = (basis**2).sum(axis=1)
    best = float(own.max(initial=0.0))
    if persons is not None and len(own):
        together = np.bincount(persons, own)  # at least the leverage of the person
        for person in np.argsort(-together):
            if together[person] <= best:
                break
            best = max(best, _leverage(basis[persons == person])[0])
    return min(best, 1.0)  # at most 1, but for rounding


def _leverage(rows: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
    """Return the leverage of a group of rows of a basis, and the combination that has it."""
    _, singular, right = np.linalg.svd(rows, full_matrices=False)
    return float(singular[0]) ** 2, right[0]


def _leverages(
    rows: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the same for many groups, shape (groups, rows, dimensions); of any length.

    By the smaller one of the two matrices of products, which have the same largest eigenvalue.
    """
    turned = rows.transpose(0, 2, 1)
    if rows.shape[1] > rows.shape[2]:
        values, vectors = np.linalg.eigh(turned @ rows)
        return values[:, -1], vectors[:, :, -1]
    values, vectors = np.linalg.eigh(rows @ turned)
    return values[:, -1], (turned @ vectors[:, :, -1:])[:, :, 0]


def groups_are_possible(
    basis: NDArray[np.float64], size: int, persons: NDArray[np.int64] | None = None
) -> bool:
    """Return whether some group of so many persons could have a leverage of 1.

    Two bounds can rule it out: in a table of many persons, one of them does, without a search.
    The leverage of a group is an eigenvalue of the group's rows and columns of the hat matrix H.

    * It is at most their trace, because no eigenvalue is negative.
    * It is at most the largest sum of |H_pq| over persons q of the group, for a person p of it
      (Feingold and Varga 1962, Pacific Journal of Mathematics 12, theorem 2). |H_pq| is the
      Frobenius norm of the rows of p and columns of q: at most the root of both traces' product.
    """
    of_row = np.arange(len(basis)) if persons is None else persons
    traces = np.bincount(of_row, (basis**2).sum(axis=1))
    largest = np.sort(traces)[::-1][:size]
    if not largest.sum() > GROUP_LEVERAGE:
        return False
    for p in np.flatnonzero(np.sqrt(traces) * np.sqrt(largest).sum() > GROUP_LEVERAGE):
        squares = (basis[of_row == p] @ basis.T) ** 2
        norms = np.sqrt(np.bincount(of_row, squares.sum(axis=0)))
        others = np.sort(np.delete(norms, p))[::-1][: size - 1]
        if norms[p] + others.sum() > GROUP_LEVERAGE:
            return True
    return False


def group_leverage(
    basis: NDArray[np.float64],
    z: NDArray[np.float64],
    size: int,
    persons: NDArray[np.int64] | None = None,
) -> float:
    """Return the largest leverage of so many records, or persons, that the search finds.

    basis: orthonormal columns, of the combinations of the columns of z; size: number of records
    persons: of each row, numbered from 0 without gaps; None if each row is a person
    """
    if size < 1 or not basis.size:
        return 0.0
    of_row = np.arange(len(basis)) if persons is None else persons
    order, sizes = np.argsort(of_row, kind="stable"), np.bincount(of_row)
    if size >= len(sizes):
        return 1.0
    search = _Search(basis[order], np.cumsum(sizes) - sizes, sizes, size)
    at = basis.T @ z  # z in the coordinates of the basis
    together = np.bincount(of_row, (basis**2).sum(axis=1))
    likely = np.flatnonzero(together >= GROUP_LEVERAGE / size)
    records = [basis[np.isin(of_row, likely)]]
    if persons is not None:
        records += [_leverage(basis[of_row == person])[1][np.newaxis] for person in likely]
    pairs = (at[:, i] - at[:, i + 1 :].T for i in range(at.shape[1] - 1))
    best = 0.0
    for starts in chain([np.concatenate(records)], pairs):
        for block in range(0, len(starts), search.at_once):
            best = max(best, search.from_starts(starts[block : block + search.at_once]))
            if best > GROUP_LEVERAGE:
                return min(best, 1.0)
    return min(best, 1.0)


class _Search:
    """The truncated power method, from many combinations at once.

    basis: orthonormal columns; the rows of a person stand together
    first, sizes: each person's first row, and number of rows
    size: number of persons in a group
    """

    def __init__(
        self,
        basis: NDArray[np.float64],
        first: NDArray[np.intp],
        sizes: NDArray[np.intp],
        size: int,
    ) -> None:
        most = int(sizes.max())
        steps = np.arange(most)
        self._rows = np.where(steps < sizes[:, None], first[:, None] + steps, len(basis))
        nothing = np.zeros(basis.shape[1])  # such a row changes no leverage
        self._padded = np.vstack([basis, nothing])
        self._basis, self._first, self._size = basis, first, size
        self.at_once = max(1, _NUMBERS // max(len(basis), size * most * basis.shape[1]))

    def from_starts(self, combinations: NDArray[np.float64]) -> float:
        """Return the largest leverage found. combinations: shape (starts, dimensions)."""
        best, last = 0.0, np.zeros(len(combinations))
        for _ in range(_STEPS):
            squares = (self._basis @ combinations.T) ** 2
            weights = np.add.reduceat(squares, self._first, axis=0).T
            groups = np.argpartition(-weights, self._size, axis=1)[:, : self._size]
            rows = self._padded[self._rows[np.sort(groups)].reshape(len(groups), -1)]
            found, leading = _leverages(rows)
            best = max(best, float(found.max(initial=0.0)))
            rising = found > last * (1 + 1e-9)
            if best > GROUP_LEVERAGE or not rising.any():
                break
            combinations, last = leading[rising], found[rising]
        return best
