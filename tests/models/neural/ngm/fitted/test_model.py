"""A fitted model in numpy: the outputs of the network, and values in and out."""

from typing import Any

import numpy as np
import pytest
from support.methods.fitted_ngms import BOUND, MIXED, mixed_arrays, model_of, public
from support.methods.ngm_layouts import COLUMNS, mixed_layout, mixed_records, random_graph

from secagg.errors import UsageError
from secagg.models.neural.ngm.fitted.model import FittedNgm
from secagg.models.neural.ngm.masked_network import MaskedNetwork


@pytest.mark.neural
@pytest.mark.parametrize("hidden", [(), (4,), (4, 3)])
def test_outputs_are_those_of_the_masked_network(hidden: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    layout, rng = mixed_layout(), np.random.default_rng(3)
    records = mixed_records(50)
    graph = random_graph(5, rng)
    centre, scale = records.mean(axis=0), 1 / records.std(axis=0)
    network = MaskedNetwork(layout, hidden, graph, centre, scale)
    blocks = network.blocks.split(rng.standard_normal(network.blocks.size))
    facts = public({name: 0 if v == 1 else v + 1 for name, v in COLUMNS.items()} | {"case": 2})
    arrays = blocks | {"graph": graph, "centre": centre, "scale": scale}
    z = network.standardised(torch.tensor(records))
    expected = network.outputs({name: torch.tensor(b) for name, b in blocks.items()}, z)
    found = FittedNgm.of(layout, facts, arrays).outputs(z.numpy().T)
    np.testing.assert_allclose(found.T, expected.numpy(), rtol=1e-12, atol=1e-12)


def test_values_come_back_as_they_went_in_but_for_the_bounds() -> None:
    arrays = mixed_arrays()
    arrays["centre"], arrays["scale"] = np.array([0.1, -0.4, 0.2, 0]), np.array([3.0, 2, 1.5, 4])
    model = model_of(MIXED, arrays)
    values = np.array([[1.5, 2, -3.0], [-2 * BOUND, 0, 2 * BOUND], [0.0, 1, 4.0]])
    states = model.states_of(values)
    np.testing.assert_allclose(
        model.values_of(states), np.clip(values, [-BOUND, 0, -BOUND], BOUND), atol=1e-14
    )
    np.testing.assert_allclose(states.z[1:3, 0], [(-1 + 0.4) * 2, (1 - 0.2) * 1.5], rtol=1e-15)


def test_missing_values_are_missing_in_all_variables_of_their_column() -> None:
    model = model_of(MIXED, mixed_arrays())
    missing = np.isnan(model.states_of(np.array([[np.nan, 1, 0], [1, np.nan, 0]])).z)
    np.testing.assert_array_equal(missing, np.array([[1, 0], [0, 1], [0, 1], [0, 0]], dtype=bool))


def test_a_column_that_was_constant_keeps_its_value() -> None:
    arrays = mixed_arrays()
    arrays["centre"][0], arrays["scale"][0] = 0.3, 0.0
    model = model_of(MIXED, arrays)
    states = model.states_of(np.array([[7.0, 1, 0]]))
    assert states.z[0, 0] == 0 and model.values_of(states)[0, 0] == pytest.approx(0.3 * BOUND)


def test_pooled_means_are_the_levels_probabilities() -> None:
    arrays = mixed_arrays()
    arrays["centre"][1:3] = [-0.4, -0.6]  # 2 * share - 1
    np.testing.assert_allclose(model_of(MIXED, arrays).marginals[1], [0.5, 0.3, 0.2])
    np.testing.assert_allclose(model_of(MIXED, mixed_arrays()).marginals[1], np.full(3, 1 / 3))


@pytest.mark.parametrize(
    "wrong",
    [
        {"graph": np.array([[0, 1, 0], [0, 0, 1], [0, 1, 0]])},
        {"graph": np.ones((3, 3))},
        {"linear.weight": np.zeros((4, 3))},
        {"log_sd": np.array([np.nan, 0])},
        {"hidden_1.weight": np.zeros(3)},
        {"hidden_1.weight": np.zeros((3, 5, 4)), "hidden_1.bias": np.zeros((3, 5))},
        {"residuals": np.zeros((2, 3, 4))},
    ],
)
def test_arrays_of_another_model_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        model_of(MIXED, mixed_arrays() | wrong)
    assert caught.value.where == "the model"
