"""GES with background knowledge: edges that the graph must not have, or must have.

Greedy equivalence search (Chickering, JMLR 2002) moves from one equivalence class to the best of
its neighbours, first by inserting edges, then by deleting edges. Here every class is restricted to
the DAGs that agree with the knowledge. It is shown as Meek's maximally oriented graph
(`secagg.models.graphs.pdag`), and an operator is valid if its result has such a member. For tiers
this is TGES (Larsen, Ekstrøm and Petersen, UAI 2025), which finds the restricted class of the true
graph as n grows. For other knowledge there is no such theorem, and a search may end in a class that
is not the best: from exact moments of 60 graphs with six variables, each with about a third of the
absent arrows forbidden, 9 searches did, and none with tiers (`pc` found all classes).
Without knowledge it is Chickering's algorithm.

Insert(x, y, T), for x and y not adjacent, T neighbours of y (joined by an undirected edge) that are
not adjacent to x, and N = those neighbours of y that are adjacent to x, inserts x -> y and orients
T -> y. It changes the score by s(y, N u T u Pa(y) u x) - s(y, N u T u Pa(y)). It is valid if N u T
is a clique and every path from y to x without arrows against it meets N u T (theorem 15).
Delete(x, y, H), for x -> y or x - y and H within N, deletes the edge and orients y -> h, and x -> h
where x - h, for h in H. With R = N without H, it changes the score by s(y, R u Pa(y) without x)
- s(y, R u Pa(y) u x). It is valid if R is a clique (theorem 17).

With noise in the moments. An operator asks one question: does x add to what y's other parents K
explain? BIC's answer is -n log(1 - r^2) - log n, halved, with r the partial correlation of x and y
given K. Under noise of known size, r has without a dependence the variance 1 / n + v, with another
v for each question (`secagg.models.common.noisy_partials`, (3)). So an edge also has to be beyond
noise and chance:

    r^2 / (1 / n + v) > max(log n, z^2),                                                    (1)

with z of `secagg.models.graphs.noise_size`: a graph of unrelated columns has an edge in at most 5 %
of runs. BIC chooses among the edges that are beyond; the others lose by what they lack in (1). (A
score of 1 / (1 / n + v) records in place of n prefers an indirect edge between two columns, whose v
is small, to the direct ones given others. Its graphs had up to twice as many wrong edges.) The
graphs then have no total score. The search ends because the first phase only inserts, and the
second only deletes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Protocol

import numpy as np

from secagg.core.arrays import Array
from secagg.models.common.noisy_partials import NoisyPartials
from secagg.models.graphs.pdag import Edges, equivalence_class, member

LocalScore = Callable[[int, Sequence[int]], float]
"""The score of a variable given its parents; a graph's score is the sum."""
Candidate = tuple[float, int, int, tuple[int, ...]]
"""The change of the score, x, y, and T or H."""
Apply = Callable[[Edges, Edges, int, int, tuple[int, ...]], tuple[Edges, Edges]]
MIN_GAIN = 1e-12  # of the score, relative: less is rounding


def bic_score(correlation: Array, n: int, penalty: float) -> LocalScore:
    """Return -n/2 log(residual variance) - penalty/2 log n |parents|, computed once each."""
    known: dict[tuple[int, tuple[int, ...]], float] = {}

    def score(y: int, parents: Sequence[int]) -> float:
        key = (y, tuple(sorted(parents)))
        if key not in known:
            index = list(key[1])
            slopes = np.linalg.solve(correlation[np.ix_(index, index)], correlation[index, y])
            left = correlation[y, y] - correlation[y, index] @ slopes
            known[key] = -0.5 * n * np.log(left) - 0.5 * penalty * np.log(n) * len(index)
        return known[key]

    return score


class Score(Protocol):
    """What the search asks."""

    def gain(self, x: int, y: int, given: Iterable[int]) -> float:
        """Return what the edge x -> y adds to the score if y's other parents are `given`."""
        ...

    def change(self, before: Edges, after: Edges, gain: float) -> float:
        """Return the change of the score from one DAG to the next one, by an operator's gain."""
        ...

    def rounding(self, dag: Edges) -> float:
        """Return the largest change of the score that may be rounding."""
        ...


@dataclass(frozen=True)
class TotalScore:
    """The sum of a local score over the variables."""

    local: LocalScore

    def gain(self, x: int, y: int, given: Iterable[int]) -> float:
        return self.local(y, [*given, x]) - self.local(y, [*given])

    def change(self, before: Edges, after: Edges, gain: float) -> float:
        return total_score(self.local, after) - total_score(self.local, before)

    def rounding(self, dag: Edges) -> float:
        return MIN_GAIN * abs(total_score(self.local, dag))


class NoisyBic:
    """BIC among edges with (1) of this module.

    partials: the moments; penalty: factor of log n; z: of (1)
    """

    def __init__(self, partials: NoisyPartials, penalty: float, z: float) -> None:
        self.records = partials.records
        self.penalty = penalty * math.log(self.records)
        self.least = max(self.penalty, z * z)
        self._partial = cache(partials.partial)  # the operators ask the same questions again

    def gain(self, x: int, y: int, given: Iterable[int]) -> float:
        r, v = self._partial(min(x, y), max(x, y), tuple(sorted(given)))
        beyond = r * r / (1 / self.records + v)
        if beyond <= self.least:
            return 0.5 * (beyond - self.least)
        return 0.5 * (-self.records * math.log1p(-min(r * r, 1 - MIN_GAIN)) - self.penalty)

    def change(self, before: Edges, after: Edges, gain: float) -> float:
        """Return the gain: there is no total score to compare it with."""
        return gain

    def rounding(self, dag: Edges) -> float:
        return MIN_GAIN


def constrained_ges(score: Score, forbidden: Edges, required: Edges) -> tuple[Edges, Edges]:
    """Return the directed and the undirected edges of the class at which the search ends.

    forbidden, required: (p, p), [i, j] for i -> j; required edges form a DAG, and none is forbidden
    """
    forbidden, dag = forbidden | required.T, required
    for operators, apply in ((_insertions, _inserted), (_deletions, _deleted)):
        better: Edges | None = dag
        while better is not None:
            dag, (D, U) = better, equivalence_class(better, forbidden)
            found = operators(D, U, score, forbidden, required)
            better = _best(found, D, U, apply, score, dag, forbidden)
    return D, U


def _best(
    found: Iterable[Candidate], D: Edges, U: Edges, apply: Apply, score: Score, dag: Edges,
    forbidden: Edges,
) -> Edges | None:  # fmt: skip
    """Return a DAG of the best class that an operator reaches; None if none is better.

    An operator's change of the score holds if the class has a member in which y has the parents
    that the formula names. With knowledge beyond tiers there may be none. So the score of the
    result is compared, too, if there is one.
    """
    best, gain = None, score.rounding(dag)
    for candidate in sorted(found, reverse=True):
        if candidate[0] <= gain:
            break
        reached = member(*apply(D, U, *candidate[1:]), forbidden)
        if reached is not None and (change := score.change(dag, reached, candidate[0])) > gain:
            best, gain = reached, change
    return best


def total_score(score: LocalScore, dag: Edges) -> float:
    return sum(score(y, np.flatnonzero(dag[:, y]).tolist()) for y in range(len(dag)))


def _insertions(
    D: Edges, U: Edges, score: Score, forbidden: Edges, required: Edges
) -> Iterator[Candidate]:
    """Yield every Insert that raises the score and meets theorem 15."""
    adjacent = D | D.T | U
    for x, y in np.argwhere(~adjacent & ~forbidden & ~np.eye(len(D), dtype=bool)).tolist():
        near = set(np.flatnonzero(U[y] & adjacent[x]).tolist())
        parents = set(np.flatnonzero(D[:, y]).tolist())
        for T in _subsets(np.flatnonzero(U[y] & ~adjacent[x]).tolist()):
            joined = near | set(T)
            if not _clique(adjacent, joined):
                continue
            base = joined | parents
            gain = score.gain(x, y, base)
            if gain > 0 and not _reaches(D, U, y, x, joined):
                yield gain, x, y, T


def _inserted(D: Edges, U: Edges, x: int, y: int, T: tuple[int, ...]) -> tuple[Edges, Edges]:
    D, U = D.copy(), U.copy()
    D[x, y] = True
    _orient(D, U, T, [y])
    return D, U


def _deletions(
    D: Edges, U: Edges, score: Score, forbidden: Edges, required: Edges
) -> Iterator[Candidate]:
    """Yield every Delete that raises the score and meets theorem 17."""
    adjacent = D | D.T | U
    for x, y in np.argwhere((D | U) & ~required & ~required.T).tolist():
        near = set(np.flatnonzero(U[y] & adjacent[x]).tolist())
        parents = set(np.flatnonzero(D[:, y]).tolist()) - {x}
        for H in _subsets(sorted(near)):
            rest = near - set(H)
            if not _clique(adjacent, rest):
                continue
            gain = -score.gain(x, y, rest | parents)
            if gain > 0:
                yield gain, x, y, H


def _deleted(D: Edges, U: Edges, x: int, y: int, H: tuple[int, ...]) -> tuple[Edges, Edges]:
    D, U = D.copy(), U.copy()
    D[x, y] = U[x, y] = U[y, x] = False
    _orient(D, U, [y], H)
    _orient(D, U, [x], H)
    return D, U


def _orient(D: Edges, U: Edges, causes: Sequence[int], effects: Sequence[int]) -> None:
    """Orient the undirected edges from causes to effects, in place."""
    for i in causes:
        for j in effects:
            if U[i, j]:
                D[i, j] = True
                U[i, j] = U[j, i] = False


def _subsets(items: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for size in range(len(items) + 1):
        yield from combinations(items, size)


def _clique(adjacent: Edges, some: set[int]) -> bool:
    return all(adjacent[i, j] for i, j in combinations(some, 2))


def _reaches(D: Edges, U: Edges, start: int, goal: int, without: set[int]) -> bool:
    """Return whether a path of i -> j and i - j edges leads from start to goal outside a set."""
    seen, front = {start, *without}, [start]
    while front:
        for j in np.flatnonzero(D[front[-1]] | U[front.pop()]).tolist():
            if j == goal:
                return True
            if j not in seen:
                seen.add(j)
                front.append(j)
    return False
