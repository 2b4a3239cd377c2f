"""`secagg site check` of all sites together finds what a run would stop for."""

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support.runs.hospitals import HOSPITALS, LINEAR, ask, folder, moments_job
from typer.testing import CliRunner

from secagg.cli.main import app
from secagg.jobs.job import parse_job
from secagg.runs.checks.all_sites_check import AllSitesCheck, check_folder
from secagg.sessions.planned_job import plan_job

NOISE = {"placement": "site", "epsilon": 2.0, "delta": 1e-5}


def check(data: Path, columns: dict[str, Any], **more: Any) -> AllSitesCheck:
    return check_folder(plan_job(parse_job(moments_job(data, columns, **more))))


def with_column(data: Path, name: str, cells: dict[str, list[str]]) -> None:
    for site in HOSPITALS:
        path = data / f"{site}.csv"
        table = pd.read_csv(path, dtype=str)
        table[name] = (cells[site] * len(table))[: len(table)]
        table.to_csv(path, index=False)


def test_sites_that_fit_are_allowed(tmp_path: Path) -> None:
    assert check(folder(tmp_path), LINEAR["columns"]) == AllSitesCheck()


def test_a_column_that_names_the_site_is_found_as_in_a_run(tmp_path: Path) -> None:
    data = folder(tmp_path)
    with_column(data, "place", {site: [site] for site in HOSPITALS})
    columns = {"place": {"type": "categorical", "levels": list(HOSPITALS)}}
    (why,) = check(data, columns).refusals
    assert why.startswith("coordinator: ") and "min_level_sites" in why
    assert not (data / "ledgers").exists()
    assert "moments" not in ask(moments_job(data, columns)).sums
    assert not check(data, columns, privacy=NOISE).refusals


def test_a_rare_level_is_found_as_in_a_run(tmp_path: Path) -> None:
    data = folder(tmp_path)
    rare = {site: ["no"] * 99 + ["yes"] for site in HOSPITALS}
    with_column(data, "transplant", rare)
    columns = {"transplant": {"type": "binary", "levels": ["no", "yes"]}}
    (why,) = check(data, columns).refusals
    assert "min_cell_records" in why
    assert "moments" not in ask(moments_job(data, columns)).sums


def test_a_level_that_no_site_has_is_named_before_its_column_is_fixed(tmp_path: Path) -> None:
    """A run ends after its first sum, and sites then refuse the column without the level."""
    data = folder(tmp_path)
    with_column(data, "stage", {site: ["I", "II"] for site in HOSPITALS})
    declared = {"stage": {"type": "categorical", "levels": ["I", "II", "III"]}}
    found = check(data, declared)
    (remark,) = found.remarks
    assert "'III'" in remark and "'stage'" in remark and not found.refusals
    declared["stage"]["levels"] = ["III", "I", "II"]  # the reference, which has no indicator
    assert "'III'" in check(data, declared).remarks[0]
    declared["stage"]["levels"] = ["I", "II"]
    assert check(data, declared) == AllSitesCheck()


def test_a_site_with_almost_all_records_is_named(tmp_path: Path) -> None:
    data = folder(tmp_path)
    path = data / "hungary.csv"
    head, *lines = path.read_text().splitlines()
    path.write_text("\n".join([head, *lines * 40]) + "\n")
    columns = {"age": LINEAR["columns"]["age"]}
    (remark,) = check(data, columns, sites={"folder": data, "max_rows": 20_000}).remarks
    assert remark.startswith("hungary: ")


def test_a_copy_stops_a_run(tmp_path: Path) -> None:
    data = folder(tmp_path)
    shutil.copy(data / "hungary.csv", data / "hungary_backup.csv")
    exact, noised = (check(data, LINEAR["columns"], **more) for more in ({}, {"privacy": NOISE}))
    assert exact.problem.startswith("sites.folder: ")
    assert noised.mistakes == (exact.problem,) and not noised.problem  # a run would go on
    named = {"sites": {"folder": data, "max_rows": 1000, "names": list(HOSPITALS)}}
    job = moments_job(data, LINEAR["columns"]) | named
    (remark,) = check_folder(plan_job(parse_job(job))).remarks
    assert remark.startswith("hungary_backup.csv")


@pytest.mark.parametrize(("copied", "code"), [(False, 0), (True, 2)])
def test_the_command_shows_all_sites_together(tmp_path: Path, copied: bool, code: int) -> None:
    data = folder(tmp_path)
    if copied:
        shutil.copy(data / "hungary.csv", data / "hungary_backup.csv")
    job = tmp_path / "job.toml"
    job.write_text(
        f'title = "t"\n[sites]\nfolder = "{data}"\nmax_rows = 1000\n[columns]\n'
        'age = { type = "continuous", low = 18, high = 100 }\n[method]\nname = "moments"\n'
        'analyses = [{ kind = "describe" }]\n[release]\nmin_sites = 3\nmin_records = 10\n'
    )
    done = CliRunner().invoke(app, ["site", "check", str(job)])
    assert done.exit_code == code, done.output
    assert ("a run would stop" in done.output) is copied
    whole = json.loads(CliRunner().invoke(app, ["site", "check", str(job), "--json"]).stdout)
    assert bool(whole["together"]["problem"]) is copied
    one = CliRunner().invoke(app, ["site", "check", str(job), "--json", "--site", "hungary"])
    assert one.exit_code == 0 and json.loads(one.stdout)["together"] is None
