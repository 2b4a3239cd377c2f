"""Read the records of a job with noise, each alone: a record's spelling decides this record only.

Under differential privacy no record may change whether a run fails, or how other records are read.
A program that reads a CSV file as a whole breaks both. One byte that is no UTF-8 text ends the run,
and a quote that is not closed makes one cell of all lines that follow. So here a record is one line
of the file, between two ends of line (LF, CR LF or CR), whatever is in it.

Why this suffices. Let f be `split_line`, from a line's bytes to its cells. It has no other argument
than the line and the number of columns in the header. The table is f of each line that is not
empty, in order. A line whose cells are unknown is a row of `MALFORMED` cells, which
`secagg.jobs.cells` reads as missing, so the record is incomplete. Changing one line therefore
changes one row. A row is used or not by its own cells (`secagg.jobs.design_matrix.read_rows`),
except that a person has at most `records_per_person`, which the sensitivity of persons covers
(`secagg.privacy.clipping`). So the data sets that are compared differ in one record, as the noise
assumes, and no content of a line is an error. Only the header can be wrong: it is the file's.

==============================================  ====================================================
line after the header                           result
==============================================  ====================================================
more cells than the header                      an incomplete record
a quoted cell that does not end in its line     an incomplete record
a cell over several lines                       each of its lines is a line, and so incomplete
fewer cells than the header                     its last cells are missing, as without noise
bytes that are not UTF-8                        the cell is missing
NUL, a byte order mark, "inf", 400 digits       the cell is no number and no declared level: missing
a cell of a megabyte                            as a short one
any of the last four in an undeclared column    nothing
empty, or only spaces                           no record
==============================================  ====================================================

Of a Parquet file only the declared columns are read, cell by cell. A cell that cannot be converted
(text that is not UTF-8, a date after the year 9999) is `MALFORMED`.

Not protected: a table that is given as data frame is read as it is. A damaged Parquet file cannot
be read at all; its owner sees that, and the run ends. In a table that is split by a site column
(only in simulations), a malformed line belongs to no site.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from secagg.errors import DataError
from secagg.jobs.cells import MALFORMED, Malformed

if TYPE_CHECKING:
    import pandas as pd

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_CELL = re.compile(r' *(?:"((?:[^"]++|"")*+)"([^,]*)|([^",][^,]*)?)(,|\Z)')
"""A cell up to its comma: quoted, with whatever follows the quotes; or bare."""

Cells = list[str | Malformed]


def split_line(line: bytes, columns: int) -> Cells:
    """Return the cells of one line of a CSV file, as many as the header has.

    They are as `csv.reader` reads them from the whole file, if the file is well-formed.
    """
    text = line.decode(errors="surrogateescape")  # separators and quotes are ASCII
    cells = _split(text) if '"' in text else [cell.lstrip(" ") for cell in text.split(",")]
    if cells is None or len(cells) > columns:
        return [MALFORMED] * columns
    decoded = [cell if _is_text(cell) else MALFORMED for cell in cells]
    return decoded + [""] * (columns - len(cells))


def _split(text: str) -> list[str] | None:
    """Return the cells of a line with quotes; None if a quoted cell does not end."""
    cells, place, comma = list[str](), 0, ","
    while comma:
        cell = _CELL.match(text, place)
        if cell is None:
            return None
        quoted, rest, bare, comma = cell.groups()
        cells.append((bare or "") if quoted is None else quoted.replace('""', '"') + rest)
        place = cell.end()
    return cells


def _is_text(cell: str) -> bool:
    try:
        cell.encode()
    except UnicodeEncodeError:
        return False
    return True


def header_of_line(line: bytes, path: Path) -> list[str]:
    """Return the names of the columns in a header. Raises `DataError`."""
    line = line.removeprefix(_BYTE_ORDER_MARK)
    if not line.strip():
        raise DataError(str(path), "the file is empty", "Give it a header and records.")
    text = line.decode(errors="surrogateescape")
    cells = _split(text)
    if cells is None or not _is_text(text):
        advice = "Save the file as UTF-8, with the names of the columns in one line."
        raise DataError(str(path), "its header is not one line of UTF-8 text", advice)
    return [cell.strip() for cell in cells]


def first_line(path: Path) -> bytes:
    """Return the first line of a CSV file that is not empty; b"" if there is none."""
    with path.open("rb") as file:
        for more in file:  # up to a line feed
            for _, line in _lines(more):
                return line
    return b""


def read_lines(path: Path) -> pd.DataFrame:
    """Return the records of a CSV file, one for each line. Raises `DataError`, `OSError`."""
    import pandas as pd  # noqa: PLC0415  # see `secagg.jobs.site_tables.read_file`

    lines = _lines(path.read_bytes())
    _, header = next(lines, (0, b""))
    names = header_of_line(header, path)
    rows = [split_line(line, len(names)) for _, line in lines]
    return pd.DataFrame(rows, columns=range(len(names)), dtype=object).set_axis(names, axis=1)


def line_number(path: Path, row: int) -> int:
    numbers = [number for number, _ in _lines(path.read_bytes())]
    return numbers[row + 1]


def read_cells(path: Path, columns: Collection[str]) -> pd.DataFrame:
    """Return the columns with these names of a Parquet file, each cell converted alone."""
    import pandas as pd  # noqa: PLC0415

    with importlib.import_module("pyarrow.parquet").ParquetFile(path) as file:
        wanted = [name for name in file.schema_arrow.names if name in columns]
        table = file.read(columns=list(dict.fromkeys(wanted)))
    found = [(name, cells) for name, cells in zip(table.column_names, table.columns, strict=True)
             if name in columns]  # fmt: skip
    cells = {i: _converted(column) for i, (_, column) in enumerate(found)}
    frame = pd.DataFrame(cells, index=range(table.num_rows), dtype=object)
    return frame.set_axis([name for name, _ in found], axis=1)


def _converted(column: Any) -> list[Any]:
    # As pandas reads them: .1 in single precision is "0.1" and not "0.10000000149011612".
    narrow = {"float": np.float32, "halffloat": np.float16}.get(str(column.type))
    cells: list[Any] = []
    for scalar in column:
        try:
            cell = scalar.as_py()
            cells.append(cell if narrow is None or cell is None else narrow(cell))
        except Exception:  # whatever it is, it is this cell's alone
            cells.append(MALFORMED)
    return cells


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of each line that is not empty."""
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            yield number, line
