"""Tables as people really save them: each way either gives the right cells or one clear line."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.runs.jobs import tables

from secagg.errors import DataError
from secagg.jobs.site_tables import (
    FileTable,
    GivenTable,
    SharedTable,
    SharedTablePart,
    read_file,
    read_header,
)


def save(path: Path, data: str | bytes) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def cells(tmp_path: Path, data: str | bytes, name: str = "north.csv") -> dict[str, list[str]]:
    table = read_file(save(tmp_path / name, data))
    assert list(table.index) == list(range(len(table)))
    return {name: [str(c) for c in table[name]] for name in table.columns}


# --- CSV files -----------------------------------------------------------------------------------

GOOD = {"a": ["1", "3"], "b": ["x", "y"]}


@pytest.mark.parametrize(
    "data",
    [
        "a,b\n1,x\n3,y\n",
        "a,b\n1,x\n3,y",
        "a,b\r\n1,x\r\n3,y\r\n",
        "a,b\r1,x\r3,y\r",
        "\ufeffa,b\n1,x\n3,y\n",
        '\ufeff"a","b"\r\n"1","x"\r\n"3","y"\r\n',
        "a , b\n1, x\n3, y\n",
        "a,b\n\n1,x\n\n3,y\n\n",
    ],
    ids=["plain", "no end", "CRLF", "CR", "BOM", "BOM quoted", "spaces", "blank lines"],
)  # fmt: skip
def test_tables_saved_by_common_programs_are_read(tmp_path: Path, data: str) -> None:
    assert cells(tmp_path, data) == GOOD


def test_cells_stay_text(tmp_path: Path) -> None:
    """Nothing is guessed: not numbers, not missing values, not dates."""
    data = "a,b,c,d\n007,NA,1e3,2020-01-01\n,null,TRUE,nan\n"
    assert cells(tmp_path, data) == {
        "a": ["007", ""], "b": ["NA", "null"], "c": ["1e3", "TRUE"], "d": ["2020-01-01", "nan"],
    }  # fmt: skip


def test_quoted_fields_are_read(tmp_path: Path) -> None:
    data = 'a,"b, c"\n"1,5","say ""hi"""\n"two\nlines",z\n'
    assert cells(tmp_path, data) == {"a": ["1,5", "two\nlines"], "b, c": ['say "hi"', "z"]}


def test_very_long_lines_are_read(tmp_path: Path) -> None:
    long = "x" * 2_000_000
    assert cells(tmp_path, f"a,b\n1,{long}\n") == {"a": ["1"], "b": [long]}
    names = [f"c{i}" for i in range(2_000)]
    table = read_file(save(tmp_path / "w.csv", ",".join(names) + "\n" + ",".join(names) + "\n"))
    assert table.shape == (1, 2_000)


def test_a_file_with_only_a_header_is_an_empty_table(tmp_path: Path) -> None:
    assert cells(tmp_path, "a,b\n") == {"a": [], "b": []}


def test_rows_shorter_than_the_header_lack_their_last_cells(tmp_path: Path) -> None:
    assert cells(tmp_path, "a,b\n1\n3,y\n") == {"a": ["1", "3"], "b": ["", "y"]}


@pytest.mark.parametrize(
    "data", ["a,b\n1,2,3\n4,5,6\n", "a,b\n1,2,\n4,5,\n", "a,b\n1,2\n4,5,6\n", "a\n1,2\n"]
)
def test_rows_longer_than_the_header_are_refused(tmp_path: Path, data: str) -> None:
    """Never row labels: each cell would move into the column of its neighbour."""
    with pytest.raises(DataError, match="cannot be read"):
        cells(tmp_path, data)


def test_repeated_columns_keep_their_name(tmp_path: Path) -> None:
    table = read_file(save(tmp_path / "a.csv", "a,b,a\n1,2,3\n"))
    assert list(table.columns) == ["a", "b", "a"]


@pytest.mark.parametrize(
    "data",
    [b"", b"\n\n", b"   \n", b"\xef\xbb\xbf", b"a,b\n\xe9,1\n", "a,b\n1,2\n".encode("utf-16"),
     b'a,b\n"1,2\n3,4\n', b"a;b\n1;2\n", b"a\tb\n1\t2\n", b"a|b\n1|2\n", b"a;b\n1,5;2,5\n"],
)  # fmt: skip
def test_unreadable_files_are_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(DataError) as caught:
        cells(tmp_path, data)
    assert caught.value.where.endswith("north.csv") and "\n" not in caught.value.line()


def test_missing_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    for name in ("none.csv", "folder.csv"):
        with pytest.raises(DataError):
            read_file(tmp_path / name)


# --- Parquet -------------------------------------------------------------------------------------


def test_parquet_files_are_read(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "north.parquet"
    pd.DataFrame(tables()["north"]).to_parquet(path)
    assert read_file(path)["sex"].tolist() == tables()["north"]["sex"].tolist()
    with pytest.raises(DataError, match="cannot be read"):
        read_file(save(tmp_path / "bad.parquet", b"junk"))


def test_parquet_without_its_package_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pyarrow", "pyarrow.parquet", "fastparquet"):
        monkeypatch.setitem(sys.modules, name, None)  # an import of it then fails
    path = save(tmp_path / "north.parquet", b"PAR1")
    with pytest.raises(DataError) as caught:
        read_file(path)
    assert "secagg[parquet]" in caught.value.advice


@pytest.mark.parametrize(
    ("text", "header"),
    [
        (b"a,b\n1,2\n", ["a", "b"]),
        (b"\n\r\n a , b\r\n1,2\r\n", ["a", "b"]),
        (b"\xef\xbb\xbfa,b\n1,2\n", ["a", "b"]),
        (b'"a\nb","c"\n1,2\n', ["a\nb", "c"]),
        (b"a,a,\n1,2,3\n", ["a", "a", ""]),
        (b"a,b\r1,2\r", ["a", "b"]),
        (b"a,b\n\xff\n", ["a", "b"]),
        (b"a,b\n1,2,3,4\n", ["a", "b"]),
        (b"a", ["a"]),
    ],
)
def test_the_header_is_read_alone_and_as_with_the_records(
    tmp_path: Path, text: bytes, header: list[str]
) -> None:
    path = save(tmp_path / "north.csv", text)
    assert read_header(path) == header
    if b"\xff" not in text and b"4" not in text:
        table = read_file(path)
        assert list(table.columns) == header
        assert len(table) == text.count(b"1,")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a,b\n1,x\n3,wrong\n", 3),
        ("\n  \na,b\r\n\r\n1,x\r\n \r\n3,wrong\r\n", 7),
        ('a,b\n1,"two\nlines"\n3,wrong\n', 4),
        ("a,b\n,\n3,wrong\n", 3),
        ("a\n1\n\n3\n", 4),
    ],
)
def test_a_record_is_found_by_the_line_of_its_file(tmp_path: Path, text: str, line: int) -> None:
    path = save(tmp_path / "north.csv", text)
    (row,) = np.flatnonzero(read_file(path)["a"] == "3").tolist()
    assert FileTable(path).place(row) == f"line {line} of north.csv"


def test_a_record_of_a_shared_file_is_found_by_the_line_of_that_file(tmp_path: Path) -> None:
    path = save(tmp_path / "all.csv", "site,a\nnorth,1\nsouth,2\nnorth,3\n")
    part = SharedTablePart(SharedTable(path, "site"), "north")
    assert part.read()["a"].tolist() == ["1", "3"]
    assert part.place(1) == "line 4 of all.csv"


def test_records_that_are_in_no_text_file_are_counted_from_one(tmp_path: Path) -> None:
    assert GivenTable("north", {"a": [1]}).place(0) == "record 1"
    assert FileTable(tmp_path / "north.parquet").place(3) == "record 4 of north.parquet"
    assert FileTable(tmp_path / "gone.csv").place(3) == "record 4 of gone.csv"
