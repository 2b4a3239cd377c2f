"""GES from a given graph with a limited number of insertions (Chickering, JMLR 2002).

The score is the BIC of linear Gaussian networks, computed from a covariance. As in the program of
FedGES, a call inserts at most `limit` edges and then deletes as long as the score rises.
secagg's `ges` starts without edges and has no limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from reproductions.fedges.tasks.equivalence import Graph, Pattern, completed, member_of, members

LEAST_GAIN = 1e-9  # relative to the number of records: rounding is no gain


class GaussianBic:
    """Scores of a variable with its parents: log-likelihood minus 1/2 log n per parent."""

    def __init__(self, covariance: NDArray[np.float64], n: int) -> None:
        self.covariance, self.n = covariance, n
        self._known: dict[tuple[int, int], float] = {}

    def __call__(self, y: int, parents: int) -> float:
        """Return the score of y; parents: a set. Raises `LinAlgError` if they are collinear."""
        if (y, parents) not in self._known:
            chosen, S = list(members(parents)), self.covariance
            slopes = np.linalg.solve(S[np.ix_(chosen, chosen)], S[chosen, y])
            residual = float(S[y, y] - S[y, chosen] @ slopes)
            penalty = 0.5 * math.log(self.n) * len(chosen)
            self._known[y, parents] = -0.5 * self.n * math.log(residual) - penalty
        return self._known[y, parents]


def search(score: GaussianBic, start: Graph, limit: int) -> Graph:
    """Return a DAG of the class at which GES from `start` ends. limit: of insertions"""
    pattern = completed(start)
    for _ in range(limit):
        if (following := best_neighbour(pattern, insertions(score, pattern), score)) is None:
            break
        pattern = following
    while (following := best_neighbour(pattern, deletions(score, pattern), score)) is not None:
        pattern = following
    dag = member_of(pattern)
    assert dag is not None  # `best_neighbour` returns completed patterns of DAGs
    return dag


Operator = tuple[float, int, int, int, bool]
"""gain, x, y, the set T of an insertion or H of a deletion, whether it inserts"""


def best_neighbour(
    pattern: Pattern, operators: Iterator[Operator], score: GaussianBic
) -> Pattern | None:
    """Return the pattern after the valid operator with the largest gain above 0, or None."""
    adjacent = pattern.adjacent()
    for gain, x, y, moved, inserts in sorted(operators, key=lambda each: -each[0]):
        if gain <= LEAST_GAIN * score.n:
            return None
        common = pattern.neighbours[y] & adjacent[x]
        rest = common | moved if inserts else common & ~moved
        if not _is_clique(rest, adjacent) or (inserts and _reaches(pattern, y, x, rest)):
            continue
        dag = member_of(_after(pattern, x, y, moved, inserts))
        assert dag is not None  # a valid operator leaves one (theorems 15 and 17)
        return completed(dag)
    return None


def insertions(score: GaussianBic, pattern: Pattern) -> Iterator[Operator]:
    """Yield Insert(x, y, T) with their gains (theorem 15), whether or not they are valid."""
    adjacent = pattern.adjacent()
    for y, parents in enumerate(pattern.parents):
        for x in range(len(adjacent)):
            if x == y or adjacent[y] >> x & 1:
                continue
            common = pattern.neighbours[y] & adjacent[x]
            for T in _subsets(pattern.neighbours[y] & ~adjacent[x]):
                base = common | T | parents
                yield score(y, base | 1 << x) - score(y, base), x, y, T, True


def deletions(score: GaussianBic, pattern: Pattern) -> Iterator[Operator]:
    """Yield Delete(x, y, H) with their gains (theorem 17), whether or not they are valid."""
    adjacent = pattern.adjacent()
    for y, parents in enumerate(pattern.parents):
        for x in members(parents | pattern.neighbours[y]):
            common = pattern.neighbours[y] & adjacent[x]
            for H in _subsets(common):
                base = (common & ~H | parents) & ~(1 << x)
                yield score(y, base) - score(y, base | 1 << x), x, y, H, False


def _after(pattern: Pattern, x: int, y: int, moved: int, inserts: bool) -> Pattern:
    """Return the partially directed graph after an operator (definitions 12 and 13)."""
    parents, neighbours = list(pattern.parents), list(pattern.neighbours)

    def direct(source: int, target: int) -> None:
        if neighbours[source] >> target & 1:
            neighbours[source] &= ~(1 << target)
            neighbours[target] &= ~(1 << source)
            parents[target] |= 1 << source

    if inserts:
        parents[y] |= 1 << x
        for t in members(moved):
            direct(t, y)
    else:
        parents[y] &= ~(1 << x)
        neighbours[x] &= ~(1 << y)
        neighbours[y] &= ~(1 << x)
        for h in members(moved):
            direct(y, h)
            direct(x, h)
    return Pattern(parents, neighbours)


def _subsets(bits: int) -> Iterator[int]:
    """Yield all subsets of a set, the whole set first."""
    subset = bits
    while True:
        yield subset
        if not subset:
            return
        subset = (subset - 1) & bits


def _is_clique(bits: int, adjacent: list[int]) -> bool:
    return all(bits & ~adjacent[i] & ~(1 << i) == 0 for i in members(bits))


def _reaches(pattern: Pattern, start: int, goal: int, blocked: int) -> bool:
    """Return whether a semi-directed path leads from start to goal without a blocked variable."""
    children = [0] * len(pattern.parents)
    for y, parents in enumerate(pattern.parents):
        for x in members(parents):
            children[x] |= 1 << y
    seen = frontier = 1 << start
    while frontier:
        following = 0
        for i in members(frontier):
            following |= children[i] | pattern.neighbours[i]
        frontier = following & ~seen & ~blocked
        seen |= frontier
    return bool(seen >> goal & 1)
