"""Runs over the four hospitals' records with an id of the patient in each row."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.runs.hospitals import HOSPITALS, LINEAR, ask, folder, moments_job
from typer.testing import CliRunner

import secagg
from secagg.cli.main import app
from secagg.errors import DataError, PolicyRefusal, SecaggError
from secagg.jobs.job import parse_job
from secagg.privacy.policy.site_policy import read_policy
from secagg.runs.checks.site_check import check_sites, draft_policy
from secagg.sessions.planned_job import plan_job

AGE = {"age": LINEAR["columns"]["age"]}
WRITTEN = ("{0}", "{0:03d}", "{0}.0", " {0} ")
"""How the same id is written in the rows of one patient."""


def with_ids(data: Path, patients: dict[str, int], rows: int = 120) -> Path:
    """Give each hospital so many patients: its rows are theirs in turn, with ids in mixed types."""
    for name in HOSPITALS:
        table = pd.read_csv(data / f"{name}.csv").head(rows)
        ids = [
            WRITTEN[(i // patients[name]) % len(WRITTEN)].format(i % patients[name])
            for i in range(len(table))
        ]
        table.assign(pid=ids).to_csv(data / f"{name}.csv", index=False)
        policy = 'profile = 10\nperson = "pid"\n'
        (data / f"{name}.policy.toml").write_text(policy, encoding="utf-8")
    return data


def everywhere(patients: int) -> dict[str, int]:
    return dict.fromkeys(HOSPITALS, patients)


def job(data: Path, columns: Any = AGE, person: str | None = "pid", **more: Any) -> dict[str, Any]:
    privacy = {} if person is None else {"person": person}
    return moments_job(data, columns, privacy=privacy, protocol={"name": "masked"}, **more)


@pytest.mark.attack
def test_120_rows_of_nine_patients_do_not_pass_a_minimum_of_ten(tmp_path: Path) -> None:
    few = with_ids(folder(tmp_path / "few"), everywhere(60) | {"hungary": 9})
    assert ask(job(few)).codes == {"hungary": "records"}
    with pytest.raises(PolicyRefusal, match="min_records"):
        secagg.run(job(few))
    enough = with_ids(folder(tmp_path / "enough"), everywhere(60) | {"hungary": 10})
    summary = secagg.run(job(enough)).result.summary
    assert summary["records"] == 480 and summary["persons"] == 190


@pytest.mark.attack
def test_without_a_policy_the_jobs_own_minimum_counts_persons(tmp_path: Path) -> None:
    data = with_ids(folder(tmp_path), everywhere(60) | {"hungary": 9})
    for name in HOSPITALS:
        (data / f"{name}.policy.toml").unlink()
    assert ask(job(data)).codes == {"hungary": "records"}
    assert "cohort" in ask(job(data, release={"min_sites": 3, "min_records": 9})).sums
    total = {"min_sites": 3, "min_records": 9, "min_total_records": 190}  # there are 189
    assert set(ask(job(data, release=total)).sums) == {"cohort"}


@pytest.mark.attack
def test_a_job_without_the_column_of_the_policy_is_refused(tmp_path: Path) -> None:
    """Its counts over all sites would be of rows, or of another column's values."""
    data = with_ids(folder(tmp_path), everywhere(60))
    for person in (None, "chest_pain"):
        assert set(ask(job(data, person=person)).codes.values()) == {"policy"}
    noised = {"placement": "site", "epsilon": 2.0, "delta": 1e-5}
    for privacy in (noised, noised | {"person": "chest_pain"}):
        asked = moments_job(data, AGE, privacy=privacy)
        assert set(ask(asked).codes.values()) == {"policy"}


@pytest.mark.attack
def test_a_job_that_relies_on_a_column_is_refused_unless_the_policy_names_it(
    tmp_path: Path,
) -> None:
    data = with_ids(folder(tmp_path), everywhere(60))
    for name in HOSPITALS:
        (data / f"{name}.policy.toml").write_text("profile = 10\n", encoding="utf-8")
    privacy = {"placement": "site", "epsilon": 2.0, "delta": 1e-5, "person": "rest_ecg"}
    pinned = moments_job(data, AGE, privacy=privacy | {"person_pinned": True})
    assert set(ask(pinned).codes.values()) == {"policy"}


@pytest.mark.attack
def test_a_level_that_only_few_patients_have_is_refused(tmp_path: Path) -> None:
    """First by the site that has it; without policies, by the counts over all sites."""
    data = with_ids(folder(tmp_path), everywhere(40))
    for name in HOSPITALS:
        table = pd.read_csv(data / f"{name}.csv", dtype=str)
        rare = np.arange(len(table)) % 40 < 2  # six rows of two patients: 24 rows of 8 patients
        table.assign(smoker=np.where(rare, "yes", "no")).to_csv(data / f"{name}.csv", index=False)
    columns = {"smoker": {"type": "binary", "levels": ["no", "yes"]}, **AGE}
    assert set(ask(job(data, columns)).codes.values()) == {"records"}
    for name in HOSPITALS:
        (data / f"{name}.policy.toml").unlink()
    assert set(ask(job(data, columns)).sums) == {"cohort"}
    with pytest.raises(PolicyRefusal, match="fewer than 10 persons over all sites"):
        secagg.run(job(data, columns))
    rows = ask(job(data, columns, person=None, sites={"folder": str(data), "max_rows": 1000}))
    assert "moments" in rows.sums  # 24 rows pass


def test_a_site_without_the_column_ends_the_run(tmp_path: Path) -> None:
    data = with_ids(folder(tmp_path), everywhere(60))
    table = pd.read_csv(data / "hungary.csv").drop(columns="pid")
    table.to_csv(data / "hungary.csv", index=False)
    with pytest.raises(DataError, match="is missing"):
        secagg.run(job(data))
    assert set(ask(job(data)).codes) == {"hungary"}


@pytest.mark.attack
def test_rows_without_an_id_are_no_persons(tmp_path: Path) -> None:
    """Nine patients, and 50 rows that name nobody: not ten persons."""
    data = with_ids(folder(tmp_path), everywhere(60) | {"hungary": 9})
    table = pd.read_csv(data / "hungary.csv", dtype=str)
    table.loc[:49, "pid"] = ["", "NA", "?", " ", "none"] * 10
    table.to_csv(data / "hungary.csv", index=False)
    assert ask(job(data)).codes == {"hungary": "records"}


def test_plan_report_and_check_say_what_is_counted(tmp_path: Path) -> None:
    data = with_ids(folder(tmp_path), everywhere(60) | {"hungary": 9})
    found = {check.site: check for check in check_sites(plan_job(parse_job(job(data))))}
    assert found["hungary"].persons == 9 and not found["hungary"].passes
    assert found["cleveland"].persons == 60 and found["cleveland"].passes
    plan = secagg.plan(job(data))
    assert "count persons, by column 'pid'" in plan["differential_privacy"]["sentence"]
    rows = secagg.plan(job(data, person=None))
    assert "count rows, not persons" in rows["differential_privacy"]["sentence"]


def test_a_draft_of_a_policy_names_the_column(tmp_path: Path) -> None:
    data = with_ids(folder(tmp_path), everywhere(60))
    (data / "hungary.policy.toml").unlink()
    planned = plan_job(parse_job(job(data)))
    path = draft_policy(planned.job, planned.sources["hungary"])
    assert read_policy(path).person == "pid"


def test_a_run_in_persons_verifies_and_its_report_says_so(tmp_path: Path) -> None:
    data = with_ids(folder(tmp_path), everywhere(60))
    columns = AGE | {"sex": {"type": "binary", "levels": ["female", "male"]}}
    release = {"min_sites": 3, "min_records": 5, "min_cell_records": 1, "min_level_sites": 2}
    out = tmp_path / "run"
    for name in HOSPITALS:
        rules = "min_sites = 3\nmin_records = 5\nmin_level_records = 1\nmin_cell_records = 1\n"
        rules += 'min_level_sites = 2\nmax_leverage = 1.0\nperson = "pid"\n'
        (data / f"{name}.policy.toml").write_text(rules, encoding="utf-8")
    secagg.run(job(data, columns, release=release), out=out)
    verified = CliRunner().invoke(app, ["verify", str(out)])
    assert verified.exit_code == 0, verified.output
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "count persons, by column" in page


def test_the_check_command_prints_the_number_of_persons(tmp_path: Path) -> None:
    data = with_ids(folder(tmp_path), everywhere(60))
    path = tmp_path / "job.toml"
    path.write_text(
        f'title = "t"\n[sites]\nfolder = "{data}"\nmax_rows = 1000\n'
        '[columns]\nage = { type = "continuous", low = 18, high = 110 }\n'
        '[method]\nname = "moments"\n[release]\nmin_sites = 3\nmin_records = 10\n'
        '[privacy]\nperson = "pid"\n',
        encoding="utf-8",
    )
    shown = CliRunner().invoke(app, ["site", "check", str(path), "--site", "hungary"])
    assert shown.exit_code == 0 and "60 persons" in " ".join(shown.output.split())


def test_a_second_job_on_the_same_records_counts_persons_too(tmp_path: Path) -> None:
    """Another column is missing in all rows of nine patients: 27 rows, but nine persons."""
    data = with_ids(folder(tmp_path), everywhere(40))
    for name in HOSPITALS:
        table = pd.read_csv(data / f"{name}.csv", dtype=str)
        lacks = np.arange(len(table)) % 40 < (9 if name == "cleveland" else 0)
        bp = table["max_heart_rate"].where(~lacks, "")
        table.assign(max_heart_rate=bp).to_csv(data / f"{name}.csv", index=False)
    both = AGE | {"max_heart_rate": {"type": "continuous", "low": 40, "high": 230}}
    assert "moments" in ask(job(data)).sums
    assert "cleveland" in ask(job(data, both)).codes


def test_exact_results_are_those_of_all_rows(tmp_path: Path) -> None:
    """Counting persons changes what is refused, and no number of a result."""
    data = with_ids(folder(tmp_path), everywhere(60))
    for name in HOSPITALS:
        (data / f"{name}.policy.toml").unlink()
    named, plain = ask(job(data)), ask(job(data, person=None))
    assert np.array_equal(named.sums["moments"]["moments"], plain.sums["moments"]["moments"])
    assert named.sums["cohort"]["persons"] == [240] and "persons" not in plain.sums["cohort"]
    with pytest.raises(SecaggError):
        secagg.run(job(data, person="nobody"))
