"""Job files: what is accepted, and the one line for each mistake."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.jobs import COLUMNS, TOML, raw_job

from secagg.errors import JobError
from secagg.jobs.job import Continuous, Job, load_job, parse_job, set_dotted


def with_column(**column: Any) -> dict[str, Any]:
    return raw_job(columns={"x": column})


def test_a_good_job() -> None:
    job = parse_job(raw_job())
    age = job.columns["age"]
    assert isinstance(age, Continuous) and (age.low, age.high, age.transform) == (0, 100, "none")
    assert job.release.min_sites == 3 and job.release.min_total_records is None
    assert not job.simulation.site_alone


def test_what_is_unset_stays_unset() -> None:
    """No default threshold: an unset one must be seen as such, and refuse."""
    raw = raw_job()
    del raw["release"], raw["protocol"]
    job = parse_job(raw)
    assert job.release.min_sites is None and job.release.min_records is None
    assert job.protocol.name == "additive"  # and the default protocol protects


def test_toml_and_python_are_the_same_job() -> None:
    raw = raw_job()
    raw["sites"]["folder"] = "data"
    assert parse_job(tomllib.loads(TOML)) == parse_job(raw)


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (raw_job(titel="x"), "unknown key 'titel'. Did you mean 'title'?"),
        (raw_job(sites={"max_rows": 1, "foldr": "x"}), "'sites.foldr'. Did you mean 'folder'?"),
        (raw_job(release={"min_site": 3}), "'release.min_site'. Did you mean 'min_sites'?"),
        (raw_job(release={"k": 3}), "'release.k'. Known keys here: min_records, min_sites"),
        (raw_job(simulation={"alone": True}), "'simulation.alone'. Did you mean 'site_alone'?"),
        (with_column(type="binary", level=["a", "b"]), "'columns.x.level'. Did you mean 'levels'?"),
        (with_column(type="continuous", low=0, high=1, hgh=2), "Did you mean 'high'?"),
        (raw_job(columns={"binary": {"type": "binary", "q": 1}}), "unknown key 'columns.binary.q'"),
        (raw_job(columns={"continuous": {"type": "continuous", "low": 0}}),
         "columns.continuous.high: is required"),
        (raw_job(privacy={"person": ""}), "privacy.person: must not be empty (got '')"),
        (raw_job(privacy={"epsilon": 1.0, "delta": 1e-6}), "privacy: epsilon is set and placement"),
        (raw_job(privacy={"delta": 1e-6}), "privacy: delta is set and placement is not"),
        (raw_job(privacy={"placement": "none", "epsilon": 1.0}), "privacy: epsilon is set and"),
        (raw_job(privacy={"record_norm": 1.2}), "privacy: record_norm is set and placement is not"),
        (raw_job(privacy={"person": "id"}), "or leave [privacy] out: --set privacy={}"),
        (raw_job(privacy={"colluding": 2}), "privacy: colluding is set and placement is not"),
        (raw_job(privacy={"adjacency": "replace"}), "privacy: adjacency is set and placement"),
        (raw_job(privacy={"count_share": 0.1}), "privacy: count_share is set and placement"),
        (raw_job(title=3), "title: input should be a valid string (got 3)"),
        (raw_job(columns={}), "columns: dictionary should have at least 1 item"),
        (raw_job(columns={"x": 3}), "columns.x"),
        (with_column(), "columns.x.type: must be 'continuous', 'binary' or 'categorical'"),
        (with_column(type="real"), "columns.x.type: must be 'continuous', 'binary' or 'categ"),
        (with_column(type="continuous", low="a", high=1), "columns.x.low"),
        (with_column(type="continuous", low=float("nan"), high=1), "columns.x.low"),
        (with_column(type="continuous", low=0, high=float("inf")), "columns.x.high"),
        (with_column(type="continuous", low=-1.01e100, high=1), "columns.x.low"),
        (with_column(type="continuous", low=0, high=1.01e100), "columns.x.high"),
        (with_column(type="continuous", low=1, high=1), "low (1) must be below high (1)"),
        (with_column(type="continuous", low=2, high=1), "low (2) must be below high (1)"),
        (with_column(type="continuous", low=0, high=1, transform="log"), "(0) must be positive"),
        (with_column(type="continuous", low=-1, high=1, transform="log"), "must be positive"),
        (with_column(type="continuous", low=1, high=2, transform="sqrt"), "columns.x.transform"),
        (with_column(type="binary", levels=["a"]), "columns.x.levels"),
        (with_column(type="binary", levels=["a", "b", "c"]), "columns.x.levels"),
        (with_column(type="binary", levels=["a", "a"]), "a level is named twice"),
        (with_column(type="categorical", levels=["a", "b", "a"]), "a level is named twice"),
        (with_column(type="categorical", levels=["a"]), "columns.x.levels"),
        (with_column(type="categorical", levels=["a", " b"]), "begins or ends with a space"),
        (with_column(type="categorical", levels=[1, 2]), "columns.x.levels.0"),
        (raw_job(sites={}), "sites.max_rows: is required"),
        (raw_job(sites={"max_rows": 0}), "sites.max_rows"),
        (raw_job(sites={"max_rows": 2**48 + 1}), "sites.max_rows"),
        (raw_job(sites={"max_rows": 1, "table": "x"}), "table and site_column belong together"),
        (raw_job(sites={"max_rows": 1, "site_column": "x"}), "table and site_column belong"),
        (raw_job(sites={"max_rows": 1, "table": "x", "site_column": "x", "folder": "y"}), "both"),
        (raw_job(release={"min_sites": 1}), "release.min_sites: input should be greater"),
        (raw_job(release={"min_records": 0}), "release.min_records"),
        (raw_job(release={"min_sites": 2.5}), "release.min_sites"),
        (raw_job(method={}), "method.name: is required"),
        (raw_job(method="moments"), "method"),
        ({}, "title: is required"),
    ],
)  # fmt: skip
def test_mistakes(raw: dict[str, Any], line: str) -> None:
    with pytest.raises(JobError) as caught:
        parse_job(raw, "job.toml")
    shown = caught.value.line()
    assert shown.startswith("job.toml: ") and line in shown and "\n" not in shown
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("privacy", [{}, {"placement": "none"}])
def test_no_promise_is_no_mistake(privacy: dict[str, Any]) -> None:
    """Also once all defaults are written out, as a stored job has them."""
    job = parse_job(raw_job(privacy=privacy))
    assert parse_job(job.model_dump(mode="json")) == job


def test_settings_of_method_and_protocol_are_left_to_them() -> None:
    job = parse_job(raw_job(protocol={"name": "additive", "aggregators": 3, "other": [1]}))
    assert job.protocol.settings == {"aggregators": 3, "other": [1]}


# --- the file ------------------------------------------------------------------------------------


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "job.toml"
    path.write_bytes(data)
    return path


def test_paths_are_relative_to_the_job(tmp_path: Path) -> None:
    job = load_job(written(tmp_path, TOML.encode()))
    assert job.sites.folder == tmp_path / "data"
    absolute = TOML.replace('"data"', '"/elsewhere"')
    assert load_job(written(tmp_path, absolute.encode())).sites.folder == Path("/elsewhere")


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"title = ", "is not valid TOML"),
        (b"title = 'a'\ntitle = 'b'", "is not valid TOML"),
        (b"[a]\n[a]", "is not valid TOML"),
        (b"title = '\xe9'", "is not UTF-8"),
        (b"", "title: is required"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, data: bytes, what: str) -> None:
    with pytest.raises(JobError, match=what) as caught:
        load_job(written(tmp_path, data))
    assert "job.toml" in caught.value.where and "\n" not in caught.value.line()


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="cannot be read"):
        load_job(tmp_path / "none.toml")
    with pytest.raises(JobError, match="cannot be read"):
        load_job(tmp_path)


# --- --set ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("title", "bare text", "bare text"),
        ("title", '"quoted"', "quoted"),
        ("release.min_sites", "4", 4),
        ("method.level", "0.9", 0.9),
        ("new.table.key", "true", True),
        ("sites.folder", "some/where", "some/where"),
        ("method.predictors", '["a", "b"]', ["a", "b"]),
        ("protocol", '{ name = "plain" }', {"name": "plain"}),
        ("title", "", ""),
        ("title", "a = b", "a = b"),
    ],
)
def test_set(key: str, value: str, expected: Any) -> None:
    raw: dict[str, Any] = {"title": "old", "release": {"min_records": 1}}
    set_dotted(raw, key, value)
    found: Any = raw
    for part in key.split("."):
        found = found[part]
    assert found == expected and type(found) is type(expected)
    assert raw["release"]["min_records"] == 1


def test_a_value_that_would_set_more_is_refused() -> None:
    raw: dict[str, Any] = {"title": "old"}
    with pytest.raises(JobError, match="holds a line break"):
        set_dotted(raw, "title", "1\nother = 2")
    assert raw == {"title": "old"}


@pytest.mark.parametrize("key", ["title.x", "list.x", "list.0.x"])
def test_set_below_what_is_no_table(key: str) -> None:
    with pytest.raises(JobError, match="is not a table") as caught:
        set_dotted({"title": "x", "list": [{}]}, key, "1")
    assert caught.value.where == f"--set {key}"


def test_set_reaches_the_job(tmp_path: Path) -> None:
    path = written(tmp_path, TOML.encode())
    job = load_job(path, {"columns.age.high": "120", "release.min_sites": "5"})
    assert job.columns["age"] == Continuous.model_validate(COLUMNS["age"] | {"high": 120})
    assert job.release.min_sites == 5
    with pytest.raises(JobError, match="Did you mean 'high'"):
        load_job(path, {"columns.age.hihg": "120"})
    with pytest.raises(JobError, match=r"release\.min_sites"):
        load_job(path, {"release.min_sites": "many"})


def test_a_job_does_not_change() -> None:
    job = parse_job(raw_job())
    with pytest.raises(ValueError, match="frozen"):
        job.title = "other"  # type: ignore[misc]  # that is the test
    assert Job.model_validate_json(job.model_dump_json()) == job
