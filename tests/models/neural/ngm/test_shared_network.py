"""The paper's network: its outputs, slopes against autograd, and which paths count as forbidden."""

import numpy as np
import pytest
from support.methods.ngm_layouts import mixed_layout, mixed_records

from secagg.core.arrays import Array
from secagg.models.neural.gradients import gradient_sum
from secagg.models.neural.ngm.shared_network import SharedNetwork, forbidden_paths, self_paths
from secagg.models.neural.parameters import tensors

pytestmark = pytest.mark.neural
LAYOUT = mixed_layout()


def network(hidden: tuple[int, ...] = (7, 5)) -> SharedNetwork:
    return SharedNetwork(LAYOUT, hidden, np.full(6, 0.1), np.linspace(1, 2, 6))


def theta_of(shared: SharedNetwork) -> Array:
    return shared.initial(1) + 0.1 * np.random.default_rng(2).normal(size=shared.blocks.size)


def test_outputs_are_those_of_the_formula() -> None:
    import torch

    shared, values = network(), mixed_records(9)
    theta = theta_of(shared)
    arrays = shared.blocks.split(theta)
    z = (values - 0.1) * np.linspace(1, 2, 6)
    one = np.logaddexp(4 * (z @ arrays["layer_1.weight"].T + arrays["layer_1.bias"]), 0) / 4
    two = np.logaddexp(4 * (one @ arrays["layer_2.weight"].T + arrays["layer_2.bias"]), 0) / 4
    expected = two @ arrays["layer_3.weight"].T + arrays["layer_3.bias"]
    found_z = shared.standardised(torch.tensor(values))
    found = shared.outputs(tensors(shared.blocks, torch.tensor(theta)), found_z)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, atol=1e-13)


def test_the_gradient_of_the_loss_is_that_of_differences() -> None:
    shared, values, step = network((3,)), mixed_records(5), 1e-6
    theta = theta_of(shared)
    _, gradient = gradient_sum(shared, theta, values)
    for i in range(0, shared.blocks.size, 3):
        move = step * (np.arange(shared.blocks.size) == i)
        up, down = (gradient_sum(shared, theta + s * move, values)[0] for s in (1, -1))
        assert (up - down) / (2 * step) == pytest.approx(gradient[i], abs=1e-6)


@pytest.mark.parametrize("hidden", [(), (7,), (7, 5)])
def test_slopes_are_those_of_autograd(hidden: tuple[int, ...]) -> None:
    import torch

    shared = network(hidden)
    theta = theta_of(shared)
    points = np.random.default_rng(5).normal(size=(4, 6))
    parameters = tensors(shared.blocks, torch.tensor(theta))
    for point, slope in zip(points, shared.slopes(theta, points), strict=True):
        expected = torch.autograd.functional.jacobian(
            lambda z: shared.outputs(parameters, z[None])[0], torch.tensor(point)
        )
        np.testing.assert_allclose(slope, expected.numpy(), atol=1e-12)


def test_derivatives_are_means_over_public_points() -> None:
    """Of a linear network, the weights themselves; equal seeds give the same points."""
    linear, deep = network(()), network()
    theta = theta_of(linear)
    weights = linear.blocks.split(theta)["layer_1.weight"]
    np.testing.assert_allclose(linear.derivatives(theta, 0), np.abs(weights), rtol=1e-12)
    theta = theta_of(deep)
    points = np.random.default_rng(3).standard_normal((200, 6))
    expected = np.mean(np.abs(deep.slopes(theta, points)), axis=0)
    np.testing.assert_allclose(deep.derivatives(theta, 3), expected, rtol=1e-12)


def test_self_paths_and_siblings_are_forbidden() -> None:
    """All variables of a column belong together: x, y, two indicators of colour, case, z."""
    graph = np.zeros((5, 5), dtype=bool)
    graph[0, 2] = graph[2, 0] = graph[1, 3] = graph[3, 1] = True
    expected = np.array(
        [
            [1, 1, 0, 0, 1, 1],  # x may read colour
            [1, 1, 1, 1, 0, 1],  # y may read case
            [0, 1, 1, 1, 1, 1],
            [0, 1, 1, 1, 1, 1],
            [1, 0, 1, 1, 1, 1],
            [1, 1, 1, 1, 1, 1],
        ]
    )
    np.testing.assert_array_equal(forbidden_paths(LAYOUT, graph), expected)
    own = np.eye(6)
    own[2, 3] = own[3, 2] = 1
    np.testing.assert_array_equal(self_paths(LAYOUT), own)
