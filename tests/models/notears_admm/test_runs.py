"""NOTEARS-ADMM through whole sessions: protocols, broken tables, a killed run."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.folders import Killed, dying, folders
from support.time_series import time_series

import secagg
from secagg.errors import CapabilityError, JobError, PolicyRefusal, ProtocolAbort, UsageError
from secagg.models.graphs.job_result import DIRECTIONS_NOTE
from secagg.models.graphs.metrics import compare_graphs
from secagg.models.notears_admm.coordinator import Schedule
from secagg.models.notears_admm.linear_simulation import learn
from secagg.reproductions.data.simulated_graphs import (
    edge_weights,
    erdos_renyi_dag,
    linear_gaussian_rows,
)
from secagg.runtime.journal import Journal

__all__ = ["folders"]  # a fixture

NAMES = ["v", "w", "x", "y"]
PROTOCOLS = ["plain", "additive", "masked", pytest.param("paillier", marks=pytest.mark.system)]
HALF = 20.0
# Answers are rounded to 2^-41, half a step, in units of half^2 = 400: three sites' sum is off by
# 5e-10, and W at the end by that over the curvature of the pooled covariance, 0.1 here. In first
# rounds the curvature is that of (5), K rho2 = 0.003, which later rounds forget.
AT_THE_END, EARLY = 1e-8, 2e-7
OWN = {"standardise": False}
SHORT = {"rounds": 25}  # for tests that do not depend on how the run ends


def job(method: dict[str, Any], protocol: str = "plain", **changed: Any) -> dict[str, Any]:
    column = {"type": "continuous", "low": -HALF, "high": HALF}
    more = {"key_bits": 2048} if protocol == "paillier" else {}
    return {
        "title": "t",
        "sites": {"max_rows": 100},
        "columns": dict.fromkeys(NAMES, column),
        "method": {"name": "notears_admm", **method},
        "protocol": {"name": protocol, **more},
        "release": {"min_sites": 2, "min_records": 1},
    } | changed


def tables(seed: int = 0, sizes: tuple[int, ...] = (20, 30, 40)) -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(seed)
    W = edge_weights(erdos_renyi_dag(4, 4, rng), rng)
    rows = np.clip(linear_gaussian_rows(W, sum(sizes), rng), -HALF, HALF)
    parts = np.split(rows, np.cumsum(sizes)[:-1])
    return {f"s{k}": pd.DataFrame(part, columns=NAMES) for k, part in enumerate(parts)}


def records(sites: dict[str, pd.DataFrame]) -> list[np.ndarray]:
    return [table.to_numpy() for table in sites.values()]


def named(edges: list[list[str]]) -> np.ndarray:
    matrix = np.zeros((4, 4), dtype=bool)
    for cause, effect in edges:
        matrix[NAMES.index(cause), NAMES.index(effect)] = True
    return matrix


@pytest.fixture(scope="module")
def plain():
    return secagg.run(job(OWN), tables()).result


@pytest.mark.parametrize("protocol", PROTOCOLS[1:])
def test_every_protocol_gives_the_same_bytes(protocol: str) -> None:
    plain, result = (secagg.run(job(SHORT, p), tables()).result for p in ("plain", protocol))
    assert result.arrays.keys() == plain.arrays.keys() >= {"directed", "undirected", "weights"}
    for name, array in plain.arrays.items():
        assert result.arrays[name].tobytes() == array.tobytes()
    assert result.summary["diagnostics"] == plain.summary["diagnostics"]


def test_equals_learn_and_is_scored(plain) -> None:
    fit = learn(records(tables()), names=NAMES)
    np.testing.assert_allclose(plain.arrays["weights"], fit.weights, rtol=0, atol=AT_THE_END)
    np.testing.assert_array_equal(plain.arrays["directed"], fit.directed)
    assert plain.summary["diagnostics"]["rounds"] == fit.diagnostics["rounds"]
    assert plain.summary["status"] == "converged"
    assert "score" not in plain.summary
    assert DIRECTIONS_NOTE not in plain.summary["notes"]  # own units
    edges = [[NAMES[i], NAMES[j]] for i, j in np.argwhere(fit.directed)]
    scored = secagg.run(job({"truth": edges[1:], **SHORT, **OWN}), tables()).result
    score = compare_graphs(scored.arrays["directed"], named(edges[1:]))
    assert scored.summary["score"] == asdict(score)
    assert scored.summary["truth"] == edges[1:]


def test_standardised_by_the_pooled_spread_within_sites() -> None:
    sites = tables(1)
    parts = records(sites)
    squares = sum(np.sum((part - part.mean(axis=0)) ** 2, axis=0) for part in parts)
    spread = np.sqrt(squares / sum(map(len, parts)))
    fit = learn([part / spread for part in parts], schedule=Schedule(**SHORT))
    result = secagg.run(job(SHORT), sites).result
    np.testing.assert_allclose(result.arrays["weights"], fit.weights, rtol=0, atol=EARLY)
    assert result.summary["settings"]["standardise"] is True
    assert DIRECTIONS_NOTE in result.summary["notes"]
    # Units do not matter then: the same records in others, within others' bounds.
    units = np.array([1.0, 1000.0, 0.01, 7.0])
    other = job(SHORT)
    other["columns"] = {
        name: {"type": "continuous", "low": -HALF * unit, "high": HALF * unit}
        for name, unit in zip(NAMES, units, strict=True)
    }
    again = secagg.run(other, {site: table * units for site, table in sites.items()}).result
    np.testing.assert_allclose(again.arrays["weights"], fit.weights, rtol=0, atol=EARLY)


def test_time_series() -> None:
    rng = np.random.default_rng(0)
    rows = time_series(2, 1, rng, edges=1, lagged_edges=2).rows(150, rng)
    parts = np.split(np.clip(rows, -HALF, HALF), [60, 100])
    sites = {f"s{k}": pd.DataFrame(part, columns=NAMES) for k, part in enumerate(parts)}
    result = secagg.run(job({"lags": [["x", "y"]], **OWN}), sites).result
    assert result.summary["names"] == ["v", "w"]
    fit = learn([table.to_numpy() for table in sites.values()], lags=1)
    np.testing.assert_allclose(result.arrays["weights"], fit.weights, rtol=0, atol=AT_THE_END)
    lagged = result.arrays["lagged_weights"]
    assert lagged.shape == (1, 2, 2)
    told = {(e["from"], e["to"]): e["weight"] for e in result.summary["lagged_edges"]}
    expected = {
        (("x", "y")[i], ("v", "w")[j]): lagged[0, i, j]
        for i, j in np.argwhere(np.abs(lagged[0]) > 0.3)
    }
    assert told == expected != {}


def test_incomplete_records_are_left_out() -> None:
    sites = tables(2)
    holes = {site: table.copy() for site, table in sites.items()}
    holes["s0"].loc[3, "w"] = np.nan
    holes["s2"].loc[[0, 7], "y"] = np.nan
    result = secagg.run(job(SHORT | OWN), holes).result
    complete = [table.dropna().to_numpy() for table in holes.values()]
    kept = learn(complete, schedule=Schedule(**SHORT))
    np.testing.assert_allclose(result.arrays["weights"], kept.weights, rtol=0, atol=EARLY)
    assert (result.summary["records"], result.summary["incomplete_records"]) == (87, 3)


@pytest.mark.parametrize("sizes", [(1, 30, 30), (2, 2, 2)], ids=str)
def test_small_sites(sizes: tuple[int, ...]) -> None:
    sites = tables(3, sizes)
    result = secagg.run(job(SHORT | OWN, "additive"), sites).result
    fit = learn(records(sites), schedule=Schedule(**SHORT))
    np.testing.assert_array_equal(result.arrays["directed"], fit.directed)
    if min(sizes) != 2:  # six records, four variables: a singular covariance bounds nothing
        np.testing.assert_allclose(result.arrays["weights"], fit.weights, rtol=0, atol=EARLY)


def test_a_site_without_records_is_left_to_the_rules() -> None:
    with pytest.raises(PolicyRefusal, match="s1: it has fewer complete records"):
        secagg.run(job({}), tables(3, (20, 0, 40)))


def test_a_column_that_is_constant_everywhere_is_named() -> None:
    sites = {site: table.assign(x=1.0) for site, table in tables().items()}
    with pytest.raises(UsageError, match="column 'x' does not vary"):
        secagg.run(job({}), sites)


def test_a_site_with_other_columns() -> None:
    sites = tables()
    sites["s1"] = sites["s1"].rename(columns={"x": "z"})
    with pytest.raises((UsageError, ProtocolAbort)) as caught:
        secagg.run(job({}), sites)
    assert "s1" in caught.value.line()


@pytest.mark.parametrize(
    ("method", "line"),
    [
        ({"penalty": -0.1}, "method.penalty"),
        ({"threshold": float("nan")}, "method.threshold"),
        ({"rho2": 0.0}, "method.rho2"),
        ({"rounds": 0}, "method.rounds"),
        ({"variant": "slow"}, "method: variant"),
        ({"lags": [["x"]]}, "method.lags"),
        ({"lambda": 0.1}, "method: unknown key 'lambda'"),
        ({"variables": ["v"]}, "method.variables"),
    ],
)
def test_settings_are_refused_before_data(method: dict[str, Any], line: str) -> None:
    unreadable = {"a": object(), "b": object()}
    with pytest.raises(JobError) as caught:
        secagg.run(job(method), unreadable)
    assert caught.value.line().startswith(line)


@pytest.mark.parametrize("placement", ["sum", "site", "round"])
def test_differential_privacy_is_refused(placement: str) -> None:
    """Nothing bounds what one record changes: the error says so and names an alternative."""
    privacy = {"placement": placement, "epsilon": 1.0, "delta": 1e-5}
    with pytest.raises(CapabilityError, match="no bound on what one record changes") as caught:
        secagg.run(job({}, "masked", privacy=privacy), tables())
    assert "moments" in caught.value.line()


@pytest.mark.usefixtures("folders")
def test_a_killed_run_goes_on_with_what_sites_remember(tmp_path: Path) -> None:
    """Q'beta, Q'V and Q'W come back from a site's file: the same bytes as without a break."""
    settings = job({"rounds": 4})
    settings["sites"] = {"max_rows": 100, "folder": "data"}
    (tmp_path / "data").mkdir()
    for site, table in tables().items():
        table.to_csv(tmp_path / "data" / f"{site}.csv", index=False)
    path = tmp_path / "job.toml"
    path.write_text(as_toml(settings), encoding="utf-8")
    whole, out = tmp_path / "whole", tmp_path / "out"
    secagg.run(path, out=whole)
    apart = {"engine.name": "processes"}
    with pytest.raises(Killed), dying(Journal, "write", 7, after=True):
        secagg.run(path, out=out, overrides=apart)
    secagg.resume(out)
    for name in ("arrays.npz", "result.json"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()


def as_toml(settings: dict[str, Any]) -> str:
    def value(of: Any) -> str:
        if isinstance(of, dict):
            return "{ " + ", ".join(f"{k} = {value(v)}" for k, v in of.items()) + " }"
        return f'"{of}"' if isinstance(of, str) else str(of)

    return "\n".join(f"{key} = {value(of)}" for key, of in settings.items()) + "\n"


def within(width: float, method: dict[str, Any]) -> dict[str, Any]:
    settings = job(method)
    bounds = {"type": "continuous", "low": -width, "high": width}
    return settings | {"columns": dict.fromkeys(NAMES, bounds)}


@pytest.fixture(scope="module", params=[{}, OWN], ids=str)
def narrow(request: pytest.FixtureRequest) -> tuple[dict[str, Any], Any]:
    return request.param, secagg.run(within(HALF, request.param), tables()).result


def test_wide_bounds_lose_no_edge(narrow: tuple[dict[str, Any], Any]) -> None:
    """V_k starts at the order of rho2; a step that grew with the bounds would round it to zero."""
    method, narrow = narrow
    wide = secagg.run(within(1e9, method), tables()).result
    assert narrow.summary["edges"]
    np.testing.assert_allclose(wide.arrays["weights"], narrow.arrays["weights"], rtol=0, atol=1e-5)
    ends = [result.summary["diagnostics"]["stationarity"] for result in (narrow, wide)]
    assert ends[0] == pytest.approx(ends[1], abs=1e-5)
    assert narrow.summary["notes"] == wide.summary["notes"]


def test_bounds_too_wide_to_standardise_within() -> None:
    with pytest.raises(UsageError, match="too little to measure within its bounds"):
        secagg.run(within(1e14, {}), tables())


def test_bounds_that_are_absurdly_narrow() -> None:
    with pytest.raises(JobError, match="bounds are narrower than") as caught:
        secagg.run(within(1e-170, OWN), tables())
    assert caught.value.where == "columns.v"


def test_what_undoes_standardising_is_in_the_result() -> None:
    result = secagg.run(job(SHORT), tables()).result
    parts = records(tables())
    squares = sum(np.sum((part - part.mean(axis=0)) ** 2, axis=0) for part in parts)
    expected = np.sqrt(squares / sum(map(len, parts)))
    np.testing.assert_allclose(result.arrays["deviations"], expected, rtol=1e-12)
    assert "deviations" not in secagg.run(job(SHORT | OWN), tables()).result.arrays
