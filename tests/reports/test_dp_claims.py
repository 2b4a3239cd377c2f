"""A report under differential privacy claims what the facts bear out, and nothing that is exact."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from support.runs.reports import (
    Page,
    banners,
    copied,
    noised_run,
    page_of,
    small_run,
    statuses,
    void_run,
)

from secagg.contracts import Result
from secagg.contracts.noise import SITE_MOMENTS
from secagg.evidence.claims.guarantee import epsilon_of_two_units, sentence
from secagg.evidence.claims.noise import noise_exhausted
from secagg.evidence.claims.privacy import PrivacyClaims
from secagg.evidence.numbers import integer, probability, significant, typeset
from secagg.privacy.accounting.gaussian_dp import gaussian_delta, gaussian_epsilon
from secagg.reports.page import render

PLACEMENTS = ("sum", "site", "round")
EXACT = (
    "exact sum", "exact integers", "without noise?", "and counts", "Clipped: number",
    "levels Values", "incomplete and left out", "In clear", "No differential privacy",
)  # fmt: skip
"""Words of pages of runs without noise."""
BOUNDED = "Is the effect of one record on all releases of this run bounded?"
FIT = "Are unit, ε and δ adequate for these records?"
VOID = "What voids the guarantee"
ADDED_UP = "Are all releases of these records added up?"
MAY_BE_EXACT = "May exact sums be released, without noise?"
Facts = dict[str, Any]


def changed(placement: str = "sum") -> tuple[Facts, Result]:
    """Return facts and result of a run that a test may change."""
    return copied(noised_run(placement))


@pytest.mark.parametrize("placement", PLACEMENTS)
class TestEveryPlacement:
    def test_the_report_claims_the_stated_guarantee(self, placement: str) -> None:
        facts, result = changed(placement)
        page = render(facts, result)
        text = Page(page).text
        assert PrivacyClaims.of(facts).holds
        claim = typeset(sentence(facts["privacy"]))
        assert text.count(claim) == 2  # the first page, and its section
        assert f"placement “{placement}”; ε 12 at δ 10⁻⁶, one record added or removed" in text
        assert VOID in text
        assert statuses(page)[BOUNDED] == "evidence attached"
        assert statuses(page)[FIT] == "needs a person"
        assert MAY_BE_EXACT not in statuses(page)
        assert banners(page) == []
        assert not re.search(r"complian|certified|safe\b", text)

    @pytest.mark.parametrize("none", [math.inf, None])
    def test_a_delta_at_which_no_epsilon_holds_is_left_out(
        self, placement: str, none: float | None
    ) -> None:
        facts, result = changed(placement)
        smallest, *rest = facts["privacy"]["curve"]
        facts["privacy"]["curve"] = [[smallest[0], none], *rest]
        text = Page(render(facts, result)).text
        assert f" {probability(smallest[0])} {significant(smallest[1])} " not in text
        assert f" {probability(rest[0][0])} {significant(rest[0][1])} " in text

    def test_the_report_calls_no_sum_exact(self, placement: str) -> None:
        text = Page(page_of(noised_run(placement))).text
        assert [words for words in EXACT if words.lower() in text.lower()] == []

    def test_every_number_of_the_noise_is_stated(self, placement: str) -> None:
        facts, result = changed(placement)
        text = Page(render(facts, result)).text
        parts = facts["privacy"]["mechanisms"]
        for name, key in (
            ("Sensitivity: one record added or removed", "sensitivity_add"),
            ("Sensitivity: one record replaced by another", "sensitivity_replace"),
            ("σ that protects", "sigma"),
            ("σ of a site's noise", "sigma_of_a_site"),
            ("σ of the noise in the sum", "sigma_in_the_sum"),
            ("μ of one release", "mu_add"),
        ):
            assert f"{name} {' '.join(significant(part[key]) for part in parts)} " in text
        made = [sum(r["stage"] == p["stage"] for r in facts["releases"]) for p in parts]
        assert made == [1, 6 if placement == "round" else 1]
        assert f"Releases made {made[0]} {made[1]} Releases paid for {made[0]} {made[1]} " in text
        for delta, epsilon in facts["privacy"]["curve"]:
            assert f" {probability(delta)} {significant(epsilon)} " in text
        assert "5 % of μ²" in text and "at most 1.5, " in text and "2⁻¹⁶" in text
        for words in facts["privacy"]["unprotected"]:
            assert words in text

    def test_the_proof_of_fit_states_the_noise_tail(self, placement: str) -> None:
        facts, result = changed(placement)
        text = Page(render(facts, result)).text
        assert "THE CHECK FAILS" not in text
        field = facts["plan"][1]["fields"][0]
        largest = 4 * (round(field["bound"] * 2 ** field["fraction_bits"]) + field["noise_tail"])
        assert f" {integer(field['noise_tail'])} {integer(largest)} {field['sum_bits']} " in text
        field["noise_tail"] *= 2**20  # then the bits stated are too few
        page = render(facts, result)
        assert "THE CHECK FAILS" in page
        assert statuses(page)["Were the sums computed without overflow?"] == "evidence missing"

    def test_only_numbers_with_noise_are_counted(self, placement: str) -> None:
        facts, result = changed(placement)
        numbers = sum(p["numbers"] * p["releases"] for p in facts["privacy"]["mechanisms"])
        words = f"{len(facts['releases'])} sums, {numbers} numbers in all, each with noise"
        assert words in Page(render(facts, result)).text


def halve_events(facts: Facts) -> None:
    for events in facts["privacy"]["events"].values():
        for event in events:
            event["mu"] /= 2


def release_again(facts: Facts) -> None:
    facts["releases"].append(facts["releases"][-1])


SPOILED: dict[str, Callable[[Facts], object]] = {
    "a site's noise is halved": lambda f: halve(f, "sigma_of_a_site"),
    "noise is half of what protects": lambda f: halve(f, "sigma"),
    "a release is said to cost less": lambda f: halve(f, "mu_add"),
    "records move sums further": lambda f: f["privacy"]["mechanisms"][1].update(
        sensitivity_replace=99.0
    ),
    "a stage has no noise in the sum": lambda f: f["plan"][1]["fields"][0].update(noise_tail=0),
    "a stage has no mechanism": lambda f: f["privacy"]["mechanisms"].pop(),
    "released once too often": release_again,
    "the events cost less than the parts": halve_events,
    "epsilon is lower than mu": lambda f: (
        f["privacy"].update(epsilon=6.0),
        f["job"]["privacy"].update(epsilon=6.0),
    ),
    "epsilon is not the job's": lambda f: f["job"]["privacy"].update(epsilon=40.0),
    "delta is lower than mu": lambda f: (
        f["privacy"].update(delta=1e-9),
        f["job"]["privacy"].update(delta=1e-9),
    ),
    "discreteness costs more": lambda f: f["privacy"].update(delta_for_discreteness=1e-5),
    "the other adjacency": lambda f: (
        f["privacy"].update(adjacency="replace"),
        f["job"]["privacy"].update(adjacency="replace"),
    ),
}


def halve(facts: Facts, key: str) -> None:
    facts["privacy"]["mechanisms"][1][key] /= 2


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_claims_that_do_not_follow_are_not_made(spoil: Callable[[Facts], object]) -> None:
    facts, result = changed()
    spoil(facts)
    page = render(facts, result)
    text = Page(page).text
    assert not PrivacyClaims.of(facts).holds
    assert len([title for _, title in banners(page) if "does not hold" in title]) == 1
    assert statuses(page)[BOUNDED] == "evidence missing"
    claim = typeset(sentence(facts["privacy"]))
    for words in (claim, "less protection", "alone gives", " guaranteed ",
                  VOID, "of 100 guesses", "in plain words", "a factor of",
                  "The factor is"):  # fmt: skip
        assert words not in text


def test_no_claim_is_made_for_more_colluders_than_planned() -> None:
    facts, _ = changed("sum")
    facts["privacy"]["colluding"] = 2
    assert not PrivacyClaims.of(facts).holds
    facts, _ = changed("site")
    facts["privacy"]["colluding"] = 2
    assert PrivacyClaims.of(facts).holds


def test_without_noise_there_is_no_privacy_section() -> None:
    page = page_of(small_run("moments", "additive"))
    text = Page(page).text
    assert 'id="privacy"' not in page and "8 Integrity" in text
    assert statuses(page)[MAY_BE_EXACT] == "needs a person"
    assert not {BOUNDED, FIT, ADDED_UP} & set(statuses(page))


class TestColluders:
    def test_the_table_has_a_row_for_each_number_of_colluders(self) -> None:
        facts, result = changed("sum")
        rows = facts["privacy"]["if_more_collude"]
        text = Page(render(facts, result)).text
        assert [number for number, _ in rows] == [0, 1, 2, 3]
        for number, epsilon in rows:
            guarantee = " guaranteed" if number == 1 else ""
            assert f" {number} {significant(epsilon)}{guarantee} " in text
        assert f"noise alone gives ε {significant(rows[3][1])} at the same δ" in text
        facts["privacy"]["if_more_collude"][3][1] = None  # as run.json has infinity
        assert "noise alone gives no guarantee" in Page(render(facts, result)).text

    @pytest.mark.parametrize(("withstands", "first"), [(0, 1), (2, 3), (3, None), (4, None)])
    def test_the_number_of_colluders_that_defeat_the_protocol_is_stated(
        self, withstands: int, first: int | None
    ) -> None:
        facts, _ = changed("sum")
        facts["privacy"]["withstands"] = withstands
        words = noise_exhausted(facts["privacy"], "additive")
        assert re.findall(r"From (\d)", words) == ([] if first is None else [str(first)])

    def test_with_site_noise_colluders_change_nothing(self) -> None:
        text = Page(page_of(noised_run("site"))).text
        assert " guaranteed " not in text.partition("If more sites collude")[2]


class TestWords:
    def test_the_report_describes_replacing_a_record(self) -> None:
        finished = noised_run("sum", adjacency="replace")
        guarantee = finished.facts["privacy"]
        text = Page(page_of(finished)).text
        assert PrivacyClaims.of(finished.facts).holds
        left = guarantee["delta"] - guarantee["delta_for_discreteness"]
        other = gaussian_epsilon(guarantee["mu_other_adjacency"], left)
        assert f"one record added or removed: ε {significant(other)} at the same δ" in text

    def test_the_report_describes_a_guarantee_for_persons(self) -> None:
        facts, result = changed()
        caps = {"records_per_person": 3, "sites_per_person": 2}
        facts["privacy"] |= {"unit": "person", "person": "pid", **caps}
        page = render(facts, result)
        text = Page(page).text
        assert text.count(typeset(sentence(facts["privacy"]))) == 2
        for words in ("identified by column “pid”", "at most 3 records at a site",
                      "at more than 2 sites", "Related persons have less"):  # fmt: skip
            assert words in text
        assert "sum of the squared norms" not in text
        facts["privacy"]["person_norm"] = 2.5
        text = Page(render(facts, result)).text
        assert "squared norms of all records of a person at a site is at most 2.5" in text
        assert "one row of a site's table" not in text and "Each record" not in text
        assert BOUNDED.replace("record", "person") in statuses(page)

    def test_the_report_describes_a_guarantee_for_events(self) -> None:
        facts, result = changed()
        facts["privacy"] |= {"unit": "event", "records_per_event": 3}
        page = render(facts, result)
        text = Page(page).text
        assert text.count(typeset(sentence(facts["privacy"]))) == 2
        for words in ("one event at any site took part", "in at most 3 records (windows) of a site",
                      "Each event, that is", "all other events", "With two: ",
                      "A value of a series is in more than 3 records"):  # fmt: skip
            assert words in text
        assert "one row of a site's table" not in text and "Each record" not in text
        assert "cap of a person" not in text
        assert BOUNDED.replace("record", "event") in statuses(page)

    def test_the_epsilon_for_two_records_is_stated(self) -> None:
        facts, result = changed()
        guarantee = facts["privacy"]
        apart = guarantee["delta_for_discreteness"] / (1 + math.exp(guarantee["epsilon"]))
        text = Page(render(facts, result)).text
        (said,) = re.findall(r"With two: .*?ε ([\d.]+) at the same δ", text)

        def spent(epsilon: float) -> float:
            paid = (1 + math.exp(epsilon)) * apart  # at the epsilon on the page
            return gaussian_delta(2 * guarantee["mu"], epsilon) + paid

        assert spent(float(said) + 0.05) <= guarantee["delta"] < spent(float(said) - 0.05)
        assert significant(gaussian_epsilon(2 * guarantee["mu"], guarantee["delta"])) != said

    def test_two_records_at_two_sites_cost_more_delta(self) -> None:
        """With noise at each site, both sites' releases are discrete: more of delta is used up."""
        events = {"add_remove": [{"law": "gaussian", "mu": 1.0}]}
        guarantee = {"mu": 1.0, "events": events, "adjacency": "add_remove", "epsilon": 2.0,
                     "delta": 1e-6, "delta_for_discreteness": 1e-11}  # fmt: skip
        once, twice = (
            float(epsilon_of_two_units(guarantee | {"placement": p}).removeprefix("ε "))
            for p in ("sum", "site")
        )
        assert once < twice

    def test_two_records_without_a_bound_are_reported(self) -> None:
        """At an epsilon of about 29 discreteness takes more of delta than there is."""
        finished = noised_run("site")
        assert epsilon_of_two_units(finished.facts["privacy"]) == "no ε"
        assert Page(page_of(finished)).text.count("(see below; no ε at the same δ)") == 1

    def test_bounds_that_clip_nothing_are_reported(self) -> None:
        facts, result = changed()
        facts["job"]["privacy"]["record_norm"] = None
        assert "so no record is shrunk" in Page(render(facts, result)).text

    def test_the_number_of_records_that_delta_allows_is_stated(self) -> None:
        facts, result = changed()
        result.summary["n"] = result.summary["records"] = 20_000
        assert "records is about 0.020; " in Page(render(facts, result)).text

    def test_gradient_rounds_are_not_said_to_converge(self) -> None:
        text = Page(page_of(noised_run("round"))).text
        assert "Finished after 6 rounds." in text and "Converged" not in text


class TestVoid:
    def test_replayable_noise_guarantees_nothing(self) -> None:
        finished = void_run()
        page = page_of(finished)
        text = Page(page).text
        assert not PrivacyClaims.of(finished.facts).holds
        assert (True, "Privacy: void. Replayable randomness") in banners(page)
        assert typeset(sentence(finished.facts["privacy"])) not in text and VOID not in text
        assert statuses(page)[BOUNDED] == "evidence missing"

    def test_under_plain_only_the_noise_protects(self) -> None:
        finished = noised_run("site", "plain")
        page = page_of(finished)
        assert [title for void, title in banners(page) if void] == []
        assert len(banners(page)) == 1
        assert statuses(page)[BOUNDED] == "evidence attached"
        hidden = "Is a single site's contribution hidden from the coordinator?"
        assert statuses(page)[hidden] == "evidence missing"
        assert typeset(sentence(finished.facts["privacy"])) in Page(page).text


def test_stages_without_records_need_moments_with_noise() -> None:
    """A run whose stages read no records, and whose only noise is in another stage, claims none."""
    facts, _ = changed("site")
    for stage in facts["plan"]:
        stage["reads_records"] = False
    assert not PrivacyClaims.of(facts).holds
    facts["privacy"]["mechanisms"] = facts["privacy"]["mechanisms"][1:]
    assert not PrivacyClaims.of(facts).holds
    facts["privacy"]["mechanisms"][0]["stage"] = SITE_MOMENTS
    assert PrivacyClaims.of(facts).holds
