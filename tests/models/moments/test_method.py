"""Pooled moments and the analyses of them, through whole sessions, against the pooled records."""

import numpy as np
import pandas as pd
import pytest

import secagg
from secagg.errors import JobError
from secagg.models.moments.method import BINARY_OUTCOME_NOTE

COLUMNS = {
    "x": {"type": "continuous", "low": 1000, "high": 1100},
    "y": {"type": "continuous", "low": -50, "high": 50},
    "z": {"type": "continuous", "low": 0.01, "high": 100, "transform": "log"},
    "ward": {"type": "categorical", "levels": ["a", "b", "c"]},
}


def job(analyses, **method):
    return {
        "title": "t",
        "sites": {"max_rows": 10_000},
        "columns": COLUMNS,
        "method": {"name": "moments", "analyses": analyses, **method},
        "protocol": {"name": "additive"},
        "release": {"min_sites": 2, "min_records": 1},
    }


@pytest.fixture(scope="module")
def sites():
    rng = np.random.default_rng(3)
    made = {}
    for i, n in enumerate((40, 90, 200)):
        x = rng.normal(1050, 8, n)
        z = np.exp(rng.normal(0, 0.5, n))
        ward = rng.choice(["a", "b", "c"], n)
        y = 0.3 * (x - 1050) + 2 * np.log(z) + 1.5 * (ward == "b") + rng.normal(0, 3, n)
        made[f"s{i}"] = pd.DataFrame({"x": x, "y": y, "z": z, "ward": ward})
    return made


def design(sites):
    pooled = pd.concat(sites.values())
    columns = [pooled.x, pooled.y, np.log(pooled.z), pooled.ward == "b", pooled.ward == "c"]
    return np.column_stack(columns).astype(float)


def test_moments_agree_with_the_pooled_records(sites):
    arrays = secagg.run(job([{"kind": "describe"}]), sites).result.arrays
    table = design(sites)
    n = len(table)
    assert arrays["n"] == n
    # Each site's entry of M is off by at most 2^-33 in units of half the range: three sites, the
    # largest half range 50, and centring with |sum u| <= n adds twice that again.
    step = 3 * 2.0**-33
    half = np.array([50, 50, np.log(1e4) / 2, 0.5, 0.5])
    np.testing.assert_allclose(arrays["mean"], table.mean(0), atol=2 * step * 50, rtol=1e-12)
    scatter = (n - 1) * np.cov(table.T)
    slack = 3 * step * np.outer(half, half) + 1e-11 * np.abs(scatter).max()
    assert np.all(np.abs(arrays["scatter"] - scatter) <= slack)


def test_one_release_serves_all_analyses(sites):
    many = [
        {"kind": "describe"},
        {"kind": "ols", "outcome": "y", "predictors": ["x"]},
        {"kind": "ridge", "outcome": "y", "predictors": ["x", "z"]},
        {"kind": "lasso", "outcome": "y", "predictors": ["x", "z"]},
        {"kind": "notears", "variables": ["x", "y", "z"]},
        {"kind": "golem", "variables": ["x", "y", "z"]},
    ]
    run = secagg.run(job(many), sites)
    assert [release["stage"] for release in run.facts["releases"]] == ["cohort", "moments"]
    analyses = run.result.summary["analyses"]
    methods = [analysis["method"] for analysis in analyses]
    assert methods == ["describe", "ols", "ridge", "lasso", "notears", "golem-nv"]
    shrunk = {analysis["method"]: analysis.get("shrunk") for analysis in analyses}
    assert shrunk == {
        "describe": None, "ols": None, "ridge": "slopes", "lasso": "slopes",
        "notears": "weights", "golem-nv": "weights",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("analyses", "where"),
    [
        ([], "method.analyses"),
        ([{"kind": "anova"}], "method.analyses[1]"),
        ([{"kind": "ols", "outcome": "y"}], "method.analyses[1]"),
        ([{"kind": "ols", "outcome": "y", "predictors": ["q"]}], "method.analyses[1].predictors"),
        ([{"kind": "ols", "outcome": "ward", "predictors": ["x"]}], "method.analyses[1].outcome"),
        ([{"kind": "ols", "outcome": "y", "predictors": ["y"]}], "method.analyses[1].predictors"),
        ([{"kind": "ridge", "outcome": "y", "predictors": ["x"], "penalti": 1}],
         "method.analyses[1]"),
        ([{"kind": "describe"}, {"kind": "pc", "alpha": "high"}], "method.analyses[2]"),
        ([{"kind": "notears", "variables": ["x", "y"], "truth": [["z", "y"]]}],
         "method.analyses[1].truth"),
    ],
)  # fmt: skip
def test_unsuitable_analyses_are_refused_before_reading_data(analyses, where):
    unreadable = {"a": object(), "b": object()}
    with pytest.raises(JobError) as raised:
        secagg.run(job(analyses), unreadable)
    assert raised.value.where == where


def test_least_squares_of_a_binary_outcome_has_a_note(sites):
    analyses = [
        {"kind": "ols", "outcome": outcome, "predictors": ["x"]} for outcome in ("ward=b", "y")
    ]
    fits = secagg.run(job(analyses), sites).result.summary["analyses"]
    assert [BINARY_OUTCOME_NOTE in fit["notes"] for fit in fits] == [True, False]


def windows(sites):
    """The same records as windows: y2 and y1 are earlier values of y, each a cause of the next."""
    columns = {name: {"type": "continuous", "low": -10, "high": 10} for name in ("y2", "y", "y1")}
    made, rng = {}, np.random.default_rng(8)
    for name in sites:
        y2, e, f = rng.normal(size=(3, 300))
        y1 = 0.8 * y2 + e
        made[name] = pd.DataFrame({"y2": y2, "y": 0.8 * y1 + f, "y1": y1})
    return columns, made


def test_no_edge_leads_to_an_earlier_step(sites):
    """`ges` and `pc` orient the chain, which they cannot without the order of time."""
    pytest.importorskip("causallearn", reason="needs secagg[graphs]")
    columns, made = windows(sites)
    asked = [{"kind": "ges"}, {"kind": "pc", "alpha": 0.001}, {"kind": "notears"}]
    with_lags = job(asked, lags=[["y1"], ["y2"]]) | {"columns": columns}
    fits = secagg.run(with_lags, made).result.summary["analyses"]
    for fit in fits:
        assert {(e["from"], e["to"], e["kind"]) for e in fit["edges"]} == {
            ("y2", "y1", "directed"), ("y1", "y", "directed"),
        }  # fmt: skip
        assert any("(y2) < (y1) < all other columns" in note for note in fit["notes"])
    plain = job(asked[:1]) | {"columns": columns}
    [fit] = secagg.run(plain, made).result.summary["analyses"]
    assert all(edge["kind"] == "undirected" for edge in fit["edges"])


def test_windows_protect_events(sites):
    """An event is in as many windows as there are steps: so many times the noise, here 3."""
    columns, made = windows(sites)
    privacy = {"placement": "sum", "epsilon": 5.0, "delta": 1e-5, "record_norm": 1.0}
    noisy = {"columns": columns, "privacy": privacy, "protocol": {"name": "masked"}}
    sds = [
        secagg.run(job([{"kind": "describe"}], lags=lags) | noisy, made).result.summary["noise_sd"]
        for lags in ([], [["y1"], ["y2"]])
    ]
    assert sds[1] == pytest.approx(3 * sds[0], rel=1e-6)


@pytest.mark.parametrize(
    ("method", "where"),
    [
        ({"lags": [["y1"], ["y1"]]}, "method.lags"),
        ({"lags": [["old"]]}, "method.lags"),
        ({"lags": [[]]}, "method.lags"),
        ({"lags": [["y1"]], "required": [["y", "y1"]]}, "method.required"),
    ],
)
def test_lags_that_make_no_sense_are_refused(sites, method, where):
    columns, made = windows(sites)
    with pytest.raises(JobError) as caught:
        secagg.run(job([{"kind": "ges"}], **method) | {"columns": columns}, made)
    assert caught.value.where == where
