"""The benchmark of sparse Bayesian regression: its tables, and that NUTS samples the same model."""

from importlib import import_module
from itertools import permutations, product

import numpy as np
import pytest


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch):
    return import_module("benchmarks.methods.bench_sparse")


def cells(printed: str) -> list[list[str]]:
    _, _, *rows = printed.splitlines()
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]


def test_the_table_has_a_row_for_each_way(bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "version", lambda _: None)
    rows = cells(bench.effective(bench.Sites(3, 30, 2), 20, 2, 0))
    assert [row[0] for row in rows] == list(bench.WAYS)
    assert rows[0][7] == "1 x"


def test_protocols_give_the_same_draws(bench) -> None:
    rows = cells(bench.protocols(bench.Sites(2, 20, 2), 8, 1))
    assert [(row[0], row[3]) for row in rows] == [(name, "the same") for name in bench.PROTOCOLS]


def test_the_compared_script_draws_the_same_numbers(bench) -> None:
    sites = [np.random.default_rng(k).normal(size=(20, 3)) for k in range(2)]
    theirs = bench.naive(sites, 4000)[500:]
    rng, shape = np.random.default_rng(1), (2000, 2)
    for k, rows in enumerate(sites):
        gram = rows.T @ rows
        data = bench.Regression(gram[1:, 1:], gram[1:, 0], gram[0, 0])
        one = np.ones(shape)
        draw = bench.SiteDraw(one, one[:, 0], one, one)
        for _ in range(40):
            noise = bench.draw_noise(shape, len(rows), bench.NOISE, rng)
            draw = bench.sweep(data, draw, np.zeros(shape), one, bench.NOISE, noise)
        # theirs is one chain: blocks of 100 are nearly independent
        blocks = theirs[:, k].reshape(35, 100, 2).mean(axis=1)
        error = np.hypot(blocks.std(axis=0) / 35**0.5, draw.theta.std(axis=0) / 2000**0.5)
        assert np.all(np.abs(blocks.mean(axis=0) - draw.theta.mean(axis=0)) < 4.5 * error)


def test_sweeps_are_timed_for_each_batch_size(bench) -> None:
    rows = cells(bench.throughput(bench.Sites(2, 20, 3), (1, 8), 1))
    assert [row[0] for row in rows] == ["1", "8"]


def test_the_sum_over_orders_is_that_of_all_orders_and_parents() -> None:
    orders = import_module("benchmarks.methods.graph_orders")
    rng, p = np.random.default_rng(3), 3
    Z = rng.laplace(size=(40, p)) @ np.array([[1, 0.5, 0], [0, 1, 0.4], [0, 0, 1]])
    score, total, expected = orders.scores(Z), 0.0, np.zeros((p, p))
    score -= score.max()
    for order in permutations(range(p)):
        before = {j: order[: order.index(j)] for j in order}
        for graph in product([0, 1], repeat=p * p):
            edges = np.reshape(graph, (p, p))  # [h, j]
            if all(h in before[j] for h, j in np.argwhere(edges)):
                parents = edges.T @ 2 ** np.arange(p)
                weight = np.exp(sum(score[j, parents[j]] for j in range(p)))
                total += weight
                expected += weight * edges
    np.testing.assert_allclose(orders.arrow_probabilities(score), expected / total, atol=1e-12)
    y, x = rng.laplace(size=21), np.ones((21, 1))
    assert orders.least_deviation(y, x) == pytest.approx(np.abs(y - np.median(y)).sum(), rel=1e-3)
