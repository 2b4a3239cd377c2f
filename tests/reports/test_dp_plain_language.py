"""Plain words say what is guaranteed, and no more: each number of theirs has an oracle here."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm
from support.reports import (
    Page,
    banners,
    copied,
    noised_run,
    page_of,
    private_job,
    small_run,
    statuses,
    tables,
)

from secagg.contracts import Result
from secagg.jobs.job import Named, parse_job
from secagg.jobs.registry import PROTOCOLS, make_protocol
from secagg.privacy.accounting.guarantee import sentence
from secagg.reports.dp_claims import seen
from secagg.reports.dp_plain_language import factor, right_guesses
from secagg.reports.expected_utility import fewer_records_than_expected, percent
from secagg.reports.page import render
from secagg.reports.results import records_of
from secagg.runs.plan import plan_run
from secagg.runtime.planned_job import plan_job

PLACEMENTS = ("sum", "site", "round")


def guarantee(mu: float, epsilon: float = 8.0, remainder: float = 0.0) -> dict[str, Any]:
    return {"mu": mu, "epsilon": epsilon, "delta_for_discreteness": remainder}


class TestHowMuch:
    @pytest.mark.parametrize("mu", [0.01, 0.5, 1.666, 4.0])
    def test_no_guess_is_right_more_often(self, mu: float) -> None:
        """The best guess between N(0, 1) and N(mu, 1) is right with chance 1/2 + distance / 2."""
        distance = quad(
            lambda x: abs(norm.pdf(x, mu) - norm.pdf(x)) / 2, -40, 40, points=[mu / 2], limit=200
        )[0]
        best = 100 * (0.5 + distance / 2)
        assert best - 1e-6 <= right_guesses(guarantee(mu)) < best + 1

    def test_guessing_by_what_was_released_keeps_to_it(self) -> None:
        """A record moves a sum by 1.5 sigma: guess by whether the sum is above the middle."""
        random, tries = np.random.default_rng(11), 200_000
        there = random.integers(0, 2, tries)
        released = random.normal(1.5 * there, 1.0)
        right = float(np.mean((released > 0.75) == there))
        # one standard deviation of the share is at most 0.5 / root(tries)
        bound = right_guesses(guarantee(1.5)) / 100
        assert bound - 0.01 - 5 * 0.5 / math.sqrt(tries) < right <= bound

    def test_discrete_noise_comes_on_top(self) -> None:
        assert right_guesses(guarantee(1.0, 2.0, 0.05 * (1 + math.exp(2.0)))) == 75  # 69.1 + 5
        assert right_guesses(guarantee(60.0)) == 100

    @pytest.mark.parametrize(
        ("epsilon", "words"),
        [(8.0, "e⁸, about 2,981 times"), (1.0, "e¹, about 2.72 times"),
         (0.5, "e^0.5, about 1.65 times"), (12.0, "e¹², about 162,755 times")],
    )  # fmt: skip
    def test_factor(self, epsilon: float, words: str) -> None:
        assert factor(guarantee(1.0, epsilon)) == words

    @pytest.mark.parametrize("placement", PLACEMENTS)
    def test_first_page_and_section_say_it(self, placement: str) -> None:
        finished = noised_run(placement)
        text = Page(page_of(finished)).text
        most = right_guesses(finished.facts["privacy"])
        assert 50 < most < 100
        assert text.count("The factor is e¹², about 162,755 times: a bound on any attack") == 2
        words = f"is right in at most {most} of 100 cases if both were equally likely beforehand; "
        assert text.count(f"{words}by tossing a coin, in 50.") == 2
        assert text.count("Who knows all other records, and has to tell whether one record") == 2
        assert "nearly" not in text  # at such an epsilon it would be too much

    def test_the_bound_is_for_cases_that_were_equally_likely(self) -> None:
        """Whoever knew in nine of ten cases beforehand is right more often without any release."""
        random, tries = np.random.default_rng(12), 200_000
        there = random.random(tries) < 0.9
        released = random.normal(0.5 * there, 1.0)
        # the likelier of the two, by Bayes: density ratio times odds above 1
        right = float(np.mean((np.log(9) + 0.5 * (released - 0.25) > 0) == there))
        assert right > 0.85 > right_guesses(guarantee(0.5)) / 100

    def test_of_persons_all_other_persons_are_known(self) -> None:
        facts, result = copied(noised_run("sum"))
        facts["privacy"] |= {"unit": "person", "person": "pid"}
        text = Page(render(facts, result)).text
        assert "Who knows all other persons' records, and has to tell whether one person" in text
        assert "even to somebody who knows all other persons' records." in text
        assert "whatever else they know: all other persons' records, too." in text
        assert "all other records" not in text
        assert "Sampling none: every complete record, up to the cap of a person, takes" in text

    def test_replacing_has_another_guess(self) -> None:
        text = Page(page_of(noised_run("sum", adjacency="replace"))).text
        assert "has to tell which of two records was there" in text
        assert "whether one record says this or that" in text


class TestGuarantee:
    @pytest.mark.parametrize(
        ("placement", "shown", "hidden"),
        [
            ("sum", ["Also up to 1 of the 4 sites that tell the coordinator their noise",
                     "More than 1 of the sites tell", "it counts as a site that colludes."],
             ["Also all other sites together"]),
            ("site", ["Also all other sites together with the coordinator",
                      "Then that site's records are not protected."],
             ["Also up to 1", "More than 1 of the sites tell"]),
            ("round", ["The 7 releases of this run, all together", "Also up to 1 of the 4 sites"],
             ["Also all other sites together"]),
        ],
    )  # fmt: skip
    def test_against_whom(self, placement: str, shown: list[str], hidden: list[str]) -> None:
        text = Page(page_of(noised_run(placement))).text
        shown = [*shown, "What is guaranteed", "About whom", "Against whom", "By how much",
                 "Over which releases", "Over which runs", "What makes it void"]  # fmt: skip
        assert [words for words in shown if words not in text] == []
        assert [words for words in hidden if words in text] == []

    def test_nobody_may_collude(self) -> None:
        facts, result = copied(noised_run("sum", colluding=0))
        text = Page(render(facts, result)).text
        assert "But not the sites themselves: each knows its own share of the noise" in text
        assert "worth at least what “If more sites collude” says of one. No site may" in text
        assert "A site tells anybody its noise: it then is worth" in text
        said = "not against the sites themselves, each of which knows its own share"
        assert said in sentence(facts["privacy"]) and text.count(said) == 2
        assert "at most 0 of" not in text and "More than 0" not in text

    def test_a_site_by_itself_is_who_is_left_out(self) -> None:
        """With nobody to collude, what one site sees is under the guarantee: it knows its share."""
        rows = dict(noised_run("sum", colluding=0).facts["privacy"]["if_more_collude"])
        assert rows[0] <= 12.0 < rows[1]
        for terms in ({}, {"colluding": 2}):
            facts = noised_run("sum", **terms).facts["privacy"]
            assert dict(facts["if_more_collude"])[1] <= 12.0
            assert "the sites themselves" not in sentence(facts)


class TestOneNumberOfRecords:
    def test_the_best_one_is_shown_throughout(self) -> None:
        facts, result = copied(noised_run("sum"))
        result.summary.update(n=1234, n_error=2.4, records=1239, records_error=3.7)
        result.summary["analyses"][1]["n"] = 1234
        assert records_of(result.summary) == (1234, 2.4)
        page = render(facts, result)
        text = Page(page).text
        assert "about 1,234 ± 2 complete; incomplete ones are not counted" in text
        assert "There are about 1,234 ± 2 complete records of 4 sites" in text
        assert "Release rules, which come first, went by the first of them alone: 1,239." in text
        assert text.count("1,239") == 1
        assert "all analyses use it" not in text
        assert "n ≈" not in text and "records, with noise" not in text
        assert "δ times the number of records is about 0.0012" in text

    def test_a_method_without_its_own_has_the_first(self) -> None:
        facts, result = copied(noised_run("round"))
        assert "n_error" not in result.summary
        text = Page(render(facts, result)).text
        assert f"There are about {result.summary['records']} ± " in text
        assert "of two releases" not in text and "Release rules, which" not in text

    def test_the_least_that_rules_allow_is_no_estimate(self) -> None:
        facts, result = copied(noised_run("sum"))
        result.summary["records"] = 20  # 4 sites of at least 5
        text = Page(render(facts, result)).text
        words = "went by the least that they allow, 20: the first release alone told that or less."
        assert words in text

    def test_only_least_squares_goes_by_the_best_one(self) -> None:
        """The others take the moments as they were repaired, and the number with them."""
        facts, result = copied(noised_run("sum"))
        describe, fit = result.summary["analyses"]
        result.summary["n"] = fit["n"] = 1234
        for used, more in ((1234, ""), (1301, ", here to 1,301")):
            describe["n"] = used
            words = (
                "Least squares goes by it; all other analyses go by the moments of a possible "
                f"table, in which the number was rounded up and may have been raised{more}."
            )
            assert words in Page(render(facts, result)).text

    def test_a_run_says_the_numbers_that_its_analyses_used(self) -> None:
        finished = noised_run("sum", epsilon=1.0)
        describe, fit = finished.result.summary["analyses"]
        assert fit["n"] == finished.result.summary["n"] <= describe["n"]
        assert describe["n"] == finished.result.arrays["n"]
        more = f", here to {describe['n']:,}" if describe["n"] > fit["n"] else ""
        assert f"may have been raised{more}." in Page(page_of(finished)).text


class TestNoExactWords:
    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_every_protocols_numbers_have_noise(self, protocol: str) -> None:
        sees = dict(make_protocol(Named(name=protocol)).capabilities.sees)
        noised = seen(sees, noised=True)
        for text in noised.values():
            noised_count = "total number of records (with noise)"
            assert "number of records" not in text.replace(noised_count, "")
            assert "in clear" not in text
        assert seen(sees, noised=False) == sees

    def test_a_site_saw_the_number_with_noise(self) -> None:
        text = Page(page_of(noised_run("sum"))).text
        assert text.count("the total number of records (with noise)") == 3
        assert "with noise" not in Page(page_of(small_run("moments", "additive"))).text

    def test_the_step_in_force(self) -> None:
        finished = noised_run("sum")
        assert finished.facts["method"]["settings"]["fraction_bits"] == 80
        text = Page(page_of(finished)).text
        assert "method.fraction_bits 32, so steps of 2⁻³²: noise sets it, whatever the job" in text
        exact = Page(page_of(small_run("moments", "additive"))).text
        assert "method.fraction_bits 80 " in exact


class TestHumanWords:
    def test_statistics_of_noised_intervals_are_explained(self) -> None:
        facts, result = copied(noised_run("sum"))
        own = result.summary["analyses"][1]
        own |= {"widened": 1.25, "noise_ratio": 0.5, "r_hat": 1.001}
        text = Page(render(facts, result)).text
        for words in (
            "length of intervals ÷ length without noise median over", "no effect 1.250",
            "size of the noise ÷ smallest spread of the predictors well below 1",
            "agreement of the sampler's chains (R-hat) near 1",
        ):  # fmt: skip
            assert words in text
        for raw in ("widened", "noise ratio", "noise_ratio", "r hat", "r_hat", "psd"):
            assert not re.search(rf"\b{raw}\b", text)


class TestExpected:
    def feasible(self, **changed: Any) -> tuple[str, str]:
        facts, result = copied(noised_run("sum"))
        judged = {"verdict": "amber", "error": 0.176, "ratio": 0.3, "least_epsilon": 4.106,
                  "least_records": 483, "words": "amber: and so on"}  # fmt: skip
        facts["job"]["privacy"]["expected_records"] = 650  # there are 600
        facts["feasibility"] = judged | changed
        page = render(facts, Result(result.summary))
        return page, Page(page).text

    def test_the_plans_verdict_with_its_terms(self) -> None:
        page, text = self.feasible()
        assert statuses(page)["Is the result exact enough for its purpose?"] == "needs a person"
        assert "Expected before the run: amber, directions and large effects can be told." in text
        for words in (
            "The coefficient error to expect is 17.6 %.",
            "Coefficient error: how far the noise alone is expected to move",
            "Usable: at most 30 %. Green is up to 10 %, amber up to 30 %, red above.",
            "Usable from ε 4.2 on with so many records, or from 483 records on at this ε.",
            "650 expected records",
        ):
            assert words in text
        assert banners(page) == []

    def test_red_is_a_banner(self) -> None:
        page, text = self.feasible(verdict="red", error=1.0)
        assert (False, "Noise was expected to drown the result") in banners(page)
        assert "The coefficient error to expect is 100 %." in text

    @pytest.mark.parametrize(
        ("records", "error", "warned"),
        [(145, 10, True), (649, 10, True), (650, 10, False), (679, 0.0, True), (680, 0.0, False),
         (500, 60, False), (-3, 24, True)],
    )  # fmt: skip
    def test_far_fewer_records_than_expected(
        self, records: int, error: float, warned: bool
    ) -> None:
        """Below 0.8 x 850 = 680, by more than three standard deviations of the noise."""
        facts, result = copied(noised_run("sum"))
        facts["job"]["privacy"]["expected_records"] = 850
        result.summary.update(n=records, n_error=error)
        page = render(facts, result)
        written = str(records).replace("-", "\N{MINUS SIGN}")
        title = f"Far fewer records than the plan expected: about {written} of 850"
        assert ((False, title) in banners(page)) is warned
        assert ("whatever verdict the plan gave does not hold" in Page(page).text) is warned
        assert "of each person" not in page

    def test_persons_with_many_records_are_a_reason(self) -> None:
        facts, result = copied(noised_run("sum"))
        facts["job"]["privacy"]["expected_records"] = 5000
        facts["privacy"] |= {"unit": "person", "person": "patient"}
        found = fewer_records_than_expected(facts, result.summary)
        assert found is not None
        assert "at most 1 record of each person in column “patient”" in found[1]
        facts["job"]["privacy"]["expected_records"] = None
        assert fewer_records_than_expected(facts, result.summary) is None

    def test_too_few_rounds(self) -> None:
        _, text = self.feasible(verdict="red", error=0.9, least_epsilon=None, least_records=None)
        assert "No ε is enough for so few rounds" in text

    def test_not_judged_says_why(self) -> None:
        finished = noised_run("sum")
        assert finished.facts["feasibility"]["verdict"] is None
        text = Page(page_of(finished)).text
        assert "left the result usable" not in text
        assert "Whether noise leaves the result usable was not judged: set privacy.exp" in text

    def test_it_is_what_the_plan_says(self) -> None:
        raw = private_job("sum", expected_records=900)
        planned = plan_run(plan_job(parse_job(raw), tables(4, 150)))
        judged = planned["differential_privacy"]["feasibility"]
        assert judged["verdict"] in ("green", "amber", "red")
        assert noised_run("sum", expected_records=900).facts["feasibility"] == judged

    def test_percent(self) -> None:
        shown = [percent(x) for x in (0, 0.0004, 0.01, 0.1026, 0.9996, 1.0)]
        assert shown == ["0 %", "less than 0.1 %", "1 %", "10.3 %", "100 %", "100 %"]


def test_the_first_line_counts_the_questions() -> None:
    page = page_of(noised_run("sum"))
    found = list(statuses(page).values())
    attached, missing, person = (
        found.count(s) for s in ("evidence attached", "evidence missing", "needs a person")
    )
    assert missing == 2  # nothing was attacked, and no ledger is kept
    words = f"Of {len(found)} questions, {attached} have their evidence on this page, {missing}"
    assert f"{words} have none, and {person} need a person." in Page(page).text
    void = Page(page_of(small_run("moments", "plain"))).text
    assert "This run protects nothing: see the banner." in void
