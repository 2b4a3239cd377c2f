"""Stitching: shared outputs bit for bit, what is frozen, and what new columns learn."""

import numpy as np
import pytest
from support.methods.ngm_layouts import mixed_layout, mixed_records

from secagg.core.arrays import Array
from secagg.models.neural.gradients import gradient_sum
from secagg.models.neural.ngm.masked_network import MaskedNetwork
from secagg.models.neural.ngm.site_fits.stitching import StitchedNetwork, own_units
from secagg.models.neural.parameters import tensors

pytestmark = pytest.mark.neural
SHARED = mixed_layout({"x": 1, "colour": 2, "y": 1})
ALL = mixed_layout({"x": 1, "colour": 2, "y": 1, "z": 1, "case": 1})
RECORDS = mixed_records(80)[:, [0, 2, 3, 1, 5, 4]]  # x, colour, y, z, case


def stitched(
    into_shared: bool = False, hidden: tuple[int, ...] = (4,), edges: tuple[int, int] = (0, 1)
) -> StitchedNetwork:
    """Return a network with edges x - z and colour - case, unless others are given."""
    rng = np.random.default_rng(1)
    graph = np.zeros((5, 5), dtype=np.bool_)
    graph[:3, :3] = [[0, 1, 1], [1, 0, 0], [1, 0, 0]]
    for new, old in zip((3, 4), edges, strict=True):
        graph[new, old] = graph[old, new] = True
    centre, scale = own_units(RECORDS)
    shared = MaskedNetwork(SHARED, hidden, graph[:3, :3], centre[:4], scale[:4])
    frozen = shared.initial(0) + 0.3 * rng.normal(size=shared.blocks.size)
    return StitchedNetwork(shared, frozen, ALL, graph, centre, scale, into_shared)


def shared_outputs(network: StitchedNetwork, values: Array = RECORDS) -> Array:
    """Return the run's own outputs."""
    import torch

    frozen = tensors(network.shared.blocks, torch.tensor(network.frozen))
    with torch.no_grad():
        return network.shared.outputs(
            frozen, network.shared.standardised(torch.tensor(values))
        ).numpy()


@pytest.mark.parametrize("hidden", [(), (4,), (4, 3)])
@pytest.mark.parametrize("into_shared", [False, True])
def test_outputs_of_shared_columns_begin_as_the_runs_bit_for_bit(
    into_shared: bool, hidden: tuple[int, ...]
) -> None:
    network = stitched(into_shared, hidden)
    found = network.outputs_of(network.initial(5), RECORDS)
    np.testing.assert_array_equal(found[:, :4], shared_outputs(network))
    np.testing.assert_array_equal(found[:, 4:], 0)


@pytest.mark.parametrize("hidden", [(), (4,), (4, 3)])
def test_by_default_they_stay_bit_for_bit_throughout(hidden: tuple[int, ...]) -> None:
    """After training, and for any parameters of the added networks."""
    network = stitched(False, hidden)
    theta = network.fit(RECORDS, 1.0, 1.0, 5)
    wild = 5 * np.random.default_rng(0).normal(size=len(theta))
    for each in (theta, wild):
        found = network.outputs_of(each, RECORDS)
        np.testing.assert_array_equal(found[:, :4], shared_outputs(network))
        assert np.all(np.std(found[:, 4:], axis=0) > 0.05)


def test_only_with_into_shared_do_they_change_and_only_next_to_new_columns() -> None:
    network = stitched(True)
    theta = network.fit(RECORDS, 1.0, 1.0, 5)
    change = network.outputs_of(theta, RECORDS)[:, :4] - shared_outputs(network)
    moved = np.max(np.abs(change), axis=0)
    assert np.all(moved[:3] > 0.01)  # x next to z, colour next to case
    assert moved[3] == 0  # y has no new neighbour


@pytest.mark.parametrize("into_shared", [False, True])
def test_frozen_parameters_do_not_move(into_shared: bool) -> None:
    network = stitched(into_shared)
    start, theta = network.initial(5), network.fit(RECORDS, 1.0, 1.0, 5)
    still = network.free == 0
    np.testing.assert_array_equal(theta[still], start[still])
    before, after = (network.blocks.split(each) for each in (start, theta))
    np.testing.assert_array_equal(after["output.bias"][:4], 0)
    old = network.shared.blocks.split(network.frozen)["log_sd"]
    np.testing.assert_array_equal(before["log_sd"][:2], old)
    changed = after["log_sd"] != before["log_sd"]  # x, y, z
    np.testing.assert_array_equal(changed, [into_shared, False, True])


@pytest.mark.parametrize("into_shared", [False, True])
def test_no_output_reads_itself_or_what_the_graph_forbids(into_shared: bool) -> None:
    import torch

    network = stitched(into_shared, (4, 3))
    theta = torch.tensor(np.random.default_rng(0).normal(size=network.blocks.size))
    z = torch.tensor(RECORDS[:3], requires_grad=True)
    outputs = network.outputs(tensors(network.blocks, theta), z)
    slopes = np.array(
        [torch.autograd.grad(o.sum(), z, retain_graph=True)[0].numpy() for o in outputs.T]
    ).transpose(1, 0, 2)
    allowed = ALL.inputs(network.graph)[ALL.column_of]
    if not into_shared:
        allowed[:4, 4:] = False
    assert np.all(slopes[:, ~allowed] == 0) and np.all(slopes[:, allowed] != 0)


def test_the_fit_of_new_columns_is_that_of_their_own_regressions() -> None:
    """Without hidden units and penalty, z on x is least squares; its sd that of the residuals."""
    network = stitched(False, ())
    theta = network.blocks.split(network.fit(RECORDS, 0.0, 0.0, 0))
    z = (RECORDS - network.centre) * network.scale
    slope = z[:, 0] @ z[:, 4] / (z[:, 0] @ z[:, 0])
    assert theta["linear.weight"][4, 0] == pytest.approx(slope, abs=1e-4)
    variance = np.mean((z[:, 4] - slope * z[:, 0]) ** 2)
    assert np.exp(2 * theta["log_sd"][2]) == pytest.approx(variance, rel=1e-3)


def test_into_shared_lowers_the_loss_of_shared_columns() -> None:
    """z tells about x, also given y and colour."""
    losses = {}
    for into_shared in (False, True):
        network = stitched(into_shared)
        theta = network.fit(RECORDS, 1.0, 1.0, 0)
        losses[into_shared] = gradient_sum(network, theta, RECORDS)[0] / len(RECORDS)
    assert losses[True] < losses[False] - 0.1


@pytest.mark.parametrize("hidden", [(), (4,), (4, 3)])
@pytest.mark.parametrize("into_shared", [False, True])
def test_as_one_network_it_has_the_same_outputs(into_shared: bool, hidden: tuple[int, ...]) -> None:
    import torch

    network = stitched(into_shared, hidden)
    theta = (
        network.initial(0)
        + 0.3 * np.random.default_rng(2).normal(size=network.blocks.size) * network.free
    )
    arrays = network.as_one(theta)
    widths = tuple((1 + into_shared) * units for units in hidden)
    one = MaskedNetwork(ALL, widths, network.graph, network.centre, network.scale)
    parameters = tensors(one.blocks, torch.tensor(one.blocks.join(arrays)))
    with torch.no_grad():
        found = one.outputs(parameters, one.standardised(torch.tensor(RECORDS))).numpy()
    np.testing.assert_allclose(found, network.outputs_of(theta, RECORDS), atol=1e-12)
    np.testing.assert_array_equal(arrays["log_sd"], network.blocks.split(theta)["log_sd"])


def test_a_new_column_may_read_another_new_one_or_none() -> None:
    network = stitched(False, (4,), edges=(0, 3))  # case reads z
    theta = network.fit(RECORDS, 1.0, 1.0, 0)
    assert np.all(np.std(network.outputs_of(theta, RECORDS)[:, 4:], axis=0) > 0.05)
    alone = stitched(False, (4,), edges=(3, 4))
    alone.graph[:] &= ~np.eye(5, dtype=np.bool_)
    outputs = alone.outputs_of(alone.fit(RECORDS, 1.0, 1.0, 0), RECORDS)[:, 4:]
    np.testing.assert_allclose(outputs[:, 0], 0, atol=1e-3)  # z is standardised
    share = np.mean(RECORDS[:, 5] > 0)
    np.testing.assert_allclose(1 / (1 + np.exp(-outputs[:, 1])), share, atol=1e-3)


def test_a_constant_column_gets_the_scale_0() -> None:
    centre, scale = own_units(np.array([[0.2, 1.0], [0.2, -1.0]]))
    np.testing.assert_allclose(centre, [0.2, 0])
    np.testing.assert_allclose(scale, [0, 1])
