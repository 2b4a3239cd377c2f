"""Gradients against finite differences, and what one record can change under noise."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from secagg.core.arrays import Array
from secagg.models.neural.gradients import clipped_gradient_sum, gradient_sum
from secagg.models.neural.module_learner import ModuleLearner, module_learner
from secagg.models.neural.parameters import Block, Blocks

pytestmark = pytest.mark.neural
MLP = "secagg.models.neural.built_in:mlp"
BITS = 20


def learner(loss: Any = "squared_error", hidden: str = "[4]") -> ModuleLearner:
    outcome = (2, 3) if loss == "cross_entropy" else (2,)
    return module_learner(MLP, f'{{"hidden":{hidden}}}'.encode(), (0, 1), outcome, loss)


def records(n: int, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    values = rng.uniform(-1, 1, (n, 4))
    level = rng.integers(0, 3, n)
    values[:, 2:] = np.where(level[:, None] == [1, 2], 1.0, -1.0)
    return values


@pytest.mark.parametrize("loss", ["squared_error", "absolute_error", "cross_entropy"])
def test_the_gradient_is_that_of_the_loss(loss: str) -> None:
    model, values = learner(loss), records(7)
    theta = model.initial(3) + 0.1
    _, gradient = gradient_sum(model, theta, values)
    step = 1e-5
    for j in range(len(theta)):
        ahead, behind = (
            gradient_sum(model, theta + s * step * np.eye(len(theta))[j], values)[0]
            for s in (1, -1)
        )
        # central differences err by step^2 times third derivatives of size 1, and by rounding
        assert gradient[j] == pytest.approx((ahead - behind) / (2 * step), abs=1e-8)


def test_the_sum_does_not_depend_on_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    model, values = learner(), records(23)
    theta = model.initial(1)
    whole = gradient_sum(model, theta, values)
    monkeypatch.setattr("secagg.models.neural.gradients._CHUNK", 5)
    parts = gradient_sum(model, theta, values)
    assert parts[0] == pytest.approx(whole[0], rel=1e-12)
    np.testing.assert_allclose(parts[1], whole[1], rtol=1e-10, atol=1e-12)


def test_without_records_there_is_no_gradient() -> None:
    model = learner()
    loss, gradient = gradient_sum(model, model.initial(1), records(0))
    assert loss == 0 and not gradient.any()
    assert not clipped_gradient_sum(model, model.initial(1), records(0), 1.0, BITS).any()


def test_a_wide_clip_gives_the_sum_of_gradients_up_to_the_grid() -> None:
    model, values = learner(), records(9)
    theta = model.initial(1)
    clipped = clipped_gradient_sum(model, theta, values, 1e6, BITS)
    np.testing.assert_allclose(clipped, gradient_sum(model, theta, values)[1], atol=9 * 2.0**-BITS)


@pytest.mark.parametrize("loss", ["squared_error", "cross_entropy"])
def test_one_record_moves_the_sum_by_at_most_the_clip(loss: str) -> None:
    """Exactly, in integers; by less than twice the clip if it is replaced by another."""
    clip = 0.05  # shorter than most gradients
    model, values = learner(loss), 3 * records(12, seed=4)
    theta = 4 * model.initial(2)
    whole = clipped_gradient_sum(model, theta, values, clip, BITS)
    without = [
        clipped_gradient_sum(model, theta, np.delete(values, i, axis=0), clip, BITS)
        for i in range(len(values))
    ]
    moves = np.array([np.linalg.norm(whole - part) for part in without])
    assert np.all(moves <= clip) and moves.max() > 0.99 * clip
    for one, other in itertools.combinations(without, 2):
        assert np.linalg.norm(one - other) <= 2 * clip


def test_a_record_has_the_same_part_whatever_the_others_are() -> None:
    """Bit for bit: in a batch, rounding could depend on the other records."""
    model, values = learner(hidden="[17, 5]"), records(40, seed=5)
    theta = model.initial(2)
    parts = [clipped_gradient_sum(model, theta, row[None], 1.0, 45) for row in values]
    for size in (2, 3, 31, 40):
        whole = clipped_gradient_sum(model, theta, values[:size], 1.0, 45)
        np.testing.assert_array_equal(whole, np.sum(parts[:size], axis=0))


@dataclass(frozen=True)
class Pole:
    """A loss that is infinite for records at 0, and NaN for negative ones."""

    blocks: Blocks = Blocks((Block("w", (1,)),))  # noqa: RUF009  # immutable

    def initial(self, seed: int) -> Array:
        return np.ones(1)

    def losses(self, parameters: Mapping[str, Any], records: Any) -> Any:
        return (parameters["w"] ** records[:, 0].sqrt()).log() / records[:, 0]


def test_a_gradient_that_is_not_finite_counts_as_zero() -> None:
    values = np.array([[4.0], [0.0], [-1.0], [4.0]])
    alone = clipped_gradient_sum(Pole(), np.ones(1), values[:1], 10.0, BITS)
    assert alone.any()
    total = clipped_gradient_sum(Pole(), np.ones(1), values, 10.0, BITS)
    np.testing.assert_array_equal(total, 2 * alone)
