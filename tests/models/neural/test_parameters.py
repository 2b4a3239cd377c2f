import numpy as np
import pytest

from secagg.errors import InternalError
from secagg.models.neural.parameters import Block, Blocks

BLOCKS = Blocks(
    (Block("weight", (2, 3)), Block("bias", ()), Block("none", (0, 4)), Block("b", (2,)))
)


def test_split_and_join_are_inverse() -> None:
    vector = np.arange(9.0)
    parts = BLOCKS.split(vector)
    assert BLOCKS.size == 9
    np.testing.assert_array_equal(parts["weight"], [[0, 1, 2], [3, 4, 5]])
    assert parts["bias"] == 6 and parts["none"].shape == (0, 4)
    np.testing.assert_array_equal(parts["b"], [7, 8])
    np.testing.assert_array_equal(BLOCKS.join(parts), vector)


def test_a_wrong_shape_is_our_error() -> None:
    parts = BLOCKS.split(np.arange(9.0)) | {"weight": np.zeros((3, 2))}
    with pytest.raises(InternalError):
        BLOCKS.join(parts)


def test_a_network_without_parameters() -> None:
    assert Blocks(()).join({}).shape == (0,)
