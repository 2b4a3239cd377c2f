"""Trained networks: `masked` cannot read forbidden inputs; `paper` does, and its result says so."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.methods.ngm_layouts import mixed_layout, mixed_records, random_graph

from secagg.contracts import Result
from secagg.core.arrays import Array
from secagg.core.randomness import replayable_random
from secagg.errors import JobError
from secagg.jobs.job import parse_job
from secagg.models.neural.gradients import gradient_sum
from secagg.models.neural.ngm.masked_network import MaskedNetwork
from secagg.models.neural.ngm.shared_network import forbidden_paths
from secagg.models.neural.optimisers import advance, begin
from secagg.models.neural.parameters import tensors
from secagg.runs.simulate import simulate

pytestmark = pytest.mark.neural
LAYOUT = mixed_layout()


def trained(network: MaskedNetwork, values: Array, steps: int) -> Array:
    state = begin("lbfgs", network.initial(0))
    for _ in range(steps):
        value, gradient = gradient_sum(network, state["point"], values)
        state = advance("lbfgs", state, value, gradient, 1.0, 0.0)
    return np.asarray(state["best"])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("hidden", [(), (4,), (4, 3)])
def test_a_masked_network_cannot_read_itself_or_what_the_graph_forbids(
    seed: int, hidden: tuple[int, ...]
) -> None:
    """Derivatives by autograd at records, after training: exactly 0."""
    import torch

    graph = random_graph(5, np.random.default_rng(seed))
    values = mixed_records(60, seed)
    network = MaskedNetwork(LAYOUT, hidden, graph, values.mean(axis=0), 1 / values.std(axis=0))
    parameters = tensors(network.blocks, torch.tensor(trained(network, values, 8)))
    z = network.standardised(torch.tensor(values[:10])).requires_grad_()
    outputs = network.outputs(parameters, z)
    slopes = np.array(
        [torch.autograd.grad(o.sum(), z, retain_graph=True)[0].numpy() for o in outputs.T]
    )
    forbidden = forbidden_paths(LAYOUT, graph)
    assert np.all(np.transpose(slopes, (1, 0, 2))[:, forbidden == 1] == 0)
    allowed = np.transpose(slopes, (1, 0, 2))[:, forbidden == 0]
    assert allowed.size == 0 or np.mean(np.abs(allowed)) > 0.01


def fitted(**settings: Any) -> Result:
    """Return the result for chain x - y - z, with edges given."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=90)
    y = 0.8 * x + 0.6 * rng.normal(size=90)
    z = 0.8 * y + 0.6 * rng.normal(size=90)
    table = pd.DataFrame({"x": x, "y": y, "z": z})
    job = parse_job(
        {
            "title": "A chain",
            "sites": {"max_rows": 100},
            "columns": {c: {"type": "continuous", "low": -6, "high": 6} for c in "xyz"},
            "method": {
                "name": "fedngm", "edges": [["x", "y"], ["y", "z"]], "hidden": [12],
                "network": "paper", "rounds": 60, **settings,
            },
            "protocol": {"name": "plain"},
            "release": {"min_sites": 2, "min_records": 2},
        }
    )  # fmt: skip
    tables = {"a": table[:30], "b": table[30:]}
    return simulate(job, tables, random=replayable_random(1))


def mean_of(result: Result, kind: str) -> float:
    found = [row[kind] for row in result.summary["derivatives"] if row[kind] is not None]
    return float(np.mean(found))


def test_the_papers_penalty_lets_outputs_copy_their_own_inputs() -> None:
    """The research note's finding; a column's own input counts for more than its neighbours'."""
    result = fitted(path_penalty=0.1)
    rows = result.summary["derivatives"]
    assert [row["column"] for row in rows] == ["x", "y", "z"]
    assert rows[1]["other"] is None and rows[0]["other"] is not None
    assert mean_of(result, "self") > 0.5 > 2 * mean_of(result, "edges")


def test_a_large_penalty_makes_all_outputs_constant() -> None:
    result = fitted(path_penalty=100.0, optimiser="adam")
    assert mean_of(result, "self") < 0.1 and mean_of(result, "edges") < 0.1


def test_the_masked_network_reports_no_leak() -> None:
    assert "derivatives" not in fitted(network="masked").summary


def test_a_negative_penalty_is_refused() -> None:
    with pytest.raises(JobError) as caught:
        fitted(path_penalty=-1.0)
    assert caught.value.where == "method.path_penalty"
