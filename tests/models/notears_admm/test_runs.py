"""NOTEARS-ADMM through whole sessions: results, bounds, a killed run."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.crashes.folders import Killed, dying, folders
from support.methods.time_series import time_series

import secagg
from secagg.contracts import Result
from secagg.errors import JobError, UsageError
from secagg.experiments.simulated_graphs import edge_weights, erdos_renyi_dag, linear_gaussian_rows
from secagg.models.graphs.job_result import DIRECTIONS_NOTE
from secagg.models.graphs.knowledge import adjacency
from secagg.models.graphs.metrics import compare_graphs
from secagg.models.notears_admm.coordinator import SLOWER_SCHEDULE, Schedule
from secagg.models.notears_admm.linear_simulation import learn
from secagg.sessions.journal import Journal

__all__ = ["folders"]  # a fixture

NAMES = ["v", "w", "x", "y"]
HALF = 20.0
# Answers are rounded to 2^-41, half a step, in units of half^2 = 400: three sites' sum is off by
# 5e-10, and W at the end by that over the curvature of the pooled covariance, 0.1 here. In first
# rounds the curvature is that of (5), K rho2 = 0.003, which later rounds forget.
AT_THE_END, EARLY = 1e-8, 2e-7
OWN = {"standardise": False}
SHORT = {"rounds": 25}  # for tests that do not depend on how the run ends


def job(method: dict[str, Any]) -> dict[str, Any]:
    column = {"type": "continuous", "low": -HALF, "high": HALF}
    return {
        "title": "t",
        "sites": {"max_rows": 100},
        "columns": dict.fromkeys(NAMES, column),
        "method": {"name": "notears_admm", **method},
        "protocol": {"name": "plain"},
        "release": {"min_sites": 2, "min_records": 1},
    }


def tables(seed: int = 0, sizes: tuple[int, ...] = (20, 30, 40)) -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(seed)
    W = edge_weights(erdos_renyi_dag(4, 4, rng), rng)
    rows = np.clip(linear_gaussian_rows(W, sum(sizes), rng), -HALF, HALF)
    parts = np.split(rows, np.cumsum(sizes)[:-1])
    return {f"s{k}": pd.DataFrame(part, columns=NAMES) for k, part in enumerate(parts)}


def records(sites: dict[str, pd.DataFrame]) -> list[np.ndarray]:
    return [table.to_numpy() for table in sites.values()]


@pytest.fixture(scope="module")
def plain() -> Result:
    return secagg.run(job(OWN), tables()).result


def test_a_run_equals_the_simulation_and_is_scored(plain: Result) -> None:
    result = plain
    fit = learn(records(tables()), names=NAMES)
    np.testing.assert_allclose(result.arrays["weights"], fit.weights, rtol=0, atol=AT_THE_END)
    np.testing.assert_array_equal(result.arrays["directed"], fit.directed)
    assert result.summary["diagnostics"]["rounds"] == fit.diagnostics["rounds"]
    assert result.summary["status"] == "converged"
    assert "score" not in result.summary
    assert DIRECTIONS_NOTE not in result.summary["notes"]  # own units
    edges = [[NAMES[i], NAMES[j]] for i, j in np.argwhere(fit.directed)]
    scored = secagg.run(job({"truth": edges[1:], "rounds": 5, **OWN}), tables()).result
    score = compare_graphs(scored.arrays["directed"], adjacency(edges[1:], NAMES))
    assert scored.summary["score"] == asdict(score)
    assert scored.summary["truth"] == edges[1:]


def test_records_are_standardised_by_the_pooled_within_site_deviation() -> None:
    sites = tables(1)
    parts = records(sites)
    squares = sum(np.sum((part - part.mean(axis=0)) ** 2, axis=0) for part in parts)
    spread = np.sqrt(squares / sum(map(len, parts)))
    fit = learn([part / spread for part in parts], schedule=Schedule(**SHORT))
    result = secagg.run(job(SHORT), sites).result
    np.testing.assert_allclose(result.arrays["weights"], fit.weights, rtol=0, atol=EARLY)
    assert result.summary["settings"]["standardise"] is True
    assert DIRECTIONS_NOTE in result.summary["notes"]
    # What undoes it is in the result.
    np.testing.assert_allclose(result.arrays["deviations"], spread, rtol=1e-12)
    assert "deviations" not in secagg.run(job({"rounds": 1} | OWN), sites).result.arrays
    # Units do not matter then: the same records in others, within others' bounds.
    units = np.array([1.0, 1000.0, 0.01, 7.0])
    other = job(SHORT)
    other["columns"] = {
        name: {"type": "continuous", "low": -HALF * unit, "high": HALF * unit}
        for name, unit in zip(NAMES, units, strict=True)
    }
    again = secagg.run(other, {site: table * units for site, table in sites.items()}).result
    np.testing.assert_allclose(again.arrays["weights"], fit.weights, rtol=0, atol=EARLY)


def test_a_time_series_run_agrees_with_the_simulation() -> None:
    rng = np.random.default_rng(0)
    rows = time_series(2, 1, rng, edges=1, lagged_edges=2).rows(150, rng)
    parts = np.split(np.clip(rows, -HALF, HALF), [60, 100])
    sites = {f"s{k}": pd.DataFrame(part, columns=NAMES) for k, part in enumerate(parts)}
    result = secagg.run(job({"lags": [["x", "y"]], "threshold": 0.1, **SHORT, **OWN}), sites).result
    assert result.summary["names"] == ["v", "w"]
    fit = learn(records(sites), lags=1, schedule=replace(SLOWER_SCHEDULE, **SHORT))
    np.testing.assert_allclose(result.arrays["weights"], fit.weights, rtol=0, atol=EARLY)
    lagged = result.arrays["lagged_weights"]
    assert lagged.shape == (1, 2, 2)
    edges = {(e["from"], e["to"]): e["weight"] for e in result.summary["lagged_edges"]}
    expected = {
        (("x", "y")[i], ("v", "w")[j]): lagged[0, i, j]
        for i, j in np.argwhere(np.abs(lagged[0]) > 0.1)
    }
    assert edges == expected != {}


@pytest.mark.usefixtures("folders")
def test_a_killed_run_resumes_with_the_same_bytes(tmp_path: Path) -> None:
    """Q'beta, Q'V and Q'W come back from a site's file: the same bytes as without a break."""
    (tmp_path / "data").mkdir()
    for site, table in tables().items():
        table.to_csv(tmp_path / "data" / f"{site}.csv", index=False)
    bounds = f'{{ type = "continuous", low = -{HALF}, high = {HALF} }}'
    path = tmp_path / "job.toml"
    path.write_text(
        'title = "t"\nsites = { max_rows = 100, folder = "data" }\n'
        'protocol = { name = "plain" }\nrelease = { min_sites = 2, min_records = 1 }\n'
        'method = { name = "notears_admm", rounds = 4 }\n'
        f"[columns]\n{''.join(f'{name} = {bounds}' + chr(10) for name in NAMES)}",
        encoding="utf-8",
    )
    whole, out = tmp_path / "whole", tmp_path / "out"
    secagg.run(path, out=whole)
    apart = {"engine.name": "processes"}
    with pytest.raises(Killed), dying(Journal, "write", 7, after=True):
        secagg.run(path, out=out, overrides=apart)
    secagg.resume(out)
    for name in ("arrays.npz", "result.json"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()


def within(width: float, method: dict[str, Any]) -> dict[str, Any]:
    bounds = {"type": "continuous", "low": -width, "high": width}
    return job(method) | {"columns": dict.fromkeys(NAMES, bounds)}


@pytest.mark.parametrize("method", [{}, OWN], ids=str)
def test_wide_bounds_lose_no_edges(method: dict[str, Any]) -> None:
    """V_k starts at the order of rho2; a step that grew with the bounds would round it to zero."""
    method = SHORT | method
    narrow, wide = (secagg.run(within(w, method), tables()).result for w in (HALF, 1e9))
    assert narrow.summary["edges"]
    np.testing.assert_allclose(wide.arrays["weights"], narrow.arrays["weights"], rtol=0, atol=1e-5)


def test_too_wide_or_too_narrow_bounds_are_reported() -> None:
    with pytest.raises(UsageError):  # too wide to standardise within
        secagg.run(within(1e14, {}), tables())
    with pytest.raises(JobError) as caught:
        secagg.run(within(1e-170, OWN), tables())
    assert caught.value.where == "columns.v"
