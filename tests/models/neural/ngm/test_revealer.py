"""Graph revealers: known graphs, conditions of a minimum, and cases at the edge."""

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from support.methods.mixed_graphs import f1, pairwise_mixed
from support.methods.ngm_layouts import mixed_layout
from support.methods.wrong_settings import wrong_settings

from secagg.contracts import Result, SiteRecords
from secagg.core.randomness import replayable_random
from secagg.errors import CapabilityError, JobError, PeerError
from secagg.jobs.design_matrix import public_facts
from secagg.jobs.job import parse_job
from secagg.models.neural.gradients import gradient_sum
from secagg.models.neural.ngm.layout import ModelColumn, NgmLayout
from secagg.models.neural.ngm.path_norms import edge_strengths, path_slopes
from secagg.models.neural.ngm.revealer import FedNgr, refitted
from secagg.models.neural.ngm.revealing.strengths import (
    earlier_round,
    found_graph,
    penalised_paths,
)
from secagg.models.neural.ngm.shared_network import SharedNetwork, self_paths
from secagg.runs.simulate import simulate
from secagg.sessions.planned_job import plan_job

pytestmark = pytest.mark.neural


def revealed(
    tables: dict[str, pd.DataFrame], name: str = "fedngr", max_rows: int = 1000, **settings: Any
) -> Result:
    first = next(iter(tables.values()))
    columns: dict[str, dict[str, Any]] = {}
    for column, cells in first.items():
        if column == "colour":
            columns[str(column)] = {"type": "categorical", "levels": ["a", "b", "c"]}
        elif cells.dtype == float:
            columns[str(column)] = {"type": "continuous", "low": -8, "high": 8}
        else:
            columns[str(column)] = {"type": "binary"}
    job = parse_job(
        {
            "title": "A graph",
            "sites": {"max_rows": max_rows},
            "columns": columns,
            "method": {"name": name, **settings},
            "protocol": {"name": "plain"},
            "release": {"min_sites": 2, "min_records": 2},
        }
    )
    return simulate(job, tables, random=replayable_random(1))


def split(table: pd.DataFrame, *ends: int) -> dict[str, pd.DataFrame]:
    bounds = [0, *ends, len(table)]
    return {f"s{i}": table[a:b] for i, (a, b) in enumerate(pairwise(bounds))}


SHORT: dict[str, Any] = {"hidden": [30], "rounds": 150, "learning_rate": 0.03, "refit": False,
                         "sparsity": 0.05, "threshold": 0.15}  # fmt: skip


def test_a_known_mixed_graph_is_found_and_no_column_reads_itself() -> None:
    table, truth = pairwise_mixed(6, 900, seed=2)
    result = revealed(split(table, 250, 600), **SHORT)
    assert f1(result.arrays["graph"].astype(bool), truth) == 1
    assert result.summary["largest_self_path"] == 0
    assert result.summary["status"] == "finished" and "converged" not in result.summary
    names = [tuple(edge["between"]) for edge in result.summary["edges"]]
    assert len(names) == 6 and all(edge["path_norm"] > 0.15 for edge in result.summary["edges"])


@pytest.mark.parametrize("rounds", [1, 15])
def test_a_graph_that_has_not_settled_is_no_result(rounds: int) -> None:
    """Path norms shrink from large ones, so that nearly every pair still has an edge."""
    table, truth = pairwise_mixed(6, 900, seed=2)
    summary = revealed(split(table, 250, 600), **SHORT | {"rounds": rounds}).summary
    assert summary["converged"] is False and summary["status"] == "out of rounds"
    assert len(summary["edges"]) > truth.sum() / 2 and "method.rounds" in summary["notes"][0]


def test_changes_are_those_of_the_last_tenth_of_the_rounds() -> None:
    assert [earlier_round(rounds) for rounds in (1, 2, 15, 500)] == [0, 1, 13, 450]


def test_how_records_are_split_over_sites_changes_nothing_but_rounding() -> None:
    table, _ = pairwise_mixed(4, 300, seed=1)
    one, other = (
        revealed(split(table, *ends), **SHORT | {"rounds": 30}) for ends in ((5,), (100, 200))
    )
    for name in ("path_norms", "layer_1.weight", "log_sd"):
        np.testing.assert_allclose(one.arrays[name], other.arrays[name], atol=1e-6)


def test_the_end_of_training_is_a_minimum_in_each_layers_weights() -> None:
    """A weight of 0 has a smaller slope than the penalty's; another one has minus the penalty's."""
    table, _ = pairwise_mixed(3, 200, seed=0)
    settings = {"hidden": [5], "sparsity": 0.2, "rounds": 700, "learning_rate": 0.005}
    arrays = revealed(split(table, 90), **settings, refit=False).arrays
    u = np.column_stack([table["v0"] / 8, table["v1"] / 8, table["v2"] - 0.5])
    layout = NgmLayout(tuple(ModelColumn(f"v{i}", (i,), i == 2) for i in range(3)), (0, 1, 2))
    network = SharedNetwork(layout, (5,), arrays["centre"], arrays["scale"])
    theta = network.blocks.join({b.name: arrays[b.name] for b in network.blocks.blocks})
    gradient = network.blocks.split(gradient_sum(network, theta, u)[1] / len(u))
    share = np.mean(table["v2"])
    s = np.array([1, 1, np.sqrt(share * (1 - share))])  # of equation (1)
    slopes = path_slopes(network.weights(theta), 10 * self_paths(layout) + 0.2 * s[:, None])
    for name, slope, weight in zip(network.layers, slopes, network.weights(theta), strict=True):
        left, zero = gradient[name], weight == 0
        assert np.all(np.abs(left[zero]) <= slope[zero] + 1e-9)
        np.testing.assert_allclose(left[~zero], -np.sign(weight[~zero]) * slope[~zero], atol=0.02)
        assert 0 < np.sum(zero) < zero.size


def test_a_larger_sparsity_leaves_no_edge() -> None:
    table, _ = pairwise_mixed(4, 300, seed=1)
    result = revealed(split(table, 100), **SHORT | {"sparsity": 1.0})
    assert result.summary["edges"] == [] and not result.arrays["graph"].any()
    assert np.all(result.arrays["path_norms"] < 0.1)


def test_logarithms_weaken_the_penalties() -> None:
    table, _ = pairwise_mixed(4, 300, seed=1)
    plain, log = (
        revealed(split(table, 100), **SHORT | {"sparsity": 0.3, "log_penalties": on})
        for on in (False, True)
    )
    assert np.sum(log.arrays["path_norms"]) > 1.2 * np.sum(plain.arrays["path_norms"])


def test_by_default_as_few_edges_are_false_as_the_setting_says() -> None:
    """Equation (2): a linear dependence of z value z has the strength (|z| - 1) / sqrt(n)."""
    layout, n = (
        NgmLayout(tuple(ModelColumn(c, (i,), i == 1) for i, c in enumerate("xyz")), (0, 1, 2)),
        400,
    )
    z = scipy.stats.norm.isf(0.06 / 3 / 2)  # of three pairs
    share, norms = 0.2, np.zeros((3, 3))
    norms[0, 1] = norms[0, 2] = norms[2, 0] = (z - 1) / np.sqrt(n)
    norms[1, 0] = norms[0, 1] / np.sqrt(share * (1 - share))  # of a logit, not of a probability
    settings = FedNgr(false_edges=0.06)
    for factor, edge in ((1.001, True), (0.999, False)):
        found = found_graph(settings, layout, np.array([0, 2 * share - 1, 0]), factor * norms, n)
        assert found.sparsity == 1 / 20
        assert [found.graph[0, 1], found.graph[0, 2], found.graph[1, 2]] == [edge, edge, False]


def test_a_sparsity_beyond_what_is_significant_leaves_every_path_that_is_left() -> None:
    layout = NgmLayout(tuple(ModelColumn(c, (i,), False) for i, c in enumerate("xyz")), (0, 1, 2))
    norms = np.zeros((3, 3))
    norms[0, 1] = 1e-6
    found = found_graph(FedNgr(sparsity=1.0), layout, np.zeros(3), norms, 400)
    assert found.threshold == 0
    np.testing.assert_array_equal(found.graph, [[0, 1, 0], [1, 0, 0], [0, 0, 0]])


@pytest.mark.parametrize("logarithms", [False, True])
def test_the_factors_of_paths_are_those_of_equation_1(logarithms: bool) -> None:
    """Of two normal columns and a level with the share .2, at 400 records: 1 / root n is .05."""
    layout = NgmLayout(tuple(ModelColumn(c, (i,), i == 2) for i, c in enumerate("xyc")), (0, 1, 2))
    network = SharedNetwork(layout, (4,), np.array([0, 0, -0.6]), np.ones(3))
    theta, s = network.initial(0), np.array([1, 1, 0.4])
    norms = np.abs(network.weights(theta)[1]) @ np.abs(network.weights(theta)[0])
    own = 10 / (1 + np.trace(norms)) if logarithms else 10
    every = 0.05 / (1 + np.sum(s[:, None] * norms)) if logarithms else 0.05
    found = penalised_paths(FedNgr(log_penalties=logarithms), network, theta, 400)
    expected = own * np.eye(3) + every * np.repeat(s[:, None], 3, axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_how_many_records_a_site_may_have_changes_nothing_but_rounding() -> None:
    table, _ = pairwise_mixed(4, 300, seed=1)
    few = {"hidden": [30], "rounds": 8, "learning_rate": 0.03, "refit": False}
    one, other = (revealed(split(table, 100), max_rows=n, **few) for n in (300, 30_000))
    for name in ("path_norms", "layer_1.weight"):
        np.testing.assert_allclose(one.arrays[name], other.arrays[name], atol=1e-6)


def test_a_constant_column_has_no_edge_and_levels_count_together() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=400)
    level = np.where(x + 0.5 * rng.normal(size=400) > 0.7, "c", rng.choice(["a", "b"], 400))
    table = pd.DataFrame({"x": x, "colour": level, "none": 1.0})
    result = revealed(split(table, 150), **SHORT)
    assert [edge["between"] for edge in result.summary["edges"]] == [["x", "colour"]]


def test_without_standardising_training_is_the_only_sum() -> None:
    table, _ = pairwise_mixed(4, 300, seed=1)
    result = revealed(split(table, 100), **SHORT, standardise=False)
    np.testing.assert_array_equal(result.arrays["scale"], 1)
    np.testing.assert_array_equal(result.arrays["centre"], 0)


def test_the_largest_path_between_two_columns_counts_as_a_mean_of_both_directions() -> None:
    norms = np.arange(36.0).reshape(6, 6)  # x, y, colour (two indicators), case, z
    found = edge_strengths(mixed_layout(), norms)
    assert found.shape == (5, 5)
    assert found[0, 1] == found[1, 0] == (1 + 6) / 2
    assert found[0, 2] == found[2, 0] == (3 + 18) / 2


# --- the refit ------------------------------------------------------------------------------------


@pytest.mark.parametrize("standardise", [True, False])
def test_the_refit_is_that_of_fedngm_over_the_edges_that_were_found(standardise: bool) -> None:
    """In every bit, if both know the number of records; the graph is the same without it."""
    table, _ = pairwise_mixed(4, 300, seed=1)
    tables = split(table, 120)
    settings = SHORT | {"rounds": 60, "standardise": standardise, "threshold": 0.02}
    found = revealed(tables, **settings | {"refit": True, "refit_rounds": 40})
    edges = [edge["between"] for edge in found.summary["edges"]]
    inputs = "aic" if standardise else "neighbours"
    same = {"edges": edges, "rounds": 40, "penalty": 1.0, "standardise": standardise,
            "inputs": inputs}  # fmt: skip
    other = revealed(tables, "fedngm", **same)
    assert found.summary["shrunk"] == "path norms"
    networks = refitted(found.arrays)
    assert edges and set(networks) == set(other.arrays)
    for name, array in other.arrays.items():
        rounding = 0 if standardise else 1e-8
        np.testing.assert_allclose(networks[name], array, rounding, rounding)
    assert found.summary["calibration"] == other.summary["calibration"]
    assert found.summary["refit_loss"] == pytest.approx(other.summary["loss"], rel=1e-12)
    assert found.summary["refit_loss"] < found.summary["loss"]
    without = revealed(tables, **settings)
    assert not refitted(without.arrays)
    for name, array in without.arrays.items():  # moments are rounded differently from squares
        np.testing.assert_allclose(found.arrays[name], array, 1e-7, 1e-9)


def test_a_site_answers_one_graph_only_in_the_refit() -> None:
    reals: dict[str, Any] = {"type": "continuous", "low": -8, "high": 8}
    job = parse_job(
        {
            "title": "A graph", "sites": {"max_rows": 100}, "columns": {"x": reals, "y": reals},
            "method": {"name": "fedngr"}, "protocol": {"name": "plain"},
            "release": {"min_sites": 2, "min_records": 2},
        }
    )  # fmt: skip
    public = public_facts(job, ("a", "b"))
    method, rng = FedNgr(), np.random.default_rng(0)
    rows = SiteRecords(rng.uniform(-1, 1, (20, 2)), 0, np.zeros(2))
    sizes = {stage.name: stage.spec[-1].size for stage in method.stages(public)}
    units = {"centre": np.zeros(2), "scale": np.ones(2)}
    edge = np.array([[0, 1], [1, 0]], dtype=np.uint8)
    message = {"theta": np.zeros(sizes["refit"]), "graph": edge, **units}

    def answer(message: dict[str, Any], memory: dict[str, Any]) -> dict[str, Any]:
        random = replayable_random(0)
        return method.contribute("refit", rows, message, memory, public, random)[1]

    memory = answer(message, units)  # as after the rounds in which the graph is found
    assert answer(message, memory).keys() == memory.keys() == {"centre", "scale", "graph"}
    for changed in ({"graph": 0 * edge}, {"scale": 2 * np.ones(2)}):
        with pytest.raises(PeerError):
            answer(message | changed, memory)
    with pytest.raises(PeerError):
        answer(message | {"centre": 0.1 * np.ones(2)}, units)


@pytest.mark.parametrize(
    ("settings", "where"),
    wrong_settings(
        hidden=[[], [0]],
        sparsity=[-1.0],
        self_penalty=[-1.0],
        threshold=[-0.1],
        false_edges=[0.0, 5e-324],
        rounds=[0],
        learning_rate=[0.0],
        refit_rounds=[0, 10**6],
        refit_penalty=[-1.0],
    ),
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], where: str) -> None:
    table, _ = pairwise_mixed(4, 20, seed=1)
    with pytest.raises(JobError) as caught:
        revealed(split(table, 10), **settings)
    assert caught.value.where == where


def test_noise_is_refused() -> None:
    table, _ = pairwise_mixed(3, 40, seed=1)
    reals: dict[str, Any] = {"type": "continuous", "low": -8, "high": 8}
    job = {
        "title": "A graph",
        "sites": {"max_rows": 100},
        "columns": {"v0": reals, "v1": reals},
        "method": {"name": "fedngr", "rounds": 3},
        "protocol": {"name": "masked"},
        "release": {"min_sites": 2, "min_records": 2},
        "privacy": {"placement": "round", "epsilon": 8, "delta": 1e-5, "adjacency": "replace"},
    }
    with pytest.raises(CapabilityError):
        plan_job(parse_job(job), split(table, 20))


def test_a_graph_is_learned_from_samples_of_the_sites_own_networks() -> None:
    """Consensus by distillation; a site without records has no samples and no weight."""
    table, truth = pairwise_mixed(6, 900, seed=2)
    tables = split(table, 300, 600, 900)  # the last site has no record
    settings = SHORT | {"learn_from": "samples", "samples": 400}
    result = revealed(tables, **settings | {"refit": True, "refit_rounds": 5})
    assert f1(result.arrays["graph"].astype(bool), truth) == 1
    over_records = revealed(tables, **SHORT)
    assert not np.allclose(result.arrays["path_norms"], over_records.arrays["path_norms"])
    again = revealed(tables, **settings)
    np.testing.assert_allclose(result.arrays["path_norms"], again.arrays["path_norms"], 1e-7, 1e-9)


def test_the_number_of_samples_is_checked() -> None:
    table, _ = pairwise_mixed(3, 30, seed=0)
    with pytest.raises(JobError) as caught:
        revealed(split(table, 10), learn_from="samples", samples=0)
    assert caught.value.where == "method.samples"
