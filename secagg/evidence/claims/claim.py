"""A claim: one thing that a plan, a run or an officer states, worded once.

The plan, the report of a run and the compliance report show the same claims, in the same words. A
claim is no verdict: only a person can decide whether a run was acceptable.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """What is known about a claim.

    ATTACHED: computed from files whose origin is checked; STATED: somebody says so, and nothing in
    the report shows it
    """

    ATTACHED = "evidence attached"
    STATED = "stated by a person"
    MISSING = "evidence missing"
    PERSON = "needs a person"


def as_sentence(text: str) -> str:
    """Return a phrase as a sentence; names in it keep their letters."""
    return f"{text[:1].upper()}{text[1:]}."


@dataclass(frozen=True)
class Claim:
    """What is claimed about one topic of a run.

    where: the keys of run.json that it follows from, with slashes; "" for the whole file
    """

    topic: str
    text: str
    status: Status = Status.ATTACHED
    where: str = ""

    @property
    def in_short(self) -> str:
        """The first sentence, for a first page."""
        return as_sentence(self.text.split(". ")[0].rstrip("."))


@dataclass(frozen=True)
class Banner:
    """A warning on the first page. void: the run protects nothing"""

    title: str
    text: str
    void: bool = False
