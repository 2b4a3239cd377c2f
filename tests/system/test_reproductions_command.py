"""`python -m reproductions notears-admm`: what it prints and writes, and how it fails."""

import json
import os
import signal
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from support.runs.checkout import ROOT
from typer.testing import CliRunner

from reproductions.__main__ import app

CHEAP = ["admm-paper", "notears-alldata", "voting", "pc-voting", "ges-voting", "pc", "ges"]
SKIP = [part for name in [*CHEAP, "average", "best"] for part in ("--skip", name)]


def call(*args: str | Path) -> tuple[str, str]:
    command = ["notears-admm", *map(str, args)]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout, done.stderr


def test_a_figure_is_written_and_can_be_continued(tmp_path: Path) -> None:
    quick = ["--figure", "1", "--quick", "--seeds", "2", "--jobs", "1", *SKIP, "--out", tmp_path]
    out, err = call(*quick)
    for text in ("SHD, K = 10", "NOTEARS-ADMM, fast", "GOLEM-EV", "±", "The paper:", "Not run: "):
        assert text in out
    assert "12 of 12 cells" in err
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {"cells", *(f"figure1-quick.{ending}" for ending in ("md", "svg", "json"))}
    ET.parse(tmp_path / "figure1-quick.svg")
    assert "| variables d | 10 | 20 |" in (tmp_path / "figure1-quick.md").read_text()

    printed, err = call(*quick, "--json")
    again = json.loads(printed)
    assert err == "" and again["computed"] == 0
    assert again.items() >= json.loads((tmp_path / "figure1-quick.json").read_text()).items()
    assert str(tmp_path / "figure1-quick.md") in again["files"]
    assert again["cpu_seconds"] > 0
    entry = next(e for e in again["entries"] if e["method"] == "golem-ev" and e["column"] == 10)
    assert entry["runs"] == 2 and entry["values"]["shd"].keys() == {"0", "1"}
    assert entry["mean"]["shd"] == sum(entry["values"]["shd"].values()) / 2


def run(*args: str | Path) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "reproductions", *map(str, args)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["notears-admm", "--figure", "5"], "Invalid value for '--figure'"),
        (["notears-admm"], "Missing option '--figure'"),
        (["notears-admm", "--figure", "1", "--skip", "x"], "--skip: unknown method 'x'"),
        (["fedngm"], "Missing option '--table'"),
        (["fedngm", "--table", "1"], "Invalid value for '--table'"),
        (["fedngx"], "No such command 'fedngx'"),
    ],
)
def test_wrong_arguments_are_usage_errors(args: list[str], line: str, tmp_path: Path) -> None:
    code, out, err = run(*args, *(["--out", tmp_path / "out"] if len(args) > 1 else []))
    assert (code, out) == (2, "") and line in err and len(err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_errors_are_printed_as_json(tmp_path: Path) -> None:
    code, _, err = run("notears-admm", "--figure", "1", "--skip", "x", "--json")
    assert code == 2
    assert json.loads(err)["error"].keys() == {"code", "where", "what", "advice"}


def test_an_interrupt_says_what_is_kept(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "reproductions", "notears-admm", "--figure", "1",
         *SKIP, "--out", tmp_path, "--jobs", "1"],
        cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    cells = tmp_path / "cells"
    until = time.monotonic() + 60
    while not cells.is_dir() or len(list(cells.glob("[0-9a-f]*"))) < 2:
        assert time.monotonic() < until
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the processes of the pool, too
    _, err = process.communicate(timeout=30)
    kept = len([path for path in cells.glob("[0-9a-f]*") if not path.name.endswith(".new")])
    assert process.returncode == 130 and "Traceback" not in err
    last = err.splitlines()[-1]
    assert last.startswith("secagg: command: interrupted.")
    assert f"{kept} of 360 cells" in last and str(cells) in last
    assert not (tmp_path / "figure1.md").exists()


@pytest.mark.parametrize("number", [2, 3, 4])
def test_no_quick_cell_fails(number: int, tmp_path: Path) -> None:
    pytest.importorskip("causallearn")
    if number == 3:
        try:
            metadata.version("cdt")
        except metadata.PackageNotFoundError:
            pytest.skip("cdt is not installed; make data")
    mlp = "mlp-" if number == 4 else ""
    long = ["mlp-admm" if mlp else "admm-paper"]
    local = [
        f"{mlp}{name}" for name in ("voting", "average", "best")
    ]  # notears_admm/test_figures.py
    skip = [word for method in long + local for word in ("--skip", method)]
    once = ["--figure", str(number), "--quick", "--seeds", "1", "--jobs", "1", *skip]
    code, out, err = run("notears-admm", *once, "--out", tmp_path, "--json")
    assert code == 0, err
    printed: dict[str, Any] = json.loads(out)
    assert printed["computed"] > 0 and all(not e["failed"] for e in printed["entries"])
