"""`notears_mlp_admm` with solver "gradient": NOTEARS-MLP on all records, by sums of gradients."""

from typing import Any

import numpy as np
import pytest
from support.methods.all_methods import SITES, job
from support.methods.all_methods import records as site_records
from support.methods.playing import Played, play, rows_of

import secagg
from secagg.contracts import DisclosureKind, PublicFacts, Result, State, Variable
from secagg.core.randomness import seeded_random, system_random
from secagg.errors import DataError, JobError
from secagg.experiments.simulated_graphs import erdos_renyi_dag, mlp_rows
from secagg.models.graphs.metrics import compare_graphs
from secagg.models.graphs.mlp import Networks, squared_loss
from secagg.models.notears_admm.mlp import NotearsMlpAdmm
from secagg.models.notears_admm.mlp_pooled import pooled_search

HALF, D = 32.0, 4
NAMES = tuple("abcd")
PUBLIC = PublicFacts(
    tuple(Variable(name, name, 0.0, HALF) for name in NAMES), NAMES, 1000, ("north", "south")
)


def records(n: int = 150) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([3, n])
    truth = erdos_renyi_dag(D, 4, rng)
    return truth, np.clip(mlp_rows(truth, n, rng), -HALF, HALF)


def played(parts: list[np.ndarray], **settings: Any) -> Played:
    method = NotearsMlpAdmm(**{"solver": "gradient", "hidden": 3, **settings})
    rows = [rows_of(part / HALF) for part in parts]
    return play(method, rows, PUBLIC, [system_random] * len(parts))


def run(parts: list[np.ndarray], **settings: Any) -> Result:
    return played(parts, **settings).result


def centrally(rows: np.ndarray, evaluations: int | None = None) -> State:
    """Return the same search on all records in one place, after so many evaluations or done."""
    networks = Networks(D, 3, 0.01)
    search, loss = pooled_search(networks), squared_loss(networks, rows, len(rows))
    state = search.begin(networks.initial(np.random.default_rng(0), random_inputs=True))
    while not state["done"] and state["evaluations"] != evaluations:
        state = search.told(state, *loss(state["trial"]))
    return state


@pytest.mark.parametrize("standardise", [True, False])
def test_the_search_is_that_of_all_records_in_one_place(standardise: bool) -> None:
    """It takes the same steps. Sums are rounded to 2^-40 of their units, at most 4 * 32^2 in own
    units: 4e-9 in a slope. Steps magnify that, by less than 1000 in twenty. After some hundred,
    weights have one or two common digits (the loss is flat there), and the graph is equal.
    """
    _, rows = records()
    pooled = (rows - rows.mean(axis=0)) / rows.std(axis=0) if standardise else rows
    parts = np.split(rows, [20, 90])
    early = played(parts, standardise=standardise, rounds=20).state["search"]
    np.testing.assert_allclose(early["trial"], centrally(pooled, 20)["trial"], rtol=0, atol=4e-6)
    result = run(parts, standardise=standardise)
    expected = Networks(D, 3, 0.01).adjacency(centrally(pooled)["theta"])
    assert result.summary["status"] == "converged"
    np.testing.assert_array_equal(result.arrays["directed"], expected > 0.3)


def test_how_records_are_split_over_sites_does_not_matter() -> None:
    _, rows = records()
    parts, others = np.split(rows, [75]), np.split(rows[::-1], [5, 10, 140])
    one, other = (played(each, rounds=20).state["search"]["trial"] for each in (parts, others))
    np.testing.assert_allclose(one, other, rtol=0, atol=4e-6)


def test_it_finds_the_graph_that_the_papers_admm_misses() -> None:
    """In own units, whose errors have variance 1."""
    truth, rows = records(400)
    parts = np.split(rows, [100, 200, 300])
    found = [
        compare_graphs(run(parts, standardise=False, **more).arrays["directed"], truth)
        for more in ({}, {"solver": None, "variant": "paper"})
    ]
    assert found[0].shd < found[1].shd and found[0].tpr > found[1].tpr


def test_too_few_rounds_are_reported() -> None:
    result = run(np.split(records()[1], [75]), rounds=5)
    assert result.summary["status"] == "out of rounds"
    assert result.summary["converged"] is False
    assert result.summary["diagnostics"]["rounds"] == 5


@pytest.mark.parametrize(
    "wrong",
    [{"rho1": 1.0}, {"rho2": 1.0}, {"gamma1": 1.5}, {"gamma2": 1.5}, {"variant": "paper"},
     {"zero_diagonal": False}],
)  # fmt: skip
def test_settings_of_admm_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(JobError) as refused:
        NotearsMlpAdmm(solver="gradient", **wrong).stages(PUBLIC)
    assert refused.value.where == f"method.{next(iter(wrong))}"


def test_a_loss_beyond_its_bound_is_not_blamed_on_a_setting_of_admm() -> None:
    with pytest.raises(DataError) as refused:
        run(np.split(records()[1], [75]), penalty=1e30, rounds=50)
    assert "rho2" not in refused.value.advice and "method.penalty" in refused.value.advice


def test_sums_tell_of_the_pooled_records_only() -> None:
    assert NotearsMlpAdmm(solver="gradient").disclosure.kind is DisclosureKind.POOLED
    assert NotearsMlpAdmm().disclosure.kind is DisclosureKind.SITES


def test_all_protocols_give_the_same_bits() -> None:
    sites = {site: site_records(i, 40 + i) for i, site in enumerate(SITES)}
    settings = {"solver": "gradient", "rounds": 3, "tiers": [["x"], ["y"]]}
    found = [
        secagg.run(job("notears_mlp_admm", protocol, **settings), sites, random=random).result
        for protocol, random in (
            ("plain", seeded_random(bytes(32))), ("masked", seeded_random(bytes(31) + b"1")),
        )
    ]  # fmt: skip
    assert found[0].summary == found[1].summary
    for name, array in found[0].arrays.items():
        np.testing.assert_array_equal(array, found[1].arrays[name])
