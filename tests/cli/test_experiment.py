"""The command `secagg experiment`."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.experiments.serial_pool import serial_pool
from support.methods.simulated_graph import GRAPH_JOB
from typer.testing import CliRunner

from secagg.cli.main import app
from secagg.errors import UsageError

__all__ = ["serial_pool"]  # a fixture
pytestmark = pytest.mark.usefixtures("serial_pool")

SWEEP = """title = "Records"
job = "job.toml"
repeat = 2
[records]
simulate = "graph"
edges = 1
[axes]
"records.each" = [20]
[[lines]]
name = "all"
[[lines]]
name = "too few sites"
"release.min_sites" = 9
"""


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    (tmp_path / "job.toml").write_text(GRAPH_JOB)
    (tmp_path / "sweep.toml").write_text(SWEEP)
    return tmp_path / "sweep.toml"


def call(*args: str | Path) -> str:
    done = CliRunner().invoke(app, ["experiment", *map(str, args)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.system
def test_a_plan_runs_each_curve_once_and_the_experiment_the_rest(sweep: Path) -> None:
    out = sweep.parent / "out"
    estimate: Any = json.loads(call(sweep, "--out", out, "--jobs", "1", "--plan", "--json"))
    assert estimate["cells"] == 4 and [row["runs"] for row in estimate["curves"]] == [2]
    assert {row["line"] for row in estimate["refused"]} == {"too few sites"}
    found: Any = json.loads(call(sweep, "--out", out, "--jobs", "1", "--json"))
    assert found["computed"] == 2  # of the four, two are stored
    shown = call(sweep, "--out", out, "--jobs", "1")
    assert "refused: too few sites, 20" in shown.replace("\n", "")
    assert "not private" in shown  # the sweep does not say that its records are public
    assert str(out / "report.html") in shown.replace("\n", "")


def test_pictures_as_png_need_a_browser_before_the_first_run(
    sweep: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError) as caught:
        call(sweep, "--out", sweep.parent / "out", "--png")
    assert caught.value.where == "--png" and not (sweep.parent / "out").exists()


@pytest.mark.browser
@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_each_picture_is_also_drawn_as_png(sweep: Path) -> None:
    out = sweep.parent / "out"
    found: Any = json.loads(call(sweep, "--out", out, "--jobs", "1", "--png", "--json"))
    pictures = {Path(file).stem for file in found["files"] if file.endswith(".svg")}
    drawn = [Path(file) for file in found["files"] if file.endswith(".png")]
    assert {file.stem for file in drawn} == pictures >= {"utility", "cost"}
    for file in drawn:
        assert file.read_bytes().startswith(b"\x89PNG") and file.stat().st_mode & 0o077 == 0
