"""Sets of variables as bits, and equivalence classes of directed acyclic graphs.

A set of variables is an integer whose bit i stands for variable i. A `Pattern` is a partially
directed graph. Completed, it stands for a Markov equivalence class: its undirected edges are those
that differ within the class (Chickering, JMLR 2002).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Graph = NDArray[np.bool_]  # [i, j] for i -> j


def members(bits: int) -> Iterator[int]:
    """Yield the variables of a set, the smallest first."""
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def bits_of(row: NDArray[np.bool_]) -> int:
    """Return the set of the variables where the row is true."""
    return sum(1 << int(i) for i in np.flatnonzero(row))


@dataclass
class Pattern:
    """parents[y]: sources of directed edges into y; neighbours[y]: ends of undirected edges at y"""

    parents: list[int]
    neighbours: list[int]

    def adjacent(self) -> list[int]:
        """Return for each variable all variables that an edge connects with it."""
        found = [p | n for p, n in zip(self.parents, self.neighbours, strict=True)]
        for y, parents in enumerate(self.parents):
            for x in members(parents):
                found[x] |= 1 << y
        return found

    def arrays(self) -> tuple[Graph, Graph]:
        """Return (directed, undirected), the second symmetric."""
        d = len(self.parents)
        directed, undirected = np.zeros((d, d), bool), np.zeros((d, d), bool)
        for y in range(d):
            directed[list(members(self.parents[y])), y] = True
            undirected[list(members(self.neighbours[y])), y] = True
        return directed, undirected


def completed(dag: Graph) -> Pattern:
    """Return the completed pattern of a DAG: colliders, then Meek's rules 1 to 3 (UAI 1995)."""
    adjacent = dag | dag.T
    apart = ~adjacent & ~np.eye(len(dag), dtype=bool)
    directed = dag & (apart.astype(int) @ dag > 0)  # a -> b <- c, a and c apart
    while True:
        free = adjacent & ~directed & ~directed.T
        forward = directed.astype(int)
        new = free & ((forward.T @ apart > 0) | (forward @ forward > 0))  # rules 1 and 2
        if not new.any():
            new = _third_rule(free, directed, apart)
        if not new.any():
            break
        directed = directed | (new & dag)
    return Pattern([bits_of(c) for c in directed.T], [bits_of(c) for c in free.T])


def _third_rule(free: Graph, directed: Graph, apart: Graph) -> Graph:
    """Return edges a -> b for a - b with a - c -> b and a - d -> b, c and d apart."""
    new = np.zeros_like(free)
    for a, b in np.argwhere(free):
        between = np.flatnonzero(free[a] & directed[:, b])
        new[a, b] = bool(apart[np.ix_(between, between)].any())
    return new


def member_of(pattern: Pattern) -> Graph | None:
    """Return a DAG of the class; None if there is none (Dor and Tarsi, 1992)."""
    d = len(pattern.parents)
    parents, neighbours = list(pattern.parents), list(pattern.neighbours)
    dag = pattern.arrays()[0]
    left = (1 << d) - 1
    while left:
        adjacent = Pattern(parents, neighbours).adjacent()
        for x in members(left):
            around = adjacent[x] & left
            is_sink = not any(parents[y] >> x & 1 for y in members(around))
            if is_sink and all(
                around & ~adjacent[y] & ~(1 << y) == 0 for y in members(neighbours[x] & left)
            ):
                break
        else:
            return None
        for y in members(neighbours[x] & left):
            dag[y, x] = True
            neighbours[y] &= ~(1 << x)
        left &= ~(1 << x)
        parents[x], neighbours[x] = 0, 0
        parents = [p & ~(1 << x) for p in parents]
    return dag
