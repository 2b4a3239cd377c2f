"""Proximal steps on path norms: one step against the formula, and what they converge to."""

import numpy as np
import pytest
from support.methods.ngm_layouts import mixed_layout

from secagg.models.neural.ngm.path_norms import path_norms
from secagg.models.neural.ngm.revealing.proximal import proximal_step
from secagg.models.neural.ngm.shared_network import SharedNetwork
from secagg.models.neural.optimisers import adam_lengths, advance, begin

LAYOUT = mixed_layout({"x": 1, "y": 1, "z": 1})


def network(hidden: tuple[int, ...]) -> SharedNetwork:
    return SharedNetwork(LAYOUT, hidden, np.zeros(3), np.ones(3))


def test_without_a_hidden_layer_it_is_the_lassos_soft_threshold() -> None:
    linear = network(())
    point = np.arange(linear.blocks.size) - 5.5
    paths, lengths = np.arange(9.0).reshape(3, 3), np.linspace(0.1, 1, linear.blocks.size)
    found = linear.blocks.split(proximal_step(linear, point * 0, point, lengths, paths))
    weights, moved = linear.blocks.split(point)["layer_1.weight"], lengths[:9].reshape(3, 3) * paths
    expected = np.where(np.abs(weights) > moved, weights - np.sign(weights) * moved, 0)
    np.testing.assert_allclose(found["layer_1.weight"], expected, atol=1e-12)
    assert 0 < np.sum(expected == 0) < 9
    for name in ("layer_1.bias", "log_sd"):
        np.testing.assert_array_equal(found[name], linear.blocks.split(point)[name])


def test_each_layer_is_moved_by_the_other_layers_weights_before_the_step() -> None:
    deep = network((2,))
    rng = np.random.default_rng(0)
    before, point = (rng.normal(size=deep.blocks.size) for _ in range(2))
    lengths, paths = np.full(deep.blocks.size, 0.1), np.eye(3)
    found = deep.blocks.split(proximal_step(deep, before, point, lengths, paths))
    one, two = (np.abs(w) for w in deep.weights(before))
    for name, slope in (("layer_1.weight", two.T), ("layer_2.weight", one.T)):
        was = deep.blocks.split(point)[name]
        expected = np.sign(was) * np.maximum(np.abs(was) - 0.1 * slope, 0)
        np.testing.assert_allclose(found[name], expected, atol=1e-12)


def test_adams_lengths_are_those_of_its_step() -> None:
    state = begin("adam", np.zeros(3))
    for gradient in (np.array([1.0, -2.0, 0.5]), np.array([0.5, 3.0, 0.5])):
        before = state["point"]
        state = advance("adam", state, 0.0, gradient, 0.01, 0.0)
    unbiased = state["mean"] / (1 - 0.9**2)
    moved = before - state["point"]
    np.testing.assert_allclose(adam_lengths(state, 0.01) * unbiased, moved, rtol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_a_penalty_on_self_paths_removes_them_and_no_others(seed: int) -> None:
    """Without a loss: each hidden unit drops, for each column, the lighter of its two weights."""
    deep = network((6,))
    theta = deep.initial(seed)
    one, two = (np.abs(w) for w in deep.weights(theta))
    lengths = np.full(deep.blocks.size, 5e-3)
    for _ in range(6000):
        theta = proximal_step(deep, theta, theta, lengths, np.eye(3))
    found = [np.abs(w) for w in deep.weights(theta)]
    assert np.all(np.diag(path_norms(found)) == 0)
    reads = one > two.T
    expected = np.sqrt(np.abs(one**2 - two.T**2))
    np.testing.assert_allclose(found[0], np.where(reads, expected, 0), atol=0.05)
    np.testing.assert_allclose(found[1].T, np.where(reads, 0, expected), atol=0.05)
