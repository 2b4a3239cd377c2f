"""Advice on a graph that did not converge: it depends on the cause, and following it helps."""

from __future__ import annotations

import re
from typing import Any

import pytest
from rich.console import Console
from support.reports import Page, banners, job, page_of, tables

from secagg.cli import output
from secagg.cli.output import terminal
from secagg.models.notears_admm.advice import advice
from secagg.models.notears_admm.coordinator import Schedule
from secagg.runs.run import Run, run

NAMES = ["x", "y", "z", "x2"]
RAN_OUT, AT_LIMIT = "out of rounds", "penalty limit reached"
GROW_SLOWLY = "Let the penalties grow more slowly (smaller method.gamma1 and method.gamma2)"


def graph_run(**settings: Any) -> Run:
    method = {"name": "notears_admm", "variables": NAMES} | settings
    return run(job("moments", "plain", simulation={}) | {"method": method}, tables(3))


@pytest.mark.parametrize(
    ("settings", "status", "said"),
    [
        ({"rounds": 30}, RAN_OUT, "Cycles remained and sites still disagreed when"),
        ({"rounds": 70}, RAN_OUT, "Sites still disagreed when the rounds ran out"),
        ({"gamma1": 1.05, "rounds": 130}, RAN_OUT, "a larger method.gamma1"),
        ({"gamma1": 50, "gamma2": 50}, AT_LIMIT, GROW_SLOWLY),
    ],
)
def test_advice_by_cause(settings: dict[str, Any], status: str, said: str) -> None:
    failed = graph_run(**settings).result.summary
    assert failed["status"] == status
    assert said in failed["notes"][0]


def test_taken_it_helps() -> None:
    """The defaults have more rounds, a larger gamma1, and smaller gammas than those above."""
    better = graph_run().result.summary
    assert better["converged"] and not any("not converged" in note for note in better["notes"])


@pytest.mark.parametrize(("standardised", "said"), [(False, "standardise = true"), (True, "grow")])
@pytest.mark.parametrize("status", ["diverged", AT_LIMIT])
def test_what_does_not_fit_the_penalties(standardised: bool, said: str, status: str) -> None:
    """Numbers out of range, or sites that still disagreed at the end of the schedule."""
    state = {"status": status, "h": 1.1, "residual": 0.5}
    found = advice(state, Schedule(rounds=200), standardised=standardised)
    assert said in found
    assert ("more rounds change nothing" in found) == (status == AT_LIMIT)
    assert ("standardise = true" in found) != standardised  # never a setting that is in force


def test_it_is_marked_on_the_terminal_and_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    finished = graph_run(rounds=30)
    said = finished.result.summary["notes"][0]
    assert "Cycles remained" in said
    recorded = Console(record=True, width=400, quiet=True)
    recorded.quiet = False
    monkeypatch.setattr(terminal, "standard_output", lambda: recorded)
    output.show_run(finished)
    lines = [line.strip() for line in recorded.export_text().splitlines() if line.strip()]
    name = "Graph by NOTEARS-ADMM, variant “fast”"
    assert lines[2] == f"! {name}: do not rely on this result"  # after the title and the records
    assert f"- {said}" in lines
    assert any(line.startswith(f"! {name}: edges") for line in lines)

    facts = finished.facts | {"log": {"lines": 1, "head": ""}}
    page = page_of(Run(finished.result, facts, [], None, []))
    assert (False, "A result that must not be used") in banners(page)
    assert re.search(r'<h3 id="analysis-1"><span class="mark">!</span> Graph by NOTEARS-ADMM', page)
    assert "(notears_admm) ! A result that must not be used" in Page(page).text
    assert Page(page).text.count(said) == 2  # on the first page and next to the graph


def test_notes_of_a_converged_graph_are_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    finished = graph_run(penalty=10)  # no slope exceeds it: no edge, and a note says why
    recorded = Console(record=True, width=400, quiet=True)
    recorded.quiet = False
    monkeypatch.setattr(terminal, "standard_output", lambda: recorded)
    output.show_run(finished)
    shown = recorded.export_text()
    assert finished.result.summary["notes"]
    for note in finished.result.summary["notes"]:
        assert f"- {note}" in shown
    assert "edges (0): none" in shown
