"""An experiment over simulated records, along their number; and one with attacks."""

from pathlib import Path

import pytest
from support.experiments.serial_pool import serial_pool
from support.methods.simulated_graph import GRAPH_JOB

from secagg.experiments.experiment import plan_experiment
from secagg.experiments.runner.experiment import compute_experiment
from secagg.experiments.summary import summarise
from secagg.experiments.sweep import read_sweep
from secagg.reports.experiments.attacks import verdict_of
from secagg.reports.experiments.page import experiment_page
from secagg.reports.experiments.pictures import pictures

__all__ = ["serial_pool"]  # a fixture
pytestmark = pytest.mark.usefixtures("serial_pool")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job.toml").write_text(GRAPH_JOB)
    return tmp_path


@pytest.mark.system
def test_baselines_are_curves_if_the_records_change_along_the_axis(folder: Path) -> None:
    (folder / "sweep.toml").write_text(
        'title = "Records"\njob = "job.toml"\nrepeat = 3\npublic = true\n'
        '[records]\nsimulate = "graph"\nsites = 3\nedges = 2\n[axes]\n"records.each" = [20, 800]\n'
    )
    planned = plan_experiment(read_sweep(folder / "sweep.toml"))
    done = compute_experiment(planned, lambda *_: {}, folder / "out", 2)
    assert not [o.failed for o in done.outcomes.values() if o.failed]
    summary = summarise(planned, done)
    assert summary["baselines"] == {}
    exact, nothing = (
        next(c for c in summary["baseline_curves"] if c["line"] == name)
        for name in ("no noise", "nothing learned")
    )
    (curve,) = summary["curves"]
    for found, point in zip(exact["points"], curve["points"], strict=True):
        assert found["metrics"]["shd"] == point["metrics"]["shd"]  # the job has no noise
    assert [p["metrics"]["shd"]["mean"] for p in nothing["points"]] == [2.0, 2.0]
    assert "simulated" in experiment_page(summary)


@pytest.mark.system
def test_attacks_are_tried_on_one_run_at_each_point(folder: Path) -> None:
    (folder / "sweep.toml").write_text(
        'title = "Attacks"\njob = "job.toml"\nrepeat = 2\n'
        '[records]\nsimulate = "graph"\nsites = 3\neach = 60\n[axes]\n"release.min_records" = [5]\n'
        '"protocol.name" = ["plain", "masked"]\n'
        '[attacks]\nnames = ["clear_contributions"]\nset_aside = 0.2\n'
    )
    planned = plan_experiment(read_sweep(folder / "sweep.toml"))
    done = compute_experiment(planned, lambda *_: {}, folder / "out", 2)
    summary = summarise(planned, done)
    found = {row["line"]: list(row["found"].values()) for row in summary["attacks"]}
    (plain,), (masked,) = found["name plain"], found["name masked"]
    assert [verdict_of(each) for each in (plain, masked)] == ["leak", "no leak found"]
    assert "leakage" in pictures(summary)
