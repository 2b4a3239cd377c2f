"""Job files: what is accepted, and the one line for each mistake."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.runs.jobs import COLUMNS, TOML, raw_job

from secagg.errors import CapabilityError, JobError
from secagg.jobs.columns import Continuous
from secagg.jobs.job import Job, load_job, parse_job, set_dotted
from secagg.jobs.registry import METHODS, make_method, placements


def with_column(**column: Any) -> dict[str, Any]:
    return raw_job(columns={"x": column})


def test_a_valid_job_is_parsed() -> None:
    job = parse_job(raw_job())
    age = job.columns["age"]
    assert isinstance(age, Continuous) and (age.low, age.high, age.transform) == (0, 100, "none")
    assert job.release.min_sites == 3 and job.release.min_total_records is None
    assert not job.simulation.site_alone


def test_unset_release_rules_stay_unset() -> None:
    """No default threshold: an unset one must be seen as such, and refuse."""
    raw = raw_job()
    del raw["release"], raw["protocol"]
    job = parse_job(raw)
    assert job.release.min_sites is None and job.release.min_records is None
    assert job.protocol.name == "additive"  # and the default protocol protects


def test_toml_and_python_give_the_same_job() -> None:
    raw = raw_job()
    raw["sites"]["folder"] = "data"
    assert parse_job(tomllib.loads(TOML)) == parse_job(raw)


@pytest.mark.parametrize(
    ("raw", "key", "advice"),
    [
        (raw_job(titel="x"), "titel", "'title'"),
        (raw_job(sites={"max_rows": 1, "foldr": "x"}), "sites.foldr", "'folder'"),
        (raw_job(release={"min_site": 3}), "release.min_site", "'min_sites'"),
        (raw_job(release={"k": 3}), "release.k", "min_records, min_sites"),
        (raw_job(simulation={"alone": True}), "simulation.alone", "'site_alone'"),
        (with_column(type="binary", level=["a", "b"]), "columns.x.level", "'levels'"),
        (with_column(type="continuous", low=0, high=1, hgh=2), "columns.x.hgh", "'high'"),
        (raw_job(columns={"binary": {"type": "binary", "q": 1}}), "columns.binary.q", "levels"),
    ],
)
def test_unknown_keys_are_refused(raw: dict[str, Any], key: str, advice: str) -> None:
    with pytest.raises(JobError) as caught:
        parse_job(raw, "job.toml")
    assert repr(key) in caught.value.what and advice in caught.value.advice


def bounds(low: Any, high: Any, transform: str = "none") -> dict[str, Any]:
    return with_column(type="continuous", low=low, high=high, transform=transform)


def levels(kind: str, *names: Any) -> dict[str, Any]:
    return with_column(type=kind, levels=list(names))


def of_sites(**keys: Any) -> dict[str, Any]:
    return raw_job(sites={"max_rows": 1} | keys)


MISTAKES = {
    "title": [{}, raw_job(title=3)],
    "columns": [raw_job(columns={})],
    "columns.x": [raw_job(columns={"x": 3}), bounds(1, 1), bounds(2, 1), bounds(0, 1, "log"),
                  bounds(-1, 1, "log")],
    "columns.continuous.high": [raw_job(columns={"continuous": {"type": "continuous", "low": 0}})],
    "columns.x.type": [with_column(), with_column(type="real")],
    "columns.x.low": [bounds("a", 1), bounds(float("nan"), 1), bounds(-1.01e100, 1)],
    "columns.x.high": [bounds(0, float("inf")), bounds(0, 1.01e100)],
    "columns.x.transform": [bounds(1, 2, "sqrt")],
    "columns.x.levels": [levels("binary", "a", "b", "c"), levels("binary", "a"),
                         levels("binary", "a", "a"), levels("categorical", "a", "b", "a"),
                         levels("categorical", "a"), levels("categorical", "a", " b")],
    "columns.x.levels.0": [levels("categorical", 1, 2)],
    "sites": [of_sites(table="x"), of_sites(site_column="x"),
              of_sites(table="x", site_column="x", folder="y")],
    "sites.max_rows": [raw_job(sites={}), of_sites(max_rows=0), of_sites(max_rows=2**48 + 1)],
    "release.min_sites": [raw_job(release={"min_sites": n}) for n in (1, 2.5)],
    "release.min_records": [raw_job(release={"min_records": 0})],
    "method": [raw_job(method="moments")],
    "method.name": [raw_job(method={})],
    "privacy.person": [raw_job(privacy={"person": ""})],
    "privacy": [raw_job(privacy=changed) for changed in (
        {"placement": "none", "epsilon": 1.0}, {"placement": "sum", "epsilon": 1.0},
        {"placement": "sum", "epsilon": 1.0, "delta": 1e-6, "sites_per_person": 2})],
}  # fmt: skip


@pytest.mark.parametrize(("key", "raw"), [(key, raw) for key in MISTAKES for raw in MISTAKES[key]])
def test_mistakes_name_their_key_on_one_line(key: str, raw: dict[str, Any]) -> None:
    with pytest.raises(JobError) as caught:
        parse_job(raw, "job.toml")
    error = caught.value
    assert (error.where, error.what.partition(": ")[0]) == ("job.toml", key)
    assert "\n" not in error.line() and error.exit_code == 2


@pytest.mark.parametrize(
    ("key", "value"),
    [("delta", 1e-6), ("record_norm", 1.2), ("colluding", 2), ("adjacency", "replace"),
     ("count_share", 0.1)],
)  # fmt: skip
def test_privacy_without_epsilon_is_refused(key: str, value: Any) -> None:
    """Sums would be exact, which is not what such a job asks for."""
    with pytest.raises(JobError) as caught:
        parse_job(raw_job(privacy={key: value}))
    assert caught.value.what.startswith(f"privacy: {key} ")
    assert "--set privacy={}" in caught.value.line()


@pytest.mark.parametrize("privacy", [{}, {"placement": "none"}, {"person": "id"}])
def test_a_job_without_a_privacy_guarantee_is_valid(privacy: dict[str, Any]) -> None:
    """Also once all defaults are written out, as a stored job has them."""
    job = parse_job(raw_job(privacy=privacy))
    assert parse_job(job.model_dump(mode="json")) == job


@pytest.mark.parametrize("name", METHODS)
def test_epsilon_and_delta_are_enough_and_the_job_says_where_its_noise_is(name: str) -> None:
    """What parties agree on, and what is stored, names the method's first placement."""
    raw = raw_job(method={"name": name}, privacy={"epsilon": 1.0, "delta": 1e-6})
    possible = placements()[name]
    if not possible.where:
        with pytest.raises(CapabilityError) as caught:
            parse_job(raw)
        assert caught.value.where == "privacy" and caught.value.advice == possible.instead
        return
    job = parse_job(raw)
    raw["privacy"]["placement"] = first = possible.where[0].value
    assert job == parse_job(raw) == parse_job(job.model_dump(mode="json"))
    assert job.agreed["privacy"]["placement"] == first


def test_a_job_whose_method_is_invalid_gets_no_placement() -> None:
    for method in ({"name": "momments"}, {}):
        with pytest.raises(JobError):
            parse_job(raw_job(method=method, privacy={"epsilon": 1.0, "delta": 1e-6}))


def test_method_and_protocol_settings_are_not_checked_by_the_job() -> None:
    job = parse_job(raw_job(protocol={"name": "additive", "aggregators": 3, "other": [1]}))
    assert job.protocol.settings == {"aggregators": 3, "other": [1]}


# --- the file ------------------------------------------------------------------------------------


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "job.toml"
    path.write_bytes(data)
    return path


def test_paths_are_relative_to_the_job_file(tmp_path: Path) -> None:
    job = load_job(written(tmp_path, TOML.encode()))
    assert job.sites.folder == tmp_path / "data"
    absolute = TOML.replace('"data"', '"/elsewhere"')
    assert load_job(written(tmp_path, absolute.encode())).sites.folder == Path("/elsewhere")


@pytest.mark.parametrize(
    "data", [b"title = ", b"title = 'a'\ntitle = 'b'", b"[a]\n[a]", b"title = '\xe9'", b"", None]
)
def test_unusable_job_files_are_refused(tmp_path: Path, data: bytes | None) -> None:
    path = tmp_path / "none.toml" if data is None else written(tmp_path, data)
    for place in (path, tmp_path):  # and a folder
        with pytest.raises(JobError) as caught:
            load_job(place)
        assert str(place) in caught.value.where and "\n" not in caught.value.line()


# --- --set ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("title", "bare text", "bare text"),
        ("title", '"quoted"', "quoted"),
        ("release.min_sites", "4", 4),
        ("method.level", "0.9", 0.9),
        ("new.table.key", "true", True),
        ("method.predictors", '["a", "b"]', ["a", "b"]),
        ("title", "", ""),
        ("title", "a = b", "a = b"),
    ],
)
def test_set_dotted_sets_a_typed_value(key: str, value: str, expected: Any) -> None:
    raw: dict[str, Any] = {"title": "old", "release": {"min_records": 1}}
    set_dotted(raw, key, value)
    found: Any = raw
    for part in key.split("."):
        found = found[part]
    assert found == expected and type(found) is type(expected)
    assert raw["release"]["min_records"] == 1


def test_set_dotted_refuses_a_value_that_sets_more_keys() -> None:
    raw: dict[str, Any] = {"title": "old"}
    with pytest.raises(JobError):
        set_dotted(raw, "title", "1\nother = 2")
    assert raw == {"title": "old"}


@pytest.mark.parametrize("key", ["title.x", "list.x", "list.0.x"])
def test_set_dotted_refuses_a_key_below_a_plain_value(key: str) -> None:
    with pytest.raises(JobError) as caught:
        set_dotted({"title": "x", "list": [{}]}, key, "1")
    assert caught.value.where == f"--set {key}"


def test_overrides_change_the_loaded_job(tmp_path: Path) -> None:
    path = written(tmp_path, TOML.encode())
    job = load_job(path, {"columns.age.high": "120", "release.min_sites": "5"})
    assert job.columns["age"] == Continuous.model_validate(COLUMNS["age"] | {"high": 120})
    assert job.release.min_sites == 5
    with pytest.raises(JobError, match=r"release\.min_sites"):
        load_job(path, {"release.min_sites": "many"})


def test_a_job_is_immutable() -> None:
    job = parse_job(raw_job())
    with pytest.raises(ValueError, match="frozen"):
        job.title = "other"  # type: ignore[misc]  # that is the test
    assert Job.model_validate_json(job.model_dump_json()) == job


@pytest.mark.parametrize(
    ("changed", "where", "words"),
    [
        ({"columns": {"x": {"type": "binary", "typical": [0.1, 0.3]}}}, "typical", "share"),
        ({"columns": {"x": {"type": "binary", "typical": 1}}}, "typical", "share"),
        ({"columns": {"x": {"type": "continuous", "low": 1, "high": 3, "typical": 2}}}, "typical",
         "[60, 80]"),
        ({"method": {"name": "one_step", "outcome": ["x", "y"], "predictors": ["z"]}}, "outcome",
         "several outcomes"),
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_shape_says_what_is_meant(
    changed: dict[str, Any], where: str, words: str
) -> None:
    raw = {
        "title": "t", "sites": {"folder": "data", "max_rows": 9},
        "columns": {"x": {"type": "binary"}}, "method": {"name": "moments"},
    }  # fmt: skip
    with pytest.raises(JobError) as caught:
        make_method(parse_job(raw | changed).method)
    assert where in caught.value.what and words in caught.value.what
