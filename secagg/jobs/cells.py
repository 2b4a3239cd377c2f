"""Read the cells of one column of a site's table as numbers or as declared levels.

A level is one value of a binary or categorical column.

=====================================  =====================================================
cell                                   result
=====================================  =====================================================
empty, NA, N/A, NaN, null, None, ?     missing: the record is left out and counted
text in a column of numbers            unreadable
-1 or 2.5 in a column of counts        unreadable
inf, -inf                              unreadable: only finite numbers are allowed
a level that was not declared          unreadable
MALFORMED: the record cannot be read   unreadable, whatever levels are declared
1, 1.0, 1.00, as text or number        match the level 1, or 1.0
a boolean                              matches the levels 0 and 1, or False and True
a number below low or above high       replaced by the bound and counted
=====================================  =====================================================

The result for a cell depends on its value alone, not on the data type that the table gives the
column. A column of whole numbers becomes one of floats as soon as one cell is missing or has
decimals. If 1 and 1.0 were then read differently, a single record could change how all others are
read, and no noise would be large enough. (Whole numbers above 2^53 in a data frame lose digits if
its owner makes them floats.)

Without noise, an unreadable cell is a `DataError` that names record and column, so that a mistake
in the file or in the job is found. The text stays at the site. Under differential privacy an
unreadable cell counts as missing, whatever kind of error it causes. An error would tell the
coordinator, without noise, that the cell exists. The coordinator chooses the levels, so by choosing
them it could test for any value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from secagg.errors import DataError
from secagg.jobs.columns import Column, Count, Number, without_zeros

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})


class Malformed(Enum):
    """The cells of a record that cannot be read (`secagg.jobs.records_under_noise`)."""

    CELL = "malformed"


MALFORMED: Final = Malformed.CELL
_OF_LINE = "Check its commas and quotes, and save the file as UTF-8."

_DECIMAL_COMMA = re.compile(r"[+-]?(0|[0-9]+),([0-9]{1,2}|[0-9]{4,})")  # 1,234 may be a thousand
_DATE = re.compile(r"[0-9]{1,4}([-/.])[0-9]{1,2}\1[0-9]{1,4}")
_DIGIT = re.compile(r"[0-9]")


@dataclass(frozen=True)
class ColumnValues:
    """A column's variables, not yet scaled.

    variables: shape (rows, k). k is the number of levels minus 1 for a categorical column, and 1
        for any other. A missing value is NaN
    values: as they are, before they are clipped; of levels, their positions
    values_outside: the values outside the bounds, before they were clipped
    unreadable_rows: the rows of unreadable cells, which count as missing
    rows_outside: for each row, whether its value is outside the bounds
    """

    variables: NDArray[np.float64]
    values: NDArray[np.float64]
    values_outside: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    unreadable_rows: tuple[int, ...] = ()
    rows_outside: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))

    @property
    def outside(self) -> int:
        return len(self.values_outside)

    @property
    def unreadable(self) -> int:
        return len(self.unreadable_rows)


def record_number(row: int) -> str:
    """Return where a row of a table is, for the text of an error."""
    return f"record {row + 1}"


def read_column(
    column: Column,
    cells: pd.Series[Any],
    where: str,
    *,
    unreadable_is_missing: bool = False,
    place: Callable[[int], str] = record_number,
) -> ColumnValues:
    """Return the column's variables.

    cells: the cells of the column
    where: site and column, for the text of an error; place: where a row is, for the same
    unreadable_is_missing: whether an unreadable cell counts as missing. Otherwise it is an error
    Raises `DataError`.
    """
    read = _reader(column)
    errors = Exception if unreadable_is_missing else ValueError
    values = np.empty(len(cells), dtype=np.float64)
    unreadable: list[int] = []
    plain = _plain_numbers(column, cells)
    values[plain] = cells.to_numpy()[plain] + 0.0  # 0 for -0, as its text is read
    listed = cells.tolist() if cells.dtype.kind == "O" else cells  # quick; float32 would change
    for row, cell in enumerate(listed) if not plain.all() else ():
        if plain[row]:
            continue
        try:
            if cell is MALFORMED:
                raise ValueError("the record cannot be read")
            values[row] = read(cell)
        except errors as error:
            if not unreadable_is_missing:
                what = str(error)
                advice = _OF_LINE if cell is MALFORMED else _advice(column, cells)
                raise DataError(f"{where}, {place(row)}", what, advice) from None
            values[row] = math.nan
            unreadable.append(row)
    if isinstance(column, Number):
        with np.errstate(invalid="ignore"):
            outside = (values < column.low) | (values > column.high)
        clipped = np.clip(values, column.low, column.high)
        numbers = np.log(clipped) if column.transform == "log" else clipped
        return ColumnValues(
            numbers[:, np.newaxis], values, values[outside], tuple(unreadable), outside
        )
    indicators = (values[:, np.newaxis] == np.arange(1, len(column.levels))).astype(np.float64)
    indicators[np.isnan(values)] = np.nan
    none = np.zeros(len(cells), dtype=np.bool_)
    return ColumnValues(indicators, values, unreadable_rows=tuple(unreadable), rows_outside=none)


def _plain_numbers(column: Column, cells: pd.Series[Any]) -> NDArray[np.bool_]:
    """Return which cells are floats whose text would be read as the same number."""
    if not isinstance(column, Number) or cells.dtype != np.float64:
        return np.zeros(len(cells), dtype=np.bool_)
    numbers = cells.to_numpy()
    found: NDArray[np.bool_] = np.isfinite(numbers)
    if isinstance(column, Count):
        found &= (numbers >= 0) & (numbers == np.floor(numbers))
    return found


def _reader(column: Column) -> Callable[[object], float]:
    if isinstance(column, Count):
        return _read_count
    return _read_number if isinstance(column, Number) else _Levels(column.levels)


def _read_count(cell: object) -> float:
    """Return the count in a cell, NaN if missing. Raises `ValueError` if it is unreadable."""
    number = _read_number(cell)
    if not (math.isnan(number) or (number >= 0 and number.is_integer())):
        raise ValueError(f"{cell_text(cell)!r} is not a count")
    return number


def _read_number(cell: object) -> float:
    """Return the number in a cell, NaN if missing. Raises `ValueError` if it is unreadable."""
    text = cell_text(cell)
    if text.lower() in MISSING:
        return math.nan
    try:
        number = _number(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
    if math.isinf(number):
        raise ValueError("the value is infinite")
    return number


class _Levels:
    """Read cells as positions among the declared levels."""

    def __init__(self, levels: Sequence[str]) -> None:
        self._positions = {without_zeros(level): float(i) for i, level in enumerate(levels)}

    def __call__(self, cell: object) -> float:
        """Return the cell's position, NaN if it is missing. Raises `ValueError` as above."""
        if type(cell) is str and cell in self._positions:  # most cells, quickly
            return self._positions[cell]
        for text in _readings(cell):
            if text in self._positions:
                return self._positions[text]
        if cell_text(cell).lower() in MISSING:
            return math.nan
        raise ValueError(f"{str(cell).strip()!r} is not a declared level")


def _advice(column: Column, cells: pd.Series[Any]) -> str:
    if not isinstance(column, Number):
        return f"Levels are {', '.join(column.levels)}."
    texts = [text for text in map(cell_text, cells) if text.lower() not in MISSING]
    wrong = [text for text in texts if not _is_number(text)]
    if not wrong and isinstance(column, Count):
        return "Counts are 0, 1, 2 and so on. Empty the cell if its number is a code for missing."
    if not wrong:  # an infinite value
        return "Correct it from the source; only a missing value may be left empty."
    if all(map(_DECIMAL_COMMA.fullmatch, wrong)) and not any("." in text for text in texts):
        return "Export the table with decimal points instead of commas."
    if all(map(_DATE.match, wrong)):
        return "Export dates as numbers, for instance as days since a fixed day."
    if len(wrong) > len(texts) / 2 and not any(map(_DIGIT.search, wrong)):
        return "If the column holds categories, declare it with levels."
    return (
        "Export numbers with a decimal point, without thousands separators, units or signs such as "
        "%. Correct wrong values from the source; only a missing value may be left empty."
    )


def _is_number(text: str) -> bool:
    try:
        _number(text)
    except ValueError:
        return False
    return True


def _number(text: str) -> float:
    if "_" in text:  # Python would read 1_000 as a number
        raise ValueError(text)
    return float(text)


def cell_text(cell: object) -> str:
    """Return a cell as text without outer spaces; a missing value (None, NaN) becomes empty."""
    if cell is None or cell is pd.NA or cell is pd.NaT or cell is MALFORMED:
        return ""
    if isinstance(cell, float) and math.isnan(cell):
        return ""
    if isinstance(cell, bool | np.bool_):
        return str(int(cell))
    if isinstance(cell, float | np.floating) and cell.is_integer():
        return str(int(cell))  # 10000000000000000, as of an integer, and not 1e+16
    return str(cell).strip()


def _readings(cell: object) -> tuple[str, ...]:
    """Return the levels that a cell may stand for: a boolean for 0 or 1, or for False or True."""
    text = cell_text(cell)
    return (text, str(cell)) if isinstance(cell, bool | np.bool_) else (without_zeros(text),)
