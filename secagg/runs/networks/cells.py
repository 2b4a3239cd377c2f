"""Cells of a neural graphical model's columns as numbers, and back.

Cells are read as a job reads them (`secagg.jobs.cells`): numbers are clipped to the public bounds,
the logarithm is taken if the job takes it, and levels become their number, from 0. Nothing is
added over records here, so a missing cell is allowed, and so is a column that a table lacks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from secagg.core.arrays import Array
from secagg.core.validation import did_you_mean
from secagg.errors import DataError, UsageError
from secagg.jobs.cells import read_column
from secagg.jobs.columns import Column, Continuous, Number


@dataclass(frozen=True)
class ModelCells:
    """The declared columns of a model, in order."""

    columns: Mapping[str, Column]

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return list(self.columns)

    def number(self, name: str, where: str) -> int:
        """Return the number of a column. Raises `UsageError` for one that the model lacks."""
        if name not in self.columns:
            advice = f"{did_you_mean(name, self.names)} Columns are {', '.join(self.names)}."
            raise UsageError(where, f"no column {name!r} in this model", advice.strip())
        return self.names.index(name)

    def numbers(self, names: Sequence[str], where: str) -> list[int]:
        """Return the numbers of columns. Raises `UsageError` if there is none, or one twice."""
        if not names:
            raise UsageError(where, "no column is named", f"Columns are {', '.join(self.names)}.")
        found = [self.number(name, where) for name in names]
        for name in names:
            if list(names).count(name) > 1:
                raise UsageError(where, f"column {name!r} is named twice", "Name it once.")
        return found

    def logarithm(self, number: int) -> bool:
        """Return whether the job takes the logarithm of a column."""
        column = self.columns[self.names[number]]
        return isinstance(column, Continuous) and column.transform == "log"

    def levels(self, number: int) -> tuple[str, ...]:
        """Return the names of a column's levels."""
        column = self.columns[self.names[number]]
        return () if isinstance(column, Number) else tuple(column.levels)

    def read_one(self, given: Mapping[str, Any]) -> tuple[Array, list[str]]:
        """Return the values of one record (NaN if not given), and the columns that were clipped.

        Raises `UsageError` for an unknown column, `DataError` for a cell that is missing or cannot
        be read.
        """
        values, clipped = np.full(len(self.columns), np.nan), []
        for name, cell in given.items():
            number = self.number(name, "given")
            cells = pd.Series([cell], dtype=object)
            column = self.columns[name]
            read = read_column(column, cells, "given", place=partial(_named, name))
            values[number] = _as_value(column, read.variables)[0]
            if np.isnan(values[number]):
                what = "has no value"
                raise DataError(f"given, {name}", what, "Leave the column out if it is unknown.")
            if read.outside:
                clipped.append(name)
        return values, clipped

    def read(self, table: pd.DataFrame, who: str) -> Array:
        """Return the values of a table's records, shape (records, columns); NaN if missing.

        Columns that the model lacks are not read. Raises `DataError` for a cell that cannot be
        read, a column that occurs twice, or a table without any column of the model.
        """
        values = np.full((len(table), len(self.columns)), np.nan)
        names = list(map(str, table.columns))
        if not set(names) & set(self.columns):
            what = "has no column of the model"
            raise DataError(who, what, f"Columns are {', '.join(self.names)}.")
        for number, (name, column) in enumerate(self.columns.items()):
            if names.count(name) > 1:
                raise DataError(who, f"{names.count(name)} columns are named {name!r}")
            if name in names:
                cells = table.iloc[:, names.index(name)]
                read = read_column(column, cells, f"{who}, column {name!r}")
                values[:, number] = _as_value(column, read.variables)
        return values

    def written(self, values: Array, decimals: Mapping[str, int] | None = None) -> pd.DataFrame:
        """Return values as a table: numbers in own units, names of levels.

        decimals: for some continuous columns, the number of decimals to which they are recorded
        Raises `UsageError` for an unknown column, or one with levels.
        """
        found: dict[str, Any] = {}
        for number, name in enumerate(self.columns):
            if levels := self.levels(number):
                found[name] = np.array(levels, dtype=object)[values[:, number].astype(np.intp)]
            else:
                found[name] = self.own(number, values[:, number])
        for name, places in (decimals or {}).items():
            if self.levels(self.number(name, "decimals")):
                raise UsageError("decimals", f"column {name!r} is not continuous")
            found[name] = np.round(found[name], places)
        return pd.DataFrame(found)

    def own(self, number: int, values: Array) -> Array:
        """Return values of a continuous column in its own unit."""
        return np.exp(values) if self.logarithm(number) else values

    def cell(self, number: int, value: float) -> float | str:
        """Return one value as a cell: a number in the own unit, or the name of a level."""
        if levels := self.levels(number):
            return levels[int(value)]
        return float(self.own(number, np.array(value)))


def _named(name: str, row: int) -> str:
    return name


def _as_value(column: Column, variables: Array) -> Array:
    """Return the value of each cell from its variables: the unit analysed, or a level's number."""
    if isinstance(column, Number):
        return variables[:, 0]
    return np.asarray(variables @ np.arange(1, variables.shape[1] + 1))
