"""Read the cells of one column of a site's table as numbers or as declared levels.

A level is one value of a binary or categorical column.

=====================================  =====================================================
cell                                   result
=====================================  =====================================================
empty, NA, N/A, NaN, null, None, ?     missing: the record is left out and counted
text in a continuous column            `DataError` naming record and column (stays at the site)
inf, -inf                              `DataError`: only finite numbers are allowed
a level that was not declared          `DataError` naming record, column and declared levels
1.0                                    also matches the level 1
a boolean                              matches the levels 0 and 1, or False and True
a number below low or above high       replaced by the bound and counted
=====================================  =====================================================
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from secagg.errors import DataError
from secagg.jobs.job import Binary, Categorical, Column, Continuous

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})

_DECIMAL_COMMA = re.compile(r"[+-]?(0|[0-9]+),([0-9]{1,2}|[0-9]{4,})")  # 1,234 may be a thousand
_DATE = re.compile(r"[0-9]{1,4}([-/.])[0-9]{1,2}\1[0-9]{1,4}")
_DIGIT = re.compile(r"[0-9]")


def read_column(
    column: Column, cells: pd.Series[Any], where: str
) -> tuple[NDArray[np.float64], int]:
    """Return the column's variables and the number of values outside its bounds.

    The variables have shape (rows, k): k = 1 for a continuous or binary column, and the number of
    levels minus 1 for a categorical column. A missing value is NaN.

    cells: the cells of the column
    where: site and column, for the text of an error
    Raises `DataError`.
    """
    if isinstance(column, Continuous):
        numbers = _numbers(cells, where)
        with np.errstate(invalid="ignore"):
            outside = int(np.count_nonzero((numbers < column.low) | (numbers > column.high)))
        clipped = np.clip(numbers, column.low, column.high)
        values = np.log(clipped) if column.transform == "log" else clipped
        return values[:, np.newaxis], outside
    position = _levels(column, cells, where)
    indicators = (position[:, np.newaxis] == np.arange(1, len(column.levels))).astype(np.float64)
    indicators[np.isnan(position)] = np.nan
    return indicators, 0


def _numbers(cells: pd.Series[Any], where: str) -> NDArray[np.float64]:
    numbers = np.empty(len(cells), dtype=np.float64)
    for row, cell in enumerate(cells):
        text = cell_text(cell)
        try:
            numbers[row] = math.nan if text.lower() in MISSING else _number(text)
        except ValueError:
            raise DataError(
                f"{where}, record {row + 1}",
                f"{text!r} is not a number",
                _not_a_number(cells),
            ) from None
        if math.isinf(numbers[row]):
            raise DataError(
                f"{where}, record {row + 1}",
                "the value is infinite",
                "Correct it from the source; only a missing value may be left empty.",
            )
    return numbers


def _not_a_number(cells: pd.Series[Any]) -> str:
    """Return the advice for a column in which some cells are not numbers."""
    texts = [text for text in map(cell_text, cells) if text.lower() not in MISSING]
    wrong = [text for text in texts if not _is_number(text)]
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


def _levels(column: Binary | Categorical, cells: pd.Series[Any], where: str) -> NDArray[np.float64]:
    """Return each cell's position among the declared levels, NaN where missing."""
    known = {level: float(i) for i, level in enumerate(column.levels)}
    positions = np.empty(len(cells), dtype=np.float64)
    for row, cell in enumerate(cells):
        position = next((known[text] for text in _readings(cell) if text in known), None)
        if position is None and cell_text(cell).lower() not in MISSING:
            raise DataError(
                f"{where}, record {row + 1}",
                f"{str(cell).strip()!r} is not a declared level",
                f"Levels are {', '.join(column.levels)}.",
            )
        positions[row] = math.nan if position is None else position
    return positions


def cell_text(cell: object) -> str:
    """Return a cell as text without outer spaces; a missing value (None, NaN) becomes empty."""
    if cell is None or cell is pd.NA or cell is pd.NaT:
        return ""
    if isinstance(cell, float) and math.isnan(cell):
        return ""
    if isinstance(cell, bool | np.bool_):
        return str(int(cell))
    return str(cell).strip()


def _readings(cell: object) -> tuple[str, ...]:
    """Return the levels that a cell may stand for, the most likely first.

    A data frame may hold a whole number as a float, so '1.0' also stands for '1'. A boolean stands
    for 0 or 1, or for False or True.
    """
    text = cell_text(cell)
    if isinstance(cell, bool | np.bool_):
        return text, str(cell)
    if re.fullmatch(r"[+-]?[0-9]+\.0", text):
        return text, text.removesuffix(".0")
    return (text,)
