"""Directed graphs with normal errors, and with a known order: sweeps, pairs, sites, edge cases."""

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from support.methods.playing import play, rows_of

from secagg.contracts import COLLECTED_DRAWS, NoisyMatrix, PublicFacts, SiteRecords, State, Variable
from secagg.core.arrays import Array
from secagg.core.randomness import seeded_random
from secagg.models.common import posterior_summary
from secagg.models.sparse_bayes.base import DRAWS
from secagg.models.sparse_bayes.directed_graph import SparseDirected
from secagg.models.sparse_bayes.horseshoe import NoisePrior
from secagg.models.sparse_bayes.laplace_graph import (
    GraphDraw,
    draw_graph_noise,
    matrices,
    rotation_pairs,
    sweep_graph,
)
from secagg.models.sparse_bayes.metropolis.entries import ErrorLaw
from secagg.models.sparse_bayes.normal_graph import (
    LEAST_VARIANCE,
    NOT_DETERMINED,
    SURROGATE,
    partial_correlations,
    scatter_columns,
    surrogate_result,
    unit_variances,
)

HALF, NAMES = 16.0, ("a", "b", "c", "d")
GRAPH = np.zeros((4, 4))  # a -> b -> d <- c, [j, h] for h -> j
GRAPH[1, 0], GRAPH[3, 1], GRAPH[3, 2] = 0.8, -0.8, 0.7
PRIOR = NoisePrior(shape=1.5, scale=0.7)
SMALL = SparseDirected(rounds=16, chains=2, errors="gaussian")


def public_of(sites: int, names: tuple[str, ...] = NAMES) -> PublicFacts:
    variables = tuple(Variable(name, name, 0.0, HALF) for name in names)
    return PublicFacts(variables, names, 500, tuple(f"s{k}" for k in range(sites)))


def simulated(sizes: tuple[int, ...], seed: int = 1) -> list[Array]:
    """Return records of the graph with normal errors; each site has its own means."""
    rng = np.random.default_rng(seed)
    parts = []
    for n in sizes:
        Y = np.linalg.solve(np.eye(4) - GRAPH, rng.normal(size=(4, n))).T
        parts.append(np.clip((Y + rng.uniform(-1, 1, 4)) / HALF, -1, 1))
    return parts


def with_noise(part: Array, sd: float, seed: int = 0) -> SiteRecords:
    """Return a site whose moments have noise; the records are those of the exact moments."""
    z = np.column_stack([np.ones(len(part)), part])
    variance = sd**2 * (1 + np.eye(z.shape[1]))
    E = np.triu(np.random.default_rng(seed).normal(size=variance.shape) * np.sqrt(variance))
    return replace(rows_of(part), noisy=NoisyMatrix(z.T @ z + E + np.triu(E, 1).T, variance))


def fit(method: SparseDirected, rows: list[SiteRecords], *, together: bool = True) -> Any:
    randoms = [seeded_random(bytes([k, 0]) * 16) for k in range(len(rows))]
    return play(method, rows, public_of(len(rows)), randoms, together=together)


@pytest.mark.parametrize("n", [0, 1, 3, 20])
def test_the_columns_have_the_scatter_of_the_records(n: int) -> None:
    z = np.random.default_rng(n).normal(size=(n, 4))
    F = scatter_columns(z)
    assert F.shape == (4, 4) and pytest.approx(z.T @ z, abs=1e-12) == F @ F.T


@pytest.mark.oracle
@pytest.mark.parametrize("n", [2, 9])
def test_a_sweep_has_the_posterior_of_two_columns(n: int) -> None:
    """Against importance sampling from the prior; the likelihood is a density of records."""
    rng, chains = np.random.default_rng(n), 400
    y = rng.normal(size=(2, n)) @ np.diag(np.linspace(0.5, 2, n)) + rng.normal(size=(1, n))
    common, t = np.array([0.3, 0.0]), 0.4
    F, law, shape = scatter_columns(y.T - y.mean(axis=1)), ErrorLaw(2, n), (chains, 2)
    draw = GraphDraw(np.zeros(shape), np.ones(shape), np.ones(shape), np.ones(shape))
    seen = []
    for i in range(500):
        noise = draw_graph_noise(chains, 2, law, PRIOR, rng)
        theta, spread, reach = np.tile(common, (chains, 1)), np.full(shape, t), np.full(shape, 0.4)
        pairs = rotation_pairs(2, i, ordered=False)
        draw, _, _ = sweep_graph(F, draw, reach, theta, spread, PRIOR, law, noise, pairs)
        if i >= 100:
            bent = np.tanh(draw.theta)
            seen.append(np.column_stack([bent, bent**2, np.log(draw.b), bent[:, :1] * bent[:, 1:]]))
    found = np.mean(seen, axis=0)
    mean, error = found.mean(axis=0), found.std(axis=0, ddof=1) / np.sqrt(chains)
    many = 400_000
    local = np.abs(rng.standard_cauchy((many, 2)))
    theta = common + local * np.sqrt(t) * rng.normal(size=(many, 2))
    s = PRIOR.scale / rng.gamma(PRIOR.shape, size=(many, 2))
    possible = np.abs(theta[:, 0] * theta[:, 1]) < 1
    # the density of the records' contrasts: normal with covariance A^-1 diag(s) A^-1'
    A = np.tile(np.eye(2), (many, 1, 1))
    A[:, 0, 1], A[:, 1, 0] = -theta[:, 0], -theta[:, 1]
    A[~possible] = np.eye(2)
    B = np.linalg.inv(A)
    covariance = (B * s[:, None, :]) @ np.swapaxes(B, 1, 2)
    centred = y - y.mean(axis=1, keepdims=True)
    inside = np.einsum("cij,ij->c", np.linalg.inv(covariance), centred @ centred.T)
    log = -(n - 1) / 2 * np.linalg.slogdet(covariance)[1] - inside / 2
    log[~possible] = -np.inf
    weights = np.exp(log - log.max())
    weights /= weights.sum()
    bent = np.tanh(theta)
    values = np.column_stack([bent, bent**2, np.log(s) / 2, bent[:, :1] * bent[:, 1:]])
    expected = weights @ values
    its_error = np.sqrt(weights**2 @ (values - expected) ** 2)
    # 7 numbers twice: exceeded by chance in 1 of 1000 runs
    assert np.all(np.abs(mean - expected) < 4.0 * np.hypot(error, its_error))
    assert np.all(np.hypot(error, its_error) < 0.05 * np.sqrt(weights @ (values - expected) ** 2))


def test_partial_correlations_are_those_of_the_covariance() -> None:
    rng = np.random.default_rng(3)
    graphs, s = (
        rng.normal(size=(5, 3, 3)) * 0.3 * ~np.eye(3, dtype=bool),
        rng.gamma(2.0, size=(5, 3)),
    )
    found = partial_correlations(graphs, s)
    for graph, variances, row in zip(graphs, s, found, strict=True):
        B = np.linalg.inv(np.eye(3) - graph)
        C = B @ np.diag(variances) @ B.T
        for (j, h), value in zip(combinations(range(3), 2), row, strict=True):
            (k,) = {0, 1, 2} - {j, h}
            beta = C[[j, h], k] / C[k, k]
            left = C[np.ix_([j, h], [j, h])] - np.outer(beta, beta) * C[k, k]
            assert value == pytest.approx(left[0, 1] / np.sqrt(left[0, 0] * left[1, 1]))


def test_error_variances_give_each_column_variance_one() -> None:
    scaled = GRAPH * 0.7
    B = np.linalg.inv(np.eye(4) - scaled)
    s = unit_variances(scaled[None])[0]
    assert np.diagonal(B @ np.diag(s) @ B.T) == pytest.approx(np.ones(4))
    assert unit_variances(3 * GRAPH[None]).min() == LEAST_VARIANCE  # no variances do so


def test_a_pair_has_the_probability_of_at_least_one_arrow() -> None:
    """Two draws of two chains, by hand."""
    rng = np.random.default_rng(0)
    draws = {"theta": rng.normal(size=(8, 2, 1, 6)) * 0.2, "inclusion": rng.random((8, 2, 1, 6)),
             "t": np.ones((8, 2, 1, 6)), "eta": np.ones((8, 2, 1, 6))}  # fmt: skip
    saved = [{name: values[i] for name, values in draws.items()} for i in range(8)]
    state = {COLLECTED_DRAWS: saved, "columns": ["a", "b", "c"], "records": 50}
    result = surrogate_result(SMALL, state, 0.9, 0.1)
    summary, made = result.summary, result.arrays
    # entries in order: a<-b, a<-c, b<-a, b<-c, c<-a, c<-b
    P = draws["inclusion"][:, :, 0]
    expected = 1 - (1 - P[..., [0, 1, 3]]) * (1 - P[..., [2, 4, 5]])
    assert made["pip"][np.triu_indices(3, 1)] == pytest.approx(expected.mean(axis=(0, 1)))
    by_pair = {tuple(row["between"]): row for row in summary["pairs"]}
    assert by_pair["b", "c"]["pip"] == pytest.approx(expected[..., 2].mean())
    assert made["pip"][1, 2] == made["pip"][2, 1] == by_pair["b", "c"]["pip"]
    (side,) = by_pair["a", "c"]["sides"]
    forward, back = by_pair["a", "c"]["directions_not_determined"]
    assert (forward["from"], forward["to"]) == ("a", "c") == (back["to"], back["from"])
    assert forward["mean"] == pytest.approx(draws["theta"][:, :, 0, 4].mean())
    assert side["pip"] == by_pair["a", "c"]["pip"]
    pips = [row["pip"] for row in summary["pairs"]]
    assert pips == sorted(pips, reverse=True)


def test_the_surrogate_is_named_and_says_what_is_not_determined() -> None:
    played = fit(SMALL, [rows_of(part) for part in simulated((40, 50))])
    summary = played.result.summary
    assert SMALL.title == SURROGATE and NOT_DETERMINED in summary["notes"]
    assert "arrows" not in summary and len(summary["pairs"]) == 6
    assert np.array_equal(played.result.arrays["edges"], played.result.arrays["edges"].T)
    own = SMALL.site_result(played.memories[0], public_of(2))
    assert own is not None and own.summary["notes"] == [NOT_DETERMINED]


@pytest.mark.parametrize("converged", [False, True])
def test_why_a_surrogate_must_not_be_used_is_its_first_note(
    converged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Terminal and report give the first note as the reason."""
    monkeypatch.setattr(posterior_summary, "MAX_R_HAT", np.inf if converged else 0.0)
    summary = fit(SMALL, [rows_of(part) for part in simulated((40, 50))]).result.summary
    assert summary["converged"] is converged
    assert (summary["notes"][0] == NOT_DETERMINED) is converged
    assert summary["notes"].count(NOT_DETERMINED) == 1 and len(summary["notes"]) > 1


def test_a_site_keeps_number_and_scatter_only() -> None:
    """No array of its memory has the records' number as an axis; a rotation changes nothing."""
    part = simulated((30,))[0]
    message = {"theta": np.zeros((2, 1, 12)), "t": np.ones((2, 1, 12)),
               "scale": np.full(4, HALF / 8), "records": 30,
               **SMALL.begin_shared_state(public_of(2))}  # fmt: skip
    found = []
    for seed in (0, 1):
        turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(30, 30)))[0]
        centred = part - part.mean(axis=0)
        turned = turn @ centred
        same = rows_of(turned if seed else centred)
        if seed:  # keep the means, too
            Q = np.linalg.qr(np.column_stack([np.ones(30), turn[:, 1:]]))[0]
            same = rows_of(Q @ np.diag([1.0] + [-1.0] * 29) @ Q.T @ centred)
        answer = SMALL.contribute(
            DRAWS, same, message, State(), public_of(2), seeded_random(bytes(32))
        )
        found.append(answer)
        shapes = [np.shape(value) for value in answer[1].values()]
        assert not any(30 in shape for shape in shapes)
    for name, values in found[0][0].items():
        assert found[1][0][name] == pytest.approx(values, rel=1e-9)


@pytest.mark.statistical
def test_a_sites_partial_correlations_are_recovered() -> None:
    method = SparseDirected(rounds=600, chains=2, errors="gaussian")
    played = fit(method, [rows_of(part) for part in simulated((400, 400))])
    A = np.eye(4) - GRAPH
    P = A.T @ A
    for memory in played.memories:
        own = method.site_result(memory, public_of(2))
        assert own is not None
        rows = {tuple(row["between"]): row for row in own.summary["partial_correlations"]}
        for (j, one), (h, other) in combinations(enumerate(NAMES), 2):
            true, row = -P[j, h] / np.sqrt(P[j, j] * P[h, h]), rows[one, other]
            assert abs(row["mean"] - true) < 4 / np.sqrt(400)
            assert row["sd"] < 1.3 / np.sqrt(400)


@pytest.mark.statistical
def test_arrows_are_found_even_if_there_is_no_pair_without_one() -> None:
    """With the paper's prior, all six in a wide spike explain the records as well as in the slab.

    Effects of .25 to .4 with standard errors of .025: six are certain.
    """
    rng, sizes = np.random.default_rng(1), (0.3, -0.3, 0.4, 0.25, -0.4, 0.35)
    effects = np.zeros((4, 4))
    effects[np.tril_indices(4, -1)] = sizes
    parts = [
        np.linalg.solve(np.eye(4) - effects, rng.standard_normal((4, 400))).T for _ in range(4)
    ]
    sites, chosen = [rows_of(part / 16) for part in parts], {}
    for prior in ("calibrated", "paper"):
        method = SparseDirected(errors="gaussian", ordered=True, rounds=500, prior=prior)
        found = fit(method, sites).result
        chosen[prior] = found.arrays["edges"].sum()
        means = found.arrays["mean"].T[np.tril_indices(4, -1)]
        assert np.all(np.sign(means) == np.sign(sizes)) and np.all(np.abs(means) > 0.1)
    assert chosen == {"calibrated": 6, "paper": 0}


@pytest.mark.parametrize("errors", ["gaussian", "laplace"])
def test_with_a_known_order_arrows_point_forward_only(errors: Any) -> None:
    method = SparseDirected(rounds=60, chains=2, errors=errors, ordered=True)
    played = fit(method, [rows_of(part) for part in simulated((200, 200))])
    ends = {(row["from"], row["to"]) for row in played.result.summary["arrows"]}
    assert ends == set(combinations(NAMES, 2))
    assert np.all(np.tril(played.result.arrays["pip"]) == 0)
    own = method.site_result(played.memories[0], public_of(2))
    assert own is not None and {(e["from"], e["to"]) for e in own.summary["effects"]} == ends
    assert own.summary["turns_taken"] == 0
    by_end = {(row["from"], row["to"]): row["mean"] for row in played.result.summary["arrows"]}
    assert by_end["a", "b"] > 0.3 and by_end["b", "d"] < -0.3
    backward = SparseDirected(variables=NAMES[::-1], rounds=16, ordered=True, errors=errors)
    turned = fit(backward, [rows_of(part) for part in simulated((20, 20))]).result.summary
    assert {(row["to"], row["from"]) for row in turned["arrows"]} == ends


@pytest.mark.parametrize(
    ("sd", "ordered", "scale"),
    [(0.0, False, "pooled"), (0.0, True, "site"), (0.3, False, "site"), (0.3, True, "pooled")],
)
def test_small_sites_and_degenerate_columns_give_finite_results(
    sd: float, ordered: bool, scale: Any
) -> None:
    parts = simulated((0, 1, 2, 3, 30, 40))
    parts[4][:, 2] = 0.25  # constant there
    parts[5][:, 3] = parts[5][:, 1]  # the same column twice
    rows = [with_noise(part, sd) if sd else rows_of(part) for part in parts]
    if sd:  # a site with noise has a record at least
        rows = rows[1:]
    method = replace(SMALL, ordered=ordered, scale=scale, rounds=8)
    played = fit(method, rows)
    assert np.all(np.isfinite(played.result.arrays["draws_theta"]))
    for memory in played.memories:
        assert all(np.all(np.isfinite(memory[name])) for name in ("theta", "b"))
        assert np.all(np.abs(np.linalg.eigvals(matrices(memory["theta"], 4))) < 1)
        assert ("latent" in memory) == (sd > 0)
        assert method.site_result(memory, public_of(len(rows))) is not None


@pytest.mark.parametrize("size", [0, 1])
def test_a_site_without_information_draws_from_the_prior(size: int) -> None:
    """Given theta and t, its theta_k is symmetric about theta: records would break the symmetry."""
    public, shape = public_of(2), (20, 1, 12)
    method = SparseDirected(rounds=1500, warmup=0, chains=20, errors="gaussian")
    message = {"theta": np.full(shape, 0.1), "t": np.full(shape, 1e-4),
               "scale": np.full(4, HALF / 8), "records": 500,
               **method.begin_shared_state(public)}  # fmt: skip
    site, memory = rows_of(simulated((size,))[0]), State()
    random, above = seeded_random(bytes(32)), []
    for _ in range(150):
        _, memory = method.contribute(DRAWS, site, message, memory, public, random)
        above.append(np.mean(memory["theta"] > 0.1))
    assert np.mean(above[50:]) == pytest.approx(0.5, abs=0.05)  # as in test_directed_graph


def test_sites_in_one_call_give_the_same_bits() -> None:
    rows = [with_noise(part, 0.2, k) for k, part in enumerate(simulated((30, 40)))]
    alone, batched = fit(SMALL, rows, together=False), fit(SMALL, rows, together=True)
    for name, values in alone.result.arrays.items():
        assert np.array_equal(values, batched.result.arrays[name])
    assert alone.result.summary == batched.result.summary
