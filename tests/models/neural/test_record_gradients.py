"""Only slots in which nothing differs in any bit are used."""

import numpy as np
import pytest

from secagg.core.arrays import Array
from secagg.models.neural import record_gradients as module
from secagg.models.neural.module_learner import ModuleLearner, module_learner
from secagg.models.neural.record_gradients import equal_slots, record_gradients


def squares(records: Array) -> Array:
    return records**2 + np.sin(records)


def test_all_slots_of_an_elementwise_function_are_equal() -> None:
    np.testing.assert_array_equal(equal_slots(squares, 5, 8), np.arange(8))


def test_slots_that_differ_in_the_last_bit_are_not_used() -> None:
    def rounded(records: Array) -> Array:
        found = squares(records)
        found[1::2, 3] = np.nextafter(found[1::2, 3], np.inf)
        return found

    np.testing.assert_array_equal(equal_slots(rounded, 5, 8), [0, 2, 4, 6])


def test_a_slot_that_depends_on_the_others_is_not_used() -> None:
    def coupled(records: Array) -> Array:
        found = squares(records)
        found[2] += 1e-18 + 1e-15 * records[5]
        return found

    assert 2 not in equal_slots(coupled, 5, 8)


@pytest.fixture
def network() -> ModuleLearner:
    module_learner.cache_clear()  # slots are found anew
    settings = b'{"hidden":[6]}'
    return module_learner(
        "secagg.models.neural.built_in:mlp", settings, (0, 1), (2,), "squared_error"
    )


@pytest.mark.neural
@pytest.mark.parametrize("way", ["batches", "large network", "cannot be vectorised"])
def test_every_way_gives_the_same_gradients_up_to_rounding(
    network: ModuleLearner, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    theta, values = network.initial(1), np.random.default_rng(2).uniform(-1, 1, (71, 3))
    expected = np.vstack([module._single(network, theta)(row[None]) for row in values])
    if way == "large network":
        monkeypatch.setattr(module, "_MAX_NUMBERS", 3)
    if way == "cannot be vectorised":

        def refuse(*_: object) -> None:
            raise RuntimeError("vmap: in-place")

        monkeypatch.setattr(module, "_vectorised", refuse)
    found = np.vstack(list(record_gradients(network, theta, values)))
    assert found.shape == (71, len(theta))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    assert (len(module._found[network][1]) > 1) == (way == "batches")


@pytest.mark.neural
def test_without_records_nothing_is_computed(network: ModuleLearner) -> None:
    assert not list(record_gradients(network, network.initial(1), np.zeros((0, 3))))


@pytest.mark.neural
@pytest.mark.parametrize("first", ["random", "zeros"])
@pytest.mark.parametrize("hidden", ["[20]", "[7, 5]", "[]", "[128, 130]"])  # the last: few slots
def test_a_gradient_has_the_same_bits_whatever_the_other_records_are(
    hidden: str, first: str
) -> None:
    """Without the choice of slots this fails: odd ones differ from even ones.

    first: the coordinator's first parameters. At zeros all slots look equal
    """
    module_learner.cache_clear()
    settings = f'{{"hidden":{hidden}}}'.encode()
    path = "secagg.models.neural.built_in:mlp"
    network = module_learner(path, settings, (0, 1), (2,), "squared_error")
    theta, values = network.initial(1), np.random.default_rng(2).uniform(-1, 1, (70, 3))
    if first == "zeros":
        list(record_gradients(network, np.zeros_like(theta), values))
    whole = np.vstack(list(record_gradients(network, theta, values)))
    assert len(module._found[network][1]) > 1  # not record by record
    for left_out in (0, 1, 33, 69):
        fewer = np.vstack(list(record_gradients(network, theta, np.delete(values, left_out, 0))))
        np.testing.assert_array_equal(fewer, np.delete(whole, left_out, 0))


@pytest.mark.neural
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
def test_gradients_are_those_of_opacus(network: ModuleLearner) -> None:
    import torch
    from opacus.grad_sample import GradSampleModule

    theta, values = network.initial(1), np.random.default_rng(2).uniform(-1, 1, (20, 3))
    module = GradSampleModule(network._build(1), loss_reduction="sum")
    records = torch.tensor(values)
    (torch.sum((module(records[:, :2])[:, 0] - records[:, 2]) ** 2) / 2).backward()
    theirs = torch.cat([p.grad_sample.flatten(1) for p in module.parameters()], dim=1)
    found = np.vstack(list(record_gradients(network, theta, values)))
    np.testing.assert_allclose(found, theirs.numpy(), rtol=1e-10, atol=1e-13)
