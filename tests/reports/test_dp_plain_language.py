"""Plain words state the guarantee and no more: each of their numbers has an oracle here."""

import math
import re
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm
from support.runs.reports import (
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
from secagg.evidence.claims.counts import records_of
from secagg.evidence.claims.guarantee import (
    factor,
    how_strong,
    invalidating_conditions,
    measure,
    right_guesses,
)
from secagg.evidence.claims.privacy import PrivacyClaims, sees_in_words
from secagg.evidence.numbers import typeset
from secagg.jobs.job import parse_job
from secagg.jobs.registry import PROTOCOLS, Named, make_protocol
from secagg.reports.expected_utility import expected, fewer_records_than_expected
from secagg.reports.page import render
from secagg.reports.results import other_counts
from secagg.runs.plan import plan_run
from secagg.sessions.planned_job import plan_job


def guarantee(mu: float, epsilon: float = 8.0, remainder: float = 0.0) -> dict[str, Any]:
    events = {"add_remove": [{"law": "gaussian", "mu": mu}]}
    return {"mu": mu, "events": events, "adjacency": "add_remove", "epsilon": epsilon,
            "delta_for_discreteness": remainder}  # fmt: skip


class TestHowMuch:
    @pytest.mark.parametrize("mu", [0.01, 0.5, 1.666, 4.0])
    def test_the_stated_guess_rate_is_the_best_possible(self, mu: float) -> None:
        """The best guess between N(0, 1) and N(mu, 1) is right with chance 1/2 + distance / 2."""
        distance = quad(
            lambda x: abs(norm.pdf(x, mu) - norm.pdf(x)) / 2, -40, 40, points=[mu / 2], limit=200
        )[0]
        best = 100 * (0.5 + distance / 2)
        assert best - 1e-6 <= right_guesses(guarantee(mu)) < best + 1

    def test_simulated_guesses_stay_within_the_stated_rate(self) -> None:
        """A record moves a sum by 1.5 sigma: guess by whether the sum is above the middle."""
        random, tries = np.random.default_rng(11), 200_000
        there = random.integers(0, 2, tries)
        released = random.normal(1.5 * there, 1.0)
        right = float(np.mean((released > 0.75) == there))
        # one standard deviation of the share is at most 0.5 / root(tries)
        bound = right_guesses(guarantee(1.5)) / 100
        assert bound - 0.01 - 5 * 0.5 / math.sqrt(tries) < right <= bound

    def test_the_guess_rate_assumes_equally_likely_cases(self) -> None:
        """Prior odds of nine to one: such a guesser is right more often without any release."""
        random, tries = np.random.default_rng(12), 200_000
        there = random.random(tries) < 0.9
        released = random.normal(0.5 * there, 1.0)
        # the likelier of the two, by Bayes: density ratio times odds above 1
        right = float(np.mean((np.log(9) + 0.5 * (released - 0.25) > 0) == there))
        assert right > 0.85 > right_guesses(guarantee(0.5)) / 100

    def test_discreteness_is_added_to_the_guess_rate(self) -> None:
        assert right_guesses(guarantee(1.0, 2.0, 0.05 * (1 + math.exp(2.0)))) == 75  # 69.1 + 5
        assert right_guesses(guarantee(60.0)) == 100

    @pytest.mark.parametrize(
        ("epsilon", "words"),
        [(8.0, "e⁸, about 2,981 times"), (1.0, "e¹, about 2.72 times"),
         (0.5, "e^0.5, about 1.65 times"), (12.0, "e¹², about 162,755 times")],
    )  # fmt: skip
    def test_the_factor_of_epsilon_is_written_in_words(self, epsilon: float, words: str) -> None:
        assert factor(guarantee(1.0, epsilon)) == words

    @pytest.mark.parametrize("placement", ["sum", "site", "round"])
    def test_the_first_page_and_the_section_state_the_guarantee(self, placement: str) -> None:
        finished = noised_run(placement)
        guarantee = finished.facts["privacy"]
        words, most = how_strong(guarantee), right_guesses(guarantee)
        assert 50 < most < 100
        assert factor(guarantee) in measure(guarantee) and f"at most {most} of 100" in words
        assert "all other records" in words and "one record is in the data" in words
        assert Page(page_of(finished)).text.count(words) == 2

    def test_guess_rates_depend_on_unit_and_adjacency(self) -> None:
        facts, _ = copied(noised_run("sum"))
        facts["privacy"] |= {"unit": "person", "person": "pid"}
        words = how_strong(facts["privacy"])
        assert "all other persons' records" in words and "one person is" in words
        replaced = noised_run("sum", adjacency="replace").facts["privacy"]
        assert "which of two records" in how_strong(replaced)


class TestGuarantee:
    @pytest.mark.parametrize(
        ("placement", "colluding", "against"),
        [("sum", 1, "at most 1 site colludes"), ("round", 1, "at most 1 site colludes"),
         ("site", 1, "all other sites collude"), ("sum", 0, "not hold against the sites")],
    )  # fmt: skip
    def test_the_explanation_names_the_adversary_and_the_releases(
        self, placement: str, colluding: int, against: str
    ) -> None:
        claims = PrivacyClaims.of(noised_run(placement, colluding=colluding).facts)
        words = {claim.topic: claim.text for claim in claims.plain_words()}
        assert len(words) == 7 and all(words.values())
        assert against in words["Against whom"]
        releases = 7 if placement == "round" else 2
        assert f"The {releases} releases" in words["Which releases it covers"]
        voids = " ".join(invalidating_conditions(claims.guarantee, exact_before=False))
        assert ("counts as a colluding site" in voids) == (placement != "site")
        assert ("More than 1 of the sites" in voids) == (placement != "site" and colluding == 1)

    def test_a_single_site_is_excluded_from_the_guarantee(self) -> None:
        """With nobody to collude, what one site sees is under the guarantee: it knows its share."""
        rows = dict(noised_run("sum", colluding=0).facts["privacy"]["if_more_collude"])
        assert rows[0] <= 12.0 < rows[1]
        for terms in ({}, {"colluding": 2}):
            facts = noised_run("sum", **terms).facts["privacy"]
            assert dict(facts["if_more_collude"])[1] <= 12.0


class TestOneNumberOfRecords:
    def test_the_most_precise_record_count_is_shown_throughout(self) -> None:
        facts, result = copied(noised_run("sum"))
        result.summary.update(n=1234, n_error=2.4, records=1239, records_error=3.7)
        result.summary["analyses"][1]["n"] = 1234
        assert records_of(result.summary) == (1234, 2.4)
        text = Page(render(facts, result)).text
        assert text.count("about 1,234 ± 2 complete") == 3
        assert text.count("1,239") == 1  # what release rules used
        assert "n ≈" not in text

    def test_methods_without_their_own_record_count_show_the_first(self) -> None:
        facts, result = copied(noised_run("round"))
        assert "n_error" not in result.summary
        records = result.summary["records"]
        assert Page(render(facts, result)).text.count(f"about {records} ± ") == 3

    def test_a_count_at_the_minimum_is_not_called_an_estimate(self) -> None:
        facts, result = copied(noised_run("sum"))
        for records, least in ((20, True), (21, False)):  # 4 sites of at least 5
            result.summary["records"] = records
            assert ("smallest number that they allow" in render(facts, result)) is least

    def test_the_report_names_another_record_count_of_an_analysis(self) -> None:
        """Graphs and penalised regressions take the repaired moments, and the number with them."""
        facts, result = copied(noised_run("sum"))
        other, fit = result.summary["analyses"]
        result.summary["n"] = fit["n"] = 1234
        for used, others in ((1234, []), (1301, ["1,301"])):
            other["n"] = used
            assert other_counts(facts, result.summary) == others
            assert ("1,301" in Page(render(facts, result)).text) is bool(others)

    def test_the_report_states_the_record_counts_that_analyses_used(self) -> None:
        finished = noised_run("sum", epsilon=1.0)
        describe, fit = finished.result.summary["analyses"]
        assert fit["n"] == describe["n"] == finished.result.summary["n"]
        assert fit["n"] <= finished.result.arrays["n"]
        assert other_counts(finished.facts, finished.result.summary) == []


class TestNoExactWords:
    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_record_counts_have_noise_under_every_protocol(self, protocol: str) -> None:
        sees = dict(make_protocol(Named(name=protocol)).capabilities.sees)
        for text in sees_in_words(sees, noised=True).values():
            noised_count = "total number of records (with noise)"
            assert "number of records" not in text.replace(noised_count, "")
            assert "in clear" not in text
        assert sees_in_words(sees, noised=False) == sees

    def test_the_effective_rounding_step_is_stated(self) -> None:
        finished = noised_run("sum")
        assert finished.facts["method"]["settings"]["fraction_bits"] == 80
        assert "method.fraction_bits 32, so steps of 2⁻³²" in Page(page_of(finished)).text
        assert "method.fraction_bits 80 " in Page(page_of(small_run("moments", "additive"))).text

    def test_statistics_of_noised_intervals_are_explained(self) -> None:
        facts, result = copied(noised_run("sum"))
        own = result.summary["analyses"][1]
        own |= {"widened": 1.25, "noise_ratio": 0.5, "r_hat": 1.001}
        text = Page(render(facts, result)).text
        for raw in ("widened", "noise ratio", "noise_ratio", "r hat", "r_hat", "psd"):
            assert not re.search(rf"\b{raw}\b", text)


def test_no_page_claims_a_rule_on_the_records_of_one_site() -> None:
    """With noise there is none; a site with 8 records of 20 took part, and pages said otherwise."""
    facts, result = copied(noised_run("sum"))
    text = Page(render(facts, result)).text
    least = facts["job"]["release"]["min_records"]
    assert f"{least} complete records at each" not in text
    assert "no rule looks at the records of one site" in text


class TestExpected:
    def judged(self, **changed: Any) -> tuple[str, str]:
        """Return the page of a run with a verdict of the plan, and its section of the result."""
        facts, result = copied(noised_run("sum"))
        judged = {"verdict": "amber", "error": 0.176, "ratio": 0.3, "least_epsilon": 4.106,
                  "least_records": 483, "words": "amber: and so on"}  # fmt: skip
        facts["job"]["privacy"]["expected_records"] = 650  # there are 600
        facts["feasibility"] = judged | changed
        text = " ".join(expected(facts, result.summary))
        page = render(facts, Result(result.summary))
        assert text.split(". ")[0] in Page(page).text
        return page, text

    def test_the_plans_verdict_is_shown_with_its_assumptions(self) -> None:
        page, text = self.judged()
        assert statuses(page)["Is the result exact enough for its purpose?"] == "needs a person"
        for part in ("amber: and so on", "30 %", "10 %", "650 expect"):
            assert part in text
        assert banners(page) == []

    def test_the_assumptions_in_own_units_are_shown(self) -> None:
        page, text = self.judged(assumes="assumes standard deviations of 9 mmHg")
        assert "The verdict assumes standard deviations of 9 mmHg." in text
        assert "9 mmHg" in Page(page).text

    def test_a_verdict_of_simulated_records_has_its_own_colours(self) -> None:
        """The page said "green: up to 10 %" beside a green verdict of 16 %."""
        page, text = self.judged(verdict="green", error=0.16, sampling=0.22)
        assert "Green: the error is at most the sampling error" in text
        assert "up to 10 %" not in text and "bias of clipping" not in text
        said = "green, noise and limits of records cost at most the sampling error"
        assert said in Page(page).text

    def test_a_graphs_verdict_is_about_edges(self) -> None:
        edges = {"smallest_edge": 0.481, "without_noise": 0.4, "majority": None, "verdict": "amber"}
        page, text = self.judged(**edges)
        shown = Page(page).text
        assert "Expected before the run: amber, large effects are likely to be found, but" in shown
        assert "directions and large effects are visible" not in shown
        assert "amber: and so on" in text and "coefficient" not in text
        page, text = self.judged(**edges | {"smallest_edge": 1.03, "verdict": "red"})
        ((_, title),) = banners(page)
        assert title == "The planned noise can hide even large effects"

    def test_a_red_verdict_is_a_banner(self) -> None:
        page, _ = self.judged(verdict="red", error=1.0)
        assert len(banners(page)) == 1

    @pytest.mark.parametrize(
        ("records", "error", "warned"),
        [(145, 10, True), (649, 10, True), (650, 10, False), (679, 0.0, True), (680, 0.0, False),
         (500, 60, False), (-3, 24, True)],
    )  # fmt: skip
    def test_far_fewer_records_than_expected_are_reported(
        self, records: int, error: float, warned: bool
    ) -> None:
        """Below 0.8 x 850 = 680, by more than three standard deviations of the noise."""
        facts, result = copied(noised_run("sum"))
        facts["job"]["privacy"]["expected_records"] = 850
        result.summary.update(n=records, n_error=error)
        warning = fewer_records_than_expected(facts, result.summary)
        assert (warning is not None) is warned
        assert ([(False, warning[0])] if warning else []) == banners(render(facts, result))
        assert warning is None or str(records).replace("-", "\N{MINUS SIGN}") in warning[0]

    def test_persons_with_many_records_are_named_as_a_reason(self) -> None:
        facts, result = copied(noised_run("sum"))
        facts["job"]["privacy"]["expected_records"] = 5000
        facts["privacy"] |= {"unit": "person", "person": "patient"}
        warning = fewer_records_than_expected(facts, result.summary)
        assert warning is not None and "column “patient”" in warning[1]
        facts["job"]["privacy"]["expected_records"] = None
        assert fewer_records_than_expected(facts, result.summary) is None

    def test_a_missing_verdict_has_a_reason(self) -> None:
        finished = noised_run("sum")
        assert finished.facts["feasibility"]["verdict"] is None
        (text,) = expected(finished.facts, finished.result.summary)
        assert "privacy.expected_records" in text and text in Page(page_of(finished)).text

    def test_the_report_and_the_plan_agree_on_the_verdict(self) -> None:
        raw = private_job("sum", expected_records=900)
        planned = plan_run(plan_job(parse_job(raw), tables(4, 150)))
        judged = planned["differential_privacy"]["feasibility"]
        assert judged["verdict"] in ("green", "amber", "red")
        finished = noised_run("sum", expected_records=900)
        assert finished.facts["feasibility"] == judged
        shown = Page(page_of(finished)).text  # the plan's own words, with the signs of a page
        assert typeset(judged["words"]).replace("epsilon", "ε") in shown


def test_the_first_line_counts_the_answers_to_the_questions() -> None:
    page = page_of(noised_run("sum"))
    answers = list(statuses(page).values())
    attached, missing, person = (
        answers.count(s) for s in ("evidence attached", "evidence missing", "needs a person")
    )
    assert missing == 1  # no ledger is kept
    (line,) = re.findall(r'class="short"><strong>(.*?)</strong>', page)
    assert list(map(int, re.findall(r"\d+", line))) == [attached, len(answers), missing, person]
