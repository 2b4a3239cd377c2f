"""Where records come from: a folder of files, one table, or Python; and whose rules they carry."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.runs.jobs import SITES, raw_job, tables, write_job

import secagg.jobs.data_sources
from secagg.errors import DataError, JobError, PolicyRefusal
from secagg.jobs.data_sources import find_sites
from secagg.jobs.job import Job, load_job, parse_job


def job_of(**sites: Any) -> Job:
    return parse_job(raw_job(sites={"max_rows": 100} | sites))


def save(path: Path, data: str | bytes) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


# --- a folder ------------------------------------------------------------------------------------


def folder_of(tmp_path: Path, *names: str) -> Path:
    for name in names:
        save(tmp_path / name, "age,sex,grade\n")
    return tmp_path


def test_each_file_is_a_site(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "b.csv", "a.CSV", "c.d.csv", "notes.txt", "README", "x.csv.bak")
    sources = find_sites(job_of(folder=folder))
    assert list(sources) == ["a", "b", "c.d"]
    assert sources["b"].policy.min_sites == 3


def test_finding_sites_does_not_open_their_files(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "a.csv", "b.csv")
    save(folder / "a.csv", b"\xff")
    sources = find_sites(job_of(folder=folder))
    with pytest.raises(DataError):
        sources["a"].read()


@pytest.mark.parametrize(
    "names", [("a.csv", "a.parquet", "b.csv"), (), ("a.csv",), ("a.txt", "b.txt")]
)
def test_unsuitable_folders_are_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    """Two files for one site; fewer than two sites."""
    with pytest.raises(JobError):
        find_sites(job_of(folder=folder_of(tmp_path, *names)))


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    for sites in ({"folder": tmp_path / "none"}, {}):
        with pytest.raises(JobError):
            find_sites(job_of(**sites))


@pytest.mark.parametrize("name", ["", "a\nb", "\x1b[31m", "\udc80", "a\x00"])
def test_site_names_that_would_break_a_log_are_refused(name: str) -> None:
    with pytest.raises(JobError, match="cannot name a site"):
        find_sites(job_of(), {"a": {}, name: {}})


def test_only_named_sites_take_part(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "b.csv", "a.csv", "b_backup.csv", "c.csv")
    assert list(find_sites(job_of(folder=folder, names=["c", "b"]))) == ["b", "c"]


@pytest.mark.parametrize("source", ["folder", "table", "data"])
def test_a_name_without_records_is_an_error(tmp_path: Path, source: str) -> None:
    folder = folder_of(tmp_path, "north.csv", "south.csv")
    path = save(tmp_path / "all.dat", "where,age\nnorth,1\nsouth,2\n")
    given: dict[str, Any] = {
        "folder": {"folder": folder},
        "table": {"table": path, "site_column": "where"},
        "data": {},
    }[source]
    data = tables() if source == "data" else None
    job = job_of(**given, names=["north", "Soutn"])
    with pytest.raises(JobError) as caught:
        find_sites(job, data)
    assert caught.value.where == "sites.names"
    assert "'Soutn'" in caught.value.what and "'south'" in caught.value.advice
    found = find_sites(job_of(**given, names=["north", "south"]), data)
    assert list(found) == ["north", "south"]


@pytest.mark.parametrize("names", [[], ["a"], ["a", "a"], "a"])
def test_unusable_names_are_refused(names: Any) -> None:
    with pytest.raises(JobError):
        job_of(names=names)


# --- a site's own policy -------------------------------------------------------------------------


def test_a_sites_policy_is_read_beside_its_file(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "a.csv", "b.csv", "c.csv")
    save(folder / "b.policy.toml", "min_sites = 5\nmin_records = 7\nmin_total_records = 90")
    save(folder / "c.policy.toml", "min_sites = 2")
    found = find_sites(job_of(folder=folder))
    policies = {name: source.policy.release for name, source in found.items()}
    assert policies["a"].thresholds("a") == (3, 2, 6)
    assert policies["b"].thresholds("b") == (5, 7, 90)
    assert policies["c"].min_sites == 3  # a site's own rules do not lower the job's
    with pytest.raises(PolicyRefusal):  # the job does not fill in what c leaves open
        policies["c"].thresholds("c")


@pytest.mark.parametrize(
    "text",
    ["min_sites = 1", "min_sits = 3", "min_sites = ", b"\xff", 'methods = ["momnets"]',
     'protocols = ["plane"]'],
)  # fmt: skip
def test_an_unreadable_policy_is_an_error(tmp_path: Path, text: str | bytes) -> None:
    folder = folder_of(tmp_path, "a.csv", "b.csv")
    save(folder / "b.policy.toml", text)
    with pytest.raises(JobError) as caught:
        find_sites(job_of(folder=folder))
    assert "b.policy.toml" in caught.value.where


@pytest.mark.parametrize(
    "name",
    ["A.policy.toml", "a.policy.tml", "a.Policy.toml", "a.policy.toml.txt", "a_policy.toml",
     "policy.toml", "d.policy.toml", "a.csv.policy.toml", "POLICY"],
)  # fmt: skip
def test_a_policy_without_a_site_is_an_error(tmp_path: Path, name: str) -> None:
    folder = folder_of(tmp_path, "a.csv", "b.csv", name)
    save(folder / "b.policy.toml", "min_sites = 5\nmin_records = 7")
    with pytest.raises(JobError) as caught:
        find_sites(job_of(folder=folder))
    assert caught.value.where == str(folder / name)


# --- one table -----------------------------------------------------------------------------------


def test_one_table_is_split_by_a_column(tmp_path: Path) -> None:
    path = save(tmp_path / "all.csv", "where,age\nb,1\na ,2\nb,3\n a,4\n")
    sources = find_sites(job_of(table=path, site_column="where"))
    assert {n: s.read()["age"].tolist() for n, s in sources.items()} == {
        "a": ["2", "4"],
        "b": ["1", "3"],
    }


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ("age\n1\n", DataError),
        ("where,where\na,b\n", DataError),
        ("where,age\na,1\n,2\nb,3\n", JobError),  # a record of no site
        ("where,age\na,1\n", JobError),
        ("where,age\n", JobError),
        ("", DataError),
    ],
)
def test_unsplittable_tables_are_refused(tmp_path: Path, data: str, error: type[Exception]) -> None:
    path = save(tmp_path / "all.csv", data)
    with pytest.raises(error):
        find_sites(job_of(table=path, site_column="where"))


def test_finding_sites_parses_the_site_column_only(tmp_path: Path) -> None:
    """The second record is too long, which is an error for the whole table."""
    path = save(tmp_path / "all.csv", "age,where\n1,a\n2,b,3,4\n")
    sources = find_sites(job_of(table=path, site_column="where"))
    assert list(sources) == ["a", "b"]
    with pytest.raises(DataError):
        sources["a"].read()


@pytest.mark.parametrize("name", ["all.csv", "all.parquet"])
def test_one_column_of_a_file_is_read(tmp_path: Path, name: str) -> None:
    pytest.importorskip("pyarrow")
    path, table = tmp_path / name, pd.DataFrame({"x": [1, 2], "where": ["a", "b"]})
    table.to_csv(path, index=False) if name.endswith("csv") else table.to_parquet(path)
    assert list(secagg.jobs.site_tables.read_file(path, only="where").columns) == ["where"]
    with pytest.raises(DataError):
        find_sites(job_of(table=path, site_column="ward"))
    assert list(find_sites(job_of(table=path, site_column="where"))["b"].read()["x"]) in (
        [2], ["2"],
    )  # fmt: skip


def test_a_table_is_read_whole_once_for_all_sites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path / "all.csv", "where,age\na,1\nb,2\n")
    asked: list[str | None] = []
    real = secagg.jobs.site_tables.read_file

    def noted(path: Path, only: str | None = None) -> pd.DataFrame:
        asked.append(only)
        return real(path, only)

    monkeypatch.setattr(secagg.jobs.site_tables, "read_file", noted)
    sources = find_sites(job_of(table=path, site_column="where"))
    assert asked == ["where"]
    for source in sources.values():
        source.read()
    assert asked == ["where", None]


def test_a_site_missing_on_a_second_reading_is_an_error(tmp_path: Path) -> None:
    path = save(tmp_path / "all.csv", "where,age\na,1\nb,2\n")
    sources = find_sites(job_of(table=path, site_column="where"))
    save(path, "where,age\na,1\n")
    with pytest.raises(DataError, match="'b'"):
        sources["b"].read()


def test_missing_site_cells_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a Parquet file may hold them: the record is not silently given to nobody."""
    table = pd.DataFrame({"where": ["a", None, "b"], "age": [1, 2, 3]})
    monkeypatch.setattr(secagg.jobs.site_tables, "read_file", lambda *_, **__: table)
    with pytest.raises(JobError, match="'' cannot name a site"):
        find_sites(job_of(table=tmp_path / "all.parquet", site_column="where"))


# --- Python --------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [dict, pd.DataFrame])
def test_tables_from_python_are_sites(make: Any) -> None:
    sources = find_sites(job_of(), {site: make(columns) for site, columns in tables().items()})
    assert list(sources) == sorted(SITES)
    for site, source in sources.items():
        assert source.read().equals(pd.DataFrame(tables()[site]))


def test_sites_with_equal_names_are_refused() -> None:
    with pytest.raises(JobError, match="the same name"):
        find_sites(job_of(), {1: {}, "1": {}})  # type: ignore[dict-item]  # what a user may do


@pytest.mark.parametrize(
    "table",
    [{"a": [1, 2], "b": [1]}, {"a": 3}, {"a": np.zeros((2, 2))}, {"a": [[1], [2, 3]]}, [1, 2], None,
     "text", np.zeros(3)],
)  # fmt: skip
def test_values_that_are_not_tables_are_refused(table: Any) -> None:
    sources = find_sites(job_of(), {"a": table, "b": {}})
    with pytest.raises(DataError, match="table"):
        sources["a"].read()


def test_a_data_set_cannot_have_the_name_of_the_coordinators_ledger(tmp_path: Path) -> None:
    """Its file would hold the seeds of the site's noise beside what the coordinator may read."""
    job = write_job(tmp_path)
    policy = 'dataset = "Coordinator"\nmin_sites = 3\nmin_records = 2\n'
    (tmp_path / "data/west.policy.toml").write_text(policy)
    with pytest.raises(JobError, match="dataset"):
        find_sites(load_job(job))


def test_a_policy_names_the_ledger_wherever_the_records_are(tmp_path: Path) -> None:
    """A new extract in another folder, with the same policy, must not begin with no history."""
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        for name in ("a", "b"):
            (tmp_path / folder / f"{name}.csv").write_text("x\n1\n")
            policy = f'min_sites = 2\nmin_records = 1\nledger = "../kept/{name}.ledger"\n'
            (tmp_path / folder / f"{name}.policy.toml").write_text(policy)
    one, two = (
        find_sites(job_of(folder=tmp_path / folder))["a"].ledger for folder in ("first", "second")
    )
    assert one is not None and two is not None
    assert one.resolve() == two.resolve() == (tmp_path / "kept" / "a.ledger").resolve()
