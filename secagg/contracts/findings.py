"""What an attack found, and the only function that says what it means.

A verdict is never copied. Whoever shows one computes it with `judge` from the number, its interval,
the limit and the control: the audit that measured them, and every later reader of its file.

| number                      | control     | verdict                                     |
|-----------------------------|-------------|---------------------------------------------|
| none, or undefined          | any         | inconclusive                                |
| beyond the limit            | any         | leak                                        |
| beyond, no worse than guess | any         | inconclusive                                |
| beyond, only a bound        | any         | inconclusive                                |
| within, search failed       | any         | inconclusive                                |
| within                      | not found   | inconclusive                                |
| within, interval beyond     | found       | inconclusive                                |
| within, an end undefined    | found       | inconclusive                                |
| within, interval too        | found       | no leak found                               |

A control is found if its own number is beyond its own limit, is worse than that of a guess, and is
not only a bound.

Not protected: numbers that somebody invented. A file of invented numbers has the verdict that
follows from them; only measuring again shows that they are invented.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

_LIMIT = re.compile(r"\s*(<=|>=)\s*(\S+)\s*")


class Verdict(StrEnum):
    """What an audit says about one attack."""

    LEAK = "leak"
    NO_LEAK_FOUND = "no leak found"
    INCONCLUSIVE = "inconclusive"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True)
class Limit:
    """The largest number without a leak; or the smallest, if `errors`: then smaller is worse."""

    number: float
    errors: bool = False

    def exceeded_by(self, value: float) -> bool:
        """Return whether a number is a leak."""
        return value < self.number if self.errors else value > self.number

    def severity(self, value: float, control: float | None) -> float:
        """Return how far a leak is beyond the limit: 0 at the limit, 1 where the planted leak is.

        control: the number of the planted leak. 1, too, if it does not say how large the number
            can be
        """
        if control is None or not self.exceeded_by(control):
            return 1.0
        at = abs(value - self.number) / abs(control - self.number)
        return min(at, 1.0) if math.isfinite(at) else 1.0

    def __str__(self) -> str:
        return f"{'>=' if self.errors else '<='} {self.number:.4g}"

    @property
    def exact(self) -> str:
        """The limit as text that `of_text` reads without a loss."""
        short = f"{self.number:g}"
        number = short if float(short) == self.number else repr(float(self.number))
        return f"{'>=' if self.errors else '<='} {number}"

    @classmethod
    def of_text(cls, text: object) -> Limit:
        """Return a limit such as "<= 0.1". Raises `ValueError` if the text is none."""
        match = _LIMIT.fullmatch(text) if isinstance(text, str) else None
        try:
            number = float(match[2]) if match else math.nan
        except ValueError:
            number = math.nan
        if match is None or not math.isfinite(number):
            raise ValueError(f"{text!r} is not a limit")
        return cls(number, errors=match[1] == ">=")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A number with its interval (95 %), and the number of the same guess without the transcript.

    low, high: equal to the value where it is exact
    details: plain data for the report
    failed: why the attack itself knows that it did not succeed, for example a search that ended
        elsewhere; a number without a leak then shows nothing
    bound: why the number is only an upper bound; a number above the limit then shows nothing
    why_not: why the attack does not apply, if only the truth shows it
    """

    value: float
    low: float
    high: float
    baseline: float
    details: Mapping[str, Any] = field(default_factory=dict)
    failed: str = ""
    bound: str = ""
    why_not: str = ""

    @classmethod
    def exact(cls, value: float, baseline: float, **details: Any) -> Finding:
        """Return a finding without sampling error."""
        return cls(value=value, low=value, high=value, baseline=baseline, details=details)

    @classmethod
    def failure(cls, why: str, value: float, baseline: float, **details: Any) -> Finding:
        """Return a finding of an attack that knows that it failed, or that it may have.

        why: "" if it did not fail
        """
        return replace(cls.exact(value, baseline, **details), failed=why)

    @classmethod
    def impossible(cls, why: str) -> Finding:
        """Return that the attack does not apply, for a reason that only the truth shows."""
        nan = float("nan")
        return replace(cls.exact(nan, nan), why_not=why)

    def beats_a_guess(self, limit: Limit) -> bool:
        """Return whether the number is worse than that of a guess, if there is one."""
        guess = Limit(self.baseline, limit.errors)
        return math.isnan(self.baseline) or guess.exceeded_by(self.value)


def is_found(control: Finding | None, limit: Limit | None) -> bool:
    """Return whether an attack finds the planted leak. limit: that of the control"""
    if control is None or limit is None:
        return False
    beyond = limit.exceeded_by(control.value) and control.beats_a_guess(limit)
    return beyond and not control.bound


def judge(
    found: Finding | None,
    limit: Limit | None,
    control: Finding | None,
    control_limit: Limit | None,
    error: str = "",
) -> tuple[Verdict, str]:
    """Return the verdict about a number, and why (see the table above).

    control: what the same attack found where the leak is certain; control_limit: its limit there
    error: the error that ended the attack or its control
    """
    if found is None or limit is None:
        return Verdict.INCONCLUSIVE, error or "the attack has no number"
    if math.isnan(found.value):
        return Verdict.INCONCLUSIVE, "the number is undefined"
    if limit.exceeded_by(found.value):
        if not found.beats_a_guess(limit):
            return Verdict.INCONCLUSIVE, "the number is no worse than that of a guess"
        return (Verdict.INCONCLUSIVE, found.bound) if found.bound else (Verdict.LEAK, "")
    if found.failed:
        return Verdict.INCONCLUSIVE, found.failed
    if not is_found(control, control_limit):
        return Verdict.INCONCLUSIVE, error or "the attack does not find the planted leak either"
    end = found.low if limit.errors else found.high
    if math.isnan(end):  # no comparison holds of it
        return Verdict.INCONCLUSIVE, "the interval is undefined"
    if limit.exceeded_by(end):
        return Verdict.INCONCLUSIVE, "the interval reaches beyond the limit"
    return Verdict.NO_LEAK_FOUND, ""
