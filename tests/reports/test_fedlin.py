"""The page and the tables of a FedLin result: their numbers are the summary's."""

import functools
import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from support.runs.reports import Page, copied, job, page_of, tables, written

from secagg.cli.output.fedlin import show_sites
from secagg.evidence.claims.limitations import unprotected
from secagg.evidence.claims.privacy import PrivacyClaims
from secagg.evidence.numbers import NONE, significant
from secagg.reports.fedlin import (
    coefficients_in_words,
    differ_in_words,
    errors_table,
    hypotheses_table,
    noise_in_words,
    shared_in_words,
    shared_table,
    sites_table,
)
from secagg.reports.page import render
from secagg.reports.results import Block, blocks
from secagg.runs.run import Run

SETTINGS: dict[str, dict[str, Any]] = {
    "fedlin_hm1": {"rounds": 3, "holdout": 0.2},
    "fedlin_hm2": {"rounds": 3, "draws": 100},
    "fedlin_full": {"draws": 100},
    "fedavg": {"rounds": 3, "personal": 1.0, "holdout": 0.2},
}


@functools.cache
def run_of(name: str) -> Run:
    """Return a small run; not to be changed."""
    method = {"name": name, "outcome": "y", "predictors": ["x", "z"], **SETTINGS[name]}
    alone = {"simulation": {"site_alone": False}}
    return written(job("moments", "additive") | {"method": method} | alone, tables(3))


def block_of(name: str) -> Block:
    """Return its one block."""
    (block,) = blocks(run_of(name).facts, run_of(name).result.summary)
    return block


def _tables(summary: dict[str, Any]) -> list[tuple[list[str], list[list[str]]]]:
    return [sites_table(summary), shared_table(summary), hypotheses_table(summary)]


@pytest.mark.parametrize("name", SETTINGS)
class TestPage:
    def test_the_page_is_well_formed(self, name: str) -> None:
        page = Page(page_of(run_of(name)))
        assert page.wrong == [] and all(th.get("scope") for th in page.named("th"))

    def test_the_page_has_every_number_of_the_tables(self, name: str) -> None:
        text, block = Page(page_of(run_of(name))).text, block_of(name)
        summary = block.summary
        for head, rows in (*_tables(summary), errors_table(block)):
            assert all(len(row) == len(head) for row in rows)
            for row in rows:
                assert " ".join(row) in text
        assert coefficients_in_words(summary) in text

    def test_the_terminal_has_every_number_of_the_tables(self, name: str) -> None:
        block, out = block_of(name), io.StringIO()
        show_sites(Console(file=out, width=200), block)
        shown = " ".join(out.getvalue().replace("│", " ").split())
        summary = block.summary
        for _, rows in (*_tables(summary), errors_table(block)):
            for row in rows:
                assert " ".join(row) in shown

    def test_a_warning_says_not_to_compare_held_out_errors_across_runs(self, name: str) -> None:
        page = Page(page_of(run_of(name))).text
        assert ("Compare them within this run" in page) == ("holdout" in SETTINGS[name])

    def test_the_report_states_what_other_runs_may_reveal(self, name: str) -> None:
        facts = run_of(name).facts
        found = unprotected(facts, PrivacyClaims.of(facts))
        text = " ".join(claim.text for claim in found)
        assert "shows how the sites' means differ" in text


def test_sites_that_may_contradict_each_other_are_named() -> None:
    facts, result = copied(run_of("fedlin_hm2"))
    x, z = (row for row in result.summary["across_sites"] if row["term"] in ("x", "z"))
    result.summary["converged"] = True
    x |= {"mean": 0.5, "sd": 0.6}
    z |= {"mean": -0.5, "sd": 0.4}
    text = differ_in_words(result.summary)
    assert " x:" in text and " z" not in text
    page = render(facts, result)
    assert page.index(text) < page.index('id="result"') < page.rindex(text)
    x |= {"sd": 0.4}
    assert differ_in_words(result.summary) == ""


def test_sites_that_differ_by_a_test_are_named_first() -> None:
    """Only terms whose p, times the number of terms, is below 0.05."""
    facts, result = copied(run_of("fedlin_full"))
    p = {"sites agree on x": 4e-9, "sites agree on z": 0.03}
    for row in result.summary["tests"]:
        row["p"] = p.get(row["name"], row["p"])
    text = differ_in_words(result.summary)
    assert " x " in text and " z" not in text and "0.0001" in text
    page = render(facts, result)
    assert page.index(text.replace("<", "&lt;")) < page.index('id="result"')
    for row in result.summary["tests"]:
        row["p"] = 0.5
    assert differ_in_words(result.summary) == ""


def test_ratios_of_other_families_are_shown_with_their_intervals() -> None:
    rows = [
        {"name": "mean of x over sites", "estimate": 0.5, "low": 0.1, "high": 0.9,
         "odds_ratio": 1.6487, "odds_low": 1.105, "odds_high": 2.4596},
        {"name": "sd of x between sites", "estimate": 0.4, "low": 0.1, "high": 0.9},
    ]  # fmt: skip
    head, (mean, sd) = shared_table({"shared": rows, "level": 0.95})
    assert head[3].startswith("odds ratio") and len(head) == len(mean) == len(sd) == 5
    assert mean[3:] == ["1.65", "1.10 to 2.46"] and sd[3] == sd[4] == NONE


def test_tables_agree_with_the_summary() -> None:
    _, result = copied(run_of("fedlin_hm1"))
    summary = result.summary
    row = summary["across_sites"][0]
    _, rows = sites_table(summary)
    assert rows[0][:3] == [row["term"], significant(row["mean"], 3), significant(row["sd"], 3)]
    assert rows[0][3] == significant(row["own_units"]["mean"], 3)
    error = summary["errors"][0]
    head, rows = errors_table(block_of("fedlin_hm1"))
    assert head[-1] == "held out, mean over sites"
    assert rows[0] == [
        "HM1",
        *(significant(error[key], 3) for key in ("training_rmse", "held_rmse", "mean_site_rmse")),
    ]
    assert shared_table(summary)[1] == []


def test_the_remaining_change_is_named() -> None:
    page = Page(page_of(run_of("fedlin_hm1"))).text
    assert run_of("fedlin_hm1").result.summary["remaining"] is not None
    assert "relative change still to come" in page


def test_sites_that_include_a_predictor_are_counted() -> None:
    summary = run_of("fedlin_hm2").result.summary
    head, rows = sites_table(summary)
    assert head[-1] == "sites whose interval excludes 0"
    assert rows[0][-1] == f"{summary['across_sites'][0]['included']} of 3"
    _, rows = sites_table({**summary, "sites": 5})  # two of them without records
    assert rows[0][-1].endswith(" of 3")
    names = [row[0] for row in shared_table(summary)[1]]
    assert names[:2] == ["mean of x over sites", "mean of z over sites"]


def test_the_computation_of_the_shared_posterior_is_named() -> None:
    _, result = copied(run_of("fedlin_hm2"))
    weighed = {"many": 512, "effective": 431.06, "error": 0.02}
    summary = {**result.summary, "points": weighed}
    words = shared_in_words(summary)
    assert "512" in words and "431" in words
    out = io.StringIO()
    show_sites(Console(file=out, width=200), replace(block_of("fedlin_hm2"), summary=summary))
    assert words in " ".join(out.getvalue().split())
    assert shared_in_words(result.summary) in Page(page_of(run_of("fedlin_hm2"))).text


def test_the_number_of_sites_with_enough_records_is_stated() -> None:
    _, result = copied(run_of("fedlin_hm2"))
    summary = result.summary
    assert summary["sites_telling_noise"] == summary["sites_with_records"] == 3
    assert coefficients_in_words(summary).endswith(
        "; 3 of 3 sites have more records than coefficients"
    )
    fewer = coefficients_in_words({**summary, "sites_telling_noise": 2})
    assert "; 2 of 3 sites" in fewer and "the others depend on" in fewer
    assert ";" not in coefficients_in_words(run_of("fedavg").result.summary)  # has no noise


def test_an_intercept_is_not_selected() -> None:
    _, result = copied(run_of("fedlin_hm2"))
    summary = result.summary
    own = {**summary["across_sites"][0], "term": "intercept"}
    del own["own_units"]
    _, rows = sites_table({**summary, "across_sites": [own, *summary["across_sites"]]})
    assert rows[0][0] == "intercept"
    assert [row[-1] for row in rows] == [
        "–",
        *(f"{row['included']} of 3" for row in summary["across_sites"]),
    ]


def test_units_are_stated() -> None:
    assert coefficients_in_words({"units": "own"}) == "in the columns' own units"
    pooled = {"units": "pooled", "intercept": "modelled"}
    assert coefficients_in_words(pooled).endswith("of all records around their mean")


NOISY: dict[str, dict[str, Any]] = {
    "fedlin_hm1": {"rounds": 3},
    "fedlin_hm2": {"rounds": 3, "draws": 100},
    "fedavg": {"rounds": 3, "personal": 1.0},
}


@pytest.mark.parametrize("name", NOISY)
def test_under_noise_at_the_sites_a_sentence_beside_each_table_says_what_it_means(
    name: str,
) -> None:
    method = {"name": name, "outcome": "y", "predictors": ["x", "z"], **NOISY[name]}
    privacy = {"placement": "site", "epsilon": 4.0, "delta": 1e-5}
    raw = job("moments", "additive", privacy=privacy, simulation={}) | {"method": method}
    run = written(raw, tables(3))
    (block,) = blocks(run.facts, run.result.summary)
    sentences = noise_in_words(block.summary)
    assert all(sentences) and sentences[0] != sentences[1]
    out = io.StringIO()
    show_sites(Console(file=out, width=200), block)
    page = Page(page_of(run))
    assert page.wrong == []
    for text in (page.text, out.getvalue()):
        shown = " ".join(text.split())
        places = [shown.index(sentence) for sentence in sentences]
        assert places[0] < shown.lower().index("root mean squared errors") < places[1]


def test_without_noise_there_are_no_such_sentences() -> None:
    assert noise_in_words(run_of("fedlin_hm2").result.summary) == ("", "")
    page = Page(page_of(run_of("fedlin_hm2"))).text
    assert "differential privacy, not of the records" not in page
