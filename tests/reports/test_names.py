"""A value on the log scale is called so wherever it is shown; result.json keeps the job's names."""

import functools
import io
import re
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from support.runs.reports import Page, job, page_of, tables, written

from secagg.cli.output import terminal
from secagg.cli.output.run import show_run
from secagg.reports.names import log_names, shown_columns, shown_result
from secagg.runs.run import Run

LOG = {"type": "continuous", "low": 1e-4, "high": 1e4, "unit": "days", "transform": "log"}


@functools.cache
def logged(method: str) -> Run:
    """Return a run in which y, which is in every analysis, enters as its logarithm."""
    data = tables(3)
    for table in data.values():
        table["y"] = np.exp(table["y"])
    raw = job(method, "plain")
    raw["columns"]["y"] = LOG
    if method == "moments":
        fit = {"kind": "ols", "outcome": "z", "predictors": ["y"]}
        raw["method"]["analyses"].append(fit)
    return written(raw, data)


def printed(run: Run, monkeypatch: pytest.MonkeyPatch) -> str:
    out = io.StringIO()
    monkeypatch.setattr(terminal, "standard_output", lambda: Console(file=out, width=300))
    show_run(run)
    return out.getvalue()


def names_in(value: Any) -> set[str]:
    if isinstance(value, str):
        return {value}
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return {name for part in parts for name in names_in(part)}


@pytest.mark.parametrize("method", ["moments", "sparse_markov"])
def test_tables_headings_and_figures_name_the_log_scale(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = logged(method)
    page, text = page_of(run), printed(run, monkeypatch)
    results = page[page.index('id="result"') : page.index('id="columns"')]
    for shown in (re.sub("<[^>]*>", " | ", results), text.partition("values outside")[0]):
        assert "log(y)" in shown
        assert re.search(r"(?<![\w(])y(?![\w)])", shown) is None  # nowhere without log
    assert "analysed as log(y), the natural logarithm" in Page(page).text
    summary = run.result.summary
    assert "y" in names_in(summary) and "log(y)" not in names_in(summary)


def test_the_heading_names_a_logged_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    run = logged("moments")
    assert "of log(y)</h3>" in page_of(run)
    assert " of log(y): coefficient" in printed(run, monkeypatch)


def test_a_logged_predictor_keeps_its_unit_and_its_standard_deviation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = logged("moments")
    assert "log(y) logarithm, in days (SD " in " ".join(Page(page_of(run)).text.split())
    last = printed(run, monkeypatch).rpartition("of z: coefficient")[2]
    rows = [line for line in last.splitlines() if "log(y)" in line]
    assert rows and "per SD" in last and "–" not in rows[0]


def test_names_are_changed_where_they_are_names_only() -> None:
    columns = {"x": LOG, "ols": LOG, "z": {"type": "continuous", "transform": "none"}}
    names = log_names(columns)
    assert names == {"x": "log(x)", "ols": "log(ols)"}
    assert list(shown_columns(columns)) == ["log(x)", "log(ols)", "z"]
    result = {
        "method": "ols", "outcome": "x", "terms": [{"term": "ols"}, {"term": "z"}],
        "truth": [["x", "z"]], "shared": [{"name": "mean of x over sites"}, {"name": "nu"}],
        "tests": [{"name": "sites agree on x"}, {"name": "correlation of ols and x"}],
    }  # fmt: skip
    assert shown_result(result, names) == {
        "method": "ols", "outcome": "log(x)", "terms": [{"term": "log(ols)"}, {"term": "z"}],
        "truth": [["log(x)", "z"]],
        "shared": [{"name": "mean of log(x) over sites"}, {"name": "nu"}],
        "tests": [
            {"name": "sites agree on log(x)"}, {"name": "correlation of log(ols) and log(x)"},
        ],
    }  # fmt: skip
    assert shown_result(result, {}) is result


def test_a_column_that_is_called_a_logarithm_keeps_its_name_alone() -> None:
    assert log_names({"x": LOG, "log(x)": {"type": "binary"}}) == {}
