"""Simulated graphs and records against what is known of them without simulating."""

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from scipy.stats import chi2, kstest
from support.methods.time_series import time_series

from secagg.errors import UsageError
from secagg.experiments.simulated_graphs import (
    edge_weights,
    erdos_renyi_dag,
    linear_gaussian_rows,
    mlp_rows,
    split_rows,
)

RARE = 1e-6  # probability with which a correct simulator fails one of the tests of chance below


def generator(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def has_order(graph: np.ndarray) -> bool:
    """Whether powers of the adjacency vanish, which is acyclicity without a graph library."""
    return not np.linalg.matrix_power(graph.astype(int), len(graph)).any()


def covariance_agrees(rows: np.ndarray, expected: np.ndarray) -> bool:
    """Compare second moments about 0 with a Gaussian's, by Wald's test.

    For x ~ N(0, C) and whitened y = C^-1/2 x, the entries y_j y_k (j < k) have mean 0 and variance
    1, (y_j^2 - 1) / root 2 as well, all uncorrelated: n times their squared means is chi squared.
    """
    n, p = rows.shape
    y = np.linalg.solve(np.linalg.cholesky(expected), rows.T).T
    moments = y.T @ y / n - np.eye(p)
    moments[np.diag_indices(p)] /= np.sqrt(2)
    statistic = n * np.sum(moments[np.triu_indices(p)] ** 2)
    return statistic < chi2.isf(RARE, p * (p + 1) // 2)


@pytest.mark.parametrize(("d", "edges"), [(1, 0), (2, 1), (10, 10), (20, 20), (6, 15), (50, 50)])
def test_a_simulated_graph_has_its_edges_and_no_cycle(d: int, edges: int) -> None:
    for seed in range(20):
        graph = erdos_renyi_dag(d, edges, generator(seed))
        assert graph.shape == (d, d) and graph.dtype == np.bool_
        assert graph.sum() == edges
        assert has_order(graph)


def test_graphs_are_drawn_in_proportion_to_their_orders() -> None:
    """3 variables, 2 edges: 3 pairs of edges times 6 orders, counted by brute force."""
    weight: Counter[bytes] = Counter()
    for order in permutations(range(3)):
        for left_out in range(3):
            graph = np.zeros((3, 3), dtype=bool)
            for i, (a, b) in enumerate([(0, 1), (0, 2), (1, 2)]):
                graph[order[a], order[b]] = i != left_out
            weight[graph.tobytes()] += 1
    rng, draws = generator(1), 6000
    seen = Counter(erdos_renyi_dag(3, 2, rng).tobytes() for _ in range(draws))
    assert seen.keys() == weight.keys()
    expected = {g: draws * w / 18 for g, w in weight.items()}
    statistic = sum((seen[g] - e) ** 2 / e for g, e in expected.items())
    assert statistic < chi2.isf(RARE, len(weight) - 1)


@pytest.mark.parametrize(("d", "edges"), [(0, 0), (-1, 0), (3, 4), (3, -1), (1, 1)])
def test_impossible_graphs_are_refused(d: int, edges: int) -> None:
    with pytest.raises(UsageError):
        erdos_renyi_dag(d, edges, generator(0))


def test_weights_have_uniform_sizes_and_signs() -> None:
    graph = erdos_renyi_dag(100, 2000, generator(2))
    weights = edge_weights(graph, generator(3))
    assert np.array_equal(weights != 0, graph)
    size = np.abs(weights[graph])
    assert size.min() >= 0.5 and size.max() <= 2
    assert kstest(size, "uniform", (0.5, 1.5)).pvalue > RARE
    # 2000 signs: 5 standard deviations of root(2000) / 2, exceeded once in 2 million.
    assert abs(np.sum(weights > 0) - 1000) < 5 * np.sqrt(2000) / 2
    # Signs say nothing of sizes.
    assert kstest(size[weights[graph] > 0], "uniform", (0.5, 1.5)).pvalue > RARE


@pytest.mark.parametrize("seed", range(3))
def test_linear_records_have_the_models_covariance(seed: int) -> None:
    W = edge_weights(erdos_renyi_dag(8, 12, generator(seed)), generator(seed + 100))
    rows = linear_gaussian_rows(W, 20_000, generator(seed + 200))
    mixing = np.linalg.inv(np.eye(8) - W)
    assert covariance_agrees(rows, mixing.T @ mixing)  # x = (I - W)'^-1 e
    assert not covariance_agrees(rows, mixing @ mixing.T)  # of effects taken for causes


def test_linear_noise_is_standard_normal_to_rounding() -> None:
    W = edge_weights(erdos_renyi_dag(6, 8, generator(4)), generator(5))
    rows = linear_gaussian_rows(W, 500, generator(6))
    noise = rows - rows @ W
    # The generator's own numbers, up to the rounding of sums of 6 terms of this size.
    error = 6 * np.finfo(float).eps * np.abs(rows).max() * 2
    np.testing.assert_allclose(noise, generator(6).standard_normal((500, 6)), rtol=0, atol=error)


def test_perceptron_records_agree_with_a_hand_calculation() -> None:
    """The same generator, its draws in the documented order: noise, then inner and outer layer."""
    graph = np.array([[0, 0, 0], [1, 0, 1], [1, 0, 0]], dtype=bool)  # 1 -> 2 -> 0, 1 -> 0
    rows = mlp_rows(graph, 50, generator(8))
    rng = generator(8)
    expected = rng.standard_normal((50, 3))
    for j, parents in ((2, [1]), (0, [1, 2])):
        inner = rng.uniform(0.5, 2, (len(parents), 100)) * rng.choice(
            (-1.0, 1.0), (len(parents), 100)
        )
        outer = rng.uniform(0.5, 2, 100) * rng.choice((-1.0, 1.0), 100)
        for i in range(50):
            hidden = [1 / (1 + np.exp(-expected[i, parents] @ inner[:, u])) for u in range(100)]
            expected[i, j] += np.dot(hidden, outer)
    # sums of 100 terms of at most 2, added up in another order
    np.testing.assert_allclose(rows, expected, rtol=0, atol=100 * 200 * np.finfo(float).eps)


def test_records_of_a_cycle_are_refused() -> None:
    cycle = np.array([[0, 1], [1, 0]])
    with pytest.raises(UsageError):
        linear_gaussian_rows(0.5 * cycle, 3, generator(0))
    with pytest.raises(UsageError):
        mlp_rows(cycle.astype(bool), 3, generator(0))


def test_rows_are_split_in_order() -> None:
    rows = np.arange(60.0).reshape(30, 2)
    parts = split_rows(rows, 10)
    assert [len(part) for part in parts] == [3] * 10
    assert np.array_equal(np.concatenate(parts), rows)
    assert [part[:, 0].tolist() for part in split_rows(rows[:7], 3)] == [[0, 2], [4, 6], [8, 10]]


@pytest.mark.parametrize("sites", [0, -1, 5])
def test_no_site_is_left_without_rows(sites: int) -> None:
    with pytest.raises(UsageError):
        split_rows(np.zeros((4, 2)), sites)


def test_windows_have_the_models_covariance() -> None:
    """Residuals are white noise, independent of the past; and the past is stationary."""
    lags = 2
    model = time_series(4, lags, generator(lags), edges=4, lagged_edges=4)
    rows = model.rows(20_000, generator(10))
    assert rows.shape == (20_000, 4 * (1 + lags))
    present, *past = np.split(rows, 1 + lags, axis=1)
    noise = present - present @ model.W - sum(x @ A for x, A in zip(past, model.A, strict=True))
    assert covariance_agrees(noise, np.eye(4))
    # Moving-average form, summed until nothing is added: an oracle without Lyapunov's equation.
    F, G = model.companion()
    impulses = [G]
    while np.abs(impulses[-1]).max() > 1e-12:
        impulses.append(F @ impulses[-1])
    stationary = sum(psi @ psi.T for psi in impulses)
    assert covariance_agrees(np.hstack(past), stationary)
    # Stationary: the window without its oldest step is distributed as that without its newest.
    assert covariance_agrees(rows[:, : 4 * lags], stationary)
    assert not covariance_agrees(rows[:, : 4 * lags], 1.2 * stationary)
    joint = np.hstack([noise, np.hstack(past)])
    none = np.zeros((4, 4 * lags))
    assert covariance_agrees(joint, np.block([[np.eye(4), none], [none.T, stationary]]))
