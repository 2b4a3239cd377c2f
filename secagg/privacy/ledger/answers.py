"""The exact jobs that a site's records have answered: by a refusal, or by none.

Both answers reveal something, because the coordinator writes the job. A job whose sums were
released needs no count here: it is pinned (`secagg.privacy.policy.questions`), so that a later job
cannot ask nearly the same. A job that ended before its first release pins nothing. A coordinator
could send many of these, each with a slightly smaller `max_rows`, until one is refused. So a site
answers only a limited number of them. A release of the count alone is no release here: its sums
tell nothing new the second time, but the answers to the other rules of a job do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from secagg.privacy.ledger.store import Line

_RULE: Final = "records"
"""The rule of a decision that depends on the records of an exact job."""
_ANSWERS: Final = "dataset = ? AND kind = 'decision' AND time >= ? AND content LIKE '%\"asked\"%'"
_RELEASES: Final = """dataset = ? AND kind = 'entry' AND content NOT LIKE '%"question": {%'
    AND session IN (
    SELECT session FROM lines WHERE kind = 'decision' AND time >= ? AND content LIKE '%"asked"%')"""


@dataclass(frozen=True)
class Answers:
    """Requests by their digests; equal requests count once, with one exception.

    refused: those that were refused because of the records. A request that the records allowed in
        another session counts for each session that it was refused in: repeated while records are
        added, it tells each time whether they changed
    unreleased: these, and those that the records allowed, but whose sessions released nothing but
        counts; without those of the own session
    has_released: whether the own session has released more than counts
    """

    refused: frozenset[str]
    unreleased: frozenset[str]
    has_released: bool


def answer(time: int, dataset: str, session: str, asked: str, refused: str | None = None) -> Line:
    """Return the line of one answer.

    refused: why the records refused the request; None before they are read
    """
    text = "asked" if refused is None else refused
    content = {"rule": _RULE, "allowed": refused is None, "text": text, "asked": asked}
    return Line(time, "decision", dataset, session, content=content)


def read_answers(
    where: Callable[..., list[Line]], dataset: str, since: int, session: str
) -> Answers:
    """Return the answers about a data set since this time.

    where: returns the lines of a ledger that meet a condition in SQL
    """
    decisions = where(_ANSWERS, dataset, since)
    released = {line.session for line in where(_RELEASES, dataset, since)}
    by_session = {
        (line.content["asked"], line.session) for line in decisions if not line.content["allowed"]
    }
    refused = {asked for asked, _ in by_session}
    answered = {(line.content["asked"], line.session) for line in decisions} - by_session
    varying = refused & {asked for asked, _ in answered}
    distinct = {asked + (where if asked in varying else "") for asked, where in by_session}
    allowed = {line.content["asked"] for line in decisions if line.session != session}
    done = {line.content["asked"] for line in decisions if line.session in released}
    unreleased = frozenset(refused | (allowed - done))
    return Answers(frozenset(distinct), unreleased, session in released)
