"""Advice on a graph that did not converge: it depends on the cause, and is shown everywhere."""

from __future__ import annotations

import re

import pytest
from rich.console import Console
from support.reports import Page, banners, job, page_of, tables

from secagg.cli import output
from secagg.cli.output import terminal
from secagg.models.notears_admm.advice import advice
from secagg.models.notears_admm.coordinator import Schedule
from secagg.runs.run import Run, run

RAN_OUT, AT_LIMIT, DIVERGED = "out of rounds", "penalty limit reached", "diverged"
CYCLES, NO_CYCLES, FAR, NEAR = 1.1, 1e-6, 0.5, 1e-8
SLOWER = ["gamma1", "gamma2", "rho1", "rho2", "rounds"]


@pytest.mark.parametrize(
    ("status", "h", "residual", "standardised", "named"),
    [
        (RAN_OUT, CYCLES, FAR, True, ["rounds"]),
        (RAN_OUT, NO_CYCLES, FAR, False, ["rounds"]),
        (RAN_OUT, CYCLES, NEAR, True, ["gamma1", "gamma2"]),
        (AT_LIMIT, CYCLES, NEAR, False, ["gamma1", "gamma2"]),
        (AT_LIMIT, CYCLES, FAR, True, SLOWER),
        (AT_LIMIT, CYCLES, FAR, False, ["standardise"]),
        (DIVERGED, CYCLES, FAR, True, SLOWER),
        (DIVERGED, NO_CYCLES, NEAR, False, ["standardise"]),
    ],
)
def test_advice_names_the_expected_settings(
    status: str, h: float, residual: float, standardised: bool, named: list[str]
) -> None:
    state = {"status": status, "h": h, "residual": residual}
    text = advice(state, Schedule(), standardised=standardised)
    assert re.findall(r"method\.(\w+)", text) == named
    assert ("Cycles remained" in text) == (residual == FAR and h == CYCLES and status != DIVERGED)


def test_advice_is_marked_on_the_terminal_and_in_the_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    method = {"name": "notears_admm", "variables": ["x", "y", "z", "x2"], "rounds": 30}
    finished = run(job("moments", "plain", simulation={}) | {"method": method}, tables(3))
    recorded = Console(record=True, width=400, quiet=True)
    recorded.quiet = False
    monkeypatch.setattr(terminal, "standard_output", lambda: recorded)
    output.show_run(finished)
    note = finished.result.summary["notes"][0]
    assert finished.result.summary["status"] == RAN_OUT and "method.rounds" in note
    lines = [line.strip() for line in recorded.export_text().splitlines() if line.strip()]
    assert lines[2].startswith("! ")  # after the title and the records
    assert f"- {note}" in lines

    facts = finished.facts | {"log": {"lines": 1, "head": ""}}
    page = page_of(Run(finished.result, facts, [], None, []))
    assert (False, "A result that must not be used") in banners(page)
    assert re.search(r'<h3 id="analysis-1"><span class="mark">!</span> Graph by NOTEARS-ADMM', page)
    assert Page(page).text.count(note) == 2  # on the first page and next to the graph
