"""What the page and the terminal show of trained networks."""

import functools
import math
from typing import Any

import pytest
from support.methods.networks import job, tables
from support.runs.reports import Page, page_of, written

from secagg.reports.networks import derivatives_table, edges_table, losses_table, tenths
from secagg.reports.results import Block, blocks
from secagg.runs.run import Run

METHODS: dict[str, dict[str, Any]] = {
    "fedngm": {"hidden": [3], "rounds": 4},
    "paper": {"name": "fedngm", "network": "paper", "hidden": [3], "rounds": 4},
    "fedngr": {"hidden": [3], "rounds": 4, "refit_rounds": 4},
    "torch_module": {"outcome": "y", "predictors": ["x"], "rounds": 4,
                     "module_settings": {"hidden": []}},
}  # fmt: skip


def test_edges_are_ordered_by_votes_and_small_numbers_stay_hidden() -> None:
    edges = [{"between": ["a", "b"], "votes": None}, {"between": ["a", "c"], "votes": 4},
             {"between": ["b", "c"], "votes": 3}]  # fmt: skip
    heading, rows = edges_table({"edges": edges}, 3)
    assert heading == "Votes"
    assert rows == [("a", "c", "4"), ("b", "c", "3"), ("a", "b", "fewer than 3")]
    assert edges_table({"edges": [{"between": ["a", "b"]}]}, 3) == ("", [("a", "b", "")])
    assert edges_table({"edges": []}, 3) == ("", [])


@pytest.mark.parametrize("rounds", [1, 2, 10, 11, 500])
def test_the_table_of_losses_has_the_first_and_the_last_round(rounds: int) -> None:
    table = losses_table([1.0 / i for i in range(1, rounds + 1)])
    assert [table[0][0], table[-1][0]] == [1, rounds] and len(table) == min(rounds, 10)
    assert all(float(loss) == pytest.approx(1 / number, rel=1e-3) for number, loss in table)


def test_the_error_of_a_share_is_binomial() -> None:
    level = {"variable": "case", "tenths": [{"probability": 0.35, "records": 50, "share": 0.4}]}
    none = {"variable": "kind=b", "tenths": []}
    found = tenths({"calibration": [level, none]})
    assert found["case"][0].error == pytest.approx(math.sqrt(0.4 * 0.6 / 50))
    assert found["kind=b"] == []


def test_each_kind_of_derivative_has_its_column() -> None:
    row = {"column": "x", "self": 0.0, "edges": 0.25, "other": 0.5}
    assert derivatives_table({"derivatives": [row]}) == [("x", "0", "0.250", "0.500")]


@functools.cache
def run_of(name: str) -> Run:
    """Return a small run; not to be changed."""
    return written(job({"name": name, **METHODS[name]}, "masked"), tables(4, rows=80))


def block_of(name: str) -> Block:
    (block,) = blocks(run_of(name).facts, run_of(name).result.summary)
    return block


@pytest.mark.neural
@pytest.mark.parametrize("name", METHODS)
def test_the_page_shows_every_loss_edge_and_share(name: str) -> None:
    block, page = block_of(name), Page(page_of(run_of(name)))
    assert not page.wrong
    assert (block.ending if block.usable else block.notes[0]) in page.text
    assert ("must not be used" in page.text) == (not block.usable) == (name != "torch_module")
    if "losses" in block.summary:
        for number, loss in losses_table(block.summary["losses"]):
            assert f" {number} {loss} " in page.text
    for edge in block.summary.get("edges", ()):
        assert " {} {} ".format(*edge["between"]) in page.text
    drawings = [svg.get("class") for svg in page.named("svg")]
    assert drawings.count("curve calibration") == sum(map(bool, tenths(block.summary).values()))
    assert ("graph" in drawings) == (name != "torch_module")
