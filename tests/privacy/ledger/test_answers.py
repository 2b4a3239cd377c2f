"""Exact jobs that the records answered: which count, for how long, and that the limit is atomic."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.privacy.ledgers import Clock, part

from secagg.core.randomness import system_random
from secagg.errors import PolicyRefusal
from secagg.privacy.accounting.calibration import EXACT
from secagg.privacy.ledger.ledger import Ledger
from secagg.privacy.ledger.records import Decision

DAYS = 30.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(tmp_path: Path, clock: Clock) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "ledger", create=True, now=clock) as opened:
        yield opened


def ask(ledger: Ledger, session: str, asked: str, limit: int = 10) -> None:
    ledger.reserve_answer("heart", session, asked, DAYS, limit)


def release(ledger: Ledger, session: str, round_: int = 0, question: Any = None) -> None:
    exact = replace(
        part(1), session=session, round=round_, cost=EXACT, delta=0, variance=0, adjacency=None,
        question=question,
    )  # fmt: skip
    ledger.record_release(exact, caps=[], random=system_random)


def unreleased(ledger: Ledger, dataset: str = "heart") -> set[str]:
    return set(ledger.answers(dataset, DAYS).unreleased)


def test_a_job_counts_once_until_one_of_its_runs_releases(ledger: Ledger) -> None:
    for session in ("01", "02"):
        ask(ledger, session, "aa")
    ask(ledger, "03", "bb")
    assert unreleased(ledger) == {"aa", "bb"}
    release(ledger, "02")
    assert unreleased(ledger) == {"bb"}
    assert unreleased(ledger, "lung") == set()


def test_a_release_of_the_count_alone_is_no_release(ledger: Ledger) -> None:
    ask(ledger, "01", "aa")
    release(ledger, "01", question={"columns": [], "records": 9})
    assert unreleased(ledger) == {"aa"}
    release(ledger, "01", round_=1)
    assert unreleased(ledger) == set()


def test_a_session_does_not_count_its_own_answers(ledger: Ledger) -> None:
    """It asks twice: before the count, and about the total. After a release it is not ended."""
    ask(ledger, "01", "aa", limit=1)
    ask(ledger, "01", "bb", limit=1)
    with pytest.raises(PolicyRefusal):
        ask(ledger, "02", "cc", limit=1)
    release(ledger, "01")
    ask(ledger, "02", "cc", limit=1)
    ask(ledger, "01", "dd", limit=1)


def test_a_refusal_counts_as_an_answer_even_if_the_job_released_before(ledger: Ledger) -> None:
    ask(ledger, "01", "aa")
    release(ledger, "01")
    ask(ledger, "02", "aa")
    ledger.record_refusal("heart", "02", "aa", "a record was added")
    answers = ledger.answers("heart", DAYS)
    assert answers.unreleased == {"aa"} and len(answers.refused) == 1


def test_a_request_that_was_also_answered_counts_for_each_refusal(ledger: Ledger) -> None:
    """Its answers tell each time whether the records changed."""
    for session in ("01", "02", "03"):
        ask(ledger, session, "aa")
        ask(ledger, session, "bb")
    for session in ("01", "02", "03"):
        ledger.record_refusal("heart", session, "bb", "never answered")
    for session in ("02", "03"):
        ledger.record_refusal("heart", session, "aa", "answered in session 01")
    answers = ledger.answers("heart", DAYS)
    assert len(answers.refused) == 1 + 2 and answers.unreleased == {"aa", "bb"}


def test_at_the_limit_only_earlier_jobs_are_answered(tmp_path: Path, clock: Clock) -> None:
    """The second ledger is another process's, opened before the answers of the first."""
    path = tmp_path / "ledger"
    with (
        Ledger.open(path, create=True, now=clock) as ledger,
        Ledger.open(path, create=False, now=clock) as other,
    ):
        ask(ledger, "01", "aa", limit=2)
        ask(ledger, "02", "bb", limit=2)
        lines = ledger.history("heart")
        with pytest.raises(PolicyRefusal):
            ask(other, "03", "cc", limit=2)
        assert other.history("heart") == lines
        ask(other, "03", "aa", limit=2)
        release(other, "03")
        ask(ledger, "04", "cc", limit=2)
        assert unreleased(other) == {"bb", "cc"}


def test_answers_count_for_the_days_of_the_period(ledger: Ledger, clock: Clock) -> None:
    ask(ledger, "01", "aa")
    ledger.record_refusal("heart", "02", "bb", "few records")
    clock.time += timedelta(days=DAYS)
    assert unreleased(ledger) == {"aa", "bb"}
    clock.time += timedelta(seconds=1)
    answers = ledger.answers("heart", DAYS)
    assert answers.refused == answers.unreleased == set()


def test_the_words_of_other_lines_are_no_answers(ledger: Ledger) -> None:
    """A column may be called `asked`, and the reason of a decision may quote this word."""
    question = {"columns": {"asked": {}}, "max_rows": 9, "min_records": 1, "records": 9}
    exact = replace(part(1), cost=EXACT, delta=0, variance=0, adjacency=None, question=question)
    ledger.record_release(exact, caps=[], random=system_random)
    ledger.record_refusal("heart", "02", "bb", '"asked": "no"')
    ledger.decide("heart", "03", 0, "cohort", [Decision("columns", True, '"asked": "cc"')])
    assert unreleased(ledger) == {"bb"}
