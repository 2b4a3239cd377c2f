"""The first three lines of a page, and whether sites agree: each number is the result's."""

import io
import json
import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from statsmodels.stats.meta_analysis import combine_effects
from support.methods.all_methods import CASES
from support.runs.reports import (
    Page,
    copied,
    job,
    noised_run,
    page_of,
    small_run,
    tables,
    void_run,
    written,
)

from secagg.cli.output.analyses import show_analysis
from secagg.cli.output.terminal import SafeConsole
from secagg.reports import site_agreement
from secagg.reports.fedlin import opposite_in_words
from secagg.reports.page import render
from secagg.reports.regression import effect
from secagg.reports.results import Block, blocks
from secagg.runs.run import Run

RUNS = {
    "logistic": lambda: small_run("logistic", "additive"),
    "moments": lambda: small_run("moments", "additive"),
    "sparse": lambda: small_run("sparse_regression", "additive"),
    "field": lambda: small_run("sparse_markov", "plain"),
    "directed": lambda: small_run("sparse_directed", "plain"),
    "noised": lambda: noised_run("sum"),
    "void": void_run,
}
KINDS = ("fedlin_hm2", "fedavg", "local_graphs", "gradient", "notears_admm")
"""Other methods, whose summaries have other tables."""
ESTIMATES = np.array([0.4, 0.9, -0.3, 1.6])
ERRORS = np.array([0.2, 0.3, 0.25, 0.4])


def lines(page: str) -> dict[str, str]:
    found = re.search(r'<dl class="answer".*?</dl>', page, re.S)
    assert found is not None
    parts = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", found[0])
    return {label: Page(text).text for label, text in parts}


def logistic(**changed: tuple[float, float]) -> tuple[Any, Any]:
    """Return facts and result of a run in which sites have these estimates of x, with errors."""
    facts, result = copied(small_run("logistic", "plain"))
    alone = result.summary["simulation"]["site_alone"]
    for site, (estimate, error) in changed.items():
        term = next(t for t in alone[site.replace("_", " ")]["terms"] if t["term"] == "x")
        ends = (estimate - 1.96 * error, estimate + 1.96 * error)
        term |= {"estimate": estimate, "std_error": error, "ci_low": ends[0], "ci_high": ends[1]}
        odds = map(math.exp, (estimate, *ends))
        term |= dict(zip(("odds_ratio", "odds_low", "odds_high"), odds, strict=True))
    return facts, result


def on_terminal(block: Block) -> str:
    """Return what `secagg run` prints of an analysis, in one line."""
    out = SafeConsole(file=io.StringIO(), width=80, highlight=False)
    show_analysis(out, block, block.alone, {}, noised=False)
    assert isinstance(out.file, io.StringIO)
    return " ".join(out.file.getvalue().split())


class TestAnswer:
    @pytest.mark.parametrize("name", RUNS)
    def test_every_page_begins_with_data_result_and_guarantee(self, name: str) -> None:
        run: Run = RUNS[name]()
        page = page_of(run)
        found = lines(page)
        assert list(found) == ["Data", "Result", "Guarantee"] and all(found.values())
        assert f"{len(run.facts['cohort'])} site" in found["Data"]
        order = [page.index(at) for at in ('id="answer"', 'id="result"', 'id="questions"')]
        assert order == sorted(order)

    @pytest.mark.parametrize("method", KINDS)
    def test_each_kind_of_table_has_an_answer(self, method: str) -> None:
        settings = {"name": method, **CASES[method]}
        raw = job("moments", "plain", simulation={"site_alone": False}) | {"method": settings}
        facts, result = copied(written(raw, tables(4)))
        result.summary["converged"] = True  # few rounds are enough for a table
        found = lines(render(facts, result))
        assert re.search(r"\d", found["Result"]) and "None" not in found["Result"]
        if method == "fedlin_hm2":
            result.summary["across_sites"][-1] |= {"mean": 0.1, "sd": 9.0}
            (block,) = blocks(facts, result.summary)
            differ = opposite_in_words(block.summary)
            assert differ and differ in on_terminal(block)

    def test_the_clearest_terms_stand_with_their_intervals(self) -> None:
        run = small_run("logistic", "additive")
        terms = run.result.summary["terms"][1:]
        clearest = max(terms, key=lambda term: abs(term["statistic"]))
        _, estimate, interval = effect(clearest, "odds")
        text = lines(page_of(run))["Result"]
        assert f": {clearest['term']} {estimate} ({interval})" in text

    def test_an_answer_without_edges_counts_the_pairs_that_are_undecided(self) -> None:
        facts, result = copied(small_run("sparse_directed", "plain"))
        result.summary["converged"] = True
        for row in result.summary["arrows"]:
            row |= {"edge": False, "undecided": False}
        assert "undecided" not in lines(render(facts, result))["Result"]
        result.summary["arrows"][0]["undecided"] = True
        assert "1 pair undecided" in lines(render(facts, result))["Result"]

    def test_the_guarantee_is_that_of_the_run(self) -> None:
        noised = lines(page_of(noised_run("sum")))["Guarantee"]
        assert "ε 12 at δ 10⁻⁶" in noised and "one record added or removed" in noised
        assert lines(page_of(void_run()))["Guarantee"].startswith("None.")
        assert "own contribution" in lines(page_of(small_run("logistic", "plain")))["Guarantee"]
        facts, result = copied(noised_run("sum"))
        facts["privacy"]["epsilon"] /= 2  # not that of the job
        assert "No differential privacy" in lines(render(facts, result))["Guarantee"]

    def test_a_result_that_must_not_be_used_is_not_an_answer(self) -> None:
        facts, result = copied(small_run("logistic", "plain"))
        result.summary.update(converged=False, status="separated")
        assert not re.search(r"\d", lines(render(facts, result))["Result"])


class TestSitesAgree:
    def test_q_is_that_of_another_implementation(self) -> None:
        q, df, p = site_agreement.heterogeneity(list(zip(ESTIMATES, ERRORS, strict=True)))
        theirs = combine_effects(ESTIMATES, ERRORS**2)
        assert q == pytest.approx(theirs.q) and df == theirs.df
        assert p == pytest.approx(theirs.test_homogeneity().pvalue)
        assert site_agreement.i_squared(q, df)[0] == pytest.approx(theirs.i2)

    @pytest.mark.parametrize(
        ("q", "df", "share", "low", "high"),
        [
            # by hand, with H = max(1, sqrt(Q / (k - 1))) and Higgins and Thompson's error of log H
            (24.6, 3, 0.87805, 0.71092, 0.94855),
            (19.0, 8, 0.57895, 0.11761, 0.79908),
            (4.9, 3, 0.38776, 0.0, 0.79106),
            (2.9, 3, 0.0, 0.0, 0.84688),
        ],
    )
    def test_the_interval_of_i_squared(
        self, q: float, df: int, share: float, low: float, high: float
    ) -> None:
        assert site_agreement.i_squared(q, df) == pytest.approx((share, low, high), abs=2e-5)

    def test_two_sites_that_agree_have_no_interval(self) -> None:
        share, low, high = site_agreement.i_squared(1.2, 1)
        assert share == pytest.approx(1 - 1 / 1.2) and math.isnan(low) and math.isnan(high)
        assert site_agreement.i_squared(0.0, 3)[0] == 0.0

    def test_sites_that_contradict_the_pooled_estimate_are_named(self) -> None:
        facts, result = logistic(
            site_0=(2.0, 0.2), site_1=(1.0, 0.3), site_2=(-1.5, 0.3), site_3=(1.1, 0.3)
        )
        (block,) = blocks(facts, result.summary)
        x = next(each for each in site_agreement.agreements(block) if each.term == "x")
        assert x.differ and "site 2" in x.against and x.opposite == ("site 2",)
        page = render(facts, result)
        short = site_agreement.in_short(block)
        assert "Sites differ in x" in short and lines(page)["Result"].endswith(short)
        assert short in on_terminal(block)
        first, *others = site_agreement.sentences(block)
        assert site_agreement.OVERDISPERSED not in others
        as_rates = json.loads(json.dumps(result.summary).replace('"odds_', '"rate_'))
        (rates,) = blocks(facts, as_rates)
        assert site_agreement.OVERDISPERSED in site_agreement.sentences(rates)
        assert site_agreement.OVERDISPERSED in site_agreement.in_short(rates)
        assert site_agreement.OVERDISPERSED not in short
        dispersed = replace(rates, summary={**rates.summary, "dispersion": 2.0})
        assert site_agreement.OVERDISPERSED not in site_agreement.sentences(dispersed)
        assert site_agreement.OVERDISPERSED not in site_agreement.in_short(dispersed)
        assert first in Page(page).text and "site 2" in first and "site 0" in first

    def test_sites_that_agree_are_not_called_different(self) -> None:
        same = dict.fromkeys(("site_0", "site_1", "site_2", "site_3"), (0.9, 0.3))
        (block,) = blocks(*logistic(**same)[:1], logistic(**same)[1].summary)
        x = next(each for each in site_agreement.agreements(block) if each.term == "x")
        assert not x.differ and x.q == pytest.approx(0, abs=1e-12) and not x.opposite
        assert site_agreement.in_short(block) == ""
        (only,) = site_agreement.sentences(block)
        assert only.startswith("No tested term is found to differ") and "other" not in only

    def test_sites_without_an_estimate_are_named_as_not_compared(self) -> None:
        """A site without events in a level has no estimate, and may differ most."""
        facts, result = logistic()
        result.summary["simulation"]["site_alone"]["site 1"]["converged"] = False
        (block,) = blocks(facts, result.summary)
        *_, last = site_agreement.sentences(block)
        assert last.startswith("Not compared") and "site 1, which has no estimate" in last
        assert last in Page(render(facts, result)).text

    def test_without_sites_estimates_the_page_says_that_they_are_not_known(self) -> None:
        assert site_agreement.NOT_KNOWN in Page(page_of(noised_run("sum"))).text
        assert site_agreement.NOT_KNOWN not in Page(page_of(small_run("logistic", "plain"))).text
