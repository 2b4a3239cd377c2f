"""No reader may take a count that sites left out, because it was small, for none at all."""

import io
from dataclasses import replace

import pytest
from rich.console import Console
from support.runs.reports import Page, copied, noised_run, page_of, small_run

from secagg.cli.output import terminal
from secagg.cli.output.run import show_run
from secagg.evidence.claims.counts import NONE_COUNTED, not_counted
from secagg.reports.page import render
from secagg.runs.run import Run


def shown(run: Run, monkeypatch: pytest.MonkeyPatch) -> str:
    out = io.StringIO()
    monkeypatch.setattr(terminal, "standard_output", lambda: Console(file=out, width=200))
    show_run(run)
    return out.getvalue()


def test_a_count_that_sites_left_out_is_not_shown_as_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    run = small_run("moments", "plain")
    assert not any(run.result.summary["values_outside_bounds"].values())
    minimum = run.facts["job"]["release"]["min_records"]
    assert f" {minimum} " in not_counted(run.facts)
    page = page_of(run)
    assert page.count(f'<td class="n">{NONE_COUNTED}</td>') == 4  # the continuous columns
    for text in (Page(page).text, shown(run, monkeypatch)):
        assert f"incomplete left out: {NONE_COUNTED}" in text.replace(" and left", " left")
        assert not_counted(run.facts) in text and NONE_COUNTED in text


def test_a_count_is_a_lower_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    run = small_run("moments", "plain")
    facts, result = copied(run)
    result.summary["values_outside_bounds"]["y"] = result.summary["incomplete_records"] = 23
    page, text = render(facts, result), shown(replace(run, result=result), monkeypatch)
    assert '<td class="n">at least 23</td>' in page and "left out: at least 23 (" in Page(page).text
    assert "y at least 23" in text and "left out: at least 23" in text


def test_nothing_is_said_of_counts_that_noise_replaces(monkeypatch: pytest.MonkeyPatch) -> None:
    run = noised_run("sum")
    for text in (Page(page_of(run)).text, shown(run, monkeypatch)):
        assert NONE_COUNTED not in text and "not counted: fewer" not in text
