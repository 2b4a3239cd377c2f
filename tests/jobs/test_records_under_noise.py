"""A record's spelling decides this record only: the table of `secagg.jobs.records_under_noise`."""

import csv
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.runs.hospitals import LINEAR, ask, folder, moments_job
from support.runs.jobs import raw_job

import secagg
from secagg.errors import DataError
from secagg.jobs.cells import MALFORMED
from secagg.jobs.data_sources import find_sites
from secagg.jobs.design_matrix import public_facts, read_rows
from secagg.jobs.job import parse_job
from secagg.jobs.records_under_noise import read_cells, read_lines, split_line
from secagg.jobs.site_tables import FileTable, SharedTable, SharedTablePart, read_file, read_header
from secagg.runs.checks.site_check import check_sites
from secagg.sessions.planned_job import plan_job

NOISED = {"placement": "sum", "epsilon": 1.0, "delta": 1e-6}
COLUMNS = {
    "age": {"type": "continuous", "low": 0, "high": 100},
    "sex": {"type": "binary", "levels": ["female", "male"]},
}
HEADER = b"age,note,sex"
LINES = [b"%d,note %d,%s" % (20 + i, i, b"female" if i % 3 else b"male") for i in range(12)]
JOB = parse_job(raw_job(columns=COLUMNS, privacy=NOISED))
M = [MALFORMED] * 3


def save(path: Path, lines: list[bytes], end: bytes = b"\n") -> Path:
    path.write_bytes(end.join([HEADER, *lines]))
    return path


def values(path: Path) -> list[list[float]]:
    """Return the records that a job with noise uses."""
    table = FileTable(path, ("age", "sex")).read()
    read = read_rows(JOB.columns, table, public_facts(JOB, ("a", "b")), "a")
    return [list(row) for row in read.values]


# --- the table -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "cells"),
    [
        (b"1,x,male", ["1", "x", "male"]),
        (b"1, x , male", ["1", "x ", "male"]),
        (b'1,"x, ""y""",male', ["1", 'x, "y"', "male"]),
        (b'1,"x"y"z,male', ["1", 'xy"z', "male"]),
        (b'1,x"y,male', ["1", 'x"y', "male"]),
        (b'1,"",male', ["1", "", "male"]),
        (b"1,x,male,", M), (b"1,x,,male", M), (b"1,x,y,z,male", M),  # more cells
        (b'"1,x,male', M), (b'1,"x,male', M), (b'1,x,"', M), (b'1,x,"male""', M),  # quotes
        (b"1", ["1", "", ""]), (b"1,x", ["1", "x", ""]), (b",", ["", "", ""]),  # fewer cells
        (b"\xff,x,male", [MALFORMED, "x", "male"]), (b"1,\xff,male", ["1", MALFORMED, "male"]),
        (b'1,"\xc3,",male', ["1", MALFORMED, "male"]),
        (b"1\x00,x,male", ["1\x00", "x", "male"]), (b"\xef\xbb\xbf1,x,m", ["\ufeff1", "x", "m"]),
        (b"1,x\x0b\x0c\x1c\xe2\x80\xa8y,m", ["1", "x\x0b\x0c\x1c\u2028y", "m"]),  # no line ends
    ],
)  # fmt: skip
def test_a_line_is_split_by_itself(line: bytes, cells: list[Any]) -> None:
    assert split_line(line, 3) == cells


def test_a_long_cell_is_a_cell() -> None:
    long = "x" * (csv.field_size_limit() + 1)
    assert split_line(f'1,"{long}",male'.encode(), 3) == ["1", long, "male"]
    assert split_line(b'1,"' + b'""' * 500_000 + b",male", 3) == M


EDITS: dict[str, Callable[[bytes], bytes]] = {
    "not UTF-8, undeclared": lambda line: line.replace(b"note", b"n\xf6te"),
    "not UTF-8": lambda line: line.replace(b"male", b"m\xe4le"),
    "an extra comma": lambda line: line.replace(b" ", b","),
    "a comma at the end": lambda line: line + b",",
    "a quote that swallows the rest": lambda line: line.replace(b"note", b'"note'),
    "a quote in front": lambda line: b'"' + line,
    "a quote at the end": lambda line: line.replace(b"fem", b'"fem').replace(b",m", b',"m'),
    "too few cells": lambda line: line.split(b",")[0],
    "NUL": lambda line: line.replace(b",", b"\x00,"),
    "only NUL": lambda line: b"\x00",
    "a lone CR": lambda line: line.replace(b"note", b"no\rte"),
    "a line feed": lambda line: line.replace(b"note", b'"no\nte"'),
    "a byte order mark": lambda line: b"\xef\xbb\xbf" + line,
    "UTF-16": lambda line: line.decode().encode("utf-16"),
    "a long cell": lambda line: line.replace(b"note", b'"' + b"n" * 200_000 + b'"'),
    "a long number": lambda line: b"9" * 400 + line,
    "a longer number": lambda line: b"9" * 5000 + line,
    "infinite": lambda line: b"inf" + line[2:],
    "not a number": lambda line: b"nan" + line[2:],
    "an exponent": lambda line: b"1e999999999" + line[2:],
    "empty": lambda line: b"",
    "spaces": lambda line: b" \t ",
}


@pytest.mark.parametrize("place", [0, 5, 11])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("edit", EDITS)
def test_one_edited_line_changes_at_most_its_own_record(
    tmp_path: Path, edit: str, end: bytes, place: int
) -> None:
    lines = [*LINES[:place], EDITS[edit](LINES[place]), *LINES[place + 1 :]]
    whole, without = values(save(tmp_path / "a.csv", LINES, end)), list(range(12))
    del without[place]
    found = values(save(tmp_path / "a.csv", lines, end))
    others = [whole[i] for i in without]
    assert found == others or [*found[:place], *found[place + 1 :]] == others
    if edit == "not UTF-8, undeclared":
        assert found == whole


@given(place=st.integers(0, 11), line=st.binary(max_size=60))
@example(place=11, line=b'1,"')
@example(place=0, line=b"\xef\xbb\xbf")
def test_any_line_changes_at_most_its_own_record(
    tmp_path_factory: pytest.TempPathFactory, place: int, line: bytes
) -> None:
    """Any bytes for one line; line ends in them make more lines, which are records of their own."""
    path = tmp_path_factory.getbasetemp() / "a.csv"
    table = read_lines(save(path, [*LINES[:place], line, *LINES[place + 1 :]]))
    before = read_lines(save(path, LINES[:place])).to_numpy().tolist()
    after = read_lines(save(path, LINES[place + 1 :])).to_numpy().tolist()
    rows = table.to_numpy().tolist()
    assert rows[:place] == before and rows[len(rows) - len(after) :] == after
    if not {10, 13} & set(line):
        assert len(rows) - 11 in (0, 1)
    values(save(path, [*LINES[:place], line, *LINES[place + 1 :]]))  # and nothing is an error


@given(
    st.lists(
        st.lists(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\x00")),
            min_size=3, max_size=3,
        ), max_size=5,
    ),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)  # fmt: skip
def test_a_well_formed_file_is_read_as_without_noise(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], quoting: Any
) -> None:
    path = tmp_path_factory.getbasetemp() / "b.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, quoting=quoting).writerows([["a", "b", "c"], *rows])
    alone, whole = read_lines(path), read_file(path)
    assert list(alone.columns) == list(whole.columns)
    cells = [[[c.strip() for c in row] for row in t.to_numpy().tolist()] for t in (alone, whole)]
    assert cells[0] == cells[1]


# --- headers, places, other tables ---------------------------------------------------------------


@pytest.mark.parametrize(
    "text", [b"", b"\n\n", b"\xef\xbb\xbf", b'age,"no\nte",sex\n1,x,male\n', b"\xffage,sex\n1,m\n",
             b'age,"sex\n1,male\n', "age,sex\n1,male\n".encode("utf-16"), b"age;sex\n1;male\n"]
)  # fmt: skip
def test_a_header_that_cannot_be_read_is_an_error_whatever_the_records_are(
    tmp_path: Path, text: bytes
) -> None:
    path = tmp_path / "a.csv"
    for more in (b"", b'"\n', b"\xff\n", b'2,"\n"\n'):
        path.write_bytes(text + (more if text.strip() else b""))
        for read in (FileTable(path, ("age",)).read, FileTable(path, ("age",)).header):
            with pytest.raises(DataError) as caught:
                read()
            assert "\n" not in caught.value.line()


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_the_header_is_the_first_line_that_is_not_empty(tmp_path: Path, end: bytes) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'\xef\xbb\xbfage , "no, te" ,age' + end + b'\xff"' + end)
    assert read_header(path, one_line=True) == ["age", "no, te", "age"]
    path.write_bytes(end + b"  " + end + b"a,b" + end + b'\xff"')
    assert list(FileTable(path, ()).read().columns) == ["a", "b"] == FileTable(path, ()).header()


def test_a_record_is_found_by_its_line(tmp_path: Path) -> None:
    path = save(tmp_path / "a.csv", [b"", b'"1', b"  ", b"\xff", b"3,x,wrong"], b"\r\n")
    table = FileTable(path, ("age", "sex"))
    assert [table.place(row) for row in range(3)] == [f"line {n} of a.csv" for n in (3, 5, 6)]
    assert table.place(3) == "record 4 of a.csv"


def test_of_a_shared_table_a_malformed_line_belongs_to_no_site(tmp_path: Path) -> None:
    path = tmp_path / "all.csv"
    path.write_bytes(b'site,a\nn,1\ns,"2\ns,3\n\xff,4\nn,\xff\n')
    table = SharedTable(path, "site", ("a",))
    assert table.sites() == ["n", "s"]
    part = SharedTablePart(table, "n")
    assert part.read()["a"].tolist() == ["1", MALFORMED]
    assert part.place(1) == "line 6 of all.csv" and part.header() == ["site", "a"]


def test_only_a_job_with_noise_reads_each_record_alone(tmp_path: Path) -> None:
    data = folder(tmp_path)
    exact = parse_job(moments_job(data, LINEAR["columns"]))
    noised = parse_job(moments_job(data, LINEAR["columns"], privacy=NOISED))
    assert {s.table.noised for s in find_sites(exact).values()} == {None}
    columns = tuple(LINEAR["columns"])
    assert {s.table.noised for s in find_sites(noised).values()} == {columns}


CELLS = [
    MALFORMED, 10**400, 10**5000, Decimal("sNaN"), Decimal("1e999999"), b"\xff", "\udcff", [1], {},
    object(), 1j, np.float64("inf"), np.datetime64("NaT"), pd.NA, "1e400", "1_0",
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(CELLS)))
@pytest.mark.parametrize("column", COLUMNS)
def test_no_cell_of_a_data_frame_is_an_error(number: int, column: str) -> None:
    table = pd.DataFrame({"age": [30.0, 40.0, 50.0], "sex": ["male"] * 3}, dtype=object)
    whole = read_rows(JOB.columns, table, public_facts(JOB, ("a", "b")), "a")
    table[column] = pd.Series([table[column][0], CELLS[number], table[column][2]], dtype=object)
    read = read_rows(JOB.columns, table, public_facts(JOB, ("a", "b")), "a")
    assert read.values.tolist() == whole.values[[0, 2]].tolist() and read.incomplete == 1


def test_no_declared_level_is_that_of_a_malformed_record() -> None:
    levels = ["", str(MALFORMED), repr(MALFORMED), MALFORMED.value, MALFORMED.name, "None"]
    column = {"type": "categorical", "levels": levels}
    job = parse_job(raw_job(columns={"x": column}, privacy=NOISED))
    read = read_rows(
        job.columns, pd.DataFrame({"x": [MALFORMED, ""]}), public_facts(job, ("a",)), "a"
    )
    assert (len(read.values), read.incomplete) == (1, 1)


# --- Parquet -------------------------------------------------------------------------------------


def test_each_cell_of_a_parquet_file_is_converted_alone(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    text = pa.array([b"male", b"\xff", b"female"]).view(pa.string())
    days = pa.array([0, 2**31 - 1, 1], pa.int32()).view(pa.date32())
    single = pa.array([0.1, None, 2.0], pa.float32())
    whole = pa.array([1, 2**62, None], pa.int64())
    table = {"age": single, "sex": text, "day": days, "n": whole, "notes": text}
    pq.write_table(pa.table(table), path)
    with pytest.raises(DataError, match="cannot be read"):
        FileTable(path).read()
    read = read_cells(path, ("age", "sex", "day", "n"))
    assert list(read.columns) == ["age", "sex", "day", "n"]
    assert read["sex"].tolist() == ["male", MALFORMED, "female"]
    assert read["day"].tolist()[1] is MALFORMED and str(read["day"][0]) == "1970-01-01"
    assert str(read["age"][0]) == "0.1" and read["n"].tolist() == [1, 2**62, None]
    assert len(values(path)) == 2
    assert FileTable(path, ("age",)).header() == list(table)


def test_a_parquet_file_is_read_as_without_noise(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "a.parquet"
    frame = pd.DataFrame({
        "age": [1.5, np.nan, 3.0], "b": pd.array([1, 0, None], "boolean"), "i": [1, 2, 3],
        "c": pd.Categorical(["x", None, "y"]), "f": np.array([0.1, 0.2, 7], np.float32),
        "t": pd.to_datetime(["2020-01-01", None, "2021-02-03"]),
    })  # fmt: skip
    frame.to_parquet(path)
    job = parse_job(raw_job(columns={
        "b": {"type": "binary"}, "f": {"type": "categorical", "levels": ["0.1", "0.2", "7"]},
        "i": {"type": "continuous", "low": 0, "high": 9},
    }, privacy=NOISED))  # fmt: skip
    public = public_facts(job, ("a", "b"))
    read = [read_rows(job.columns, FileTable(path, noised).read(), public, "a").values.tolist()
            for noised in (None, tuple(frame.columns))]  # fmt: skip
    assert read[0] == read[1] and len(read[0]) == 2


# --- whole runs ----------------------------------------------------------------------------------


@pytest.mark.attack
@pytest.mark.parametrize("edit", EDITS)
def test_no_spelling_of_a_record_changes_whether_a_run_with_noise_fails(
    tmp_path: Path, edit: str
) -> None:
    """Of the heart records; without noise, the site refuses with the one code for its records."""
    data = folder(tmp_path)
    path = data / "hungary.csv"
    lines = path.read_bytes().splitlines()
    for place in (1, len(lines) - 1):
        cells = lines[place].split(b",")
        edited = EDITS[edit](b",".join([*cells[:2], b"note 1", *cells[3:]]))  # undeclared
        path.write_bytes(b"\n".join([*lines[:place], edited, *lines[place + 1 :]]))
        raw = moments_job(data, LINEAR["columns"], privacy=NOISED)
        seen = ask(raw | {"protocol": {"name": "masked"}})
        assert seen.codes == {} and "moments" in seen.sums
        codes = ask(moments_job(data, LINEAR["columns"])).codes
        assert codes in ({}, {"hungary": "records"})


@pytest.mark.attack
def test_a_swallowing_quote_leaves_the_other_records(tmp_path: Path) -> None:
    """One quote in the second record once made 290 records disappear, or ended the run."""
    data = folder(tmp_path)
    path = data / "hungary.csv"
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([lines[0], lines[1], b'"' + lines[2], *lines[3:]]))
    raw = moments_job(data, LINEAR["columns"], privacy=NOISED | {"epsilon": 20.0})
    raw["protocol"] = {"name": "masked"}
    (found,) = check_sites(plan_job(parse_job(raw)), "hungary")
    assert (found.rows, found.complete) == (294, 292) and not found.problem
    assert any("line 3 of hungary.csv" in remark for remark in found.remarks)
    run = secagg.run(raw, out=tmp_path / "out")
    assert not any(b"line 3" in p.read_bytes() for p in (tmp_path / "out").glob("*.*"))
    assert any("cannot be read" in remark for remark in run.remarks)


@pytest.mark.attack
@settings(max_examples=25, deadline=None)
@given(line=st.binary(max_size=60))
def test_any_bytes_of_a_record_leave_the_outcome_of_a_run(
    tmp_path_factory: pytest.TempPathFactory, line: bytes
) -> None:
    data = folder(tmp_path_factory.mktemp("any"))
    path = data / "switzerland.csv"
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*lines[:50], line, *lines[51:]]))
    seen = ask(moments_job(data, LINEAR["columns"], privacy=NOISED, protocol={"name": "masked"}))
    assert seen.codes == {} and "moments" in seen.sums


@pytest.mark.attack
@pytest.mark.parametrize("column", ["chest_pain", "sex"])
def test_a_parquet_cell_leaves_the_outcome_of_a_run(tmp_path: Path, column: str) -> None:
    """One patient's text is not UTF-8, in a column that the job declares, or in another."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    data = folder(tmp_path)
    for path in sorted(data.glob("*.csv")):
        table = pa.Table.from_pandas(pd.read_csv(path), preserve_index=False)
        texts = [str(text).encode() for text in table[column].to_pylist()]
        texts[7] = b"\xe4"
        place = table.column_names.index(column)
        table = table.set_column(place, column, pa.array(texts).view(pa.string()))
        pq.write_table(table, path.with_suffix(".parquet"))
        path.unlink()
    seen = ask(moments_job(data, LINEAR["columns"], privacy=NOISED, protocol={"name": "masked"}))
    assert seen.codes == {} and "moments" in seen.sums
