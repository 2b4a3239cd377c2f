"""A site's graph from its own experts: a CSV file of edges beside the site's records.

    column,neighbour
    weight,mother_age
    weight,weeks

Chajewska and Shrivastava (2023), section 2.1: a client's graph may be provided by an expert. Each
line is an undirected edge between two columns of the site's table. The file is the site's: neither
the job nor the coordinator can write it, and nobody else sees it. A method to which each site
brings a graph takes this one in place of a graph that it would recover from the records. Edges of
columns outside the method's are left out.

What it reveals: the site's votes are then the experts' and depend on no record.
"""

from __future__ import annotations

import csv
from collections.abc import Collection
from pathlib import Path
from typing import Final

from secagg.errors import DataError

EDGES: Final = "edges.csv"
HEADER: Final = ["column", "neighbour"]


def read_edges(path: Path, who: str, columns: Collection[str]) -> tuple[tuple[str, str], ...]:
    """Return the edges of a file. columns: of the site's table.

    Raises `DataError`, whose text stays at the site, for a file that cannot be read, a name that is
    no column, and an edge of a column to itself.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = [[cell.strip() for cell in line] for line in csv.reader(file) if line]
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(who, f"{path.name} cannot be read: {error}") from None
    if not lines or lines[0] != HEADER:
        advice = f"Begin it with the line {','.join(HEADER)}."
        raise DataError(who, f"{path.name} has no header", advice)
    for number, line in enumerate(lines[1:], 1):
        where = f"edge {number} of {path.name}"
        if len(line) != 2:
            raise DataError(who, f"{where} has {len(line)} cells", "Write two columns' names.")
        for name in line:
            if name not in columns:
                advice = f"It has {', '.join(map(str, columns))}."
                raise DataError(who, f"{where}: no column {name!r} in the table", advice)
        if line[0] == line[1]:
            raise DataError(who, f"{where} joins {line[0]!r} to itself")
    return tuple((one, other) for one, other in lines[1:])
