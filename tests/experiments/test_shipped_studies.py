"""Every study in examples/ can be planned, over made-up records, and no point is refused."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.checkout import ROOT

from secagg.audits.by_rounds import check_from_sums_only
from secagg.experiments.experiment import plan_experiment
from secagg.experiments.sweep import read_sweep
from secagg.jobs.job import Continuous, Job, load_job

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
    assert sum(map(len, planned.runs.values())) == lines
    if sweep.attacks is not None and sweep.attacks.rounds:
        check_from_sums_only(sweep.attacks.names)
    assert sweep.public  # else the page would say that it is as private as the records


def test_the_folders_have_studies() -> None:
    assert {study.values[0].parent.name for study in STUDIES} == set(SITES)
