"""The command `secagg query`."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.methods.fitted_ngms import MEANS, ngm_folder, ngm_job
from typer.testing import CliRunner

import secagg
from secagg.cli.main import app
from secagg.cli.output.query import show_query
from secagg.errors import DataError, EvidenceError, SecaggError, UsageError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ngm_folder(tmp_path_factory.mktemp("run") / "r")


def call(*args: str | Path) -> str:
    done = CliRunner().invoke(app, ["query", *map(str, args)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_json_has_the_columns_asked_for(folder: Path) -> None:
    out = call(folder, "--given", "g=mild", "--given", "x=99", "--of", "y", "--json")
    answer = json.loads(out)
    assert [row["column"] for row in answer["columns"]] == ["y"]
    assert answer["columns"][0]["mode"] == pytest.approx(np.exp(MEANS[1, 1]))
    assert answer["given"] == {"x": 10, "g": "mild"} and answer["clipped"] == ["x"]


def test_a_changed_result_is_not_used(tmp_path: Path) -> None:
    folder = ngm_folder(tmp_path / "r")
    path = folder / "arrays.npz"
    path.write_bytes(path.read_bytes()[:-1])
    done = CliRunner().invoke(app, ["query", str(folder)])
    assert isinstance(done.exception, EvidenceError) and done.exception.where == "arrays.npz"
    assert "secagg verify" in done.exception.advice


def test_without_of_all_other_columns_are_shown(folder: Path) -> None:
    out = call(folder, "--given", "x=0.8")
    assert "Three columns" in out and "x = 0.8" in out and "MCSE" in out
    rows = [line.split() for line in out.splitlines()]
    assert {"y", "g"} <= {row[0] for row in rows if row}
    levels = rows[next(i for i, row in enumerate(rows) if row[:2] == ["column", "level"]) + 2 :]
    assert [levels[0][1], levels[1][0], levels[2][0]] == ["none", "mild", "2"]
    assert "Loss is high." in out


def test_intervals_stand_beside_monte_carlo_errors(folder: Path, tmp_path: Path) -> None:
    """If the number of records is known; otherwise the output says that there are none."""
    asked = ("--given", "x=0.8", "--of", "y", "--of", "g")
    without = call(folder, *asked)
    assert "95 % interval" not in without and "how many records" in without
    out = call(ngm_folder(tmp_path / "r", records=400), *asked)
    assert out.count("95 % interval") == 2 and out.count(" to ") == 4 and "MCSE" in out


def test_a_missing_interval_of_a_rare_level_is_explained(tmp_path: Path) -> None:
    out = call(ngm_folder(tmp_path / "r", records=20), "--given", "x=30", "--of", "g")
    table = out.partition("Three columns:")[2].partition("Interval:")[0]
    assert "95 % interval" in table and " to " not in table
    assert "fewer than 5 records" in " ".join(out.split())


def test_an_exact_answer_says_so(folder: Path) -> None:
    out = call(folder, "--given", "g=2", "--of", "x")
    assert "No draws were needed" in out and "MCSE:" not in out


def test_chains_that_disagree_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    row = {
        "column": "a",
        "mode": "1",
        "exact": False,
        "r_hat": 1.7,
        "ess": 3,
        "chains_agree": False,
    }
    levels = [{"level": "1", "probability": 0.5, "error": 0.2}]
    answer = {"title": "t", "given": {}, "clipped": [], "run": {"converged": True, "notes": []}}
    answer |= {"interval": {"level": 0.95, "unavailable": "of noise"}}
    show_query(answer | {"columns": [row | {"levels": levels}]})
    assert "! the chains for a disagree" in capsys.readouterr().out


def test_a_run_that_did_not_converge_is_not_relied_on(capsys: pytest.CaptureFixture[str]) -> None:
    answer = {"title": "t", "given": {}, "clipped": [], "columns": []}
    answer |= {"interval": {"level": 0.95, "unavailable": "of noise"}}
    for converged in (True, False):
        show_query(answer | {"run": {"converged": converged, "notes": ["It ended."]}})
        out = capsys.readouterr().out
        assert ("do not rely" in out) == (not converged) and out.count("It ended.") == 1
        assert ("notes on the run" in out) == converged and "! It ended." not in out


def test_the_most_probable_record(folder: Path) -> None:
    out = call(folder, "--given", "g=2", "--given", "x=30", "--most-probable")
    assert "given" in out and "searches" in out and "x is outside its bounds" in out
    answer = json.loads(call(folder, "--given", "g=2", "--most-probable", "--json"))
    assert answer["values"]["x"] == pytest.approx(MEANS[0, 2])


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (["--given", "x"], UsageError),
        (["--given", "=3"], UsageError),
        (["--given", "x=1", "--given", "x=2"], UsageError),
        (["--given", "z=1"], UsageError),
        (["--given", "g=severe"], DataError),
        (["--of", "z"], UsageError),
        (["--of", "x", "--most-probable"], UsageError),
        (["--given", "x=1", "--given", "g=2", "--given", "y=1"], UsageError),
    ],
)
def test_wrong_arguments(folder: Path, args: list[str], error: type[SecaggError]) -> None:
    done = CliRunner().invoke(app, ["query", str(folder), *args])
    assert type(done.exception) is error


def test_only_finished_runs(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["query", str(tmp_path)])
    assert isinstance(done.exception, UsageError)


@pytest.mark.neural
def test_a_real_runs_folder_is_queried(tmp_path: Path) -> None:
    """Given its neighbours, a column has the mean of the least squares of all records."""
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    tables = {}
    for site in "ab":
        x = rng.normal(size=80)
        y = 0.5 * x + rng.normal(size=80)
        tables[site] = pd.DataFrame({"x": x, "y": y})
    method = {"name": "fedngm", "edges": [["x", "y"]], "hidden": [], "linear_penalty": 0.0}
    job = ngm_job() | {
        "columns": {name: {"type": "continuous", "low": -9, "high": 9} for name in "xy"},
        "method": method,
    }
    secagg.run(job, tables, out=tmp_path / "run")
    answer = json.loads(call(tmp_path / "run", "--given", "x=1", "--of", "y", "--json"))
    every = pd.concat(tables.values())
    slope, intercept = np.polyfit(every["x"], every["y"], 1)
    assert answer["columns"][0]["mode"] == pytest.approx(intercept + slope, rel=1e-3)
    assert answer["columns"][0]["exact"]
