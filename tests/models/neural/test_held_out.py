"""Cross-validation of a penalty: which records are left out, where fits begin, what is chosen."""

from typing import Any

import numpy as np
import pytest
from support.methods.ngm_layouts import mixed_layout, mixed_records

from secagg.core.arrays import Array
from secagg.models.neural.gradients import record_losses
from secagg.models.neural.held_out import FOLDS, HeldOut, held_out_losses
from secagg.models.neural.ngm.masked_network import MaskedNetwork

pytestmark = pytest.mark.neural
RECORDS = mixed_records(23)
NETWORK = MaskedNetwork(
    mixed_layout(), (), ~np.eye(5, dtype=np.bool_), np.zeros(6), np.full(6, 2.0)
)


def test_each_record_is_left_out_once_and_its_loss_is_that_of_the_others_fit() -> None:
    calls: list[tuple[Array, Array, float]] = []
    start = NETWORK.initial(0)

    def fit(before: Array, records: Array, strength: float) -> Array:
        calls.append((before, records, strength))
        return start + 0.01 * strength * np.sum(records)  # differs for each fold

    found = held_out_losses(NETWORK, start, RECORDS, (2.0, 1.0), fit, np.random.default_rng(0))
    assert len(calls) == 2 * FOLDS and [c[2] for c in calls[:2]] == [2.0, 1.0]
    np.testing.assert_array_equal(calls[2][0], start)  # each fold begins anew
    seen = np.zeros(len(RECORDS))
    for (_, rest, _), (before, again, strength) in zip(calls[::2], calls[1::2], strict=True):
        np.testing.assert_array_equal(rest, again)
        np.testing.assert_array_equal(before, start + 0.02 * np.sum(rest))  # the last fit's end
        left_out = [i for i, row in enumerate(RECORDS) if not np.any(np.all(rest == row, axis=1))]
        assert len(left_out) + len(rest) == len(RECORDS) and len(left_out) in (4, 5)
        seen[left_out] += 1
        theta = start + 0.01 * strength * np.sum(rest)
        expected = record_losses(NETWORK, theta, RECORDS[left_out])
        np.testing.assert_allclose(found.losses[1, left_out], expected, rtol=1e-12)
    np.testing.assert_array_equal(seen, 1)


def test_fewer_records_than_folds_are_left_out_one_by_one() -> None:
    sizes: list[Any] = []

    def fit(before: Array, records: Array, strength: float) -> Array:
        sizes.append(len(records))
        return before

    few = RECORDS[:3]
    held_out_losses(NETWORK, NETWORK.initial(0), few, (1.0,), fit, np.random.default_rng(0))
    assert sizes == [2, 2, 2]


def test_the_least_mean_loss_is_chosen_and_its_gain_is_paired() -> None:
    losses = np.array([[1.0, 2.0, 6.0], [1.0, 1.0, 4.0], [2.0, 1.0, 3.0]])
    found = HeldOut((9.0, 3.0, 1.0), losses)
    assert found.chosen == 3.0  # of two equal ones, the stronger
    gain, error = found.gain()
    assert gain == pytest.approx(1.0)
    assert error == pytest.approx(np.std([0, 1, 2], ddof=1) / np.sqrt(3))
