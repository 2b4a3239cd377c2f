"""A report under differential privacy claims what the facts bear out, and nothing that is exact."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from support.reports import (
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
from secagg.privacy.accounting.gaussian_dp import gaussian_delta, gaussian_epsilon
from secagg.privacy.accounting.guarantee import sentence
from secagg.reports.dp_claims import PrivacyClaims, of_two
from secagg.reports.numbers import probability, significant, whole
from secagg.reports.page import render
from secagg.runs.run_files import finite

PLACEMENTS = ("sum", "site", "round")
EXACT = (
    "themselves are exact", "exact sum", "exact integers", "released, without noise",
    "No noise was added", "not compared", "and counted", "Clipped:", "levels Values outside",
    "incomplete and left out", "In clear", "No differential privacy",
)  # fmt: skip
"""Words that are for runs without noise."""
BOUNDED = "Is what one record changes bounded in all that this run released?"
FIT = "Are unit, ε and δ fit for these records?"
ADDED_UP = "Are all releases of these records added up?"
MAY_BE_EXACT = "May exact sums be released, without noise?"
Facts = dict[str, Any]


def changed(placement: str = "sum") -> tuple[Facts, Result]:
    """Return facts and result of a run that a test may change."""
    return copied(noised_run(placement))


@pytest.mark.parametrize("placement", PLACEMENTS)
class TestEveryPlacement:
    def test_is_well_formed_and_the_same_from_files(self, placement: str) -> None:
        facts, result = changed(placement)
        source = render(facts, result)
        page = Page(source)
        assert page.wrong == []
        assert all(th.get("scope") for th in page.named("th"))
        back = [json.loads(json.dumps(finite(x))) for x in (facts, result.summary)]
        assert render(back[0], Result(back[1])) == source

    def test_claims_what_the_guarantee_says(self, placement: str) -> None:
        facts, result = changed(placement)
        page = render(facts, result)
        text = Page(page).text
        assert PrivacyClaims.of(facts).holds
        assert text.count(sentence(facts["privacy"])) == 2  # the first page, and its section
        assert f"placement “{placement}”; ε 12 at δ 10⁻⁶, one record added or removed" in text
        assert "None of it is a guarantee" not in text and "What makes it void" in text
        assert statuses(page)[BOUNDED] == "evidence attached"
        assert statuses(page)[FIT] == "needs a person"
        assert MAY_BE_EXACT not in statuses(page)
        assert banners(page) == []
        assert not re.search(r"complian|certified|safe\b", text)

    def test_no_word_for_exact_sums(self, placement: str) -> None:
        text = Page(page_of(noised_run(placement))).text
        assert [words for words in EXACT if words.lower() in text.lower()] == []

    def test_states_every_number_of_the_noise(self, placement: str) -> None:
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
        assert "5 % of μ²" in text and "at most 1.5, to which longer ones are shrunk" in text
        assert "scaled from its public bounds to [−1, 1]" in text and "2⁻¹⁶" in text
        for words in facts["privacy"]["unprotected"]:
            assert words in text

    def test_states_the_tail_in_the_proof_of_fit(self, placement: str) -> None:
        facts, result = changed(placement)
        text = Page(render(facts, result)).text
        assert text.count("the proof holds for every field") == 2
        assert "(bound ÷ step + that)" in text
        field = facts["plan"][1]["fields"][0]
        largest = 4 * (round(field["bound"] * 2 ** field["fraction_bits"]) + field["noise_tail"])
        assert f" {whole(field['noise_tail'])} {whole(largest)} {field['sum_bits']} " in text
        field["noise_tail"] *= 2**20  # then the bits stated are too few
        page = render(facts, result)
        assert "DOES NOT HOLD" in page
        assert statuses(page)["Were the sums computed without overflow?"] == "evidence missing"

    def test_counts_are_about(self, placement: str) -> None:
        facts, result = changed(placement)
        result.summary.pop("n_error", None)
        result.summary.update(records=1234, records_error=6.84)
        text = Page(render(facts, result)).text
        assert "about 1,234 ± 7 complete; incomplete ones are not counted" in text
        assert "There are about 1,234 ± 7 complete records of 4 sites" in text
        assert "6.84" not in text

    def test_only_numbers_with_noise_are_counted(self, placement: str) -> None:
        facts, result = changed(placement)
        told = sum(p["numbers"] * p["releases"] for p in facts["privacy"]["mechanisms"])
        words = f"{len(facts['releases'])} sums, {told} numbers in all, each with noise"
        assert words in Page(render(facts, result)).text


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
    "mu is lower than its parts": lambda f: f["privacy"].update(mu=f["privacy"]["mu"] / 2),
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
def test_what_does_not_follow_is_not_claimed(spoil: Callable[[Facts], object]) -> None:
    facts, result = changed()
    spoil(facts)
    page = render(facts, result)
    text = Page(page).text
    assert "changes the probability" not in text
    assert "epsilon and delta do not follow from the facts of this run" in text
    assert (False, "A claim of differential privacy that does not hold") in banners(page)
    assert statuses(page)[BOUNDED] == "evidence missing"
    assert "None of it is a guarantee here." in text
    for words in ("is protected by", "is worth ε", "guaranteed for", "What makes it void"):
        assert words not in text
    for words in ("of 100 cases", "The guarantee in plain words", "a factor of", "The factor is"):
        assert words not in text


def test_more_colluders_than_noise_was_made_for_are_not_claimed() -> None:
    facts, _ = changed("sum")
    facts["privacy"]["colluding"] = 2
    assert not PrivacyClaims.of(facts).holds
    facts, _ = changed("site")
    facts["privacy"]["colluding"] = 2
    assert PrivacyClaims.of(facts).holds


def test_without_noise_there_is_no_such_section() -> None:
    page = page_of(small_run("moments", "additive"))
    text = Page(page).text
    assert 'id="privacy"' not in page and "8 Integrity" in text
    assert statuses(page)[MAY_BE_EXACT] == "needs a person"
    assert not {BOUNDED, FIT, ADDED_UP} & set(statuses(page))
    for words in ("themselves are exact", "No noise was added", "exact integers", "Clipped:"):
        assert words in text


class TestColluders:
    def test_a_row_for_each_number(self) -> None:
        facts, result = changed("sum")
        rows = facts["privacy"]["if_more_collude"]
        text = Page(render(facts, result)).text
        assert [number for number, _ in rows] == [0, 1, 2, 3]
        for number, epsilon in rows:
            guarantee = " guaranteed for" if number == 1 else ""
            assert f" {number} {significant(epsilon)}{guarantee} " in text
        assert f"only, which is worth ε {significant(rows[3][1])} at the same δ" in text

    @pytest.mark.parametrize(
        ("withstands", "said"), [(0, "From 1 colluding site on"), (2, "From 3 colluding sites on"),
                                 (3, ""), (4, "")],
    )  # fmt: skip
    def test_from_when_the_protocol_hides_nothing(self, withstands: int, said: str) -> None:
        facts, result = changed("sum")
        facts["privacy"]["withstands"] = withstands
        text = Page(render(facts, result)).text
        assert ("no longer hides a single site's contribution" in text) == bool(said)
        assert f"{said}, protocol additive no longer" in text or not said

    def test_no_number_is_enough(self) -> None:
        facts, result = changed("sum")
        facts["privacy"]["if_more_collude"][3][1] = None  # as run.json has infinity
        assert (
            "share of the noise only, which guarantees nothing" in Page(render(facts, result)).text
        )

    def test_nothing_changes_where_sites_noise_alone(self) -> None:
        text = Page(page_of(noised_run("site"))).text
        assert "Nothing changes for the other sites" in text
        assert "guaranteed for" not in text


class TestWords:
    def test_replacing_a_record(self) -> None:
        finished = noised_run("sum", adjacency="replace")
        guarantee = finished.facts["privacy"]
        text = Page(page_of(finished)).text
        assert PrivacyClaims.of(finished.facts).holds
        assert "replacing one record at any site by another changes" in text
        assert "Adjacency one record replaced by another: two sets" in text
        left = guarantee["delta"] - guarantee["delta_for_discreteness"]
        other = gaussian_epsilon(guarantee["mu_other_adjacency"], left)
        assert f"one record added or removed: ε {significant(other)} at the same δ" in text

    def test_persons(self) -> None:
        facts, result = changed()
        caps = {"records_per_person": 3, "sites_per_person": 2}
        facts["privacy"] |= {"unit": "person", "person": "pid", **caps}
        page = render(facts, result)
        text = Page(page).text
        caps = (
            "One person means at most 3 records at a site, where further ones are left out, and "
            "records at no more than 2 sites, which nobody checks."
        )
        assert sentence(facts["privacy"]).endswith(caps)
        assert text.count(sentence(facts["privacy"])) == 2
        assert "named by column “pid”: the first 3 records of theirs" in text
        assert "Each person, with all that is used of theirs: at most 3 records at a site" in text
        assert "A person has records at more than 2 sites, or goes by two names" in text
        assert "one row of a site's table" not in text
        assert "Each record, that is" not in text
        assert "Several persons that belong together are protected by less" in text
        assert "Is what one person changes bounded in all that this run released?" in statuses(page)

    def test_a_record_has_no_caps(self) -> None:
        facts, _ = changed()
        assert PrivacyClaims.of(facts).sentence == sentence(facts["privacy"])

    def test_two_records_of_one_person(self) -> None:
        facts, result = changed()
        guarantee = facts["privacy"]
        # it is said twice: in the guarantee, and in what is not protected
        apart = guarantee["delta_for_discreteness"] / (1 + math.exp(guarantee["epsilon"]))
        text = Page(render(facts, result)).text
        (said, again) = re.findall(r"for two, ε ([\d.]+) at the same δ", text)
        assert said == again

        def spent(epsilon: float) -> float:
            paid = (1 + math.exp(epsilon)) * apart  # at the epsilon that is told
            return gaussian_delta(2 * guarantee["mu"], epsilon) + paid

        assert spent(float(said) + 0.05) <= guarantee["delta"] < spent(float(said) - 0.05)
        assert significant(gaussian_epsilon(2 * guarantee["mu"], guarantee["delta"])) != said

    def test_two_records_may_have_no_bound(self) -> None:
        """At an epsilon of about 29 discreteness takes more of delta than there is."""
        finished = noised_run("site")
        assert of_two(finished.facts["privacy"]) == "no ε"
        assert Page(page_of(finished)).text.count("for two, no ε at the same δ") == 2

    def test_bounds_that_clip_nothing(self) -> None:
        facts, result = changed()
        facts["job"]["privacy"]["record_norm"] = None
        assert "which the public bounds imply, so that none" in Page(render(facts, result)).text

    def test_how_many_records_delta_allows(self) -> None:
        facts, result = changed()
        result.summary["n"] = result.summary["records"] = 20_000
        assert "records is about 0.020; from 1 on" in Page(render(facts, result)).text

    def test_every_analysis_says_its_own_of_noise(self) -> None:
        facts, result = changed()
        result.summary["analyses"][1]["notes"] = ["The intervals allow for the noise."]
        text = Page(render(facts, result)).text
        assert "An interval allows for the noise only where its analysis says so." in text
        assert "The intervals allow for the noise." in text

    def test_gradient_rounds_are_not_said_to_converge(self) -> None:
        text = Page(page_of(noised_run("round"))).text
        assert "Finished after 6 rounds." in text
        assert "Converged" not in text


class TestVoid:
    def test_replayable_noise_guarantees_nothing(self) -> None:
        finished = void_run()
        page = page_of(finished)
        text = Page(page).text
        assert not PrivacyClaims.of(finished.facts).holds
        assert (True, "Privacy: void. Replayable randomness") in banners(page)
        assert "and all noise, which they can subtract" in text
        assert "changes the probability" not in text
        assert "Privacy: void. No differential privacy is claimed" in text
        assert "void, as it can be drawn again" in text
        assert statuses(page)[BOUNDED] == "evidence missing"
        assert "None of it is a guarantee here." in text

    def test_plain_leaves_the_noise(self) -> None:
        finished = noised_run("site", "plain")
        page = page_of(finished)
        assert [title for void, title in banners(page) if void] == []
        assert (False, "Only noise protects: each site's contribution was seen") in banners(page)
        assert statuses(page)[BOUNDED] == "evidence attached"
        hidden = "Is a single site's contribution hidden from the coordinator?"
        assert statuses(page)[hidden] == "evidence missing"
        assert sentence(finished.facts["privacy"]) in Page(page).text
