"""A6: the records behind a matrix of moments of few records, by an integer program.

Let B be the (n, m) matrix of the 0/1 variables of n records. The moments have n and B'B: how many
records have a 1 in each variable, and in each pair of variables. The attacker looks for all
matrices B with this B'B, up to the order of the rows. It adds one column after another. With the
rows of equal values so far taken together, column j says how many rows of each group have a 1:
integers between 0 and the size of the group that satisfy one linear equation for each earlier
column and one for its own sum. A depth-first search finds all of them.

A variable x that is not 0/1 has known products with all columns of Z = (1, B). If Z has rank n,
which needs n <= m + 1, they determine x. The products of such variables with each other must then
agree with the moments, which rules out most wrong B. With rank n - 1, two x remain; if this is
because two records have the same B, they differ only in the order of rows.

The attacker holds the moments of a site under `plain`, those of all sites, or, as a coalition,
those of all sites but its own. It knows which variables are 0/1. The recovered rows have no order,
and no name. Not shown: that records of more than a few people are safe. The search ends after a
fixed number of steps, and says so; a better one may go further.

The number is how much better the found cells are than a guess of the most frequent value of each
column: (f - g) / (1 - g), with f and g the shares of exact cells of both, among the cells that the
attack claims. Cells that it leaves open are no errors; their share is `open`. The attacker cannot
tell solutions apart, so f is the mean over all that were found (`solutions`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from secagg.audits.attacks.records.released_moments import of_moments
from secagg.audits.contract import Attack, Finding, Limit, Truth
from secagg.audits.views import SeenRound, View, Who
from secagg.contracts import SiteRecords
from secagg.core.arrays import Array
from secagg.models.moments.method import STAGE

_MOST_RECORDS = 32
_MOST_STEPS = 100_000  # groups of rows looked at, some seconds
_MOST_SOLUTIONS = 200
_RANK = 1e-8  # smallest singular value of Z; it is at least about 0.1, or 0
_AGREES = 1e-6  # of numbers in [-1, 1]: the root of the errors of floats, as c is a root
_PLANTED = 6

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Solution:
    """Records (n, p) of each solution in units of the run, NaN where undetermined; of whom.

    complete: whether the search saw all solutions
    """

    of: tuple[str, ...]
    records: tuple[Array, ...]
    complete: bool


class GramRecords(Attack):
    """Search for B, and solve for the other variables."""

    name: ClassVar[str] = "gram_records"
    title: ClassVar[str] = "The records behind the moments of few records"
    source: ClassVar[str] = "integer program of the module's text"
    knows: ClassVar[str] = (
        "which columns are 0/1; a coalition also the records of all sites but one"
    )
    views: ClassVar[tuple[Who, ...]] = (Who.COORDINATOR, Who.COALITION)
    metric: ClassVar[str] = "cells_found"
    meaning: ClassVar[str] = "share of the claimed cells found exactly, beyond a guess; 0: a guess"

    def colluding(self, sites: int) -> int:
        """Return all sites but one."""
        return sites - 1

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        if not any(seen.stage == STAGE and "moments" in seen.total for seen in view.rounds):
            return "for the sum of the method moments"
        if view.planned.public.clip is not None:
            return "sums with noise have no exact solution"
        if not any(variable.indicator for variable in view.planned.public.variables):
            return "no column is 0/1"
        return ""

    def limit(self, view: View) -> Limit:
        """Return the limit: of the errors of a guess, one in ten is left."""
        return Limit(0.9)

    def run(self, view: View, rng: np.random.Generator) -> list[Solution]:
        """Return the records behind each matrix of moments with few records."""
        u = _indicator_values(view)
        return [
            replace(_solve(each.M, u), of=each.of)
            for each in of_moments(view)
            if 0 < round(each.M[0, 0]) <= _MOST_RECORDS
        ]

    def score(self, guess: list[Solution], view: View, truth: Truth) -> Finding:
        """Return the largest number of a group; details: of each, and the share of rows."""
        if not guess:
            return Finding.impossible(f"no sum is over {_MOST_RECORDS} records or fewer")
        groups, values = list[dict[str, object]](), list[float]()
        for each in guess:
            rows = [
                truth.sites[site] if site in truth.sites else view.own[site] for site in each.of
            ]
            true = np.concatenate([one.values for one in rows])
            claimed, right, usual, rows_right = _share_exact(each.records, true)
            values.append((right - usual) / (1 - usual) if usual < 1 else 0.0)
            groups.append({
                "sites": list(each.of), "records": len(true), "cells": right, "guess": usual,
                "rows": rows_right, "open": 1 - claimed,
                "solutions": len(each.records), "all_solutions": each.complete,
            })  # fmt: skip
        complete = all(each.complete and each.records for each in guess)
        failed = "" if complete else "a search ended before its end"
        return Finding.failure(failed, max(values), 0.0, groups=groups)

    def control(self, plain: View) -> View:
        """Return a view of moments of six random records."""
        rng, variables = np.random.default_rng(0), plain.planned.public.variables
        u = _indicator_values(plain)
        values = rng.uniform(-1, 1, (_PLANTED, len(variables)))
        for j, pair in u.items():
            values[:, j] = np.array(pair)[rng.integers(0, 2, _PLANTED)]
        z = np.column_stack([np.ones(_PLANTED), values])
        total = {"moments": (z.T @ z)[np.triu_indices(z.shape[1])]}
        own = {"planted": SiteRecords(values, 0, np.zeros(len(variables)))}
        seen = SeenRound(STAGE, {}, total, {"planted": total})
        return replace(plain, sites=("planted",), rounds=(seen,), own=own)


def _indicator_values(view: View) -> dict[int, tuple[float, float]]:
    """Return of each 0/1 variable its two values as scaled."""
    return {
        j: ((0 - v.midpoint) / v.half_range, (1 - v.midpoint) / v.half_range)
        for j, v in enumerate(view.planned.public.variables)
        if v.indicator
    }


def _solve(M: Array, u: dict[int, tuple[float, float]]) -> Solution:
    """Return all solutions that the search sees, if it sees any that fits."""
    n, p = round(M[0, 0]), len(M) - 1
    low = np.array([u[j][0] for j in u])
    gap = np.array([u[j][1] - u[j][0] for j in u])
    at = [1 + j for j in u]
    sums, products = M[0, at], M[np.ix_(at, at)]
    ones = (sums - n * low) / gap  # of x = (value - low) / gap
    pairs = products - np.outer(low, sums) - np.outer(sums, low) + n * np.outer(low, low)
    gram = np.rint(pairs / np.outer(gap, gap)).astype(np.int64)
    np.fill_diagonal(gram, np.rint(ones).astype(np.int64))
    others = [j for j in range(p) if j not in u]
    rest, search = [1 + j for j in others], _Search(gram, n)
    fitting, seen = list[Array](), 0
    for B in islice(search.solutions(), _MOST_SOLUTIONS):
        values, seen = np.full((n, p), np.nan), seen + 1
        values[:, list(u)] = low + B * gap
        if not others:
            fitting.append(values)
            continue
        Z = np.column_stack([np.ones(n), values[:, list(u)]])
        for X in _continuous(Z, M[np.ix_([0, *at], rest)], M[np.ix_(rest, rest)]):
            values = values.copy()
            values[:, others] = X
            if not any(_exact(values, other) == (1.0, 1.0) for other in fitting):
                fitting.append(values)
    full = search.steps < _MOST_STEPS and seen < _MOST_SOLUTIONS
    return Solution((), tuple(fitting), full)


def _continuous(Z: Array, cross: Array, products: Array) -> Iterator[Array]:
    """Yield all X with Z'X = cross and X'X = products, or NaN if there are infinitely many.

    With Z of rank n - 1 and k orthogonal to its columns, X = Z (Z'Z)^+ cross + k c', and c c' is
    what is missing in the products: c is known up to its sign.
    """
    n = len(Z)
    U, s, _ = np.linalg.svd(Z)
    rank = int(np.sum(s > _RANK * s[0]))
    X: Array = np.asarray(np.linalg.lstsq(Z.T, cross, rcond=_RANK)[0], dtype=np.float64)
    missing = products - X.T @ X
    L, V = np.linalg.eigh(missing)
    known = max(n - rank, 0)  # products beyond have this rank
    if np.max(np.abs(Z.T @ X - cross)) > _AGREES * n or np.any(
        np.abs(L[: max(len(L) - known, 0)]) > _AGREES
    ):
        return
    if rank == n:
        yield X
    elif rank == n - 1 and L[-1] > 0:
        for sign in (1, -1):
            found: Array = X + sign * float(np.sqrt(L[-1])) * np.outer(U[:, -1], V[:, -1])
            if np.max(np.abs(found)) <= 1 + _AGREES:
                yield found
    elif rank < n:
        yield np.full(X.shape, np.nan)


class _Search:
    """All 0/1 matrices of n rows with given products, up to the order of rows."""

    def __init__(self, gram: Counts, n: int) -> None:
        """Begin. steps: nodes visited so far"""
        self.gram, self.steps, self._n = gram, 0, n

    def solutions(self) -> Iterator[Array]:
        """Yield matrices (n, m)."""
        m = len(self.gram)
        # Columns with sums far from n / 2 have few possibilities: they come first.
        order = np.argsort(-np.abs(np.diag(self.gram) - self._n / 2), kind="stable")
        gram = self.gram[np.ix_(order, order)]
        for patterns, sizes in self._columns(gram, np.zeros((1, 0), np.int64), np.array([self._n])):
            B = np.empty((self._n, m))
            B[:, order] = np.repeat(patterns, sizes, axis=0)
            yield B

    def _columns(
        self, gram: Counts, patterns: Counts, sizes: Counts
    ) -> Iterator[tuple[Counts, Counts]]:
        """Yield all ways to add the columns that are missing to groups of equal rows."""
        j = patterns.shape[1]
        if j == len(gram):
            yield patterns, sizes
            return
        target = np.append(gram[:j, j], gram[j, j])
        rows = np.column_stack([patterns, np.ones(len(patterns), np.int64)])
        reach = np.cumsum((rows * sizes[:, None])[::-1], axis=0)[::-1]  # of this and later groups
        for ones in self._splits(rows, sizes, reach, target, 0):
            split = np.array(ones)
            with_one = np.column_stack([patterns, np.ones_like(split)])[split > 0]
            without = np.column_stack([patterns, np.zeros_like(split)])[sizes > split]
            groups = np.concatenate([split[split > 0], (sizes - split)[sizes > split]])
            yield from self._columns(gram, np.concatenate([with_one, without]), groups)

    def _splits(
        self, rows: Counts, sizes: Counts, reach: Counts, target: Counts, at: int
    ) -> Iterator[list[int]]:
        """Yield how many rows of each group have a 1, so that all products are as given."""
        self.steps += 1
        if self.steps > _MOST_STEPS or np.any(target < 0):
            return
        if at == len(sizes):
            if not np.any(target):
                yield []
            return
        if np.any(target > reach[at]):
            return
        for count in range(int(sizes[at]) + 1):
            left = target - count * rows[at]
            for rest in self._splits(rows, sizes, reach, left, at + 1):
                yield [count, *rest]


def _share_exact(solutions: tuple[Array, ...], true: Array) -> tuple[float, float, float, float]:
    """Return the share of claimed cells; of these, the exact ones, and those of a guess; rows.

    The guess is the most frequent value of each column. All are means over the solutions.
    """
    if not solutions:
        return 0.0, 0.0, 0.0, 0.0
    counted = [np.unique(x, return_counts=True) for x in true.T]
    usual = np.array([np.max(counts) / len(true) for _, counts in counted])
    claimed = np.array([~np.isnan(each) for each in solutions])
    exact = np.mean([_exact(each, true) for each in solutions], axis=0)
    share = float(np.mean(claimed))
    of_guess = float(np.mean(claimed * usual)) / share
    return share, float(exact[0]) / share, of_guess, float(exact[1])


def _exact(found: Array, true: Array) -> tuple[float, float]:
    """Return the shares of cells and of rows that are exact, in the order that fits best."""
    same = np.abs(found[:, None, :] - true[None, :, :]) <= _AGREES
    equal = same.sum(axis=2)
    order = linear_sum_assignment(-equal)
    matched = equal[order]
    p = true.shape[1]
    return float(np.sum(matched) / true.size), float(np.mean(matched == p))
