"""What chains that disagree about arrows agree about: pairs, whatever their directions."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from secagg.contracts import COLLECTED_DRAWS, PublicFacts, RecordCount, Result, State, Variable
from secagg.models.sparse_bayes.directed_graph import SparseDirected
from secagg.models.sparse_bayes.laplace_graph import entry_positions
from secagg.models.sparse_bayes.without_directions import in_one_cycle

Array = NDArray[np.float64]

NAMES = ("a", "b", "c")
DRAWN = 400


def result_of(effects: list[dict[tuple[str, str], float]]) -> Result:
    """Return the result of draws near these effects, {(cause, effect): size}, of each chain."""
    rng, chains, p = np.random.default_rng(1), len(effects), len(NAMES)
    variables = tuple(Variable(name, name, -9.0, 9.0) for name in NAMES)
    public = PublicFacts(variables, NAMES, 500, ("s0", "s1"))
    rows, columns = entry_positions(p)
    size = np.zeros((chains, 1, len(rows)))
    for i, (j, h) in enumerate(zip(rows, columns, strict=True)):
        size[:, 0, i] = [each.get((NAMES[h], NAMES[j]), 0.0) for each in effects]
    drawn = []
    for _ in range(DRAWN):
        theta = size + 0.01 * rng.standard_normal(size.shape)
        chance = np.where(size != 0, rng.uniform(0.9, 1, size.shape), rng.uniform(0, 0.1))
        one = np.ones(size.shape)
        drawn.append({"theta": theta, "inclusion": chance, "t": one, "eta": one})
    method = SparseDirected(chains=chains, temperatures=1, rounds=2 * DRAWN)
    state: State = {
        **method.initial_state(public), "status": "done", "records": 600, COLLECTED_DRAWS: drawn,
    }  # fmt: skip
    return method.result(state, public, RecordCount(600.0, 0.0))


def row_of(rows: list[dict[str, Any]], *names: str) -> dict[str, Any]:
    [found] = [row for row in rows if {*names} == {*row["between"]}]
    return found


def test_chains_with_reversed_arrows_agree_about_the_pair() -> None:
    """a -> b and b -> a of the same size have the same correlation of standardised columns."""
    summary = result_of([{("a", "b"): 0.6}, {("b", "a"): 0.6}]).summary
    assert not summary["converged"]
    unclear = {(row["from"], row["to"]) for row in summary["arrows"] if not row["chains_agree"]}
    assert unclear == {("a", "b"), ("b", "a")}
    pairs = summary["pairs_without_directions"]
    assert all(pair["chains_agree"] for pair in pairs)
    first = pairs[0]
    assert {*first["between"]} == {"a", "b"} and first["pip"] > 0.9
    assert first["low"] < 0.6 < first["high"]
    # draws of one deviate by .01, at a slope of 1
    assert first["partial_correlation"] == pytest.approx(0.6, abs=0.01)
    assert first["in_one_cycle"] == 0
    assert max(pair["pip"] for pair in pairs[1:]) < 0.2
    assert "'a' - 'b'" in summary["notes"][-1] and "'a' -> 'b'" in summary["notes"][-1]


def test_chains_that_differ_in_a_pair_do_not_agree_about_it() -> None:
    summary = result_of([{("a", "b"): 0.6}, {("a", "b"): 0.2, ("b", "c"): 0.5}]).summary
    pairs = summary["pairs_without_directions"]
    assert not row_of(pairs, "a", "b")["chains_agree"]  # connected in both, not equally strongly
    assert not row_of(pairs, "b", "c")["chains_agree"]
    assert "'a' - 'b'" not in summary["notes"][-1].split("Without directions")[1]


def test_chains_that_agree_need_no_note() -> None:
    around = {("a", "b"): 0.5, ("b", "c"): 0.5, ("c", "a"): -0.3}
    summary = result_of([around, around]).summary
    assert summary["converged"] and all(row["chains_agree"] for row in summary["arrows"])
    assert not any("Without directions" in note for note in summary["notes"])
    assert all(pair["in_one_cycle"] == 1 for pair in summary["pairs_without_directions"])


def test_columns_in_one_cycle_are_those_of_strong_components() -> None:
    rng = np.random.default_rng(2)
    graphs = rng.random((200, 7, 7)) < rng.uniform(0, 0.4, (200, 1, 1))
    graphs &= ~np.eye(7, dtype=bool)
    around = np.roll(np.eye(7, dtype=bool), 1, axis=0)  # the longest way
    every = np.array([*graphs, around])
    for graph, found in zip(every, in_one_cycle(every), strict=True):
        _, label = connected_components(graph, directed=True, connection="strong")
        assert np.array_equal(found, label[:, None] == label)
