"""The first page: what the run protects, what went wrong, how it went on, and where it ran."""

import re
from typing import Any

import pytest
from support.runs.reports import (
    Page,
    banners,
    copied,
    job,
    noised_run,
    page_of,
    replayable_run,
    small_run,
    statuses,
    tables,
    written,
)

from secagg.core.frames import peek_header
from secagg.reports.page import render


class TestFirstPage:
    def test_a_hiding_protocol_is_claimed_on_the_first_page(self) -> None:
        facts, result = copied(small_run("logistic", "additive"))
        page = render(facts, result)
        text = Page(page).text
        assert "over at least 4 sites. " in text and "covers at least 3 sites." in text
        assert [title for void, title in banners(page) if void] == []
        assert statuses(page) == {
            "What are purpose, legal basis and permit?": "needs a person",
            "Is a single site's contribution hidden from the coordinator?": "needs a person",
            "Do different organisations run the parties that must not collude?": "needs a person",
            "Does every opened sum cover enough sites?": "evidence attached",
            "Were the sums computed without overflow?": "evidence attached",
            "May exact sums be released, without noise?": "needs a person",
            "Was this run attacked to measure what leaks?": "needs a person",
            "Is the record of this run unchanged?": "needs a person",
        }
        assert not re.search(r"complian|certified|safe\b", text)

    def test_plain_is_reported_to_protect_nothing(self) -> None:
        page = page_of(small_run("moments", "plain"))
        assert (True, "This run protects nothing") in banners(page)
        hidden = "Is a single site's contribution hidden from the coordinator?"
        assert statuses(page)[hidden] == "evidence missing"

    def test_replayable_randomness_is_reported_to_protect_nothing(self) -> None:
        page = page_of(replayable_run())
        assert (True, "Privacy: void. Replayable randomness") in banners(page)
        hidden = "Is a single site's contribution hidden from the coordinator?"
        assert statuses(page)[hidden] == "evidence missing"

    def test_a_threshold_of_two_has_a_warning(self) -> None:
        facts, result = copied(small_run("logistic", "additive"))
        before = banners(render(facts, result))
        for release in facts["releases"]:
            release["thresholds"]["site 1"] = 2
        page = render(facts, result)
        assert len(banners(page)) == len(before) + 1
        assert (
            "at least 2 sites; some required more, and the largest number, 3, is" in Page(page).text
        )
        assert "over at least 2 sites, 1 would" in Page(page).text
        assert "0 cohort 4 3 opened" in Page(page).text

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda release: release["claims"].pop("site 0"),
            lambda release: release["thresholds"].update({"site 0": 5}),
            lambda release: release["contributors"].pop(),
        ],
    )
    def test_a_release_without_evidence_is_reported(self, spoil: Any) -> None:
        facts, result = copied(small_run("logistic", "additive"))
        spoil(facts["releases"][1])
        enough = "Does every opened sum cover enough sites?"
        assert statuses(render(facts, result))[enough] == "evidence missing"

    @pytest.mark.parametrize("key", ["sum_bits", "bound", "ring_bits"])
    def test_a_failed_proof_is_reported(self, key: str) -> None:
        facts, result = copied(small_run("logistic", "additive"))
        stage = facts["plan"][1]
        if key == "ring_bits":
            stage[key] = 32
        else:
            stage["fields"][0][key] *= 2
        page = render(facts, result)
        assert "THE CHECK FAILS" in page
        assert statuses(page)["Were the sums computed without overflow?"] == "evidence missing"


class TestTrouble:
    def test_a_site_that_drops_out_is_named(self) -> None:
        def lose(sender: str, recipient: str, frame: bytes) -> list[bytes]:
            return [] if sender == "site 3" and peek_header(frame)[1] == "share" else [frame]

        finished = written(job("logistic", "additive"), tables(4), tamper=lose)
        text = Page(page_of(finished)).text
        assert "site 3 dropped out before the first release and is in no sum" in text
        assert "0 missing no reply from site 3 in phase share" in text

    def test_a_changed_message_is_reported(self) -> None:
        def spoil(sender: str, recipient: str, frame: bytes) -> list[bytes]:
            return [frame[:-1] + b"!"] if sender == "site 3" else [frame]

        finished = written(job("logistic", "plain"), tables(4), tamper=spoil)
        (rejected,) = [e for e in finished.facts["trouble"] if e["event"] == "rejected"]
        assert rejected["why"] in Page(page_of(finished)).text

    def test_a_run_without_trouble_is_reported(self) -> None:
        assert "None: no message" in page_of(small_run("logistic", "plain"))

    def test_a_resumed_run_is_reported(self) -> None:
        facts, result = copied(small_run("logistic", "additive"))
        about = {"round": 2, "phase": "share", "deadline": 30.0}
        why = {"code": "abort", "where": "round 2", "what": "west dropped out"}
        facts["trouble"] = [
            {"event": "restarted", "party": "north", **about, "seq": 7},
            {"event": "stopped", **about, **why, "seq": 8},
            {"event": "resumed", "round": 2, "deadline": 60.0, "seq": 9},
        ]
        text = Page(render(facts, result)).text
        assert "None: no message" not in text
        assert "2 restarted the process of north ended before" in text
        assert "in phase share, which had 30 s: round 2: west dropped out (abort)" in text
        assert "with 60 s for each phase" in text


@pytest.mark.parametrize(
    ("engine", "shown", "hidden"),
    [
        ({"name": "memory", "processes": 1, "resumed": 0},
         ["one computer, all parties in one process", "ran in one process"], ["own process read"]),
        ({"name": "processes", "processes": 6, "resumed": 0},
         ["one computer, 6 processes, one for each party", "Only a site's own process"],
         ["in one process", "resumed"]),
        ({"name": "processes", "processes": 6, "resumed": 2},
         ["one for each party; interrupted and resumed 2 times"], ["in one process"]),
    ],
)  # fmt: skip
def test_the_engine_is_described(
    engine: dict[str, Any], shown: list[str], hidden: list[str]
) -> None:
    facts, result = copied(small_run("logistic", "additive"))
    facts["engine"] = engine
    if engine["name"] == "processes":
        facts["sites"] = None
    text = Page(render(facts, result)).text
    assert all(words in text for words in shown)
    assert not any(words in text for words in hidden)


def test_a_signer_reads_no_letter_for_a_number_of_sites() -> None:
    facts, result = copied(small_run("logistic", "additive"))
    facts["releases"][0]["thresholds"]["site 1"] = 2
    assert not re.search(r"\bk\b", Page(render(facts, result)).text)


def test_a_run_that_was_not_attacked_says_how_to_attack_its_job() -> None:
    for run in (small_run("logistic", "additive"), noised_run("sum")):
        page = page_of(run)
        assert statuses(page)["Was this run attacked to measure what leaks?"] == "needs a person"
        assert "secagg audit JOB" in Page(page).text
