"""Columns that a site lacks, and arrows that a job rules out, in directed graphs."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from support.methods.playing import play

from secagg import run
from secagg.contracts import PublicFacts, SiteRecords, State, Variable
from secagg.core.randomness import replayable_random, seeded_random
from secagg.errors import DataError, JobError, PeerError, PolicyRefusal
from secagg.jobs.job import parse_job
from secagg.models.numerics.laplace_location import Locations
from secagg.models.sparse_bayes.base import DRAWS, RECORDS
from secagg.models.sparse_bayes.directed_graph import SparseDirected
from secagg.models.sparse_bayes.horseshoe import NoisePrior
from secagg.models.sparse_bayes.laplace_graph import (
    GraphDraw,
    draw_graph_noise,
    rotation_pairs,
    sweep_graph,
)
from secagg.models.sparse_bayes.latent.lacking import Lacking, draw_piecewise, own_scatter
from secagg.models.sparse_bayes.metropolis.entries import ErrorLaw
from secagg.models.sparse_bayes.normal_graph import scatter_columns
from secagg.sessions.parties import read_records
from secagg.sessions.planned_job import Planned, plan_job

Array = NDArray[np.float64]

PRIOR = NoisePrior(3.0, 2.0)
NUMBER = {"type": "continuous", "low": -20, "high": 20}
SITES = ("s0", "s1", "s2", "s3")
NAMES = ("a", "b", "c")


def tables(sizes: tuple[int, ...] = (40, 41, 42, 43), lacks: str = "c") -> dict[str, pd.DataFrame]:
    """Return records of a -> b -> c; the last site lacks a column."""
    rng, found = np.random.default_rng(4), {}
    for name, n in zip(SITES, sizes, strict=True):
        a, e, f = rng.laplace(size=(3, n))
        b = 0.8 * a + e
        found[name] = pd.DataFrame({"a": a, "b": b, "c": f - 0.7 * b})
    found["s3"] = found["s3"].drop(columns=lacks)
    return found


def job(
    protocol: str = "plain", having: tuple[str, ...] = SITES[:3], **method: Any
) -> dict[str, Any]:
    short = {"rounds": 8, "chains": 2, "temperatures": 2, "path_steps": 2}
    return {
        "title": "Lacking",
        "sites": {"max_rows": 60},
        "columns": {"a": NUMBER, "b": NUMBER},
        "partial": {"c": {"column": NUMBER, "sites": list(having)}},
        "method": {"name": "sparse_directed", "variables": list(NAMES), **short, **method},
        "protocol": {"name": protocol},
        "release": {"min_sites": 3, "min_records": 5},
    }


def planned(raw: dict[str, Any], data: dict[str, pd.DataFrame] | None = None) -> Planned:
    return plan_job(parse_job(raw), tables() if data is None else data)


# --- the draws ------------------------------------------------------------------------------------


def test_piecewise_draws_have_the_density() -> None:
    """Against the distribution function on a grid; a weight of 0, and two equal knots."""
    rng, n = np.random.default_rng(1), 400_000
    knots, weights = np.array([0.5, -1.0, 2.0, 0.5, 30.0]), np.array([1.0, 0.3, 2.0, 0.4, 0.0])
    drawn = draw_piecewise(np.tile(knots[:, None], (1, 1, n)), weights[None], rng)[0]
    grid = np.linspace(-40, 40, 400_001)
    density = np.exp(-(weights[:, None] * np.abs(grid - knots[:, None])).sum(axis=0))
    cumulative = np.cumsum(density) / density.sum()
    places = np.interp(drawn, grid, cumulative)
    # Kolmogorov's bound at a level of 1e-6
    steps = np.arange(1, n + 1) / n
    assert np.abs(np.sort(places) - steps).max() < np.sqrt(-np.log(5e-7) / 2 / n)


def swept(
    Y: Array, lacked: list[int], law: ErrorLaw, common: Array, t: float, chains: int, rounds: int
) -> tuple[Array, Array]:
    """Return mean and standard error, over chains, of functions of theta and log b."""
    rng, p = np.random.default_rng(3), Y.shape[1]
    shape, rows = (chains, p * (p - 1)), (chains, p)
    draw = GraphDraw(np.zeros(shape), np.ones(rows), np.ones(shape), np.ones(shape))
    redraw = Lacking(np.array(lacked), ~np.eye(p, dtype=bool), law, PRIOR, rng).redraw
    theta, spread, reach = np.tile(common, (chains, 1)), np.full(shape, t), np.full(shape, 0.4)
    seen = []
    for i in range(rounds):
        noise = draw_graph_noise(chains, p, law, PRIOR, rng)
        pairs = rotation_pairs(p, i, ordered=False)
        draw, _, _ = sweep_graph(Y, draw, reach, theta, spread, PRIOR, law, noise, pairs, redraw)
        if i >= rounds // 5:
            seen.append(functions(draw.theta, np.log(draw.b)))
    found = np.mean(seen, axis=0)
    return found.mean(axis=0), found.std(axis=0, ddof=1) / np.sqrt(chains)


def functions(theta: Array, log_b: Array) -> Array:
    bent = np.tanh(theta)
    return np.column_stack([bent, bent**2, log_b, bent[:, :1] * bent[:, 1:2]])


def agree(found: tuple[Array, Array], weights: Array, values: Array) -> None:
    """Compare with weighted draws. One of 40 numbers is beyond 4.5 errors in 1 of 3000 runs."""
    weights = weights / weights.sum()
    expected = weights @ values
    its_error = np.sqrt(weights**2 @ (values - expected) ** 2)
    error = np.hypot(found[1], its_error)
    assert np.all(np.abs(found[0] - expected) < 4.5 * error)
    assert np.all(error < 0.06 * np.sqrt(weights @ (values - expected) ** 2))


def prior_draws(common: Array, t: float, p: int, many: int) -> tuple[Array, Array]:
    """Return theta and b^r from the site's prior."""
    rng = np.random.default_rng(8)
    local = np.abs(rng.standard_cauchy((many, len(common))))
    theta = common + local * np.sqrt(t) * rng.standard_normal((many, len(common)))
    return theta, PRIOR.scale / rng.gamma(PRIOR.shape, size=(many, p))


@pytest.mark.oracle
@pytest.mark.parametrize("n", [2, 8])
def test_normal_errors_have_the_posterior_given_the_columns_that_are_there(n: int) -> None:
    """p = 3, the second column is lacking: the others' law is normal with a block of B S B'."""
    rng, common, t, chains = np.random.default_rng(n), np.linspace(-0.2, 0.4, 6), 0.1, 300
    y = rng.normal(size=(2, n)) + rng.normal(size=n)
    z = (y - y.mean(axis=1, keepdims=True)).T
    F = np.repeat(own_scatter(scatter_columns(z), np.array([1]))[None], chains, axis=0)
    found = swept(F, [1], ErrorLaw(2, n), common, t, chains, 800)
    theta, s = prior_draws(common, t, 3, 400_000)
    graph = np.zeros((len(theta), 3, 3))
    graph[:, ~np.eye(3, dtype=bool)] = theta
    stable = np.abs(np.linalg.eigvals(graph)).max(axis=-1) < 1
    B = np.linalg.inv(np.eye(3) - graph[stable])[:, [0, 2]]
    covariance = (B * s[stable, None, :]) @ np.swapaxes(B, 1, 2)
    inside = np.einsum("cij,ij->c", np.linalg.inv(covariance), z.T @ z)
    log = -(n - 1) / 2 * np.linalg.slogdet(covariance)[1] - inside / 2
    values = functions(theta[stable], np.log(s[stable]) / 2)
    agree(found, np.exp(log - log.max()), values)


@pytest.mark.oracle
@pytest.mark.parametrize("beta", [1.0, 0.4])
def test_laplace_errors_have_it_too_at_every_power(beta: float) -> None:
    """p = 2, the second column is lacking: given parameters, its values are drawn, and weighted.

    With power beta the row of the lacking column has power 1 and the determinant beta (n - 1); the
    constant is 0 for the lacking column, whose mean nobody knows.
    """
    n, common, t, chains, many = 5, np.array([0.3, -0.2]), 0.1, 300, 300_000
    y = np.random.default_rng(6).laplace(size=n)
    y -= y.mean()
    Y = np.zeros((chains, 2, n))
    Y[:, 0] = y
    law = ErrorLaw(1, n, np.full(chains, beta), np.array([False, True]))
    found = swept(Y, [1], law, common, t, chains, 800)
    (theta, b), rng = prior_draws(common, t, 2, many), np.random.default_rng(9)
    log = np.full(many, -np.inf)
    stable = np.abs(theta.prod(axis=1)) < 1
    values = theta[stable, 1:] * y + rng.laplace(size=(stable.sum(), n)) * b[stable, 1:]
    q = np.full(stable.sum(), beta * (PRIOR.shape + n - 1) + 1)
    pieces = Locations(y - theta[stable, :1] * values, PRIOR.scale)
    log[stable] = pieces.log_integral(q)
    log[stable] += beta * (n - 1) * np.log1p(-theta[stable].prod(axis=1))
    # b of the column that is there is integrated out of the weights: not compared
    compared = [0, 1, 2, 3, 5, 6]
    weights = np.exp(log - log.max())
    agree((found[0][compared], found[1][compared]), weights,
          functions(theta, np.log(b))[:, compared])  # fmt: skip


# --- jobs and sites -------------------------------------------------------------------------------


@pytest.mark.system
@pytest.mark.parametrize("errors", ["laplace", "gaussian"])
def test_all_protocols_give_the_same_bits_and_the_site_that_lacks_it_takes_part(
    errors: str,
) -> None:
    method = {"errors": errors, "temperatures": 1 + (errors == "laplace"), "path_steps": 0}
    runs = [
        run(job(protocol, **method), tables(), random=replayable_random(9))
        for protocol in ("plain", "additive", "masked")
    ]
    arrays = [each.result.arrays for each in runs]
    for key, value in arrays[0].items():
        assert np.all(np.isfinite(value)) or value.dtype == bool
        assert {each[key].tobytes() for each in arrays} == {value.tobytes()}, key
    # all four sites' records, and of the column three sites' squares in units of all
    assert runs[0].result.summary["n"] == 40 + 41 + 42 + 43
    assert runs[0].result.summary["lacking"] == {"c": ["s3"]}


@pytest.mark.system
def test_a_second_job_reads_the_same_records(tmp_path: Path) -> None:
    """The ledger of the site that lacks a column knows its records, which have no such column."""
    for seed in (1, 2):
        raw = job(seed=seed, temperatures=1, path_steps=0)
        raw["sites"]["ledgers"] = str(tmp_path)
        assert run(raw, tables(), random=replayable_random(seed)).result.summary["n"] == 166


def test_jobs_over_other_sites_are_refused(tmp_path: Path) -> None:
    """Eight sites and five of them differ by three, of which one has the column."""
    rng, data = np.random.default_rng(6), {}
    for i in range(8):
        table = pd.DataFrame(rng.laplace(size=(40, 3)), columns=list(NAMES))
        data[f"s{i}"] = table if i < 4 else table.drop(columns="c")
    fewer = (0, 1, 2, 4, 5)
    for folder, runs in (
        ("one", [(range(8), True, False), (fewer, True, True)]),
        # releases without the column, over both sets: the new job's sites are those of one of them
        ("two", [(range(8), False, False), (fewer, False, False), (range(8), True, True)]),
    ):
        for names, analysed, refused in runs:
            raw = job(temperatures=1, path_steps=0)
            raw["sites"]["ledgers"] = str(tmp_path / folder)
            raw["partial"]["c"]["sites"] = [f"s{i}" for i in names if i < 4]
            if not analysed:
                raw["method"]["variables"] = ["a", "b"]
            chosen = {f"s{i}": data[f"s{i}"] for i in names}
            if refused:
                with pytest.raises(PolicyRefusal):
                    run(raw, chosen)
            else:
                run(raw, chosen)


def test_no_sum_has_squares_of_a_column_that_a_site_lacks() -> None:
    plan = planned(job(), tables((50, 50, 50, 50)))
    rows = [read_records(plan, plan.sources[name]) for name in SITES]
    assert rows[3].lacking == ("c",) and not rows[3].values[:, 2].any()
    assert rows[3].held(plan.public).values.shape == (50, 2)
    public, method = plan.public, plan.method
    update = [method.contribute(RECORDS, each, {}, {}, public, bytes)[0] for each in rows]
    total = {name: sum(each[name] for each in update) for name in update[0]}
    state = method.aggregate(method.initial_state(public), total, 4)
    _, message = method.next_request(state) or ("", {})
    assert not any(each["squares"][2] for each in update)
    expected = [np.sqrt(np.mean([each.values[:, i].var() for each in rows])) for i in range(2)]
    expected.append(plan.public.variables[2].typical_spread)
    np.testing.assert_allclose(1 / np.array(message["scale"]), expected, rtol=1e-12)


def test_a_site_refuses_a_job_that_says_it_lacks_what_it_has() -> None:
    """Sums of squares of a column over two sets of sites would differ by one site's."""
    data = tables()
    data["s3"]["c"] = 1.0
    plan = planned(job(), data)
    with pytest.raises(DataError) as caught:
        read_records(plan, plan.sources["s3"])
    assert caught.value.where == "s3" and caught.value.advice


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"having": SITES[:2]}, "partial.c.sites"),
        ({"scale": "site"}, "method.scale"),
        ({"cycles": False}, "method.cycles"),
        ({"errors": "gaussian", "temperatures": 1, "path_steps": 0, "privacy": True},
         "method.variables"),
    ],
)  # fmt: skip
def test_what_is_refused(changes: dict[str, Any], where: str) -> None:
    private = changes.pop("privacy", False)
    raw = job(**changes)
    if private:
        raw["privacy"] = {"placement": "site", "epsilon": 4.0, "delta": 1e-6}
    with pytest.raises(JobError) as caught:
        planned(raw)
    assert caught.value.where == where and caught.value.advice


def test_other_columns_and_rules_that_are_refused() -> None:
    levels = job()
    levels["partial"]["c"]["column"] = {"type": "binary"}
    more = job()
    more["release"]["min_sites"] = 4
    for raw, where in ((levels, "partial.c"), (more, "partial.c.sites")):
        with pytest.raises(JobError) as caught:
            planned(raw)
        assert caught.value.where == where


@pytest.mark.system
def test_two_lacking_columns_in_a_cycle_need_one_copy_or_tiers() -> None:
    data = {name: table.drop(columns="b", errors="ignore") if name == "s3" else table
            for name, table in tables().items()}  # fmt: skip
    raw = job()
    raw["columns"] = {"a": NUMBER}
    raw["partial"]["b"] = raw["partial"]["c"]
    with pytest.raises(JobError) as caught:
        planned(raw, data)
    assert caught.value.where == "method.temperatures"
    for change in ({"temperatures": 1}, {"tiers": [["b"], ["c"]]}):
        changed = {**raw, "method": {**raw["method"], **change}}
        result = run(changed, data, random=replayable_random(1)).result
        assert np.all(np.isfinite(result.arrays["mean"]))


def test_with_normal_errors_a_site_reads_moments_of_the_columns_that_it_has() -> None:
    """Records with the same sums of products give the same draws, but for rounding."""
    method = SparseDirected(errors="gaussian", rounds=8, chains=2)
    variables = tuple(Variable(name, name, 0.0, 4.0) for name in NAMES)
    public = PublicFacts(variables, NAMES, 60, SITES, partial={"c": SITES[:3]})
    rng = np.random.default_rng(2)
    values = np.column_stack([rng.uniform(-0.5, 0.5, (30, 2)), np.zeros(30)])
    mean = values.mean(axis=0)
    # a rotation that keeps the vector of ones
    ones = np.linalg.qr(np.column_stack([np.ones(30), rng.normal(size=(30, 29))]))[0]
    turn = np.linalg.qr(rng.normal(size=(29, 29)))[0]
    same = mean + ones[:, 1:] @ turn @ ones[:, 1:].T @ (values - mean)
    shape = (2, 1, 6)
    message = {"theta": np.zeros(shape), "t": np.full(shape, 0.1), "scale": np.full(3, 4.0),
               "records": 120, **method.begin_shared_state(public)}  # fmt: skip
    sent = []
    for each in (values, same):
        rows = SiteRecords(each, 0, np.zeros(3), lacking=("c",))
        memory, random = State(), seeded_random(bytes(32))
        for _ in range(3):
            update, memory = method.contribute(DRAWS, rows, message, memory, public, random)
        sent.append(update)
    for name, value in sent[0].items():
        np.testing.assert_allclose(np.abs(sent[1][name]), np.abs(value), rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("errors", ["laplace", "gaussian"])
def test_values_are_drawn_again_from_those_of_the_round_before(errors: str) -> None:
    plan = planned(job(errors=errors, temperatures=1, path_steps=0))
    site, public, method = read_records(plan, plan.sources["s3"]), plan.public, plan.method
    message = {"theta": np.zeros((2, 1, 6)), "t": np.full((2, 1, 6), 0.1), "scale": np.ones(3),
               "records": 160, **method.begin_shared_state(public)}  # type: ignore[attr-defined]  # fmt: skip
    _, memory = method.contribute(DRAWS, site, message, {}, public, seeded_random(bytes(32)))
    assert memory["values"].std() > 0.1
    answers = [
        method.contribute(DRAWS, site, message, each, public, seeded_random(bytes(32)))[0]
        for each in (memory, memory, {**memory, "values": memory["values"][..., ::-1]})
    ]
    same, other = (np.array_equal(answers[0]["d"], each["d"]) for each in answers[1:])
    assert same and not other


# --- arrows that are ruled out --------------------------------------------------------------------


def rows(sizes: tuple[int, ...] = (60, 70, 80)) -> tuple[list[SiteRecords], PublicFacts]:
    every = list(tables((*sizes, 1)).values())[:3]
    variables = tuple(Variable(name, name, 0.0, 20.0) for name in NAMES)
    found = [SiteRecords(each.to_numpy() / 20, 0, np.zeros(3)) for each in every]
    return found, PublicFacts(variables, NAMES, 100, SITES[:3])


def played(method: SparseDirected, **more: Any) -> Any:
    records, public = rows()
    randoms = [seeded_random(bytes([k]) * 32) for k in range(3)]
    return play(method, records, public, randoms, **more)


@pytest.mark.parametrize("errors", ["laplace", "gaussian"])
def test_a_tier_for_each_column_gives_the_bits_of_a_known_order(errors: Any) -> None:
    settings: dict[str, Any] = {"rounds": 12, "chains": 2, "errors": errors, "variables": NAMES}
    one, other = (
        played(SparseDirected(**settings, **known)).result
        for known in ({"ordered": True}, {"tiers": tuple((name,) for name in NAMES)})
    )
    for key, value in one.arrays.items():
        assert other.arrays[key].tobytes() == value.tobytes(), key
    assert one.summary["arrows"] == other.summary["arrows"]
    assert other.summary["tiers"] == [["a"], ["b"], ["c"]]
    assert other.summary["notes"][-1].startswith("Knowledge of the job")


@pytest.mark.parametrize("steps", [0, 2])
def test_arrows_that_are_ruled_out_have_no_entry(steps: int) -> None:
    """a before b and c, and no arrow from c to b."""
    known: dict[str, Any] = {"tiers": (("a",), ("b", "c")), "forbidden": (("c", "b"),)}
    method = SparseDirected(rounds=12, chains=2, temperatures=2, path_steps=steps, **known)
    found = played(method).result
    ends = [(row["from"], row["to"]) for row in found.summary["arrows"]]
    assert sorted(ends) == [("a", "b"), ("a", "c"), ("b", "c")]
    assert found.arrays["draws_theta"].shape[-1] == 3
    assert found.summary["forbidden"] == [["c", "b"]]


def test_normal_errors_find_the_arrows_between_tiers_and_pairs_within_one() -> None:
    known: dict[str, Any] = {"tiers": (("a",), ("b", "c"))}
    found = played(SparseDirected(rounds=120, chains=2, errors="gaussian", **known), together=True)
    pairs = {tuple(sorted(pair["between"])): pair for pair in found.result.summary["pairs"]}
    assert set(pairs["b", "c"]) > {"directions_not_determined"}
    assert [(row["from"], row["to"]) for row in pairs["a", "b"]["by_the_job"]] == [("a", "b")]
    assert pairs["a", "b"]["pip"] > 0.9 > pairs["a", "c"]["pip"]
    # all arrows are ruled out but those of an order, whatever names it
    forbidden = tuple((later, early) for early, later in (*pairwise(NAMES), ("a", "c")))
    method = SparseDirected(rounds=16, chains=2, errors="gaussian", forbidden=forbidden)
    assert "arrows" in played(method).result.summary


def test_wrong_knowledge_is_refused_by_the_job_and_by_sites() -> None:
    records, public = rows()
    every = tuple((x, y) for x in NAMES for y in NAMES if x != y)
    for known, where in (
        ({"ordered": True, "tiers": (("a",), ("b",))}, "method.tiers"),
        ({"forbidden": every}, "method.forbidden"),
        ({"tiers": (("a",), ("nobody",))}, "method.tiers"),
    ):
        with pytest.raises(JobError) as caught:
            SparseDirected(**known).stages(public)  # type: ignore[arg-type]
        assert caught.value.where == where
    method = SparseDirected(rounds=8, chains=2, tiers=(("a",), ("b", "c")), path_steps=1)
    shape = (method.replicas, 1, 4)
    message = {"theta": np.zeros(shape), "t": np.ones(shape), "scale": np.ones(3), "records": 210,
               **method.begin_shared_state(public)}  # fmt: skip
    message["allowed"] = message["allowed"].T
    with pytest.raises(PeerError):
        method.contribute(DRAWS, records[0], message, State(), public, seeded_random(bytes(32)))
