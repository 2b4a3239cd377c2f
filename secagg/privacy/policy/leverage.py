"""Leverage: whether a combination of columns is a few records.

Suppose that cancer = breast + colon in all patients but one. Then the cross products of the three
columns with another column give this patient's value. Let Z be the matrix of all columns that sums
are over, with a column of ones. The leverage of record i is the largest value of
(Zc)_i^2 / |Zc|^2 over all combinations c (Hoaglin and Welsch 1978, The American Statistician 32).
It is 1 if some combination is record i alone, and near 1 if some combination is almost record i
alone, as when one cost is far larger than all others.

**Groups.** In the same way, a combination may be zero outside a few records: two copies of a column
that differ in three patients, or the days in intensive care of ten patients who were added, of whom
two were there. The leverage of a group is the largest share of |Zc|^2 on the group; here it must be
below 1. m records that two jobs differ in, with d independent columns, always have a combination
that is zero for d - 1 of them. So m must be at least `min_records` + d - 1. The largest leverage of
k = `min_records` - 1 records is the largest eigenvalue of k rows and columns of Z's hat matrix. It
is at most their trace, so the sum of the k largest leverages of records often rules a group out.
Else the search starts at the difference of each pair of columns, and at each record that could
belong to such a group, whose own leverage is at least 1/k. It improves them by the truncated power
method (Yuan and Zhang 2013, Journal of Machine Learning Research 14, algorithm 1), which finds a
local maximum.

Threat model: a coordinator that knows, or guesses, the combination, and holds exact sums of Z'Z.
`null_combination` (`secagg.audits`) is the attack.

Not protected:

* A group outside which a combination is small but not zero. Such combinations exist in every small
  table. To use one, the coordinator has to know it, which is easy only where values repeat.
* A group that the search misses, because it ends at a smaller local maximum.
* Records of other sites add to a combination, unless it is zero for them too. So the rule is
  stricter than necessary.
"""

from __future__ import annotations

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


def on_leverage(z: NDArray[np.float64], minimum: int, max_leverage: float) -> Decision:
    """Return the decision about Z. minimum: the site's `min_records`."""
    basis = orthonormal(z)
    largest = largest_leverage(basis)
    if largest > max_leverage:
        text = (
            f"the largest leverage of a record is {largest:.3g}; at most {max_leverage:g} allowed"
        )
        return Decision("max_leverage", False, text)
    searched = max_leverage < 1 and groups_are_possible(basis, minimum - 1)
    if searched and group_leverage(basis, z, minimum - 1) > GROUP_LEVERAGE:
        text = f"a combination of columns is zero for all but fewer than {minimum} records"
        return Decision("max_leverage", False, text)
    text = (
        f"the largest leverage of a record is {largest:.3g}, and no combination of columns is zero "
        f"for all but fewer than {minimum} records"
    )
    return Decision("max_leverage", True, text)


def orthonormal(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return an orthonormal basis of all combinations of columns."""
    left, singular, _ = np.linalg.svd(z / np.linalg.norm(z, axis=0), full_matrices=False)
    return np.asarray(left[:, singular > _RANK_TOLERANCE * singular.max(initial=0.0)])


def largest_leverage(basis: NDArray[np.float64]) -> float:
    """Return the largest leverage of a record. basis: orthonormal columns."""
    return min(float((basis**2).sum(axis=1).max(initial=0.0)), 1.0)  # at most 1, but for rounding


def groups_are_possible(basis: NDArray[np.float64], size: int) -> bool:
    """Return whether some group of so many records could have a leverage of 1.

    The leverage of a group is the largest eigenvalue of a positive semidefinite matrix, so it is at
    most the trace: the sum of its records' leverages. In a table of many records, no search is
    needed.
    """
    leverages = np.sort((basis**2).sum(axis=1))[::-1]
    return float(leverages[:size].sum()) > GROUP_LEVERAGE


def group_leverage(basis: NDArray[np.float64], z: NDArray[np.float64], size: int) -> float:
    """Return the largest leverage of so many records that the search finds.

    basis: orthonormal columns, of the combinations of the columns of z; size: number of records
    """
    if size < 1 or not basis.size:
        return 0.0
    if size >= len(basis):
        return 1.0
    at = basis.T @ z  # z in the coordinates of the basis
    starts = [
        basis[(basis**2).sum(axis=1) >= GROUP_LEVERAGE / size],
        *(at[:, i] - at[:, i + 1 :].T for i in range(at.shape[1] - 1)),
    ]
    best = 0.0
    for start in np.concatenate(starts):
        combination, found = start, 0.0
        for _ in range(_STEPS):
            group = np.argpartition(-np.abs(basis @ combination), size)[:size]
            _, singular, right = np.linalg.svd(basis[group], full_matrices=False)
            combination, last, found = right[0], found, float(singular[0]) ** 2
            if found <= last * (1 + 1e-9):
                break
        best = max(best, found)
        if best > GROUP_LEVERAGE:
            break
    return min(best, 1.0)
