"""Path norms against sums over all paths, and the penalties' slopes against differences."""

import itertools

import numpy as np
import pytest

from secagg.core.arrays import Array
from secagg.models.neural.ngm.path_norms import PathTerm, path_norms, path_penalty, path_slopes
from secagg.models.neural.parameters import Block, Blocks


def layers(*sizes: int) -> list[Array]:
    rng = np.random.default_rng(3)
    return [rng.normal(size=(a, b)) for b, a in itertools.pairwise(sizes)]


@pytest.mark.parametrize("sizes", [(3, 4), (3, 2, 4), (3, 4, 2, 3)])
def test_a_path_norm_is_the_sum_over_all_paths(sizes: tuple[int, ...]) -> None:
    weights = layers(*sizes)
    expected = np.zeros((sizes[-1], sizes[0]))
    for path in itertools.product(*map(range, sizes)):
        expected[path[-1], path[0]] += np.prod(
            [abs(w[b, a]) for w, (a, b) in zip(weights, itertools.pairwise(path), strict=True)]
        )
    np.testing.assert_allclose(path_norms(weights), expected, rtol=1e-12)


def test_a_slope_is_the_change_of_the_sum_for_a_larger_absolute_weight() -> None:
    weights, paths = layers(3, 4, 2, 3), np.array([[0, 1, 1], [0, 0, 1], [1, 0, 1.0]])
    for layer, slope in enumerate(path_slopes(weights, paths)):
        for index in np.ndindex(*slope.shape):
            longer = [w.copy() for w in weights]
            longer[layer][index] += np.sign(longer[layer][index])
            change = np.sum((path_norms(longer) - path_norms(weights)) * paths)
            assert change == pytest.approx(slope[index], abs=1e-12)  # it is linear in each


BLOCKS = Blocks((Block("one", (4, 3)), Block("bias", (4,)), Block("two", (3, 4))))


@pytest.mark.parametrize("logarithm", [False, True])
def test_a_penalty_has_its_value_and_gradient(logarithm: bool) -> None:
    rng = np.random.default_rng(4)
    theta = rng.normal(size=BLOCKS.size)
    terms = [PathTerm(2.0, np.eye(3), logarithm), PathTerm(0.5, np.ones((3, 3)), logarithm)]
    penalty = path_penalty(BLOCKS, ["one", "two"], terms)
    value, gradient = penalty(theta, 100.0)
    arrays = BLOCKS.split(theta)
    norms = np.abs(arrays["two"]) @ np.abs(arrays["one"])
    own, whole = np.trace(norms), np.sum(norms)
    expected = 2 * np.log(1 + own) + 0.5 * np.log(1 + whole) if logarithm else 2 * own + whole / 2
    assert value == pytest.approx(expected, rel=1e-12)
    step = 1e-6
    for i in range(BLOCKS.size):
        move = step * (np.arange(BLOCKS.size) == i)
        change = penalty(theta + move, 100.0)[0] - penalty(theta - move, 100.0)[0]
        assert change / (2 * step) == pytest.approx(gradient[i], abs=1e-6)
    np.testing.assert_array_equal(BLOCKS.split(gradient)["bias"], 0)


def test_without_paths_value_and_gradient_are_zero() -> None:
    """Also with the logarithm, which the paper writes without the 1."""
    terms = [PathTerm(5.0, np.eye(3), logarithm=True)]
    value, gradient = path_penalty(BLOCKS, ["one", "two"], terms)(np.zeros(BLOCKS.size), 1.0)
    assert value == 0
    np.testing.assert_array_equal(gradient, 0)
