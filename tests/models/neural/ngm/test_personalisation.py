"""Personalisation: the objective, the start, the graph, and whom it helps."""

import math
from functools import cache

import numpy as np
import pytest
from scipy.optimize import minimize
from support.methods.ngm_layouts import mixed_layout, mixed_records

from secagg.core.arrays import Array
from secagg.models.neural.gradients import record_losses
from secagg.models.neural.local_fit import fit_locally
from secagg.models.neural.ngm.masked_network import MaskedNetwork
from secagg.models.neural.ngm.penalty import quadratic_penalty
from secagg.models.neural.ngm.site_fits.personalisation import (
    STRENGTHS,
    personalised,
    shrunk_towards,
)
from secagg.models.neural.ngm.site_fits.stitching import own_units
from secagg.models.neural.parameters import tensors

pytestmark = pytest.mark.neural
LAYOUT = mixed_layout()
RUN = mixed_records(300)


def network(hidden: tuple[int, ...] = (4,)) -> MaskedNetwork:
    """Return a network with all edges of x, which drives the other columns."""
    graph = np.zeros((5, 5), dtype=np.bool_)
    graph[0, 1:] = graph[1:, 0] = True
    centre, scale = own_units(RUN)
    return MaskedNetwork(LAYOUT, hidden, graph, centre, scale)


@cache
def of_run(hidden: tuple[int, ...] = (4,)) -> Array:
    fitted = network(hidden)
    penalty = quadratic_penalty(fitted.blocks, 1.0, 1.0)
    theta = fit_locally(fitted, fitted.initial(0), RUN, penalty, steps=100)
    masked = fitted.blocks.split(theta)
    masked |= {name: masked[name] * mask for name, mask in fitted.masks.items()}
    return fitted.blocks.join(masked)


def other_site(n: int, seed: int) -> Array:
    """Return records in which y falls with x, and the case is more frequent."""
    records, rng = mixed_records(n, seed), np.random.default_rng(seed)
    records[:, 1] = np.clip(-0.6 * records[:, 0] + rng.normal(0, 0.2, n), -1, 1)
    records[:, 4] = np.where(rng.random(n) < 0.8, 0.5, -0.5)
    return records


def test_the_fit_is_the_minimum_of_equation_1() -> None:
    """Against BFGS on the two regressions of x and y on each other, written anew."""
    layout, kappa = mixed_layout({"x": 1, "y": 1}), 30.0
    graph = np.array([[False, True], [True, False]])
    two = MaskedNetwork(layout, (), graph, np.zeros(2), np.full(2, 3.0))
    rng = np.random.default_rng(3)
    theta = rng.normal(0, 0.3, two.blocks.size)
    linear = two.blocks.split(theta)["linear.weight"]
    linear[np.diag_indices(2)] = 0
    z = 3.0 * other_site(40, 1)[:, :2]

    def objective(free: Array) -> float:
        weights, bias, log_sd = free[:2], free[2:4], free[4:]
        value = 0.0
        for target, source in ((0, 1), (1, 0)):
            variance = np.exp(2 * log_sd[target]) + 1e-6
            error = z[:, target] - weights[target] * z[:, source] - bias[target]
            value += np.mean(error**2) / (2 * variance) + np.log(variance) / 2
        return float(value + kappa / (2 * len(z)) * np.sum((free - centre) ** 2))

    arrays = two.blocks.split(theta)
    centre = np.concatenate([linear[[0, 1], [1, 0]], arrays["output.bias"], arrays["log_sd"]])
    expected = minimize(objective, centre, method="BFGS", options={"gtol": 1e-9}).x
    found = fit_locally(two, theta, z / 3.0, shrunk_towards(theta, kappa))
    got = two.blocks.split(found)
    free = np.concatenate([
        got["linear.weight"][[0, 1], [1, 0]], got["output.bias"], got["log_sd"],
    ])  # fmt: skip
    # The search ends at slopes of 1e-5, and curvature is at least kappa / n = .75.
    np.testing.assert_allclose(free, expected, atol=3e-5)
    np.testing.assert_array_equal(np.diag(got["linear.weight"]), 0)


@pytest.mark.parametrize("hidden", [(), (4,), (4, 3)])
def test_it_begins_with_the_run_bit_for_bit(hidden: tuple[int, ...]) -> None:
    fitted = network(hidden)
    theta, values = of_run(hidden), other_site(30, 1)
    assert STRENGTHS[0] == math.inf
    near = fit_locally(fitted, theta, values, shrunk_towards(theta, 1e12))
    np.testing.assert_allclose(near, theta, atol=1e-9)


def test_records_that_teach_nothing_leave_the_run_as_it_is() -> None:
    """At the minimum of a loss, no fit to other parts of the same records is better."""
    fitted = network(())
    theta = of_run(())
    found = personalised(fitted, theta, RUN[:60], np.random.default_rng(0))
    expected = record_losses(fitted, theta, RUN[:60]).mean()
    assert found.held_out.losses[0].mean() == pytest.approx(expected, rel=1e-12)
    assert found.held_out.chosen == math.inf
    np.testing.assert_array_equal(found.theta, theta)


def test_at_a_site_that_differs_it_beats_the_run_and_the_site_alone() -> None:
    fitted = network()
    theta, new = of_run(), other_site(3000, 99)
    found = personalised(fitted, theta, other_site(60, 1), np.random.default_rng(0))
    penalty = quadratic_penalty(fitted.blocks, 1.0, 1.0)
    alone = fit_locally(fitted, fitted.initial(0), other_site(60, 1), penalty)
    losses = {
        name: float(record_losses(fitted, each, new).mean())
        for name, each in {"run": theta, "own": found.theta, "alone": alone}.items()
    }
    assert losses["own"] < min(losses["run"] - 0.5, losses["alone"] - 0.05)
    gain, error = found.held_out.gain()
    assert gain == pytest.approx(losses["run"] - losses["own"], abs=4 * error)


def test_the_fit_to_all_records_follows_the_path_of_the_folds() -> None:
    """From the strongest prior to the chosen one; not from the run at once."""
    fitted, theta, values = network(), of_run(), other_site(60, 1)
    found = personalised(fitted, theta, values, np.random.default_rng(0))
    path = theta
    for strength in STRENGTHS[1 : STRENGTHS.index(found.held_out.chosen) + 1]:
        path = fit_locally(fitted, path, values, shrunk_towards(theta, strength), steps=100)
    np.testing.assert_array_equal(found.theta, path)
    last = shrunk_towards(theta, found.held_out.chosen)
    assert np.any(found.theta != fit_locally(fitted, theta, values, last, steps=100))


def test_the_graph_of_the_run_stays() -> None:
    import torch

    fitted = network((4, 3))
    theta = of_run((4, 3))
    found = fit_locally(fitted, theta, other_site(60, 1), shrunk_towards(theta, 30.0), steps=50)
    assert np.any(found != theta)
    arrays = fitted.blocks.split(found)
    for name, mask in fitted.masks.items():
        np.testing.assert_array_equal(arrays[name] * (1 - mask), 0)
    z = torch.tensor(RUN[:3], requires_grad=True)
    outputs = fitted.outputs(tensors(fitted.blocks, torch.tensor(found)), z)
    slopes = torch.autograd.grad(outputs[:, 1].sum(), z)[0].numpy()  # of y
    assert np.all(slopes[:, 0] != 0) and np.all(slopes[:, 1:] == 0)
