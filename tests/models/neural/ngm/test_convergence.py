"""Training of neural graphical models: how far it is from its end, and what the result says."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

from secagg.contracts import Result
from secagg.core.arrays import Array
from secagg.core.randomness import replayable_random
from secagg.jobs.job import parse_job
from secagg.models.neural.gradients import gradient_sum
from secagg.models.neural.ngm.convergence import GAIN_STEPS, with_convergence, with_gain
from secagg.models.neural.ngm.curvature import Curvature
from secagg.models.neural.ngm.layout import ModelColumn, NgmLayout
from secagg.models.neural.ngm.masked_network import MaskedNetwork
from secagg.models.neural.ngm.method import FedNgm
from secagg.models.neural.ngm.penalty import quadratic_penalty
from secagg.models.neural.optimisers import NO_STEP, begin
from secagg.models.neural.parameters import tensors
from secagg.models.neural.rounds import CONVERGED, OUT_OF_ROUNDS, PARAMETER_LIMIT
from secagg.reports.results import usable
from secagg.runs.simulate import simulate

pytestmark = pytest.mark.neural
N = 300


def table() -> pd.DataFrame:
    """x and y depend in a curve, and c on y."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=N)
    y = np.sin(1.5 * x) + 0.5 * rng.normal(size=N)
    c = (rng.random(N) < 1 / (1 + np.exp(-2 * y))).astype(int)
    return pd.DataFrame({"x": x, "y": y, "c": c})


def fitted(name: str = "fedngm", **settings: Any) -> Result:
    wide = {"type": "continuous", "low": -5, "high": 5}
    job = {
        "title": "Three columns", "sites": {"max_rows": N},
        "columns": {"x": wide, "y": wide, "c": {"type": "binary"}},
        "method": {"name": name, **settings}, "protocol": {"name": "plain"},
        "release": {"min_sites": 2, "min_records": 2},
    }  # fmt: skip
    sites = {"a": table()[:100], "b": table()[100:]}
    return simulate(parse_job(job), sites, random=replayable_random(0))


def test_the_default_search_ends_at_a_maximum_that_no_further_search_improves() -> None:
    """scipy's search goes on from there. It gains less than a tenth of a log unit."""
    result = fitted()
    assert result.summary["converged"] and result.summary["status"] == "converged"
    arrays = result.arrays
    layout = NgmLayout(tuple(ModelColumn(c, (i,), i == 2) for i, c in enumerate("xyc")), (0, 1, 2))
    graph, curved = arrays["graph"] > 0, arrays["curved"] > 0
    units = arrays["centre"], arrays["scale"]
    network = MaskedNetwork(layout, (10,), graph, *units, curved=curved)
    penalty = quadratic_penalty(network.blocks, 1.0, 1.0)
    u = table().assign(x=lambda t: t.x / 5, y=lambda t: t.y / 5, c=lambda t: 2 * t.c - 1).to_numpy()

    def objective(theta: Array) -> tuple[float, Array]:
        (loss, slope), (extra, more) = gradient_sum(network, theta, u), penalty(theta, N)
        return loss + N * extra, slope + N * more

    theta = network.blocks.join({b.name: arrays[b.name] for b in network.blocks.blocks})
    further = minimize(objective, theta, jac=True, method="L-BFGS-B", options={"maxiter": 2000})
    assert 0 <= objective(theta)[0] - further.fun < 0.1


@pytest.mark.parametrize(
    ("name", "settings", "advice"),
    [
        ("fedngm", {"rounds": 40}, "method.rounds"),
        ("fedngr", {"hidden": [3], "rounds": 5, "refit_rounds": 5}, "method.refit_rounds"),
    ],
)
def test_a_result_out_of_rounds_must_not_be_used(
    name: str, settings: dict[str, Any], advice: str
) -> None:
    summary = fitted(name, **settings).summary
    assert not summary["converged"] and not usable(summary)
    assert advice in summary["notes"][0]


def test_a_search_ends_by_what_its_last_steps_gain_in_log_units() -> None:
    def after(gains: list[float], **more: Any) -> dict[str, Any]:
        state: dict[str, Any] = {}
        for step, value in enumerate(-np.cumsum([0.0, *gains])):
            optimiser = begin("lbfgs", np.zeros(1)) | {"value": value, "steps": step + 1}
            state = with_gain(state | {"optimiser": optimiser} | more, 100, 0.01)
        return state

    small = 0.99 * 0.01 / 100 / GAIN_STEPS
    assert after([small] * GAIN_STEPS)["ended"] == "converged"
    for gains in ([small] * (GAIN_STEPS - 1), [1.02 * small] * GAIN_STEPS):
        assert "ended" not in after(gains)
    limit = {"ended": "parameter limit reached"}
    assert after([small] * GAIN_STEPS, **limit)["ended"] == limit["ended"]
    adam = {"optimiser": begin("adam", np.zeros(1))}
    assert with_gain(adam, 100, 0.01) == adam


@pytest.mark.parametrize(
    ("ended", "kinks", "advice"),
    [
        (PARAMETER_LIMIT, False, "method.linear_penalty"),
        (CONVERGED, False, None),
        (NO_STEP, False, None),
        (CONVERGED, True, "'masked'"),
        (NO_STEP, True, "'masked'"),
        (OUT_OF_ROUNDS, True, "2.0 standard errors"),  # sqrt(2 * 2)
    ],
)
def test_a_search_has_converged_where_it_ended_by_itself_at_a_smooth_place(
    ended: str, kinks: bool, advice: str | None
) -> None:
    optimiser = begin("lbfgs", np.zeros(1)) | {"value": 1.0}
    training = {"optimiser": optimiser, "ended": ended, "gain": 2.0}
    before = {"notes": ["other"], "status": ended}
    found = with_convergence(before, training, 0.01, "method.rounds", kinks=kinks)
    assert found["converged"] == (advice is None) and found["notes"][-1] == "other"
    assert advice is None or advice in found["notes"][0]
    assert (found["status"] == CONVERGED) == (ended == CONVERGED and not kinks)


def test_the_papers_penalty_has_kinks_and_no_search_over_it_counts_as_converged() -> None:
    """Without the penalty, the objective is smooth, and the same search has converged."""
    few = {"network": "paper", "hidden": [2], "edges": [["x", "y"]], "least_gain": 1e3}
    for penalty, converged in ((10.0, False), (0.0, True)):
        summary = fitted(**few, path_penalty=penalty).summary
        assert summary["converged"] == converged == usable(summary)


def test_without_hidden_units_the_curvature_is_that_of_regressions() -> None:
    layout = NgmLayout((ModelColumn("x", (0,), False), ModelColumn("c", (1,), True)), (0, 1))
    graph = np.array([[False, True], [True, False]])
    network = MaskedNetwork(layout, (), graph, np.zeros(2), np.array([2.0, 1.5]))
    curvature = Curvature(network, 7.0, 4.0, 50)
    theta = network.blocks.join({
        "linear.weight": np.array([[0.0, 0.4], [0.3, 0.0]]), "output.bias": np.array([0.1, -0.2]),
        "log_sd": np.array([-0.5]),
    })  # fmt: skip
    z, mu = curvature._z, 0.05
    p = 1 / (1 + np.exp(-(0.3 * z[0] - 0.2)))
    for read, weight, bias, A in (
        (z[1], 1, 4, np.full(500, np.exp(1.0))),
        (z[0], 2, 5, p * (1 - p)),
    ):
        D = np.stack([read, np.ones(500)])
        H = (D * A) @ D.T / 500 + np.diag([4 / 50 + mu, mu])
        vector = np.zeros(7)
        vector[[weight, bias]] = H @ [1.0, -2.0]
        solved = curvature.solve(theta, vector)[[weight, bias]]
        np.testing.assert_allclose(solved, [1.0, -2.0], rtol=1e-4)  # a variance has 10^-6 added
    of_sd = curvature.solve(theta, np.ones(7))[network.blocks.slices["log_sd"]]
    assert of_sd.tolist() == [0.5]  # the information of log sd is 2
    assert curvature.usable
    # Not if inputs are not standardised, nor with 99 units of three parameters and two more.
    for hidden, scale, used in (((), 1.0, False), ((99,), 2.0, True), ((100,), 2.0, False)):
        other = MaskedNetwork(layout, hidden, graph, np.zeros(2), np.full(2, scale))
        assert Curvature(other, 7.0, 4.0, 50).usable == used


def test_the_curvature_is_that_of_the_parameters_that_the_masks_leave_free() -> None:
    """(1) of the module, by differences of the network's outputs; the others keep the identity."""
    import torch

    layout = NgmLayout(tuple(ModelColumn(c, (i,), i == 2) for i, c in enumerate("xyc")), (0, 1, 2))
    graph, curved = ~np.eye(3, dtype=bool), np.zeros((3, 3), dtype=bool)
    curved[0, 1] = curved[1, 0] = True  # c has linear inputs only
    units = np.zeros(3), np.array([2.0, 1.5, 1.2])
    network = MaskedNetwork(layout, (2,), graph, *units, curved=curved)
    blocks, n = network.blocks, 40.0
    rng = np.random.default_rng(1)
    masks = blocks.join(
        {b.name: network.masks.get(b.name, np.ones(b.shape)) for b in blocks.blocks}
    )
    theta, vector = 0.5 * rng.normal(size=blocks.size) * masks, rng.normal(size=blocks.size)
    method = FedNgm(penalty=7.0, linear_penalty=4.0)
    solve = method._scaling(network, n)
    assert solve is not None
    solved, z = solve(theta, vector), Curvature(network, 7.0, 4.0, n)._z.T

    def outputs(at: Array) -> Array:
        found = network.outputs(tensors(blocks, torch.tensor(at)), torch.tensor(z))
        return np.asarray(found.numpy())

    D = np.stack([(outputs(theta + e) - outputs(theta - e)) / 2e-5
                  for e in 1e-5 * np.eye(blocks.size)])  # fmt: skip
    p = 1 / (1 + np.exp(-outputs(theta)[:, 2]))
    A = [*np.exp(-2 * blocks.split(theta)["log_sd"]), p * (1 - p)]  # Fisher information
    names = np.concatenate([np.full(np.prod(b.shape), b.name) for b in blocks.blocks])
    precision = np.select(
        [names == "linear.weight", np.char.endswith(names, ".weight")], [4.0, 7.0]
    )
    for column in range(3):
        free = np.any(D[:, :, column], axis=1)
        slopes = D[free, :, column]
        H = (slopes * A[column]) @ slopes.T / len(z) + np.diag(precision[free] / n + 0.05)
        # 10^-6 is added to a variance, and differences have errors of 10^-10.
        np.testing.assert_allclose(H @ solved[free], vector[free], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(solved[masks == 0], vector[masks == 0])
