"""Effects per standard deviation, and huge odds ratios, in reports and on terminals."""

import io
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from support.runs.reports import Page, copied, job, noised_run, small_run, tables, written

from secagg.cli.output.analyses import show_analysis
from secagg.cli.output.terminal import SafeConsole
from secagg.reports.page import render
from secagg.reports.regression import effect, per_sd
from secagg.reports.results import Block, blocks

CONTINUOUS = {"x": {"type": "continuous"}, "group": {"type": "categorical"}}
SCALED = {"sd": 0.1, "estimate": 5.0, "ci_low": 4.0, "ci_high": 6.0}
TERM = {"term": "x", "estimate": 50.0, "std_error": 5.1, "ci_low": 40.0, "ci_high": 60.0}


def shown(block: Block, columns: dict[str, Any]) -> str:
    out = io.StringIO()
    alone = {site: own for site, own in block.alone.items() if own.get("converged", True)}
    show_analysis(Console(file=out, width=400), block, alone, columns, noised=False)
    return out.getvalue()


def test_only_continuous_predictors_have_an_effect_per_standard_deviation() -> None:
    assert per_sd(TERM | {"per_sd": SCALED}, False, CONTINUOUS) == ("0.100", "5.00", "4.00 to 6.00")
    assert per_sd(TERM | {"term": "group=b", "per_sd": SCALED}, False, CONTINUOUS) is None
    assert per_sd(TERM | {"per_sd": None}, False, CONTINUOUS) is None
    assert per_sd(TERM, False, CONTINUOUS) is None  # result.json of an earlier version


@pytest.mark.parametrize("method", ["logistic", "moments"])
def test_page_and_terminal_show_effects_per_standard_deviation(method: str) -> None:
    facts, result = copied(small_run(method, "plain"))
    text, columns = Page(render(facts, result)).text, facts["job"]["columns"]
    for block in (b for b in blocks(facts, result.summary) if "terms" in b.summary):
        rows = [per_sd(term, block.effect, columns) for term in block.summary["terms"]]
        assert any(rows) and not all(rows)
        for row in filter(None, rows):
            assert f"(SD {row[0]})" in text and row[1] in text and row[2] in text
            assert row[1] in shown(block, columns) and row[2] in shown(block, columns)
        assert "per SD" in text and "per SD" in shown(block, columns)


def test_noised_standard_deviations_are_not_used() -> None:
    facts, result = copied(noised_run("sum"))
    assert "per SD" not in Page(render(facts, result)).text
    block = next(b for b in blocks(facts, result.summary) if "terms" in b.summary)
    assert "per SD" not in shown(block, facts["job"]["columns"])


def test_deviations_within_sites_are_called_so() -> None:
    raw = job("moments", "plain", simulation={})
    raw["method"] = {
        "name": "moments", "centre": "site",
        "analyses": [{"kind": "ols", "outcome": "y", "predictors": ["x"]}],
    }  # fmt: skip
    run = written(raw, tables(3))
    assert "standard deviation within sites" in Page(render(*copied(run))).text
    (term,) = run.result.summary["analyses"][0]["terms"]
    within = [table["x"] - table["x"].mean() for table in tables(3).values()]
    rows = np.concatenate(within)
    assert term["per_sd"]["sd"] == pytest.approx(math.sqrt(rows @ rows / (len(rows) - 3)), rel=1e-6)


def test_a_huge_odds_ratio_is_neither_a_dash_nor_without_interval() -> None:
    odds = {"odds_ratio": math.exp(50), "odds_low": math.exp(40), "odds_high": None}
    _, estimate, interval = effect(TERM | {"ci_high": 900.0} | odds, "odds")
    assert estimate == "5.2 × 10²¹"
    assert interval == "2.4 × 10¹⁷ to > 10³⁰⁸"
    facts, result = copied(small_run("logistic", "plain"))
    result.summary["terms"][1] |= TERM | {"ci_high": 900.0} | odds
    page = render(facts, replace(result))
    assert "2.4 × 10¹⁷ to > 10³⁰⁸" in Page(page).text


def test_a_terminal_of_80_columns_cuts_no_number() -> None:
    facts, result = copied(small_run("logistic", "plain"))
    result.summary["terms"][-1]["term"] = "group=a level with a long name of many words"
    (block,) = blocks(facts, result.summary)
    columns, out = facts["job"]["columns"], io.StringIO()
    show_analysis(Console(file=out, width=80), replace(block, alone={}), {}, columns, noised=False)
    text = out.getvalue()
    assert "…" not in text and max(map(len, text.splitlines())) <= 80
    for term in block.summary["terms"]:
        assert effect(term, "odds")[1] in text


@pytest.mark.parametrize("width", [80, 100, 120])
def test_with_single_sites_no_name_is_cut_and_no_interval_is_split(width: int) -> None:
    facts, result = copied(small_run("logistic", "plain"))
    (block,) = blocks(facts, result.summary)
    fit = next(own for own in block.alone.values() if own.get("converged", True))
    names = ["cleveland", "hungary", "switzerland", "va_long_beach"]
    out = io.StringIO()
    columns = facts["job"]["columns"]
    console = Console(file=out, width=width)
    show_analysis(console, block, dict.fromkeys(names, fit), columns, noised=False)
    text = out.getvalue()
    assert "…" not in text and max(map(len, text.splitlines())) <= width
    for name in (*names, *(term["term"] for term in block.summary["terms"])):
        assert name in text
    for term in fit["terms"]:
        assert text.count(f"({effect(term, 'odds')[2]})") == 4
    for term in block.summary["terms"]:
        assert effect(term, "odds")[2] in text


def test_a_wide_terminal_has_one_table() -> None:
    facts, result = copied(small_run("logistic", "plain"))
    (block,) = blocks(facts, result.summary)
    assert block.alone and shown(block, facts["job"]["columns"]).count("term  ") == 1


def test_a_long_word_stays_whole() -> None:
    facts, result = copied(small_run("logistic", "plain"))
    result.summary["terms"][-1]["term"] = "a" * 70
    (block,) = blocks(facts, result.summary)
    out = io.StringIO()
    console = SafeConsole(file=out, force_terminal=True, width=60)
    show_analysis(console, block, {}, facts["job"]["columns"], noised=False)
    assert "…" not in out.getvalue() and "a" * 70 in out.getvalue()
