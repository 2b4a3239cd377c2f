"""The report says what went wrong on the way, how the run went on, and where it was played."""

from __future__ import annotations

from typing import Any

import pytest
from support.reports import Page, copied, job, page_of, small_run, tables, written

from secagg.core.frames import peek_header
from secagg.reports.page import render


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
         ["one computer, all parties in one process", "ran in one process"], ["own process"]),
        ({"name": "processes", "processes": 6, "resumed": 0},
         ["one computer, 6 processes, one for each party", "had its own process"],
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
