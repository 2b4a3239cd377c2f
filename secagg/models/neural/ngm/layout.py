"""The columns of a neural graphical model and their variables.

A continuous column has one variable. A column with L levels has L - 1 indicators; all indicators of
a column belong together: they have the same neighbours, and none of them is an input of another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import PublicFacts
from secagg.errors import JobError
from secagg.models.common.variables import choose


@dataclass(frozen=True)
class ModelColumn:
    """One column: a node of the graph.

    positions: of its variables among those of the model
    indicator: whether they are indicators of levels; the first level has none
    """

    name: str
    positions: tuple[int, ...]
    indicator: bool


@dataclass(frozen=True)
class NgmLayout:
    """All columns of a model, in order. chosen: positions of its variables among the job's."""

    columns: tuple[ModelColumn, ...]
    chosen: tuple[int, ...]

    def plain(self) -> dict[str, Any]:
        """Return the layout as plain data; `of` restores it."""
        columns = [[c.name, list(c.positions), c.indicator] for c in self.columns]
        return {"columns": columns, "chosen": list(self.chosen)}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        columns = tuple(ModelColumn(n, tuple(p), i) for n, p, i in plain["columns"])
        return cls(columns, tuple(plain["chosen"]))

    @property
    def d(self) -> int:
        """Number of columns."""
        return len(self.columns)

    @property
    def variables(self) -> int:
        """Number of variables."""
        return len(self.chosen)

    @cached_property
    def column_of(self) -> NDArray[np.int64]:
        """The column of each variable, shape (variables,)."""
        found = np.zeros(self.variables, dtype=np.int64)
        for number, column in enumerate(self.columns):
            found[list(column.positions)] = number
        return found

    @cached_property
    def continuous(self) -> NDArray[np.int64]:
        """The positions of the continuous variables."""
        found = [c.positions[0] for c in self.columns if not c.indicator]
        return np.array(found, dtype=np.int64)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @cached_property
    def pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The pairs of columns that may have an edge: the upper triangle, by rows."""
        return np.triu_indices(self.d, k=1)

    def graph(self, edges: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return the symmetric matrix of edges, shape (columns, columns), from one per pair."""
        matrix = np.zeros((self.d, self.d), dtype=np.bool_)
        matrix[self.pairs] = edges
        return np.asarray(matrix | matrix.T)

    def inputs(self, graph: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which variables each column's network may read, shape (columns, variables)."""
        return np.asarray(graph[:, self.column_of])


def ngm_layout(public: PublicFacts, names: Sequence[str] | None) -> NgmLayout:
    """Return the layout of the named columns; of all if None. Raises `JobError`."""
    chosen = choose(public, names, "method.variables")
    grouped: dict[str, list[int]] = {}
    for position, index in enumerate(chosen.tolist()):
        grouped.setdefault(public.variables[index].column, []).append(position)
    columns: list[ModelColumn] = []
    for name, positions in grouped.items():
        whole = public.positions[name]
        if len(positions) != len(whole):
            what = f"names some levels of column {name!r}, and a model needs all of them"
            raise JobError("method.variables", what, f"Write {name!r}.")
        indicator = public.variables[whole[0]].indicator
        columns.append(ModelColumn(name, tuple(positions), indicator))
    if len(columns) < 2:
        raise JobError("method.variables", "a graph needs at least two columns")
    return NgmLayout(tuple(columns), tuple(chosen.tolist()))


def edge_positions(
    layout: NgmLayout, edges: Sequence[tuple[str, str]], where: str
) -> NDArray[np.bool_]:
    """Return for each pair of columns whether it is among the edges. Raises `JobError`."""
    number = {name: i for i, name in enumerate(layout.names)}
    matrix = np.zeros((layout.d, layout.d), dtype=np.bool_)
    for one, other in edges:
        for name in (one, other):
            if name not in number:
                columns = f"Columns are {', '.join(layout.names)}."
                raise JobError(where, f"no column {name!r} in this model", columns)
        if one == other:
            raise JobError(where, f"an edge joins {one!r} to itself")
        matrix[number[one], number[other]] = matrix[number[other], number[one]] = True
    return np.asarray(matrix[layout.pairs])
