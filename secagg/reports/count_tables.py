"""Tables of counts as rows of text, for report and terminal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from secagg.evidence import numbers as written
from secagg.models.common.coefficient_table import critical_value

_WIDEST = 8  # levels of the last column that stand side by side
_MOST_ROWS = 100


@dataclass(frozen=True)
class ShownTable:
    """A table of counts.

    labels: names of the columns to the left; heads: of the columns of counts
    rows: labels and counts of each row
    """

    title: str
    caption: str
    labels: list[str]
    heads: list[str]
    rows: list[tuple[list[str], list[str]]]


def count_tables(summary: Mapping[str, Any]) -> list[ShownTable]:
    """Return the tables; of a long one only the first rows."""
    return [_shown(table, summary["level"]) for table in summary["tables"]]


def _shown(table: Mapping[str, Any], level: float) -> ShownTable:
    names, levels, error = table["columns"], table["levels"], table.get("std_error")
    counts = np.array(table["counts"], dtype=np.float64)
    across = len(names) > 1 and len(levels[-1]) <= _WIDEST
    on_side = levels[:-1] if across else levels
    heads = [f"{names[-1]} = {each}" for each in levels[-1]] if across else ["count"]
    flat = counts.reshape(-1, len(heads))
    rows = [
        (list(labels), [_written(count, error) for count in row])
        for labels, row in zip(product(*on_side), flat[:_MOST_ROWS], strict=False)
    ]
    caption = ""
    if error is not None:
        half = written.significant(critical_value(level) * error, 2)
        caption = f"standard error of each count (noise alone) {written.significant(error, 2)}"
        caption += f", {written.share(level)} interval ± {half}"
    if len(flat) > _MOST_ROWS:
        more = f"the first {_MOST_ROWS} of {written.count(len(flat))} rows; result.json has all"
        caption = f"{caption}; {more}" if caption else more
    return ShownTable(" by ".join(names), caption, list(names[: len(on_side)]), heads, rows)


def _written(count: float, error: float | None) -> str:
    return written.count(count) if error is None else written.by_error(count, error)
