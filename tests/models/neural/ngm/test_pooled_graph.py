"""The graph of the pooled records, and the further columns that networks read."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from support.methods.networks import job, tables

from secagg.contracts import PublicFacts, Result, Variable
from secagg.core.randomness import replayable_random
from secagg.errors import JobError, PeerError
from secagg.jobs.job import parse_job
from secagg.models.neural.association_tests import kept_by_aic
from secagg.models.neural.graph_votes import vote_level
from secagg.models.neural.ngm.fitted.model import FittedNgm
from secagg.models.neural.ngm.layout import ngm_layout
from secagg.models.neural.ngm.masked_network import MaskedNetwork
from secagg.models.neural.ngm.pooled_graph import PooledRecords, moments_sum
from secagg.models.neural.site_graphs import Recovery, site_graph
from secagg.runs.simulate import simulate
from secagg.sessions.parties import read_records
from secagg.sessions.planned_job import plan_job

SMALL: dict[str, Any] = {"hidden": [3], "rounds": 12}


def variable(name: str, column: str = "", *, indicator: bool = False) -> Variable:
    half = 0.5 if indicator else 8.0
    return Variable(name, column or name, 0.5 if indicator else 0.0, half, indicator=indicator)


PUBLIC = PublicFacts(
    (
        variable("x"), variable("y"), variable("g=b", "g", indicator=True),
        variable("g=c", "g", indicator=True), variable("rare", indicator=True),
        variable("same"), variable("w"),
    ),
    ("x", "y", "g", "rare", "same", "w"), 1000, ("north", "south", "west"),
)  # fmt: skip


def scaled_records(rng: np.random.Generator, n: int) -> np.ndarray:
    """Return x - y - g with three levels, a rare level, a constant, and w of its own."""
    x, e, w = rng.normal(size=(3, n))
    y = 0.6 * x + e
    g = np.digitize(y + rng.normal(size=n), [-0.5, 0.7])
    levels = [
        np.where(g == 1, 1, -1),
        np.where(g == 2, 1, -1),
        np.where(rng.random(n) < 0.02, 1, -1),
    ]
    return np.column_stack([x / 8, y / 8, *levels, np.full(n, 0.3), w / 8]).astype(float)


@pytest.mark.parametrize("recovery", ["partial_correlation", "graphical_lasso"])
def test_the_graph_is_that_of_all_records_in_one_place(recovery: Recovery) -> None:
    layout = ngm_layout(PUBLIC, None)
    columns = [column.positions for column in layout.columns]
    level = vote_level(15, 1, 1, 0.2)
    found = set()
    for seed in range(5):
        u = scaled_records(np.random.default_rng(seed), 240)
        parts = [moments_sum(part)["moments"] for part in np.split(u, [0, 7, 100])]
        graph = PooledRecords(np.sum(parts, axis=0), layout).graph(recovery, 0.2)
        np.testing.assert_array_equal(graph, site_graph(u, columns, recovery, alpha=level))
        assert not graph[4].any()  # constant
        found.add(graph.tobytes())
    assert graph[0, 1] and graph[1, 2] and len(found) > 1


def test_too_few_records_have_no_graph() -> None:
    layout = ngm_layout(PUBLIC, None)
    pooled = PooledRecords(
        moments_sum(scaled_records(np.random.default_rng(0), 2))["moments"], layout
    )
    assert not pooled.graph("partial_correlation", 0.2).any() and not pooled.kept_by_aic().any()


def test_aic_keeps_what_it_keeps_in_a_regression_on_all_columns() -> None:
    """By statsmodels, for columns of one variable."""
    rng, n, p = np.random.default_rng(1), 2000, 8
    x = rng.normal(size=(n, p)) @ (np.eye(p) + 0.04 * rng.normal(size=(p, p)))
    kept = kept_by_aic(np.corrcoef(x, rowvar=False), n, np.arange(p))
    kept |= kept.T
    clear = 0
    for j in range(p):
        others = np.delete(np.arange(p), j)
        full = sm.OLS(x[:, j], sm.add_constant(x[:, others])).fit().aic
        for i in others:
            rest = sm.add_constant(x[:, np.setdiff1d(others, [i])])
            gain = sm.OLS(x[:, j], rest).fit().aic - full
            if abs(gain) > 0.02:  # the F test differs from n log Lambda by terms of order 1 / n
                assert kept[i, j] == (gain > 0)
                clear += 1
    assert clear > 50 and 0.2 < kept.mean() < 0.8


def test_aic_of_levels_counts_all_their_indicators() -> None:
    """Of independent columns of three levels, P(chi-squared of 4 > 8) are kept."""
    rng, n = np.random.default_rng(2), 300
    share, runs = 0.0, 300
    for _ in range(runs):
        g, h = rng.integers(3, size=(2, n))
        x = np.column_stack([g == 1, g == 2, h == 1, h == 2]).astype(float)
        owner = np.array([0, 0, 1, 1])
        share += float(kept_by_aic(np.corrcoef(x, rowvar=False), n, owner)[0, 2]) / runs
    expected = 0.0916
    assert abs(share - expected) < 3 * np.sqrt(expected * (1 - expected) / runs)


# --- runs ---


def fitted(data: dict[str, pd.DataFrame], **method: Any) -> Result:
    return simulate(job({"name": "fedngm", **method}), data, random=replayable_random(1))


@pytest.mark.neural
def test_by_default_networks_are_curved_in_neighbours_and_linear_beyond() -> None:
    data = tables(rows=60)
    found = fitted(data, **SMALL, false_edges=1e-6, variables=["x", "y", "w", "case"])
    graph, curved = found.arrays["graph"] > 0, found.arrays["curved"] > 0
    names = found.summary["names"]
    edges = {frozenset(edge["between"]) for edge in found.summary["edges"]}
    more = {frozenset(pair) for pair in found.summary["linear_inputs"]}
    pairs = {frozenset((names[i], names[j])) for i, j in np.argwhere(np.triu(graph))}
    assert edges | more == pairs and not edges & more and more and edges
    hidden, linear = found.arrays["hidden_1.weight"], found.arrays["linear.weight"]
    assert not np.any(hidden[~np.repeat(curved[:, None, :], 3, axis=1)])
    assert np.all(linear[graph] != 0) and not np.any(linear[~graph])
    np.testing.assert_array_equal(
        found.arrays["curved"], fitted(data, **SMALL, false_edges=1e-6, inputs="neighbours",
                                       variables=["x", "y", "w", "case"]).arrays["graph"]
    )  # fmt: skip


@pytest.mark.neural
def test_with_all_inputs_and_no_hidden_layer_the_graph_does_not_matter() -> None:
    linear: dict[str, Any] = {"hidden": [], "rounds": 30}
    one = fitted(tables(), **linear, inputs="all", edges=[["x", "y"]])
    other = fitted(tables(), **linear, edges="all")
    for name, array in other.arrays.items():
        np.testing.assert_array_equal(one.arrays[name], array)
    assert len(one.summary["edges"]) == 1


@pytest.mark.neural
def test_the_fitted_model_reads_what_the_network_reads() -> None:
    import torch

    layout, rng = ngm_layout(PUBLIC, None), np.random.default_rng(3)
    graph, curved = ~np.eye(6, dtype=bool), np.zeros((6, 6), dtype=bool)
    curved[0, 1] = curved[1, 0] = curved[2, 5] = curved[5, 2] = True
    network = MaskedNetwork(layout, (4, 3), graph, np.zeros(7), np.ones(7), curved)
    arrays = {
        block.name: rng.normal(size=block.shape) * network.masks.get(block.name, 1.0)
        for block in network.blocks.blocks
    }
    z = rng.normal(size=(20, 7))
    tensors = {name: torch.tensor(array) for name, array in arrays.items()}
    expected = network.outputs(tensors, torch.tensor(z)).numpy()
    facts = {"graph": graph, "curved": curved, "centre": np.zeros(7), "scale": np.ones(7)}
    model = FittedNgm.of(layout, PUBLIC, {**arrays, **facts})
    np.testing.assert_allclose(model.outputs(z.T), expected.T, atol=1e-12)
    whole = FittedNgm.of(layout, PUBLIC, {**arrays, **facts, "curved": graph})
    np.testing.assert_allclose(whole.outputs(z.T), expected.T, atol=1e-12)
    own, all_curved = model.networks[0], whole.networks[0]
    assert own.parameters < all_curved.parameters  # intervals do not count weights that are cut
    slopes = own.derivatives(z.T)
    step = 1e-6
    bias = type(own)(**{**vars(own), "hidden": ((own.hidden[0][0], own.hidden[0][1] + step),
                                                own.hidden[1])})  # fmt: skip
    at = slice(own.hidden[0][0].size, own.hidden[0][0].size + 4)
    np.testing.assert_allclose(
        (bias(z.T) - own(z.T)) / step, slopes[:, :, at].sum(axis=2), atol=1e-5
    )


@pytest.mark.neural
def test_a_site_refuses_a_graph_that_changes() -> None:
    planned = plan_job(parse_job(job({"name": "fedngm", **SMALL})), tables())
    method, public = planned.method, planned.public
    rows = [read_records(planned, planned.sources[name]) for name in sorted(public.sites)]
    random, state = replayable_random(3), method.initial_state(public)
    totals = [method.contribute("graph", each, {}, {}, public, random)[0] for each in rows]
    state = method.aggregate(state, {k: sum(t[k] for t in totals) for k in totals[0]}, 3)
    request = method.next_request(state)
    assert request is not None
    stage, message = request
    _, memory = method.contribute(stage, rows[0], message, {}, public, random)
    less = {name: value for name, value in message.items() if name != "curved"}
    other = message | {"curved": 1 - np.eye(len(message["curved"]), dtype=np.uint8)}
    odd = message | {"curved": np.triu(other["curved"])}
    for wrong in (less, other, odd):
        with pytest.raises(PeerError):
            method.contribute(stage, rows[0], wrong, memory, public, random)


@pytest.mark.neural
@pytest.mark.parametrize("inputs", ["aic", "all"])
def test_the_papers_network_has_no_further_inputs(inputs: str) -> None:
    with pytest.raises(JobError) as caught:
        plan_job(parse_job(job({"name": "fedngm", "network": "paper", "inputs": inputs})), tables())
    assert caught.value.where == "method.inputs"
