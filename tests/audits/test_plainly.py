"""Plain words say what is promised, and no more: each number of theirs has an oracle here."""

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

from secagg.audits.plainly import factor, right_guesses
from secagg.audits.privacy import seen
from secagg.audits.prospects import percent
from secagg.audits.report import render
from secagg.audits.results import records_of
from secagg.contracts import Result
from secagg.job import Named, parse_job
from secagg.planning import plan_run
from secagg.registry import PROTOCOLS, make_protocol
from secagg.session import plan_job

PLACEMENTS = ("sum", "site", "round")


def promise(mu: float, epsilon: float = 8.0, remainder: float = 0.0) -> dict[str, Any]:
    return {"mu": mu, "epsilon": epsilon, "delta_for_discreteness": remainder}


class TestHowMuch:
    @pytest.mark.parametrize("mu", [0.01, 0.5, 1.666, 4.0])
    def test_no_guess_is_right_more_often(self, mu: float) -> None:
        """The best guess between N(0, 1) and N(mu, 1) is right with chance 1/2 + distance / 2."""
        distance = quad(
            lambda x: abs(norm.pdf(x, mu) - norm.pdf(x)) / 2, -40, 40, points=[mu / 2], limit=200
        )[0]
        best = 100 * (0.5 + distance / 2)
        assert best - 1e-6 <= right_guesses(promise(mu)) < best + 1

    def test_guessing_by_what_was_released_keeps_to_it(self) -> None:
        """A record moves a sum by 1.5 sigma: guess by whether the sum is above the middle."""
        random, tries = np.random.default_rng(11), 200_000
        there = random.integers(0, 2, tries)
        released = random.normal(1.5 * there, 1.0)
        right = float(np.mean((released > 0.75) == there))
        # one standard deviation of the share is at most 0.5 / root(tries)
        bound = right_guesses(promise(1.5)) / 100
        assert bound - 0.01 - 5 * 0.5 / math.sqrt(tries) < right <= bound

    def test_discrete_noise_comes_on_top(self) -> None:
        assert right_guesses(promise(1.0, 2.0, 0.05 * (1 + math.exp(2.0)))) == 75  # 69.1 + 5
        assert right_guesses(promise(60.0)) == 100

    @pytest.mark.parametrize(
        ("epsilon", "words"),
        [(8.0, "e⁸, about 2,981 times"), (1.0, "e¹, about 2.72 times"),
         (0.5, "e^0.5, about 1.65 times"), (12.0, "e¹², about 162,755 times")],
    )  # fmt: skip
    def test_factor(self, epsilon: float, words: str) -> None:
        assert factor(promise(1.0, epsilon)) == words

    @pytest.mark.parametrize("placement", PLACEMENTS)
    def test_first_page_and_section_say_it(self, placement: str) -> None:
        finished = noised_run(placement)
        text = Page(page_of(finished)).text
        most = right_guesses(finished.facts["privacy"])
        assert 50 < most < 100
        assert text.count("The factor is e¹², about 162,755 times: a bound on any attack") == 2
        assert f"is right in at most {most} of 100 cases; by tossing a coin, in 50." in text
        assert "nearly" not in text  # at such an epsilon it would be too much

    def test_replacing_has_another_guess(self) -> None:
        text = Page(page_of(noised_run("sum", adjacency="replace"))).text
        assert "has to tell which of two records was there" in text
        assert "whether one record says this or that" in text


class TestPromise:
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
        shown = [*shown, "What is promised", "About whom", "Against whom", "By how much",
                 "Over which releases", "Over which runs", "What makes it void"]  # fmt: skip
        assert [words for words in shown if words not in text] == []
        assert [words for words in hidden if words in text] == []

    def test_nobody_may_collude(self) -> None:
        facts, result = copied(noised_run("sum", colluding=0))
        text = Page(render(facts, result)).text
        assert "No site may tell the coordinator its noise." in text


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
        assert "Release rules went by the least that they allow, 20" in text


class TestNoExactWords:
    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_every_protocols_numbers_have_noise(self, protocol: str) -> None:
        sees = dict(make_protocol(Named(name=protocol)).capabilities.sees)
        noised = seen({"protocol": {"sees": sees}, "privacy": {}})
        for text in noised.values():
            assert "number of records" not in text.replace(
                "number of records in all (with noise)", ""
            )
            assert "in clear" not in text
        assert seen({"protocol": {"sees": sees}, "privacy": None}) == sees

    def test_a_site_saw_the_number_with_noise(self) -> None:
        text = Page(page_of(noised_run("sum"))).text
        assert text.count("the number of records in all (with noise)") == 3
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
            "length of intervals ÷ length without noise 1 would mean", "predictors 1.250",
            "size of the noise ÷ least spread of the predictors well below 1",
            "agreement of the sampler's chains (R-hat) intervals are computed by several",
        ):  # fmt: skip
            assert words in text
        for raw in ("widened", "noise ratio", "noise_ratio", "r hat", "r_hat", "psd"):
            assert not re.search(rf"\b{raw}\b", text)


class TestExpected:
    def feasible(self, **changed: Any) -> tuple[str, str]:
        facts, result = copied(noised_run("sum"))
        judged = {"verdict": "amber", "error": 0.176, "ratio": 0.3, "least_epsilon": 4.106,
                  "least_records": 483, "words": "amber: and so on"}  # fmt: skip
        facts["job"]["privacy"]["expected_records"] = 850
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
            "850 expected records",
        ):
            assert words in text
        assert banners(page) == []

    def test_red_is_a_banner(self) -> None:
        page, text = self.feasible(verdict="red", error=1.0)
        assert (False, "Noise was expected to drown the result") in banners(page)
        assert "The coefficient error to expect is 100 %." in text

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
