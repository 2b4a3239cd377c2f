"""HM2 as a method: its rounds against expectation propagation written plainly, and what sites keep.

`ridge` has moments without Monte Carlo error, so that two ways of computing are as close as sums in
fixed point are. Hierarchies have tests of their own.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.fedlin.few_sites import exact
from support.fedlin.plain_ep import propagate
from support.fedlin.written_out import (
    Written,
    bounds,
    continuous,
    fedlin_job,
    linear_tables,
    simulated,
    told,
)
from support.methods.playing import rows_of
from support.methods.wrong_settings import wrong_settings

import secagg
from secagg.contracts import PublicFacts, State
from secagg.core.randomness import seeded_random
from secagg.errors import DataError, JobError, PeerError
from secagg.jobs.design_matrix import public_facts
from secagg.jobs.job import parse_job
from secagg.models.fedlin.hierarchies.base import SufficientStatistics
from secagg.models.fedlin.hierarchies.normal import NormalHierarchy
from secagg.models.fedlin.hierarchies.ridge import Ridge
from secagg.models.fedlin.hm2 import FedLinHm2
from secagg.models.numerics.natural_gaussian import triangle

RIDGE = {"name": "fedlin_hm2", "prior": "ridge"}
SIZES = (30, 12, 45, 4)


def statistics(written: Written, k: int, intercept: str) -> SufficientStatistics:
    X, y = written.X[k], written.y[k]
    taken = 1 if intercept == "site" else 0
    return SufficientStatistics(X.T @ X, X.T @ y, float(y @ y), max(len(y) - taken, 0), 0.0)


@pytest.mark.oracle
@pytest.mark.parametrize(("intercept", "scale"), [("site", "pooled"), ("modelled", "pooled"),
                                                 ("none", "own")])  # fmt: skip
def test_a_run_equals_expectation_propagation(intercept: str, scale: str) -> None:
    tables = linear_tables(SIZES)
    method = {**RIDGE, "intercept": intercept, "scale": scale, "rounds": 12, "tolerance": 0.0}
    result, _ = simulated(method, bounds(tables), tables)
    written = Written.of(tables, intercept, scale)
    sites = [statistics(written, k, intercept) for k in range(len(SIZES))]
    mean, cov = propagate(Ridge(), sites, 12, 1.0, np.random.default_rng(0)).moments()
    # Quadratures repeat until moments stay to 1e-9; steps of 2^-56 are far below that.
    np.testing.assert_allclose(result.arrays["shared_mean"], mean, rtol=0, atol=1e-7)
    np.testing.assert_allclose(result.arrays["shared_covariance"], cov, rtol=0, atol=1e-7)
    assert result.summary["rounds"] == 12


def opened() -> tuple[FedLinHm2, PublicFacts, Any, State, dict[str, Any]]:
    """Return a method, its public facts, a site's rows and memory, and the first message."""
    tables = linear_tables((9, 9))
    public = public_facts(parse_job(fedlin_job(RIDGE, bounds(tables))), ("a", "b"))
    method = FedLinHm2(outcome="y", prior="ridge", scale="own")
    state = {**method.initial_state(public), "status": "fit", "records": 18}
    rng = np.random.default_rng(0)
    rows = rows_of(rng.uniform(-1, 1, (9, 4)))
    return method, public, rows, {}, method.next_request(state)[1]


def test_a_site_keeps_exactly_the_change_that_was_applied() -> None:
    method, public, rows, memory, message = opened()
    random = seeded_random(bytes(32))
    update, first = method.contribute("fit", rows, message, memory, public, random)
    state = {**method.initial_state(public), "status": "fit", "records": 18}
    large = {**update, "Q": update["Q"] + triangle(40 * np.eye(2))}  # of other sites
    after = method.aggregate(state, large, 2)
    following = method.next_request(after)[1]
    share = following["taken"][0]
    assert share < 1
    np.testing.assert_allclose(after["Q"], state["Q"] + share * large["Q"], rtol=1e-15)
    _, second = method.contribute("fit", rows, following, first, public, random)
    for name in "rQ":
        np.testing.assert_array_equal(second["own"]["factor"][name], share * update[name])


@pytest.mark.parametrize(
    "changed",
    [
        {"Q": triangle(-np.eye(2))},
        {"taken": np.array([0.0])},
        {"taken": np.array([1.5])},
        {"taken": np.array(["all"])},
        {"scale": np.ones(4)},
        {"records": 3},
    ],
)
def test_malformed_messages_are_refused(changed: dict[str, Any]) -> None:
    """What is wrong in the messages of any method is in the contract of methods."""
    method, public, rows, memory, message = opened()
    random = seeded_random(bytes(32))
    method.contribute("fit", rows, message, memory, public, random)
    with pytest.raises(PeerError):
        method.contribute("fit", rows, {**message, **changed}, memory, public, random)


def test_an_extreme_q_gives_a_bounded_update_or_an_error() -> None:
    method, public, rows, memory, message = opened()
    bad = {**message, "r": np.array([1e49, -1e49]), "Q": triangle(1e49 * np.eye(2))}
    try:
        update, _ = method.contribute("fit", rows, bad, memory, public, seeded_random(bytes(32)))
    except DataError:
        return
    assert all(np.all(np.abs(values) <= 2.0**40) for values in update.values())


def test_strained_sites_prevent_convergence() -> None:
    method, public, *_ = opened()
    state = {**method.initial_state(public), "status": "fit", "records": 18, "round": 9}
    still = {"r": np.zeros(2), "Q": np.zeros(3), "errors": np.zeros(2)}
    ended = method.aggregate(state, {**still, "strained": np.zeros(1)}, 2)
    assert (ended["status"], ended["arrived"]) == ("finish", True)
    for _ in range(2):
        state = method.aggregate(state, {**still, "strained": np.ones(1)}, 2)
        assert state["status"] == "fit"
    state = method.aggregate(state, {**still, "strained": np.ones(1)}, 2)
    assert (state["status"], state["arrived"]) == ("finish", False)


ONE = NormalHierarchy(0.0, 1.0, -2.0, 1.5)
ONE_TERM = {
    "name": "fedlin_hm2", "scale": "own", "intercept": "none", "noise_sd": 0.5, "draws": 2000,
    "mu_sd": 1.0, "log_tau_mean": -2.0, "log_tau_sd": 1.5,
}  # fmt: skip
ONE_COLUMN = {"x": continuous(-10, 10), "y": continuous(-10, 10)}


def one_term(
    seed: int, sizes: tuple[int, ...], spread: float
) -> tuple[dict[str, pd.DataFrame], np.ndarray, np.ndarray]:
    """Return sites with one coefficient, its estimates there, and their variances."""
    rng, tables, told = np.random.default_rng(seed), {}, []
    for k, n in enumerate(sizes):
        x = rng.standard_normal(n)
        y = rng.normal(0.5, spread) * x + 0.5 * rng.standard_normal(n)
        tables[f"s{k}"] = pd.DataFrame({"x": x, "y": y})
        told.append((x @ y / (x @ x), 0.25 / (x @ x)))
    return tables, *np.array(told).T


@pytest.mark.oracle
def test_posteriors_of_few_sites_agree_with_a_grid() -> None:
    """Four sites, one coefficient: medians, intervals and moments, in the column's own units.

    Errors: of 2048 points more than half count; ends are off by 0.007 sds of share, 0.07 of it.
    """
    tables, b, s = one_term(5, (12, 9, 15, 7), 0.8)
    results = {
        points: simulated({**ONE_TERM, "level": 0.9, "points": points}, ONE_COLUMN, tables)
        for points in (0, 2048)
    }
    mean, cov, low, high = exact(b, s, ONE)
    sd = np.sqrt(np.diagonal(cov))
    found = results[2048][0]
    assert found.summary["points"]["effective"] > 1024
    assert found.summary["points"]["error"] < 0.03
    assert np.all(np.abs(found.arrays["shared_mean"] - mean) < 4.5 * 0.03 * sd)
    relative = (found.arrays["shared_covariance"] - cov) / np.outer(sd, sd)
    assert np.max(np.abs(relative)) < 4.5 * np.sqrt(2 / 1024)
    of_mean, of_sd = found.summary["shared"]
    for end, ends in (("low", low), ("high", high)):
        assert abs(of_mean[end] - ends[0]) < 0.07 * sd[0]
        assert abs(2 * np.log(of_sd[end]) - ends[1]) < 0.07 * sd[1]
    # The reason for points: q's interval is too short.
    width = {points: r.summary["shared"][0] for points, (r, _) in results.items()}
    assert (width[0]["high"] - width[0]["low"]) < 0.95 * (high[0] - low[0])
    # A site takes no part of its change twice: its posterior is as without points.
    for site, own in results[0][1].items():
        one, other = own.summary["coefficients"][1], results[2048][1][site].summary["coefficients"]
        assert abs(one["mean"] - other[1]["mean"]) < 4.5 * one["sd"] * np.sqrt(2 / 2000)


def test_in_the_importance_stage_sites_keep_their_factors() -> None:
    """Its pending change is taken once, at the end; and coins are of rounds."""
    tables = linear_tables((9, 9))
    job = fedlin_job({"name": "fedlin_hm2", "points": 64}, bounds(tables))
    public = public_facts(parse_job(job), ("a", "b"))
    method = FedLinHm2(outcome="y", scale="own", points=64, participation=1e-9)
    state = {**method.initial_state(public), "status": "fit", "records": 18, "noise": 0.1}
    rows = rows_of(np.random.default_rng(0).uniform(-1, 1, (9, 4)))
    everybody = replace(method, participation=1.0)
    _, memory = everybody.contribute(
        "fit", rows, everybody.next_request(state)[1], {}, public, seeded_random(bytes(32))
    )
    assert memory["own"]["pending"]["Q"].any()
    message = method.next_request({**state, "status": "points"})[1]
    sums, after = method.contribute(
        "points", rows, message, memory, public, seeded_random(bytes(32))
    )
    assert sums["precision"].any()
    for name in ("factor", "pending"):
        for part in ("r", "Q"):
            assert np.array_equal(after["own"][name][part], memory["own"][name][part])


@pytest.mark.oracle
def test_sites_that_skip_rounds_converge_to_the_same_posterior() -> None:
    tables = linear_tables(SIZES[:3])
    method = {**RIDGE, "tolerance": 0.0, "rounds": 30}
    everyone, _ = simulated(method, bounds(tables), tables)
    coins, _ = simulated({**method, "participation": 0.5}, bounds(tables), tables)
    for name in ("shared_mean", "shared_covariance"):
        np.testing.assert_allclose(coins.arrays[name], everyone.arrays[name], atol=1e-6)
    nobody = {**method, "participation": 0.2, "rounds": 1, "tolerance": 0.5}
    result, _ = simulated(nobody, bounds(tables), tables)
    assert result.summary["distance"] == 0
    assert not result.summary["converged"]


def test_with_known_shared_parameters_site_posteriors_are_exact() -> None:
    """mu = m and tau = t, as good as known: theta_k ~ N(P^-1 (X'y / s + m / t), P^-1)."""
    tables, m, t, s = linear_tables((6, 25, 3), d=2), 0.7, 0.4, 0.3
    method = {"name": "fedlin_hm2", "prior": "normal", "intercept": "none", "scale": "own",
              "noise_sd": np.sqrt(s), "mu_mean": m, "mu_sd": 1e-4, "log_tau_mean": np.log(t),
              "log_tau_sd": 1e-4, "draws": 4000, "level": 0.9}  # fmt: skip
    _, own = simulated(method, bounds(tables), tables)
    written = Written.of(tables, "none", "own")
    for k, site in enumerate(tables):
        X, y = written.X[k], written.y[k]
        cov = np.linalg.inv(X.T @ X / s + np.eye(2) / t)
        mean, sd = cov @ (X.T @ y / s + m / t), np.sqrt(np.diagonal(cov))
        found = {name: told(own[site], name)[1:] for name in ("mean", "sd", "low", "high")}
        assert np.all(np.abs(found["mean"] - mean) < 4.5 * sd / np.sqrt(4000) + 1e-3 * sd)
        assert np.all(np.abs(found["sd"] / sd - 1) < 4.5 / np.sqrt(2 * 4000) + 1e-3)
        for end, sign in (("low", -1), ("high", 1)):  # a quantile's error: 1.7 sd / root(draws)
            assert np.all(np.abs(found[end] - mean - sign * 1.645 * sd) < 4.5 * 2.2 * sd / 63)
        included = [row["included"] for row in own[site].summary["coefficients"]][1:]
        assert included == ((found["low"] > 0) | (found["high"] < 0)).tolist()
        np.testing.assert_allclose(told(own[site], "hm2")[1:], found["mean"], rtol=1e-9)


@pytest.mark.oracle
@pytest.mark.parametrize("prior", ["normal", "ridge", "lasso", "elastic_net"])
@pytest.mark.parametrize("sizes", [(1, 30, 20), (2, 3, 2)])
def test_sites_with_few_records_have_proper_posteriors(prior: str, sizes: tuple[int, ...]) -> None:
    """A site with one record; fewer everywhere than coefficients; two sites."""
    tables = linear_tables(sizes, d=3)
    method = {"name": "fedlin_hm2", "prior": prior, "draws": 100, "rounds": 4}
    if max(sizes) < 5 and prior == "normal":
        with pytest.raises(secagg.errors.UsageError):
            simulated(method, bounds(tables), tables)
        method["noise_sd"] = 0.3
    result, own = simulated(method, bounds(tables), tables)
    assert np.all(np.linalg.eigvalsh(result.arrays["shared_covariance"]) > 0)
    for each in own.values():
        for row in each.summary["coefficients"]:
            assert row["low"] <= row["mean"] <= row["high"]
            assert np.isfinite(row["sd"])


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        *wrong_settings(
            draws=[10],
            level=[1.0],
            damping=[0.0],
            mu_sd=[0.0],
            tolerance=[-1.0],
            rope=[-1.0],
            log_tau_mean=[float("nan")],
            points=[8, -64, 2**20],
        ),
        ({"prior": "horseshoe"}, "method"),
        ({"points": 64, "prior": "ridge"}, "method.points"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], where: str) -> None:
    tables = linear_tables((9, 9))
    with pytest.raises(JobError) as raised:
        simulated({"name": "fedlin_hm2", **settings}, bounds(tables), tables)
    assert raised.value.where == where
