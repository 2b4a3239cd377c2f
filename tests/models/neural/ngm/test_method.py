"""Federated neural graphical models as runs."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from support.methods.networks import job, tables

from secagg.contracts import PublicFacts, Result, SiteRecords
from secagg.core.randomness import replayable_random
from secagg.errors import JobError, PeerError, UsageError
from secagg.jobs.job import parse_job
from secagg.runs.simulate import simulate
from secagg.sessions.parties import read_records
from secagg.sessions.planned_job import plan_job

pytestmark = pytest.mark.neural
FREE = {"penalty": 0.0, "linear_penalty": 0.0}
SMALL: dict[str, Any] = {"hidden": [3], "rounds": 20}


def fitted(data: dict[str, pd.DataFrame], seed: int = 1, **method: Any) -> Result:
    given = {"name": "fedngm", "edges": "all", **method}
    return simulate(job(given), data, random=replayable_random(seed))


def test_without_hidden_layers_it_is_regression_on_neighbours() -> None:
    """Least squares for a continuous column, logistic regression for a binary one."""
    data = tables(rows=150)
    edges = [["x", "y"], ["w", "y"], ["x", "case"]]
    found = fitted(data, edges=edges, hidden=[], tolerance=1e-9, rounds=500, **FREE)
    pooled = pd.concat(data.values())
    z = (pooled[["x", "w", "y"]] - pooled[["x", "w", "y"]].mean()) / pooled[["x", "w", "y"]].std(
        ddof=0
    )
    linear = found.arrays["linear.weight"]
    ols = sm.OLS(z["y"], z[["x", "w"]]).fit()
    np.testing.assert_allclose(linear[2, :2], ols.params, atol=1e-6)
    assert np.exp(2 * found.arrays["log_sd"][2]) + 1e-6 == pytest.approx(
        np.mean(ols.resid**2), rel=1e-5
    )
    logit = sm.Logit(pooled["case"], sm.add_constant(z["x"])).fit(disp=0)
    np.testing.assert_allclose(linear[3, 0], logit.params["x"], atol=1e-5)
    assert found.arrays["output.bias"][3] == pytest.approx(logit.params["const"], abs=1e-5)
    assert np.count_nonzero(linear[3]) == 1 and not np.any(np.diag(linear))


@pytest.mark.parametrize(
    ("settings", "penalty"),
    [
        ({"edges": [["x", "y"]]}, 1.0),
        ({"edges": "votes", "votes": 1}, 1.0),
        ({"edges": "all"}, 20.0),
        ({"edges": [["x", "y"]], "learn_from": "samples", "samples": 50}, 20.0),
    ],
)
def test_the_default_penalty_is_weak_where_networks_are_small(
    settings: dict[str, Any], penalty: float
) -> None:
    """A strong one is marked in the result, with a note; without hidden layers there is none."""
    data = tables(rows=30)
    short = settings | {"hidden": [3], "rounds": 3}
    default, given = fitted(data, **short), fitted(data, **short, penalty=penalty)
    for name, array in given.arrays.items():
        np.testing.assert_array_equal(default.arrays[name], array)
    linear = fitted(data, **short | {"hidden": []})
    notes = len(default.summary["notes"]) - len(linear.summary["notes"])
    assert "shrunk" not in linear.summary
    assert ("shrunk" in default.summary) == (penalty > 1) == (notes == 1)


def test_the_penalty_is_a_ridge_in_records() -> None:
    data = tables(rows=50)
    found = fitted(data, edges=[["x", "y"]], hidden=[], tolerance=1e-10, rounds=500,
                   linear_penalty=30.0)  # fmt: skip
    pooled = pd.concat(data.values())[["x", "y"]]
    z = (pooled - pooled.mean()) / pooled.std(ddof=0)
    variance = np.exp(2 * found.arrays["log_sd"][2]) + 1e-6
    ridge = (z["x"] @ z["y"] / variance) / (z["x"] @ z["x"] / variance + 30)
    assert found.arrays["linear.weight"][2, 0] == pytest.approx(ridge, abs=1e-6)


def test_the_split_into_sites_does_not_matter() -> None:
    data = tables()
    pooled = pd.concat(data.values(), ignore_index=True)
    other = {"p": pooled.iloc[:7], "q": pooled.iloc[7:11], "r": pooled.iloc[11:]}
    one, two = (fitted(d, **SMALL) for d in (data, other))
    for name, block in one.arrays.items():
        np.testing.assert_allclose(block, two.arrays[name], atol=1e-7)


def test_hidden_layers_find_a_nonlinear_dependence() -> None:
    data = tables(rows=200)
    curved, straight = (fitted(data, edges=[["x", "y"]], hidden=h, penalty=2.0) for h in ([8], []))
    assert curved.summary["loss"] < straight.summary["loss"] - 0.2  # y has sin(2x)


def test_counts_of_the_fit_are_of_all_records_and_small_ones_are_not_shown() -> None:
    data = tables(rows=200)
    found = fitted(data, **SMALL)
    counts = found.arrays["residuals"]
    assert counts.shape[0] == 3 and counts.sum() == pytest.approx(3 * 600)
    assert np.any(counts % 1)  # small counts are merged, and spread over the merged bins
    tenths = {each["variable"]: each["tenths"] for each in found.summary["calibration"]}
    assert tenths.keys() == {"case", "kind=b", "kind=c"}
    for share in tenths["case"]:
        sd = np.sqrt(share["probability"] * (1 - share["probability"]) / share["records"])
        assert abs(share["share"] - share["probability"]) < 0.05 + 4 * sd


def test_counts_of_the_fit_can_be_left_out() -> None:
    one, two = (fitted(tables(), **SMALL, count_fit=count) for count in (True, False))
    assert "residuals" not in two.arrays and "calibration" not in two.summary
    np.testing.assert_array_equal(one.arrays["linear.weight"], two.arrays["linear.weight"])


def test_training_on_samples_uses_no_record_after_the_first_round() -> None:
    planned = plan_job(
        parse_job(job({"name": "fedngm", "edges": "all", "learn_from": "samples", "samples": 50,
                       **SMALL})), tables()
    )  # fmt: skip
    method, public = planned.method, planned.public
    rows = [read_records(planned, planned.sources[name]) for name in sorted(public.sites)]
    random = replayable_random(3)
    state = method.initial_state(public)
    totals = [method.contribute("graph", each, {}, {}, public, random)[0] for each in rows]
    state = method.aggregate(state, {k: sum(t[k] for t in totals) for k in totals[0]}, 3)
    request = method.next_request(state)
    assert request is not None
    first, memory = method.contribute("train", rows[0], request[1], {}, public, random)
    assert memory["samples"].shape == (50, len(public.variables))
    again, same = method.contribute("train", rows[1], request[1], memory, public, random)
    assert same is memory
    np.testing.assert_array_equal(first["change"], again["change"])


def linear_tables(sites: int, rows: int) -> dict[str, pd.DataFrame]:
    """Return tables of a normal chain x -> w -> y, in which every conditional mean is linear."""
    rng, found = np.random.default_rng(3), {}
    for i in range(sites):
        x = rng.normal(size=rows)
        w = 5 + 0.8 * x + 0.6 * rng.normal(size=rows)
        y = w - 5 + 0.5 * rng.normal(size=rows)
        more = tables(1, rows)["site0"][["case", "kind"]]
        found[f"site{i}"] = pd.DataFrame({"x": x, "w": w, "y": y}).join(more)
    return found


def test_a_model_from_samples_is_near_the_one_from_records() -> None:
    data = linear_tables(3, 200)
    settings = {"variables": ["x", "w", "y"], "edges": [["x", "w"], ["w", "y"]], "hidden": []}
    records, samples = (
        fitted(data, **settings, learn_from=kind, samples=4000) for kind in ("records", "samples")
    )
    # Each site's slopes have a standard error of .04, and their curvature adds little to the mean
    # of three; 12 000 samples add .01.
    difference = samples.arrays["linear.weight"] - records.arrays["linear.weight"]
    assert np.abs(difference).max() < 0.08
    difference = np.exp(samples.arrays["log_sd"] - records.arrays["log_sd"]) - 1
    assert np.abs(difference).max() < 0.08


def test_public_sites_contribute_their_records() -> None:
    data = tables(rows=40)
    given: dict[str, Any] = {"learn_from": "samples", "site_weights": "records", **SMALL}
    public = fitted(data, public_sites=["site0", "site1", "site2"], **given)
    records = fitted(data, **SMALL)
    np.testing.assert_allclose(
        public.arrays["linear.weight"], records.arrays["linear.weight"], atol=1e-9
    )


def test_few_records_constant_columns_and_unseen_levels() -> None:
    data = tables(4, rows=8)
    data["site1"], data["site2"] = data["site1"].iloc[:1], data["site2"].iloc[:0]
    data = {name: table.assign(w=3.0, kind="a") for name, table in data.items()}
    for learn_from in ("records", "samples"):
        found = fitted(data, learn_from=learn_from, samples=20, hidden=[30], rounds=15)
        assert found.summary["parameters"] > 17
        assert all(np.isfinite(block).all() for block in found.arrays.values())


def test_no_complete_record_is_an_error() -> None:
    with pytest.raises(UsageError):
        fitted({name: table.iloc[:0] for name, table in tables().items()})


@pytest.mark.parametrize(
    ("key", "value"),
    [("hidden", [0]), ("penalty", -1.0), ("votes", 4), ("edges", [["x", "z"]]),
     ("edges", [["x", "x"]]), ("variables", ["x"]), ("variables", ["x", "kind=b"]),
     ("samples", 0), ("public_sites", ["nobody"]), ("learn_from", "dreams")],
)  # fmt: skip
def test_settings_out_of_range_are_refused(key: str, value: Any) -> None:
    with pytest.raises(JobError) as caught:
        fitted(tables(), **{key: value})
    assert caught.value.where in {f"method.{key}", "method"}


def first_round() -> tuple[Any, PublicFacts, SiteRecords, dict[str, Any]]:
    """Return a method, a site's records, and the message that follows the graph."""
    planned = plan_job(parse_job(job({"name": "fedngm", "edges": "all", **SMALL})), tables())
    method, public = planned.method, planned.public
    rows = read_records(planned, planned.sources["site0"])
    total, _ = method.contribute("graph", rows, {}, {}, public, replayable_random(1))
    request = method.next_request(method.aggregate(method.initial_state(public), total, 1))
    assert request is not None
    return method, public, rows, request[1]


def test_a_changed_graph_or_unit_is_refused() -> None:
    method, public, rows, message = first_round()
    random = replayable_random(1)
    _, memory = method.contribute("train", rows, message, {}, public, random)
    for key in ("graph", "centre", "scale"):
        for stage in ("train", "fit"):
            with pytest.raises(PeerError):
                method.contribute(
                    stage, rows, {**message, key: 0 * message[key]}, memory, public, random
                )


@pytest.mark.parametrize(("edges", "words"), [("vote", "'votes' or 'all'"), (["x", "w"], '[["age')])
def test_edges_of_a_wrong_form_are_named(edges: Any, words: str) -> None:
    with pytest.raises(JobError) as caught:
        plan_job(parse_job(job({"name": "fedngm", "edges": edges})), tables())
    assert caught.value.what.startswith("edges:") and words in caught.value.what


def test_a_graph_with_a_loop_or_one_direction_is_refused() -> None:
    method, public, rows, message = first_round()
    random = replayable_random(1)
    graph = message["graph"]
    loop, one_way = graph.copy(), graph.copy()
    loop[0, 0], one_way[0, 1] = 1, 0
    for wrong in (loop, one_way, 2 * graph):
        with pytest.raises(PeerError):
            method.contribute("train", rows, {**message, "graph": wrong}, {}, public, random)
