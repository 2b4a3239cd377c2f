"""A whole experiment: cells, keys, runs, files; and what a second start computes."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.experiments.serial_pool import serial_pool

import secagg
from secagg.core.randomness import replayable_random
from secagg.errors import UsageError
from secagg.experiments.experiment import Planned, plan_experiment
from secagg.experiments.output import check_folder, write
from secagg.experiments.records import Design, bootstrap, digest_of, read_tables
from secagg.experiments.reference import Reference
from secagg.experiments.runner.cells import code_version, compute, key
from secagg.experiments.runner.experiment import Computed, compute_experiment
from secagg.experiments.sweep import read_sweep
from secagg.jobs.job import Job, load_job
from secagg.jobs.privacy import Privacy
from secagg.reports.experiments.conclusion import conclusion, constant_costs
from secagg.reports.experiments.metrics import mean_in_words
from secagg.reports.experiments.page import experiment_page, recommendation_lines
from secagg.reports.experiments.pictures import pictures

__all__ = ["serial_pool"]  # a fixture
pytestmark = pytest.mark.usefixtures("serial_pool")

JOB = """title = "Weights"
[sites]
folder = "data"
max_rows = 400
[columns]
age = { type = "continuous", low = 0, high = 10 }
sex = { type = "binary" }
weight = { type = "continuous", low = -40, high = 40 }
[method]
name = "moments"
analyses = [
    { kind = "describe" }, { kind = "ols", outcome = "weight", predictors = ["age", "sex"] },
]
[protocol]
name = "masked"
[release]
min_sites = 2
min_records = 5
"""
SWEEP = """title = "What privacy costs"
job = "job.toml"
repeat = 2
[measure]
analysis = "ols"
[keys]
"privacy.delta" = 1e-5
"privacy.record_norm" = 1.2
[axes]
"privacy.epsilon" = [1, 20]
[[lines]]
name = "sum"
"privacy.placement" = "sum"
[[lines]]
name = "too few"
"privacy.placement" = "sum"
"release.min_sites" = 9
[goal]
metric = "error"
below = 0.5
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rng = tmp_path_factory.mktemp("study"), np.random.default_rng(1)
    (folder / "data").mkdir()
    for site in ("ada", "bea", "cleo"):
        age, sex = rng.uniform(0, 10, 300), rng.integers(0, 2, 300)
        weight = 2 * age - 5 * sex + rng.normal(0, 3, 300)
        table = pd.DataFrame({"age": age, "sex": sex, "weight": weight})
        table.to_csv(folder / "data" / f"{site}.csv", index=False)
    (folder / "job.toml").write_text(JOB)
    (folder / "study.toml").write_text(SWEEP)
    return folder


@pytest.fixture(scope="module")
def planned(folder: Path) -> Planned:
    return plan_experiment(read_sweep(folder / "study.toml"))


@pytest.fixture(scope="module")
def done(planned: Planned, folder: Path) -> Computed:
    return compute_experiment(planned, write, folder / "out", 2)


@pytest.fixture(scope="module")
def summary(done: Computed, folder: Path) -> Any:
    return json.loads((folder / "out" / "summary.json").read_text())


def test_a_refused_point_is_named_and_has_no_cells(planned: Planned) -> None:
    assert [(r.point.line, r.point.across) for r in planned.refused] == [
        ("too few", 1.0), ("too few", 20.0),
    ]  # fmt: skip
    assert len(planned.cells()) == 2 * 2 + 2  # two points of two runs, two baselines


def test_every_file_is_written(done: Computed) -> None:
    names = {path.name for path in done.files} - {"results.parquet"}  # of an extra
    assert names == {"report.html", "summary.json", "results.csv", "utility.svg", "cost.svg"}
    assert done.computed == 6


def found(summary: Any, own: float | None, *means: tuple[float, float]) -> Any:
    """Return the summary with these mean errors, each with half the width of its interval."""
    (curve,) = summary["curves"]
    points = [
        {**curve["points"][0], "across": float(i),
         "metrics": {"error": {"mean": m, "low": m - half, "high": m + half}}}
        for i, (m, half) in enumerate(means, start=1)
    ]  # fmt: skip
    job = {**summary["job"], "own": own}
    found = {**summary, "job": job, "curves": [{**curve, "points": points}], "goal": None}
    return {**found, "recommendations": []}


def test_the_page_begins_with_the_best_setting_and_the_jobs_own(summary: Any) -> None:
    means = (0.9, 0.05), (0.301, 0.05), (0.36, 0.04)
    best, own, others, exact, *_ = conclusion(found(summary, 1.0, *means))
    assert "at ε 2: 0.301 ± 0.050" in best and "at ε 1: 0.900 ± 0.050; the difference is" in own
    assert others.startswith("1 other setting of 2") and "Without noise" in exact
    assert "overlap" in conclusion(found(summary, 3.0, *means))[1]
    assert "was not run" in conclusion(found(summary, 7.0, *means))[1]
    assert "the job's own" in conclusion(found(summary, 2.0, *means))[1]
    page = experiment_page(found(summary, 1.0, *means))
    assert page.index(best) < page.index("<h2>Numbers</h2>")
    assert conclusion({**summary, "curves": [{**summary["curves"][0], "points": []}]}) == []
    assert summary["job"]["own"] is None and summary["job"]["level"] == 0.95


def test_the_conclusion_names_mechanism_intervals_and_where_joining_pays(summary: Any) -> None:
    """Each site alone has .50 ± .02 without noise; at ε 1 the best mechanism cannot be told apart.

    Only the curve whose points have no coverage has no intervals.
    """
    one = found(summary, None, (0.49, 0.02), (0.3, 0.02))
    (curve,) = one["curves"]
    assert curve["mechanism"] == {"method": "moments", "placement": "sum"}
    points = [
        {**p, "metrics": p["metrics"] | {"coverage": p["metrics"]["error"]}}
        for p in curve["points"]
    ]
    rounds = {**curve, "line": "rounds", "mechanism": {"method": "gradient", "placement": "round"}}
    rounds["points"] = found(summary, None, (0.7, 0.02), (0.29, 0.005))["curves"][0]["points"]
    alone = {"error": {"mean": 0.5, "low": 0.48, "high": 0.52}}
    both = {
        **one, "curves": [{**curve, "line": "sum", "points": points}, rounds],
        "baselines": {**summary["baselines"], "each site alone": alone},
    }  # fmt: skip
    lines = conclusion(both)
    assert lines[0].endswith("by method gradient with placement round.")
    assert "at ε 2 only" in lines[-2]
    assert lines[-1] == "Without intervals: “rounds”."
    worse = {"error": {"mean": 0.2, "low": 0.19, "high": 0.21}}
    assert "does not pay" in conclusion({**both, "baselines": {"each site alone": worse}})[-2]
    far = {"error": {"mean": 2.0, "low": 1.9, "high": 2.1}}
    assert "every" in conclusion({**both, "baselines": {"each site alone": far}})[-2]


def test_means_have_the_digits_of_their_error() -> None:
    tiny = {"mean": -5.55e-18, "low": -0.057, "high": 0.057}
    assert mean_in_words(tiny) == "0.000 ± 0.057"
    assert mean_in_words({"mean": 2.0, "low": 2.0, "high": 2.0}) == "2"


def test_costs_that_do_not_vary_are_a_sentence_and_no_panel(summary: Any) -> None:
    assert ">rounds<" not in pictures(summary)["cost"][1]
    assert "rounds: 2" in constant_costs(summary) and constant_costs(summary) in experiment_page(
        summary
    )


def test_coverage_has_its_level_and_lines_that_coincide_have_one_name(summary: Any) -> None:
    _, picture = pictures(summary)["utility"]
    assert "level of the intervals: 0.9500" in picture
    assert ">no noise, and pooled<" in picture and ">pooled<" not in picture
    moved = {k: dict(v) for k, v in summary["baselines"].items()}
    moved["pooled"]["error"] = {"mean": 9.0, "low": 8.0, "high": 10.0}
    _, picture = pictures({**summary, "baselines": moved})["utility"]
    assert ">no noise<" in picture and ">pooled<" in picture


def test_more_privacy_costs_accuracy(summary: Any) -> None:
    (curve,) = summary["curves"]
    strict, loose = (point["metrics"] for point in curve["points"])
    assert strict["error"]["mean"] > loose["error"]["mean"]
    assert strict["width"]["mean"] > loose["width"]["mean"] > 0
    assert summary["baselines"]["nothing learned"]["error"]["mean"] == 1.0
    pooled, exact = (summary["baselines"][name]["error"] for name in ("pooled", "no noise"))
    assert pooled["mean"] == pytest.approx(exact["mean"])
    assert summary["baselines"]["each site alone"]["sites"]["mean"] == 3.0
    more = curve["points"][0]["more_than_no_noise"]["error"]
    assert more["mean"] == pytest.approx(strict["error"]["mean"] - exact["mean"])


def test_a_cell_is_the_run_that_its_point_says(planned: Planned, done: Computed) -> None:
    """The error, from a run by hand on the same records with the same seed."""
    tables = read_tables(planned.reference)
    drawn, _ = bootstrap(tables, 2)
    cell = planned.runs["sum"][1.0][2]
    job = Job.model_validate_json(str(dict(cell.settings)["job"]))
    found = secagg.run(job, drawn, random=replayable_random(2)).result.summary["analyses"][1]
    exact = secagg.run(planned.reference, tables).result.summary["analyses"][1]
    (b, t) = (np.array([row["estimate"] for row in each["terms"][1:]]) for each in (found, exact))
    pooled = pd.concat(tables.values()).astype(float)
    s = pooled[["age", "sex"]].std(ddof=0).to_numpy()
    numbers = done.outcomes[cell].numbers
    assert numbers is not None
    error = np.linalg.norm(s * (b - t)) / np.linalg.norm(s * t)
    assert numbers["run"]["error"] == pytest.approx(error, rel=1e-9)


def test_a_second_start_computes_nothing(planned: Planned, done: Computed, folder: Path) -> None:
    again = compute_experiment(planned, write, folder / "out", 1)
    assert again.computed == 0
    assert {p.name: p.read_bytes() for p in again.files} == {
        p.name: p.read_bytes() for p in done.files
    }


def test_moved_records_keep_results_and_changed_ones_do_not(
    planned: Planned, folder: Path, tmp_path: Path
) -> None:
    keys = [key(cell) for cell in planned.cells()]
    (tmp_path / "data").mkdir()
    for path in (folder / "data").iterdir():
        (tmp_path / "data" / path.name).write_bytes(path.read_bytes())
    for name in ("job.toml", "study.toml"):
        (tmp_path / name).write_text((folder / name).read_text())
    moved = plan_experiment(read_sweep(tmp_path / "study.toml"))
    assert [key(cell) for cell in moved.cells()] == keys
    changed = pd.read_csv(tmp_path / "data" / "ada.csv")
    changed.loc[0, "age"] += 1
    changed.to_csv(tmp_path / "data" / "ada.csv", index=False)
    others = plan_experiment(read_sweep(tmp_path / "study.toml"))
    assert not set(keys) & {key(cell) for cell in others.cells()}


def test_no_ledger_is_written(done: Computed, folder: Path) -> None:
    assert sorted(path.name for path in (folder / "data").iterdir()) == [
        "ada.csv", "bea.csv", "cleo.csv",
    ]  # fmt: skip


def test_each_curve_has_its_own_method_without_noise(folder: Path) -> None:
    text = SWEEP.replace('name = "too few"', 'name = "rounds"').replace(
        '"privacy.placement" = "sum"\n"release.min_sites" = 9',
        '"privacy.placement" = "round"\nmethod = { name = "gradient", family = "gaussian", '
        'outcome = "weight", predictors = ["age", "sex"], rounds = 5 }',
    )
    (folder / "own.toml").write_text(text)
    planned = plan_experiment(read_sweep(folder / "own.toml"))
    assert list(planned.exact) == ["rounds"]  # the other line's is the baseline
    job = Job.model_validate_json(dict(planned.exact["rounds"][1].settings)["job"])
    assert (job.method.name, job.privacy) == ("gradient", Privacy())
    done = compute_experiment(planned, write, folder / "own", 2)
    found = json.loads((folder / "own" / "summary.json").read_text())
    first, second = found["curves"]
    assert first["no_noise"]["metrics"]["error"] == found["baselines"]["no noise"]["error"]
    assert "seconds" not in first["no_noise"]["metrics"]  # that cell has all baselines
    assert "seconds" in second["no_noise"]["metrics"]
    own = second["no_noise"]["metrics"]["error"]["mean"]
    more = second["points"][1]["more_than_no_noise"]["error"]["mean"]
    assert second["points"][1]["metrics"]["error"]["mean"] == pytest.approx(own + more)
    assert own != first["no_noise"]["metrics"]["error"]["mean"]
    page = (folder / "own" / "report.html").read_text()
    assert page.count('<td class="n">no noise</td>') == 2
    assert "rounds,inf,1,error," in (folder / "own" / "results.csv").read_text()
    assert done.computed == len(planned.cells()) == 2 * 2 + 2 * 2 + 2 + 2


@pytest.mark.system
def test_a_curve_whose_job_is_refused_without_noise_has_no_place_without_noise(
    folder: Path,
) -> None:
    """The job of another curve without noise is not its own."""
    text = SWEEP.replace('name = "too few"', 'name = "plain"').replace(
        '"privacy.placement" = "sum"\n"release.min_sites" = 9',
        '"privacy.placement" = "site"\n"protocol.name" = "plain"',
    )
    (folder / "plain.toml").write_text(text)
    refused = "secagg.experiments.experiment._refusal"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refused, lambda job, _: "" if job.privacy.placement != "none" else "no")
        planned = plan_experiment(read_sweep(folder / "plain.toml"))
    done = compute_experiment(planned, write, folder / "plain", 2)
    first, second = json.loads((folder / "plain" / "summary.json").read_text())["curves"]
    assert first["no_noise"]["metrics"] and first["points"][0]["more_than_no_noise"]
    assert not second["no_noise"]["metrics"] and not second["points"][0]["more_than_no_noise"]
    assert done.computed == len(planned.cells())


def test_no_rule_and_no_setting_of_noise_refuses_a_curve_without_noise(folder: Path) -> None:
    text = SWEEP.replace('name = "too few"', 'name = "rounds"').replace(
        '"privacy.placement" = "sum"\n"release.min_sites" = 9',
        '"privacy.placement" = "round"\n"release.min_cell_records" = 100000\nmethod = { name = '
        '"gradient", family = "gaussian", outcome = "weight", predictors = ["age"], clip = 2.0 }',
    )
    (folder / "rules.toml").write_text(text)
    planned = plan_experiment(read_sweep(folder / "rules.toml"))
    job = Job.model_validate_json(dict(planned.exact["rounds"][1].settings)["job"])
    assert job.release.min_cell_records == 1 and "clip" not in job.method.settings


def test_runs_that_failed_without_noise_are_named(summary: Any) -> None:
    (curve,) = summary["curves"]
    failed = {**curve["no_noise"], "failures": 1, "failed": ["a planted reason"]}
    page = experiment_page({**summary, "curves": [{**curve, "no_noise": failed}]})
    assert "a planted reason" in page and "a planted reason" not in experiment_page(summary)


def test_too_few_runs_are_not_said_to_miss_the_goal(summary: Any, done: Computed) -> None:
    (each,) = summary["recommendations"]
    reached = [{"across": 1.0, "limit": None, "reached": 2, "runs": 2}]
    found = {**summary, "recommendations": [{**each, "smallest": None, "points": reached}]}
    (line,) = recommendation_lines(found)
    assert "all 2 runs at 1 reached the goal" in line and "need 22" in line
    missed = [{**reached[0], "reached": 1}]
    found = {**summary, "recommendations": [{**each, "smallest": None, "points": missed}]}
    assert "no ε up to 1" in recommendation_lines(found)[0]


def test_a_goal_that_no_run_has_is_named_by_the_plan(folder: Path) -> None:
    (folder / "auc.toml").write_text(SWEEP.replace('"error"\nbelow = 0.5', '"auc"\nabove = 0.5'))
    planned = plan_experiment(read_sweep(folder / "auc.toml"))
    once = compute_experiment(planned.pilot, lambda *_: {}, folder / "auc", 1)
    assert planned.estimate(once.outcomes)["without_goal"] == "auc"


def test_the_bootstrap_splits_each_site_in_drawn_records_and_others(folder: Path) -> None:
    tables = read_tables(load_job(folder / "job.toml"))
    drawn, others = bootstrap(tables, 7)
    assert digest_of(bootstrap(tables, 7)[0]) == digest_of(drawn) != digest_of(tables)
    for name, table in tables.items():
        assert len(drawn[name]) == len(table)
        ages = set(table["age"])
        assert set(drawn[name]["age"]) | set(others[name]["age"]) == ages
        assert not set(drawn[name]["age"]) & set(others[name]["age"])
        assert 0.3 < len(others[name]) / len(table) < 0.45  # 1/e of 300, over 4 deviations


def test_the_design_is_in_the_columns_own_units(folder: Path) -> None:
    job = load_job(folder / "job.toml")
    tables = read_tables(job)
    design = Design.of(job, tables)
    pooled = pd.concat(tables.values()).astype(float)
    for name in ("age", "sex", "weight"):
        assert design.column(name) == pytest.approx(pooled[name].to_numpy())


def test_the_csv_has_every_number_of_every_run(done: Computed, folder: Path) -> None:
    rows = list(csv.DictReader((folder / "out" / "results.csv").read_text().splitlines()))
    errors = [row for row in rows if row["metric"] == "error" and row["line"] == "sum"]
    assert {(row["privacy.epsilon"], row["seed"]) for row in errors} == {
        ("1", "1"), ("1", "2"), ("20", "1"), ("20", "2"),
    }  # fmt: skip


def test_a_sweep_whose_every_point_is_refused_is_refused(folder: Path) -> None:
    text = SWEEP.replace('name = "sum"\n', 'name = "sum"\n"release.min_sites" = 8\n')
    (folder / "none.toml").write_text(text)
    with pytest.raises(UsageError):
        plan_experiment(read_sweep(folder / "none.toml"))


def test_attacks_are_known_before_a_run(folder: Path) -> None:
    (folder / "attacked.toml").write_text(SWEEP + '[attacks]\nnames = ["none"]\n')
    with pytest.raises(UsageError) as caught:
        plan_experiment(read_sweep(folder / "attacked.toml"))
    assert "none" in caught.value.line()


def test_ledgers_and_engine_of_the_job_do_not_matter(folder: Path, planned: Planned) -> None:
    engine = '[engine]\nname = "processes"\n'
    job = JOB.replace("max_rows = 400\n", 'max_rows = 400\nledgers = "ledgers"\n') + engine
    (folder / "real.toml").write_text(job)
    (folder / "real_study.toml").write_text(SWEEP.replace("job.toml", "real.toml"))
    real = plan_experiment(read_sweep(folder / "real_study.toml"))
    assert [key(cell) for cell in real.cells()] == [key(cell) for cell in planned.cells()]
    assert not (folder / "ledgers").exists()


def test_records_of_a_person_are_not_drawn_singly(folder: Path) -> None:
    text = SWEEP.replace("[keys]\n", '[keys]\n"privacy.person" = "age"\n')
    (folder / "person.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        plan_experiment(read_sweep(folder / "person.toml"))
    assert "person" in caught.value.line()


def test_records_that_change_during_the_experiment_are_not_used(planned: Planned) -> None:
    cell = planned.runs["sum"][1.0][1]
    other = replace(cell, settings=tuple(sorted({**dict(cell.settings), "digest": "0"}.items())))
    outcome = compute(other, code_version(other.task))
    assert outcome.numbers is None and "changed" in str(outcome.failed)


def test_a_folder_keeps_one_experiment(done: Computed, folder: Path) -> None:
    check_folder(folder / "out", "What privacy costs", "study.toml")
    for title, file in (("Another study", "study.toml"), ("What privacy costs", "other.toml")):
        with pytest.raises(UsageError):
            check_folder(folder / "out", title, file)


@pytest.mark.parametrize("named", ["", "analysis = 9", 'analysis = "lasso"'])
def test_the_analysis_that_is_measured_must_be_named(named: str, folder: Path) -> None:
    (folder / "unnamed.toml").write_text(SWEEP.replace('analysis = "ols"', named))
    with pytest.raises(UsageError) as caught:
        plan_experiment(read_sweep(folder / "unnamed.toml"))
    assert caught.value.where == "measure.analysis"


def test_one_of_several_analyses_of_a_kind_is_named_by_its_position(folder: Path) -> None:
    of_age = '{ kind = "ols", outcome = "age", predictors = ["weight"], level = 0.8 }'
    (folder / "two.toml").write_text(JOB.replace("analyses = [", f"analyses = [{of_age},"))
    for position, outcome, slopes in ((1, "age", {"weight"}), (3, "weight", {"age", "sex"})):
        sweep = SWEEP.replace('"ols"', str(position)).replace("job.toml", "two.toml")
        (folder / "second.toml").write_text(sweep)
        planned = plan_experiment(read_sweep(folder / "second.toml"))
        job, read = planned.reference, planned.sweep
        reference = Reference(job, read.measure, read.records, read_tables(job))
        assert reference.outcome == outcome
        found = reference.truth(reference.draw(1)).coefficients
        assert found is not None and set(found.names) == slopes
