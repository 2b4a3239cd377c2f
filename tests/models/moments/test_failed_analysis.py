"""An analysis that the moments do not allow loses neither the release nor the other analyses."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import secagg

JOB = """
title = "one of two fails"
[sites]
folder = "data"
max_rows = 100
[columns]
x = { type = "continuous", low = -10, high = 10 }
y = { type = "continuous", low = -10, high = 10 }
same = { type = "continuous", low = -10, high = 10 }
[method]
name = "moments"
[[method.analyses]]
kind = "ols"
outcome = "y"
predictors = ["x", "same"]
[[method.analyses]]
kind = "ols"
outcome = "y"
predictors = ["x"]
[release]
min_sites = 2
min_records = 1
[simulation]
site_alone = true
"""


@pytest.fixture
def job(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "data").mkdir()
    for site in ("a", "b"):
        x, y = rng.normal(size=(2, 30))
        table = pd.DataFrame({"x": x, "y": y, "same": x})
        table.to_csv(tmp_path / "data" / f"{site}.csv", index=False)
    (tmp_path / "job.toml").write_text(JOB)
    return tmp_path / "job.toml"


def test_a_failed_analysis_does_not_stop_the_others_or_the_report(job, tmp_path):
    run = secagg.run(job, out=tmp_path / "out")
    failed, fine = run.result.summary["analyses"]
    assert failed["failed"].startswith("method.analyses[1]")
    assert "'same'" in failed["failed"]
    assert len(fine["terms"]) == 2
    report = (tmp_path / "out" / "report.html").read_text()
    assert "method.analyses[1]" in report
    assert secagg.verify_folder(tmp_path / "out").releases == 2


@pytest.mark.system
def test_the_command_reports_a_failed_analysis_and_exits_with_7(job, tmp_path):
    command = [sys.executable, "-m", "secagg.cli", "run", str(job), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 7
    assert "method.analyses[1]" in done.stderr.splitlines()[-1]
    assert (tmp_path / "out" / "report.html").exists()
