from itertools import product

import networkx as nx
import numpy as np
import pytest

from secagg.models.graphs.acyclicity import (
    acyclic_edges,
    acyclicity,
    break_ties,
    graph_over_threshold,
    is_acyclic,
    minimise_sparse,
)

RNG = np.random.default_rng(5)


def test_h_agrees_with_the_eigenvalues() -> None:
    W = RNG.normal(size=(6, 6))
    eigenvalues = np.linalg.eigvals(W * W)
    expected = float(np.sum(np.exp(eigenvalues)).real) - 6
    # Both sides are sums of terms up to exp(10): relative rounding with room for conditioning.
    assert acyclicity(W)[0] == pytest.approx(expected, rel=1e-10)


def test_h_is_zero_exactly_for_dags() -> None:
    # All 64 directed graphs on three variables, weights 1: at a DAG exp is a finite sum of integer
    # powers, so h is zero up to rounding; any cycle adds at least 3/3! (three variables).
    for bits in product([0.0, 1.0], repeat=6):
        W = np.zeros((3, 3))
        W[~np.eye(3, dtype=bool)] = bits
        h = acyclicity(W)[0]
        dag = nx.is_directed_acyclic_graph(nx.from_numpy_array(W, create_using=nx.DiGraph))
        assert is_acyclic(W > 0) == dag
        assert abs(h) < 1e-12 if dag else h > 0.4


def test_the_gradient_of_h_agrees_with_differences(numerical_gradient) -> None:
    W = 0.5 * RNG.normal(size=(5, 5))
    numerical, error = numerical_gradient(lambda V: acyclicity(V)[0], W)
    np.testing.assert_allclose(acyclicity(W)[1], numerical, rtol=0, atol=error)


def test_overflow_gives_infinity_without_warnings() -> None:
    h, gradient = acyclicity(np.full((3, 3), 40.0))
    assert not np.isfinite(h)
    assert not np.all(np.isfinite(gradient))


def quadratic(A: np.ndarray):
    return lambda W: (0.5 * float(np.sum((W - A) ** 2)), W - A)


def test_minimiser_is_the_soft_threshold() -> None:
    A = RNG.normal(size=(5, 5))
    fit = minimise_sparse(quadratic(A), np.zeros((5, 5)), 0.4)
    expected = np.sign(A) * np.maximum(np.abs(A) - 0.4, 0)
    np.fill_diagonal(expected, 0)
    least = quadratic(A)(expected)[0] + 0.4 * np.abs(expected).sum()
    # It stops at a slope of 1e-5 in each of 40 numbers, or at a relative decrease of 2.2e-9; as the
    # objective has curvature 1, the distance is at most the root of twice what it is above least.
    assert fit.finite
    assert least <= fit.value <= least * (1 + 1e-8)
    np.testing.assert_allclose(fit.x, expected, rtol=0, atol=np.sqrt(2e-8 * least))


def test_break_ties_is_small_fixed_and_keeps_zeros() -> None:
    W = RNG.normal(size=(4, 4))
    W[0, 1] = 0
    moved = break_ties(W)
    assert moved[0, 1] == 0
    assert np.max(np.abs(moved - W) / np.maximum(np.abs(W), 1e-300)) <= 1e-3 * (1 + 1e-12)
    np.testing.assert_array_equal(moved, break_ties(W))
    symmetric = break_ties(np.ones((4, 4)))
    assert np.all((symmetric != symmetric.T) | np.eye(4, dtype=bool))


def test_threshold_rises_to_the_weakest_edge_that_breaks_all_cycles() -> None:
    W = np.zeros((3, 3))
    W[0, 1], W[1, 2], W[2, 0], W[0, 2] = 2.0, -0.5, 0.7, 0.4
    edges, level = acyclic_edges(W, 0.3)
    assert level == 0.5  # 0 -> 2 -> 0 ends with 0.4, 0 -> 1 -> 2 -> 0 with 0.5
    np.testing.assert_array_equal(edges, np.abs(W) > 0.5)
    assert acyclic_edges(np.triu(W), 0.3)[1] == 0.3
    assert graph_over_threshold(W, 0.3, None)[2]
    assert not graph_over_threshold(np.triu(W), 0.3, None)[2]


def test_threshold_levels_agree_with_removing_edges_one_by_one() -> None:
    W = RNG.normal(size=(7, 7))
    np.fill_diagonal(W, 0)
    left = np.where(np.abs(W) > 0.1, W, 0)
    while not is_acyclic(left != 0):
        left[np.abs(left) == np.min(np.abs(left[left != 0]))] = 0
    np.testing.assert_array_equal(acyclic_edges(W, 0.1)[0], left != 0)


def test_cycles_of_a_failed_fit_are_not_removed() -> None:
    edges, level, notes = graph_over_threshold(np.ones((2, 2)) - np.eye(2), 0.3, "it failed")
    assert (edges.sum(), level) == (2, 0.3) and "it failed" in notes[0]
