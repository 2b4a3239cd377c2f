"""What is found before a run: missing columns, copies of files, files that no site uses."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.runs.jobs import as_csv, raw_job, table, tables

from secagg.errors import DataError
from secagg.jobs.data_sources import find_sites
from secagg.jobs.headers_and_copies import check_files, check_headers
from secagg.jobs.job import Job, parse_job

HEADER = "age,sex,grade"
PERSON = {"placement": "sum", "epsilon": 1.0, "delta": 1e-6, "person": "id"}


def job_of(privacy: dict[str, Any] | None = None, **sites: Any) -> Job:
    return parse_job(raw_job(sites={"max_rows": 100} | sites, privacy=privacy or {}))


def folder_of(place: Path, **texts: str) -> Path:
    """Write CSV files; a text without a line end is only a header, to which a record is added."""
    for name, text in texts.items():
        whole = text if "\n" in text or not text else f"{text}\n{text}\n"
        (place / f"{name}.csv").write_text(whole)
    return place


def refused(folder: Path, **changed: Any) -> DataError:
    job = job_of(folder=folder, **changed)
    with pytest.raises(DataError) as caught:
        check_headers(job, find_sites(job))
    return caught.value


# --- headers -------------------------------------------------------------------------------------


def test_tables_with_all_columns_pass(tmp_path: Path) -> None:
    job = job_of(folder=folder_of(tmp_path, a=f"id,{HEADER}", b=f"{HEADER},id"), privacy=PERSON)
    check_headers(job, find_sites(job))
    job = job_of()
    check_headers(job, find_sites(job, {"a": table(1), "b": pd.DataFrame(table(2))}))


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("sex,grade", ["'age'"]),
        ("age", ["'sex'", "'grade'"]),
        ("age,sex,sex,grade,x,x", ["'sex'"]),
        ("Age,sex,sex", ["'age'", "'grade'", "'sex'"]),
    ],
)
def test_all_missing_and_repeated_columns_of_a_site_are_named(
    tmp_path: Path, header: str, said: list[str]
) -> None:
    error = refused(folder_of(tmp_path, a=HEADER, b=header, c=HEADER))
    assert error.where == "b"
    assert all(name in error.what for name in said) and "'x'" not in error.what


def test_mistakes_at_several_sites_are_one_error(tmp_path: Path) -> None:
    error = refused(folder_of(tmp_path, a="Age,sex,grade", b="sex,grade", c=HEADER, d="", e="a;b"))
    assert error.where == "sites"
    assert "missing at a, b" in error.what
    assert "d.csv" in error.what and "e.csv" in error.what
    assert "'Age'" in error.advice


def test_a_similar_column_is_suggested_unless_the_job_declares_it(tmp_path: Path) -> None:
    assert "'grades'" in refused(folder_of(tmp_path, a="age,sex,grades", b=HEADER)).advice
    number = {"type": "continuous", "low": 0, "high": 9}
    columns = {"weight_1": number, "weight_2": number}
    job = parse_job(raw_job(columns=columns))
    with pytest.raises(DataError) as caught:
        check_headers(job, find_sites(job, {"a": {"weight_1": [1]}, "b": {"weight_3": [1]}}))
    assert "'weight_3'" in caught.value.advice and "'weight_1'" not in caught.value.advice


def test_sites_names_is_suggested_if_a_single_file_lacks_columns(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, a=HEADER, b=HEADER, notes="day,text")
    assert "sites.names" in refused(folder).advice
    assert "sites.names" not in refused(folder, names=["a", "notes"]).advice
    job = job_of(folder=folder, names=["a", "b"])
    check_headers(job, find_sites(job))


def test_the_column_of_persons_must_exist(tmp_path: Path) -> None:
    error = refused(folder_of(tmp_path, a=f"{HEADER},id", b=HEADER), privacy=PERSON)
    assert error.where == "b" and "'id'" in error.what


def test_an_unreadable_file_keeps_its_own_error(tmp_path: Path) -> None:
    error = refused(folder_of(tmp_path, a=HEADER, b=""))
    assert error.where.endswith("b.csv")


def test_one_table_is_checked_once(tmp_path: Path) -> None:
    path = tmp_path / "all.csv"
    path.write_text("where,age,sex\nn,1,male\ns,2,male\n")
    job = job_of(table=path, site_column="where")
    with pytest.raises(DataError) as caught:
        check_headers(job, find_sites(job))
    assert caught.value.where == str(path) and caught.value.what.count("'grade'") == 1


def test_headers_of_parquet_and_python_tables_are_checked(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame(table(1))
    frame.to_parquet(tmp_path / "a.parquet")
    frame.set_index("age").to_parquet(tmp_path / "b.parquet")  # the index is no column
    error = refused(tmp_path)
    assert error.where == "b" and "'age'" in error.what
    job = job_of()
    with pytest.raises(DataError) as caught:
        check_headers(job, find_sites(job, {"a": frame, "b": {"age": [1]}}))
    assert caught.value.where == "b"


def test_only_the_header_of_a_csv_file_is_read(tmp_path: Path) -> None:
    """The records are too long, which is an error for a reader of them."""
    job = job_of(folder=folder_of(tmp_path, a=f"{HEADER}\n1,2,3,4,5\n", b=HEADER))
    check_headers(job, find_sites(job))
    with pytest.raises(DataError):
        find_sites(job)["a"].read()


# --- files ---------------------------------------------------------------------------------------


def remarks(folder: Path, **sites: Any) -> list[str]:
    job = job_of(folder=folder, **sites)
    return check_files(job, find_sites(job))


def csv(seed: int, rows: int = 30) -> str:
    return as_csv(table(seed, rows))


def test_a_folder_of_different_files_gets_no_remark(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, a=csv(1), b=csv(2), c=csv(3, 300))
    for name in ("README.md", ".hidden.txt", "~$a.xlsx", "a.csv.bak"):
        (folder / name).write_text("")
    (folder / "ledgers").mkdir()
    assert remarks(folder) == []
    assert check_files(job_of(), find_sites(job_of(), tables())) == []


def test_files_that_no_site_uses_are_named(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, a=csv(1), b=csv(2), c=csv(3))
    (folder / "d.XLSX").write_text("")
    (folder / "e.tsv").write_text("")
    (ignored,) = remarks(folder)
    assert "d.XLSX" in ignored and "e.tsv" in ignored
    unnamed, _ = remarks(folder, names=["a", "b"])
    assert "c.csv" in unnamed and "a.csv" not in unnamed


def shuffled(text: str) -> str:
    header, *rows = text.splitlines()
    return "\r\n".join([header, *np.random.default_rng(1).permutation(rows)])


ALIKE = {
    "the same bytes": lambda text: text,
    "other line ends and another order": shuffled,
    "one record more": lambda text: text + "1,male,low\n",
    "a tenth of the records less": lambda text: "\n".join(text.splitlines()[:-3]),
    "within a larger file": lambda text: text + csv(7, 200).partition("\n")[2],
}


@pytest.mark.parametrize("change", ALIKE)
def test_a_copy_of_a_file_is_refused_unless_it_is_listed(tmp_path: Path, change: str) -> None:
    folder = folder_of(tmp_path, a=csv(1), b=csv(2), a_old=ALIKE[change](csv(2)))
    with pytest.raises(DataError) as refused:
        remarks(folder)
    (said,) = remarks(folder, names=["a", "a_old", "b"])
    for text in (said, refused.value.what):
        assert "a_old.csv" in text and "b.csv" in text
        assert "a.csv" not in text.replace("a_old.csv", "")
    (unused,) = remarks(folder, names=["a", "b"])
    assert "a_old.csv" in unused and "b.csv" not in unused


@pytest.mark.parametrize("change", ALIKE)
def test_with_noise_a_copy_is_a_remark(tmp_path: Path, change: str) -> None:
    """Whether 9 in 10 records are in the other file may depend on one record."""
    folder = folder_of(tmp_path, a=csv(1), b=csv(2), a_old=ALIKE[change](csv(2)))
    job = job_of({"placement": "sum", "epsilon": 1.0, "delta": 1e-6}, folder=folder)
    (said,) = check_files(job, find_sites(job))
    assert "a_old.csv" in said and "counts twice" in said


def test_equal_parquet_files_are_named(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    for name in ("a", "b"):
        pd.DataFrame(table(1)).to_parquet(tmp_path / f"{name}.parquet")
    (said,) = remarks(tmp_path, names=["a", "b"])
    assert "a.parquet" in said and "b.parquet" in said


def test_records_that_are_equal_by_chance_get_no_remark(tmp_path: Path) -> None:
    """Two columns with four possible records; few records; half of them in common."""
    rng = np.random.default_rng(5)
    few = ["\n".join(["x,y", *map("{0[0]},{0[1]}".format, rng.integers(0, 2, (50, 2)))])
           for _ in range(2)]  # fmt: skip
    half = "\n".join(csv(1).splitlines()[:16]) + "\n" + csv(2).partition("\n")[2]
    assert remarks(folder_of(tmp_path, a=few[0], b=few[1], c="x\n1\n2\n", d="x\n2\n1\n")) == []
    (tmp_path / "2").mkdir()
    assert remarks(folder_of(tmp_path / "2", a=csv(1), b=half)) == []


def test_a_file_without_records_is_named(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, a=csv(1), b=f"{HEADER}\n\n", c=f"{HEADER}\n\n")
    said = remarks(folder)
    assert [line.partition(":")[0] for line in said] == ["b.csv", "c.csv"]


def test_large_files_are_compared_as_a_whole_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secagg.jobs.headers_and_copies._MAX_BYTES", 100)
    folder = folder_of(tmp_path, a=csv(1), b=csv(1), c=shuffled(csv(1)))
    (said,) = remarks(folder, names=["a", "b", "c"])
    assert "a.csv" in said and "b.csv" in said


def test_an_unreadable_file_gets_no_remark(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, a=csv(1), b=csv(2))
    (folder / "c.csv").mkdir()
    assert remarks(folder) == []
