"""A graph over time: effects of earlier steps on the terminal and on the page."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.methods.time_series import time_series
from support.runs.checkout import ROOT
from typer.testing import CliRunner

import secagg
from secagg.cli.main import app
from secagg.experiments.simulated_graphs import split_rows

DOCS = ROOT / "docs" / "methods" / "notears_admm.md"
NOW, BEFORE = ["a", "b", "c"], ["a_1", "b_1", "c_1"]
JOB = """
title = "Three series"

[sites]
folder = "data"
max_rows = 200

[columns]
{columns}

[method]
name = "notears_admm"
lags = [["a_1", "b_1", "c_1"]]
standardise = "common"
threshold = 0.2

[protocol]
name = "plain"

[release]
min_sites = 2
min_records = 2
"""


@pytest.mark.system
def test_effects_of_earlier_steps_are_shown(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    series = time_series(3, 1, rng, edges=2, lagged_edges=3)
    (tmp_path / "data").mkdir()
    for k, rows in enumerate(split_rows(series.rows(600, rng), 3)):
        path = tmp_path / "data" / f"site_{k}.csv"
        pd.DataFrame(rows, columns=NOW + BEFORE).to_csv(path, index=False)
    column = '{ type = "continuous", low = -50, high = 50 }'
    columns = "\n".join(f"{name} = {column}" for name in NOW + BEFORE)
    (tmp_path / "job.toml").write_text(JOB.format(columns=columns), encoding="utf-8")

    out = tmp_path / "run"
    shown = CliRunner().invoke(app, ["run", str(tmp_path / "job.toml"), "--out", str(out)])
    assert shown.exit_code == 0, shown.output
    # 600 records: estimates err by some 0.04, and weights of 0.3 at least stand out from 0.2.
    true = {(BEFORE[i], NOW[j]) for i, j in np.argwhere(series.A[0] != 0)}
    summary = json.loads((out / "result.json").read_text(encoding="utf-8"))
    assert {(e["from"], e["to"]) for e in summary["lagged_edges"]} == true
    assert {e["lag"] for e in summary["lagged_edges"]} == {1}
    now = {(NOW[i], NOW[j]) for i, j in np.argwhere(series.W != 0)}
    assert {(e["from"], e["to"]) for e in summary["edges"]} == now

    text = DOCS.read_text(encoding="utf-8")
    (code,) = (b for b in re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S) if "total" in b)
    made: dict[str, Any] = {}
    exec(code.replace("runs/series", str(out)), made)
    np.testing.assert_allclose(
        made["total"], series.A @ np.linalg.inv(np.eye(3) - series.W), rtol=0, atol=0.15
    )

    assert f"from earlier steps ({len(true)})" in shown.output
    page = (out / "report.html").read_text(encoding="utf-8")
    caption = "Effects of earlier steps on the present one"
    table = page.partition(caption)[2].partition("</table>")[0]
    assert table.count("<tr>") == 1 + len(true)  # a head
    for source, _ in true:
        assert f'<th scope="row">{source}</th>' in table


@pytest.mark.system
def test_the_documented_time_series_job_recovers_its_graph() -> None:
    """Its series, made as it says, are analysed, and what they were made with is found."""
    text = DOCS.read_text(encoding="utf-8")
    blocks = re.findall(r"^```toml\n(.*?)^```$", text, re.M | re.S)
    (job,) = (tomllib.loads(block) for block in blocks if "\nlags = " in block)
    del job["sites"]["folder"]
    rng = np.random.default_rng(1)
    series = []
    for patient in range(90):
        noise = rng.normal(size=(40, 3))
        dose, systolic, pulse = noise.T.copy()
        for week in range(2, 40):
            dose[week] += 0.5 * systolic[week - 1]
            systolic[week] -= 0.6 * dose[week - 2]
            pulse[week] -= 0.7 * systolic[week]
        units = {"dose": 20 + 3 * dose, "systolic": 130 + 15 * systolic, "pulse": 75 + 9 * pulse}
        series.append(pd.DataFrame(units | {"patient": patient}))
    weeks = pd.concat(series, ignore_index=True)
    for name in ("dose", "systolic", "pulse"):
        for lag in (1, 2):
            weeks[f"{name}_{lag}"] = weeks.groupby("patient")[name].shift(lag)
    sites = {f"site {k}": weeks[weeks["patient"] % 3 == k] for k in range(3)}
    summary = secagg.run(job, sites).result.summary
    assert summary["incomplete_records"] == 0  # 60 at each site, fewer than min_records
    assert [(e["from"], e["to"]) for e in summary["edges"]] == [("systolic", "pulse")]
    # 3420 windows: an effect errs by some 0.02, and those above are 0.4 or more of a deviation
    assert {(e["from"], e["to"], e["lag"]) for e in summary["lagged_edges"]} == {
        ("systolic_1", "dose", 1), ("dose_2", "systolic", 2),
    }  # fmt: skip
