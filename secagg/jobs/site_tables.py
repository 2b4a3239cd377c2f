"""A site's table: a file, the rows of one site in a shared file, or data given in Python.

A table is read when it is needed. The cells of a CSV file stay text. The job declares which columns
are numbers, and `secagg.jobs.cells` converts them. A job without noise reads the file as a whole,
and a mistake in it is a `DataError`. A job with noise reads each record alone, so that no record is
an error (`secagg.jobs.records_under_noise`). The header is an error in both.
"""

from __future__ import annotations

import csv
import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from secagg.errors import DataError
from secagg.jobs.cells import MALFORMED, record_number
from secagg.jobs.records_under_noise import (
    first_line,
    header_of_line,
    line_number,
    read_cells,
    read_lines,
)

if TYPE_CHECKING:
    import pandas as pd


class SiteTable(Protocol):
    """A table of one site's records."""

    def read(self) -> pd.DataFrame:
        """Read the table now and return it. Raises `DataError`."""
        ...

    def header(self) -> list[str]:
        """Return the names of the columns, without reading a record. Raises `DataError`."""
        ...

    def place(self, row: int) -> str:
        """Return where a row of the table is, for the text of an error."""
        ...


@dataclass(frozen=True)
class FileTable:
    """A CSV or Parquet file of one site.

    noised: the columns that a job with noise declares; None for a job without noise
    """

    path: Path
    noised: tuple[str, ...] | None = None

    def read(self) -> pd.DataFrame:
        """Return the file's table of cells."""
        if self.noised is None:
            return read_file(self.path)
        return read_file_under_noise(self.path, self.noised)

    def header(self) -> list[str]:
        return read_header(self.path, one_line=self.noised is not None)

    def place(self, row: int) -> str:
        return _place_in_file(self.path, row, by_line=self.noised is not None)


@dataclass(frozen=True)
class SharedTable:
    """One file with the records of all sites, for a simulation.

    column: the column that names the site of each record
    noised: as in `FileTable`
    """

    path: Path
    column: str
    noised: tuple[str, ...] | None = None

    def sites(self) -> list[str]:
        """Return the names of the sites. This reads only the column that names the sites."""
        if self.noised is None:
            return list(self._split(read_file(self.path, only=self.column)))
        return list(self._split(read_file_under_noise(self.path, (self.column,))))

    @cached_property
    def header(self) -> list[str]:
        return read_header(self.path, one_line=self.noised is not None)

    @cached_property
    def parts(self) -> dict[str, pd.DataFrame]:
        """The tables of all sites, by name. The file is read only once."""
        if self.noised is None:
            return self._split(read_file(self.path))
        return self._split(read_file_under_noise(self.path, (self.column, *self.noised)))

    def _split(self, table: pd.DataFrame) -> dict[str, pd.DataFrame]:
        column = self.column
        if list(table.columns).count(column) != 1:
            what = f"site_column {column!r} is missing or occurs twice"
            raise DataError(str(self.path), what)
        table = table[np.array([cell is not MALFORMED for cell in table[column]], dtype=bool)]
        cells = table[column].astype(object).where(table[column].notna(), "")
        names = cells.astype(str).str.strip().to_numpy()
        return {str(name): part for name, part in table.groupby(names, sort=True)}


@dataclass(frozen=True)
class SharedTablePart:
    """The rows of one site in a shared file."""

    table: SharedTable
    site: str

    def read(self) -> pd.DataFrame:
        part = self.table.parts.get(self.site)
        if part is None:
            what = f"site {self.site!r} is no longer in the file"
            raise DataError(str(self.table.path), what, "Do not change the file during a run.")
        return part

    def header(self) -> list[str]:
        return self.table.header

    def place(self, row: int) -> str:
        by_line = self.table.noised is not None
        return _place_in_file(self.table.path, int(self.read().index[row]), by_line=by_line)


@dataclass(frozen=True)
class GivenTable:
    """A table given in Python: a DataFrame, or a mapping of equally long columns."""

    site: str
    table: Any

    def read(self) -> pd.DataFrame:
        import pandas as pd  # noqa: PLC0415  # see read_file

        table = self.table
        if isinstance(table, pd.DataFrame):
            return table
        if isinstance(table, Mapping):
            try:
                return pd.DataFrame({key: _cells(values) for key, values in table.items()})
            except ValueError as error:
                raise DataError(self.site, f"columns do not form a table: {error}") from None
        kind = type(table).__name__
        raise DataError(self.site, f"a {kind} is not a table", "Give a pandas DataFrame.")

    def header(self) -> list[str]:
        return [str(name) for name in self.read().columns]

    def place(self, row: int) -> str:
        return record_number(row)


def _cells(values: Any) -> NDArray[Any]:
    """Return a column; the items of a list keep their types, whatever the other items are."""
    column = np.asarray(values)
    is_list = isinstance(values, list | tuple) and column.ndim == 1
    return np.array(values, dtype=object) if is_list else column


def read_file(path: Path, only: str | None = None) -> pd.DataFrame:
    """Return a CSV or Parquet file as a table of cells. Raises `DataError`.

    only: if given, read only the columns with this name; there may be none or several
    """
    import pandas as pd  # noqa: PLC0415  # half a second that `secagg --help` should not pay

    # Cells stay text, because the job declares which columns are numbers. The header is read
    # separately. Otherwise pandas renames repeated columns, and if a row has more cells than the
    # header, it uses the first cells as row labels and shifts every column.
    header = read_header(path)
    selected = [i for i, name in enumerate(header) if only in (None, name)]
    names = [header[i] for i in selected]
    with _reading(path):
        if is_parquet(path):
            # With pandas' own types, a missing cell would turn whole numbers into floats.
            columns = None if only is None else names
            return pd.read_parquet(path, columns=columns, dtype_backend="numpy_nullable")
        cells = _read_cells(path, columns=None if only is None else selected)
    return cells.iloc[1:].set_axis(names, axis="columns").reset_index(drop=True)


def read_file_under_noise(path: Path, columns: tuple[str, ...]) -> pd.DataFrame:
    """Return a file's records for a job with noise, each read alone. Raises `DataError`.

    columns: of a Parquet file, only these are read
    """
    with _reading(path):
        if is_parquet(path):
            return read_cells(path, columns)
        table = read_lines(path)
    _check_commas(list(table.columns), path)
    return table


def read_header(path: Path, *, one_line: bool = False) -> list[str]:
    """Return the names of the columns of a CSV or Parquet file. Raises `DataError`.

    Of a CSV file, only the first line is read; of a Parquet file, only the schema.

    one_line: the header is one line of the file. Otherwise a quoted name may have line ends, and
        where it ends may depend on the records
    """
    with _reading(path):
        if is_parquet(path):
            schema = importlib.import_module("pyarrow.parquet").read_schema(path)
            index = (schema.pandas_metadata or {}).get("index_columns", ())
            return [name for name in schema.names if name not in index]
        if one_line:
            header = header_of_line(first_line(path), path)
        else:
            header = [str(name).strip() for name in _read_cells(_first_line(path)).iloc[0]]
    _check_commas(header, path)
    return header


def _check_commas(header: list[str], path: Path) -> None:
    if len(header) == 1 and any(mark in header[0] for mark in ";\t|"):
        raise DataError(
            str(path),
            f"its cells are not separated by commas ({header[0]!r})",
            "Export it with commas.",
        )


def is_parquet(path: Path) -> bool:
    return path.suffix.lower() == ".parquet"


def _place_in_file(path: Path, row: int, *, by_line: bool = False) -> str:
    """Return the line of a CSV file in which a record begins; otherwise the record's number.

    by_line: whether the file was read by `read_file_under_noise`
    """
    number = f"{record_number(row)} of {path.name}"
    if is_parquet(path):
        return number
    try:
        if by_line:
            return f"line {line_number(path, row)} of {path.name}"
        with path.open(encoding="utf-8", newline="") as file:
            reader, line, left = csv.reader(file), 1, row + 2  # the first one is the header
            for cells in reader:
                left -= any(cell.strip() for cell in cells) or len(cells) > 1  # not an empty line
                if not left:
                    return f"line {line} of {path.name}"
                line = reader.line_num + 1
    except (OSError, ValueError, IndexError, csv.Error):
        pass
    return number


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn the errors of reading a file into `DataError`."""
    import pandas as pd  # noqa: PLC0415  # see read_file

    try:
        yield
    except pd.errors.EmptyDataError:
        raise DataError(str(path), "the file is empty", "Give it a header and records.") from None
    except ImportError:
        raise DataError(
            str(path), "Parquet requires another package", "pip install 'secagg[parquet]'"
        ) from None
    except UnicodeDecodeError:
        raise DataError(str(path), "is not UTF-8 text", "Save it as UTF-8.") from None
    except OSError as error:
        raise DataError(str(path), f"cannot be read ({error.strerror})") from None
    except ValueError as error:  # as pandas' parser errors are
        what = str(error).removeprefix("Error tokenizing data. C error: ").strip()
        advice = "Separate cells by commas, with as many cells in each row as in the header."
        raise DataError(str(path), f"cannot be read: {what}", advice) from None


def _first_line(path: Path) -> BytesIO:
    """Return the first line of a CSV file that is not empty. A quoted cell may have line ends."""
    line = b""
    with path.open("rb") as file:
        for more in file:
            line += more if line or more.strip() else b""
            if line and line.count(b'"') % 2 == 0:
                break
    return BytesIO(line)


def _read_cells(source: Path | BytesIO, columns: list[int] | None = None) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415  # see read_file

    return pd.read_csv(
        source, header=None, dtype=str, keep_default_na=False, skipinitialspace=True,
        usecols=columns,
    )  # fmt: skip
