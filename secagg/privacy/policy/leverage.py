"""The leverage of single records and persons, and of groups of them, in a basis of combinations.

`secagg.privacy.policy.record_sets` says what leverage is, and which combinations there are. The
leverage of some rows together is the largest eigenvalue of their part of the hat matrix.
The largest one of k persons is searched for: from the difference of each pair of columns, and from
each person who could belong to such a group, by the truncated power method (Yuan and Zhang 2013,
Journal of Machine Learning Research 14, algorithm 1), which finds a local maximum.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

GROUP_LEVERAGE = 1 - 1e-9
"""A group of fewer than `min_records` records has a leverage of at most this. In other words, no
combination of columns is zero outside the group, but for rounding."""
_STEPS = 10  # of the truncated power method; it hardly ever takes more than three


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


def groups_are_possible(
    basis: NDArray[np.float64], size: int, persons: NDArray[np.int64] | None = None
) -> bool:
    """Return whether some group of so many persons could have a leverage of 1.

    The leverage of a group is at most the sum of its rows' leverages, because the eigenvalues are
    not negative and add up to this sum. In a table of many persons, no search is needed.
    """
    own = (basis**2).sum(axis=1)
    together = own if persons is None else np.bincount(persons, own)
    return float(np.sort(together)[::-1][:size].sum()) > GROUP_LEVERAGE


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
    count = int(of_row.max()) + 1
    if size >= count:
        return 1.0
    at = basis.T @ z  # z in the coordinates of the basis
    together = np.bincount(of_row, (basis**2).sum(axis=1))
    likely = np.flatnonzero(together >= GROUP_LEVERAGE / size)
    starts = [
        basis[np.isin(of_row, likely)],
        *(at[:, i] - at[:, i + 1 :].T for i in range(at.shape[1] - 1)),
    ]
    if persons is not None:
        starts += [_leverage(basis[of_row == person])[1][np.newaxis] for person in likely]
    best = 0.0
    for start in np.concatenate(starts):
        combination, found = start, 0.0
        for _ in range(_STEPS):
            weights = np.bincount(of_row, (basis @ combination) ** 2, count)
            group = np.argpartition(-weights, size)[:size]
            rows = group if persons is None else np.flatnonzero(np.isin(of_row, group))
            last = found
            found, combination = _leverage(basis[rows])
            if found <= last * (1 + 1e-9):
                break
        best = max(best, found)
        if best > GROUP_LEVERAGE:
            break
    return min(best, 1.0)
