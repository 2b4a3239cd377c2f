import math

import numpy as np
import pytest

from secagg.models.graphs import mlp
from secagg.models.graphs.mlp import Networks, squared_loss
from secagg.models.graphs.proximal_newton import graph_constraint

# By torch 2.13.0 in double precision, d = 3, m = 2, n = 10, 4 records, zero diagonal:
# theta = sin(1, ..., size), X = 2 cos(1, 4, 9, ..., 144) row by row, A scattered into (d, d, m),
# loss = ((X - (sigmoid(einsum("ni,ijh->njh", X, A) + b) * C).sum(-1) - c) ** 2).sum() / (2 n),
# h = trace(matrix_exp((A * A).sum(-1))) - d
TORCH_LOSS, TORCH_H = 1.4124859215438155, 6.06140441440615
EPS = np.finfo(float).eps


def golden() -> tuple[Networks, np.ndarray, np.ndarray]:
    networks = Networks(3, 2)
    X = 2 * np.cos(np.arange(1.0, 13) ** 2).reshape(4, 3)
    return networks, np.sin(np.arange(1.0, networks.size + 1)), X


def dense(networks: Networks, theta: np.ndarray) -> np.ndarray:
    """A as (d, d, m), entry by entry."""
    entries = iter(theta[: networks.inputs].reshape(-1, networks.m))
    A = np.zeros((networks.d, networks.d, networks.m))
    for i, j in np.ndindex(networks.d, networks.d):
        if i != j or not networks.zero_diagonal:
            A[i, j] = next(entries)
    return A


def test_loss_and_gradient_agree_with_torch() -> None:
    networks, theta, X = golden()
    # Sums of fewer than 100 terms below 10, in another order; exp and tanh to a few units.
    assert squared_loss(networks, X, 10)(theta)[0] == pytest.approx(TORCH_LOSS, rel=100 * EPS)
    # torch's exponential of a matrix of norm 4 and ours, with entries below e^4.
    assert graph_constraint(networks, theta)[0] == pytest.approx(TORCH_H, rel=100 * EPS)


def test_a_free_diagonal_of_zeros_changes_nothing() -> None:
    networks, theta, X = golden()
    free = Networks(3, 2, zero_diagonal=False)
    wider = np.concatenate([dense(networks, theta).ravel(), theta[networks.inputs :]])
    value, _ = squared_loss(free, X, 10)(wider)
    assert value == pytest.approx(squared_loss(networks, X, 10)(theta)[0], rel=100 * EPS)
    np.testing.assert_array_equal(free.squares(wider), networks.squares(theta))


@pytest.mark.parametrize("zero_diagonal", [True, False])
def test_the_gradient_of_the_loss_agrees_with_differences(
    zero_diagonal: bool, numerical_gradient
) -> None:
    networks = Networks(4, 3, zero_diagonal=zero_diagonal)
    rng = np.random.default_rng(2)
    theta, X = rng.normal(size=networks.size), rng.normal(size=(7, 4))
    loss = squared_loss(networks, X, 12)
    numerical, error = numerical_gradient(lambda t: loss(t)[0], theta)
    np.testing.assert_allclose(loss(theta)[1], numerical, rtol=0, atol=error)


def test_no_network_depends_on_its_own_variable() -> None:
    networks = Networks(4, 3)
    rng = np.random.default_rng(4)
    theta, x = rng.normal(size=networks.size), rng.normal(size=(1, 4))
    assert np.all(np.diagonal(networks.adjacency(theta)) == 0)
    _, gradient = squared_loss(networks, x, 1)(theta)
    residual = networks.split(gradient)[3]  # its slope in c is f(x) - x
    for j in range(4):
        moved = x + 3.0 * (np.arange(4) == j)
        _, there = squared_loss(networks, moved, 1)(theta)
        # f_j(x) stays, x_j grows by 3
        assert networks.split(there)[3][j] == pytest.approx(residual[j] - 3, abs=50 * EPS)
    free = Networks(4, 3, zero_diagonal=False)
    assert np.all(np.diagonal(free.adjacency(rng.normal(size=free.size))) > 0)


@pytest.mark.parametrize("block", [None, 5 * 6])  # 5 records at once
def test_losses_of_sites_and_blocks_add_up(monkeypatch, block: int | None) -> None:
    networks = Networks(3, 2)
    rng = np.random.default_rng(6)
    theta, X = rng.normal(size=networks.size), rng.normal(size=(23, 3))
    value, gradient = squared_loss(networks, X, 23)(theta)
    if block:
        monkeypatch.setattr(mlp, "_BLOCK", block)
    parts = [squared_loss(networks, rows, 23)(theta) for rows in (X[:0], X[:1], X[1:])]
    assert parts[0][0] == 0 and np.all(parts[0][1] == 0)
    assert sum(value for value, _ in parts) == pytest.approx(value, rel=100 * EPS)
    np.testing.assert_allclose(sum(g for _, g in parts), gradient, rtol=0, atol=100 * EPS)


def test_saturated_units_do_not_overflow() -> None:
    networks = Networks(2, 2)
    theta = np.full(networks.size, 1e6)
    value, gradient = squared_loss(networks, np.array([[1e3, -1e3]]), 1)(theta)
    # Network 0 reads -1e3 and its units are 0; network 1 reads 1e3, and they are 1.
    assert value == pytest.approx(((1e6 - 1e3) ** 2 + (3e6 + 1e3) ** 2) / 2, rel=10 * EPS)
    assert np.all(np.isfinite(gradient))


def test_penalty_and_ridge_are_correct_entry_by_entry() -> None:
    networks = Networks(3, 2, sparsity=0.7)
    for weights, values in (
        (networks.penalty, (0.7, 0, 0, 0)),
        (networks.ridge(0.2), (0.2, 0, 0.2, 0)),
    ):
        assert [set(part.ravel()) for part in networks.split(weights)] == [{v} for v in values]


def test_initial_networks_have_no_edges_and_no_equal_units() -> None:
    networks = Networks(5, 4)
    theta = networks.initial(np.random.default_rng(0))
    A, b, C, _ = networks.split(theta)
    assert not A.any()
    assert len(np.unique(b)) == len(np.unique(C)) == C.size
    assert np.max(np.abs(C)) <= 1 / 2
    np.testing.assert_array_equal(theta, networks.initial(np.random.default_rng(0)))
    drawn = networks.initial(np.random.default_rng(0), random_inputs=True)
    np.testing.assert_array_equal(drawn[networks.inputs :], theta[networks.inputs :])
    inputs = networks.split(drawn)[0]
    assert len(np.unique(inputs)) == inputs.size
    assert 0 < np.max(np.abs(inputs)) <= 1 / math.sqrt(5)
