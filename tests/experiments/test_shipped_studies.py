"""Every study in examples/ can be planned without a refused point, and every job there can run."""

import math
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.runs.checkout import ROOT
from support.runs.reports import NEURAL
from typer.testing import CliRunner

from secagg.audits.by_rounds import check_from_sums_only
from secagg.cli.main import app
from secagg.experiments.experiment import plan_experiment
from secagg.experiments.opacus_alone import LINE
from secagg.experiments.sweep import read_sweep
from secagg.jobs.columns import Continuous
from secagg.jobs.job import Job, load_job

SITES = {"heart-disease": 4, "sachs": 8, "births": 3}
STUDIES = [
    pytest.param(path, id=f"{path.parent.name}/{path.stem}",
                 marks=[pytest.mark.neural] if path.parent.name == "births" else [])
    for path in sorted(ROOT.glob("examples/*/*study.toml"))
]  # fmt: skip


def made_up(job: Job, rng: np.random.Generator) -> pd.DataFrame:
    """Return a table of records within the bounds."""
    found = dict[str, object]()
    for name, column in job.columns.items():
        if not isinstance(column, Continuous):
            found[name] = rng.choice(column.levels, 200)
        elif column.transform == "log":
            found[name] = np.exp(rng.uniform(math.log(column.low), math.log(column.high), 200))
        else:
            found[name] = rng.uniform(column.low, column.high, 200)
    return pd.DataFrame(found)


@pytest.mark.parametrize("study", STUDIES)
def test_a_shipped_study_plans_without_refused_points(study: Path, tmp_path: Path) -> None:
    for path in study.parent.glob("*.toml"):
        (tmp_path / path.name).write_text(path.read_text(encoding="utf-8"))
    sweep = read_sweep(tmp_path / study.name)
    job, rng = load_job(sweep.job), np.random.default_rng(1)
    (tmp_path / "data").mkdir()
    for number in range(SITES[study.parent.name]):
        made_up(job, rng).to_csv(tmp_path / "data" / f"site_{number}.csv", index=False)
    planned = plan_experiment(sweep)
    assert not planned.refused
    lines = max(1, len(sweep.lines)) * math.prod(map(len, sweep.axes.values()))
    own = [along for line, along in planned.runs.items() if not line.endswith(LINE)]
    assert sum(map(len, own)) == lines
    if sweep.attacks is not None and sweep.attacks.rounds:
        check_from_sums_only(sweep.attacks.names)
    assert sweep.public  # else the page would say that it is as private as the records


def test_the_folders_have_studies() -> None:
    assert {study.values[0].parent.name for study in STUDIES} == set(SITES)


def method_of(job: Path) -> str:
    """Return the method's name; the job is not checked here."""
    return str(tomllib.loads(job.read_text(encoding="utf-8"))["method"]["name"])


JOBS = [
    pytest.param(path, id=f"{path.parent.name}/{path.stem}",
                 marks=[*([pytest.mark.neural] if method_of(path) in NEURAL else []),
                        *([] if (path.parent / "data").exists() else [pytest.mark.data])])
    for path in sorted(ROOT.glob("examples/*/*.toml"))
    if not path.stem.endswith("study")
]  # fmt: skip


@pytest.mark.parametrize("job", JOBS)
def test_the_sites_of_a_shipped_job_would_take_part(job: Path, tmp_path: Path) -> None:
    """Over its own records, also all sites together: levels may be rare."""
    shutil.copytree(
        job.parent, tmp_path / "example", ignore=shutil.ignore_patterns("ledgers", "*.failed-*")
    )
    data = tmp_path / "example" / "data"
    if not data.exists():
        make = [sys.executable, str(job.parent / "make_data.py"), str(data)]
        subprocess.run(make, check=True, cwd=ROOT, capture_output=True)
    done = CliRunner().invoke(app, ["site", "check", str(tmp_path / "example" / job.name)])
    assert done.exit_code == 0, done.output
