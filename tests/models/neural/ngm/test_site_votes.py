"""The graph that a site brings: its experts' or its records', and the sum of both."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from secagg.contracts import SiteRecords
from secagg.core.randomness import replayable_random
from secagg.jobs.job import parse_job
from secagg.models.neural.graph_votes import pack, vote_level
from secagg.models.neural.ngm.layout import ModelColumn, NgmLayout
from secagg.models.neural.ngm.site_votes import site_votes
from secagg.models.neural.site_graphs import site_graph
from secagg.runs.run import run

LAYOUT = NgmLayout(
    tuple(ModelColumn(name, (i,), False) for i, name in enumerate("xyz")), (0, 1, 2)
)  # fmt: skip


def records(n: int, seed: int) -> np.ndarray:
    """Return x -> y -> z."""
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 0.2, n)
    y = 0.8 * x + rng.normal(0, 0.1, n)
    return np.column_stack([x, y, 0.8 * y + rng.normal(0, 0.1, n)])


def test_experts_edges_are_the_votes_whatever_the_records_say() -> None:
    rows = SiteRecords(records(200, 0), 0, np.zeros(3))
    learned = site_votes(LAYOUT, rows, "partial_correlation", 0.05)
    np.testing.assert_array_equal(learned, [1, 0, 1])  # x - y, x - z, y - z
    edges = (("z", "x"), ("x", "outside"), ("x", "z"))
    named = replace(rows, expert_edges=edges)
    np.testing.assert_array_equal(site_votes(LAYOUT, named, "pc", 0.05), [0, 1, 0])
    none = replace(rows, expert_edges=())
    np.testing.assert_array_equal(site_votes(LAYOUT, none, "pc", 0.05), 0)


def test_without_records_there_are_no_votes() -> None:
    rows = SiteRecords(np.zeros((0, 3)), 0, np.zeros(3), expert_edges=(("x", "y"),))
    np.testing.assert_array_equal(site_votes(LAYOUT, rows, "partial_correlation", 0.05), 0)


@pytest.mark.neural
def test_a_run_sums_experts_and_learned_votes(tmp_path: Path) -> None:
    raw: dict[str, Any] = {
        "title": "Votes",
        "sites": {"max_rows": 200, "folder": str(tmp_path)},
        "columns": {n: {"type": "continuous", "low": -1, "high": 1} for n in "xyz"},
        "method": {"name": "fedngm", "edges": "votes", "hidden": [], "rounds": 2},
        "release": {"min_sites": 2, "min_records": 2},
    }
    expected = np.zeros(3)
    for seed, name in enumerate("abc"):
        table = pd.DataFrame(records(150, seed), columns=list("xyz"))
        table.to_csv(tmp_path / f"{name}.csv", index=False)
        graph = site_graph(
            table.to_numpy(), [(0,), (1,), (2,)], "partial_correlation",
            alpha=vote_level(3, 3, 2, 0.2),
        )  # fmt: skip
        expected += [0, 1, 0] if name == "b" else pack(graph)
    (tmp_path / "b.edges.csv").write_text("column,neighbour\nz,x\n")
    result = run(parse_job(raw), random=replayable_random(1)).result
    pairs = {("x", "y"): 0, ("x", "z"): 1, ("y", "z"): 2}
    found = {tuple(edge["between"]): edge["votes"] for edge in result.summary["edges"]}
    assert found == {pair: expected[i] for pair, i in pairs.items() if expected[i] >= 2}
    assert found[("x", "y")] == 2  # b's records have it as well, and its experts do not
