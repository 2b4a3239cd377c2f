"""The attacks of an experiment: what is planned, computed, and drawn."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.experiments.serial_pool import serial_pool

from secagg.errors import UsageError
from secagg.experiments.experiment import Planned, plan_experiment
from secagg.experiments.output import write
from secagg.experiments.runner.cells import key
from secagg.experiments.runner.experiment import Computed, compute_experiment
from secagg.experiments.summary import summarise
from secagg.experiments.sweep import read_sweep
from secagg.reports.experiments.attacks import attack_rows, round_rows, verdict_of
from secagg.reports.experiments.page import experiment_page
from secagg.reports.experiments.pictures import pictures

__all__ = ["serial_pool"]  # a fixture
pytestmark = [pytest.mark.usefixtures("serial_pool"), pytest.mark.system]

JOB = """title = "A graph"
[sites]
max_rows = 5000
[columns]
x0 = { type = "continuous", low = -5, high = 5 }
x1 = { type = "continuous", low = -5, high = 5 }
[method]
name = "notears_admm"
rounds = 30
[release]
min_sites = 2
min_records = 5
"""
SWEEP = """title = "Rounds"
job = "job.toml"
repeat = 2
public = true
[records]
simulate = "graph"
sites = 3
edges = 1
[axes]
"records.each" = [60, 90]
[[lines]]
name = "clear"
protocol = { name = "plain" }
[[lines]]
name = "masked"
protocol = { name = "masked" }
[attacks]
set_aside = 0.2
at = [60]
"""
ROUNDS = 'names = ["admm_messages"]\nrounds = [1, 2, 4]\n'
NONE: Mapping[str, Any] = {"errors": 0.0}


def plan(folder: Path, text: str) -> Planned:
    (folder / "job.toml").write_text(JOB)
    (folder / "sweep.toml").write_text(text)
    return plan_experiment(read_sweep(folder / "sweep.toml"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rounds")


@pytest.fixture(scope="module")
def planned(folder: Path) -> Planned:
    return plan(folder, SWEEP + ROUNDS)


@pytest.fixture(scope="module")
def done(planned: Planned, folder: Path) -> Computed:
    return compute_experiment(planned, write, folder / "out", 1)


@pytest.fixture(scope="module")
def summary(planned: Planned, done: Computed, folder: Path) -> dict[str, Any]:
    """Of stored results, whose numbers are in the order of their names."""
    assert done.computed
    return summarise(planned, compute_experiment(planned, write, folder / "out", 1))


def test_attacks_are_tried_at_the_places_that_are_named(planned: Planned) -> None:
    assert {line: list(along) for line, along in planned.attacked.items()} == {
        "clear": [60.0], "masked": [60.0],
    }  # fmt: skip


def test_the_error_is_found_after_each_number_of_sums(summary: dict[str, Any]) -> None:
    rows = {row["line"]: row for row in summary["attacks"]}
    name = "admm_messages (coordinator)"
    clear = {each["rounds"]: each for each in rows["clear"]["by_rounds"][name]}
    *some, last = clear
    assert some == [2.0, 4.0] and last > 4  # after the count, there is no message to attack yet
    assert all(each["value"] < 1e-3 and verdict_of(each) == "leak" for each in clear.values())
    assert rows["clear"]["found"] == {name: {k: v for k, v in clear[last].items() if k != "rounds"}}
    masked = rows["masked"]["by_rounds"][name]
    assert len(masked) == 3 and {verdict_of(each) for each in masked} == {"no leak found"}


def test_the_page_has_a_picture_by_sums_and_all_numbers(
    done: Computed, folder: Path, summary: dict[str, Any]
) -> None:
    assert {"rounds.svg", "leakage.svg"} <= {path.name for path in done.files}
    page = (folder / "out" / "report.html").read_text()
    assert page.count("<figure>") == len(pictures(summary))
    assert len(round_rows(summary)) == 6 and len(attack_rows(summary)) == 2
    assert {row[-1] for row in round_rows(summary)} == {"leak", "no leak found"}
    json.loads((folder / "out" / "summary.json").read_text())


def test_a_second_start_writes_the_same(
    planned: Planned, done: Computed, summary: dict[str, Any]
) -> None:
    assert json.dumps(summarise(planned, done)) == json.dumps(summary)


def test_other_numbers_of_sums_are_another_cell(planned: Planned, tmp_path: Path) -> None:
    others = plan(tmp_path, SWEEP + ROUNDS.replace("[1, 2, 4]", "[1, 2]"))
    (one,), (other,) = (p.attacked["clear"].values() for p in (planned, others))
    assert key(one) != key(other)


@pytest.mark.parametrize("name", ["hm1_messages", "clear_contributions"])
def test_an_attack_that_reads_more_than_sums_is_refused_before_a_run(
    name: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as caught:
        plan(tmp_path, SWEEP + f'names = ["admm_sums", "{name}"]\nrounds = [1]\n')
    assert caught.value.where == "attacks.rounds" and name in caught.value.what


def test_an_estimate_has_the_attacks(planned: Planned, done: Computed) -> None:
    estimate, pilot = planned.estimate(done.outcomes), planned.pilot.cells()
    attacked = [cell for along in planned.attacked.values() for cell in along.values()]
    assert set(attacked) <= set(pilot)
    attacks = sum(done.outcomes[cell].seconds for cell in attacked)
    baselines = done.outcomes[pilot[0]].seconds * sum(map(len, planned.baselines.values()))
    runs = sum(row["seconds"] * row["runs"] for row in estimate["curves"])
    assert estimate["attack_seconds"] == pytest.approx(attacks)
    assert estimate["seconds"] == pytest.approx(baselines + runs + attacks)


# --- what is drawn of made-up numbers -------------------------------------------------------------


def found(line: str, name: str, across: float, **numbers: float | None) -> dict[str, Any]:
    return {"line": line, "across": across, "failed": None, "by_rounds": {},
            "found": {name: {**NONE, **numbers}}}  # fmt: skip


def made(summary: dict[str, Any], *rows: dict[str, Any]) -> dict[str, Any]:
    return {**summary, "attacks": list(rows)}


def test_a_bound_on_epsilon_is_shown_against_the_claim(summary: dict[str, Any]) -> None:
    some = made(
        summary,
        *(found("a", "many_run_epsilon (coalition)", x, value=0.9, limit=1.0, control_value=1.9,
                claim=x) for x in (1.0, 4.0)),
    )  # fmt: skip
    picture = str(pictures(some)["leakage"][1])
    assert "claimed ε" in picture and ">control<" in picture and ">limit<" not in picture
    cells = [row[3:6] for row in attack_rows(some)]
    assert cells == [["ε 0.900", "ε 1.90", "≤ ε 1.00"], ["ε 3.60", "ε 7.60", "≤ ε 4.00"]]


def test_controls_that_differ_are_shown_by_the_weakest(summary: dict[str, Any]) -> None:
    rows = [found(line, "x (outsider)", 1.0, value=0.1, limit=0.3, control_value=control)
            for line, control in (("a", 0.9), ("b", 0.6))]  # fmt: skip
    described = str(pictures(made(summary, *rows))["leakage"][1])
    assert "control (weakest): 0.6" in described and ">limit<" in described
    for row in rows:
        row["found"]["x (outsider)"]["errors"] = 1.0
    assert "control (weakest): 0.9" in str(pictures(made(summary, *rows))["leakage"][1])


def test_attacks_without_numbers_are_named_in_the_table(summary: dict[str, Any]) -> None:
    rows = [
        found("a", "x (outsider)", 1.0, unfinished=1.0),
        {**found("b", "", 1.0), "found": {"x (outsider)": {}}},
        {**found("c", "", 1.0), "found": {}, "failed": "it stopped"},
    ]
    some = made(summary, *rows)
    assert [row[-1] for row in attack_rows(some)] == [
        "inconclusive", "does not apply", "failed: it stopped",
    ]  # fmt: skip
    assert "it stopped" in experiment_page(some) and not math.isnan(len(pictures(some)))
