"""Was the result expected to be usable? The verdict of `secagg plan`, and its words in a report.

It is worked out from public numbers only (`secagg.privacy.expected_error`), so that it is the same
before and after the run, and tells nothing of any record.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from secagg.privacy.expected_error import (
    GREEN_ERROR,
    USABLE_ERROR,
)
from secagg.reports.numbers import count, counted, fixed
from secagg.reports.results import records_of

Facts = Mapping[str, Any]

_MIN_RECORDS_RATIO = 0.8
"""From this share of the expected records on the verdict is taken to hold; noise has to be excluded
as the reason for fewer, by three of its standard deviations."""

_VERDICT_WORDS = {
    "green": "noise hardly shows",
    "amber": "directions and large effects can be told",
    "red": "noise drowns what is asked for",
}


def in_short(facts: Facts) -> str:
    """Return the verdict for the first page."""
    judged = facts["feasibility"]
    if judged["verdict"] is None:
        return f"It was {judged['words']}."
    return f"Expected before the run: {judged['verdict']}, {_VERDICT_WORDS[judged['verdict']]}."


def fewer_records_than_expected(facts: Facts, summary: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return that there are far fewer records than the plan expected, and what follows; or None.

    Both numbers are public: the guess is the job's, and what was counted has noise.
    """
    guess = facts["job"]["privacy"]["expected_records"]
    if guess is None:
        return None
    records, error = records_of(summary)
    if records + 3 * error >= _MIN_RECORDS_RATIO * guess:
        return None
    person, why = facts["privacy"]["person"], ""
    if person is not None:
        used = counted(facts["privacy"]["records_per_person"], "record")
        why = (
            f" A site uses at most {used} of each person in column “{person}”: if persons have "
            "more, the others are left out."
        )
    return (
        f"Far fewer records than the plan expected: about {count(records)} of {count(guess)}",
        "Noise weighs more the fewer records there are, so whatever verdict the plan gave does not "
        f"hold for this run.{why}",
    )


def expected(facts: Facts, summary: Mapping[str, Any]) -> list[str]:
    """Return what was expected of the result before the run, with its terms explained."""
    judged = facts["feasibility"]
    if judged["verdict"] is None:
        return [f"Whether noise leaves the result usable was {judged['words']}."]
    verdict = judged["verdict"]
    records = count(facts["job"]["privacy"]["expected_records"])
    found = [
        f"The plan's verdict is {verdict}: {_VERDICT_WORDS[verdict]}. The coefficient error to "
        f"expect is {percent(judged['error'])}.",
        "Coefficient error: how far the noise alone is expected to move a regression's slopes, all "
        "of them together, in per cent of their size, against the same fit without noise. "
        f"Usable: at most {percent(USABLE_ERROR)}. Green is up to {percent(GREEN_ERROR)}, amber up "
        f"to {percent(USABLE_ERROR)}, red above.",
        _enough(judged),
        f"Worked out from public numbers: {records} expected records, and a guess of how much "
        "columns vary within their bounds and hang together. No record was read for it. Sampling "
        "error, and the bias of clipping, come on top.",
        ". ".join(fewer_records_than_expected(facts, summary) or ()),
    ]
    return [text for text in found if text]


def _enough(judged: Facts) -> str:
    """Return what would make the result usable."""
    if judged["least_epsilon"] is None or judged["least_records"] is None:
        return "No ε is enough for so few rounds of the method: more of them (method.rounds) are."
    return (
        f"Usable from ε {_upwards(judged['least_epsilon'])} on with so many records, or from "
        f"{count(judged['least_records'])} records on at this ε."
    )


def _upwards(epsilon: float) -> str:
    """Write an epsilon with two digits, rounded up so that what is written is enough."""
    decimals = max(1 - math.floor(math.log10(epsilon)), 0)
    return fixed(math.ceil(epsilon * 10**decimals) / 10**decimals, decimals)


def percent(share: float) -> str:
    """Write a share in per cent, to a tenth where that tells on which side of a limit it is."""
    if 0 < share < 0.001:
        return "less than 0.1 %"
    return f"{100 * share:.1f} %".replace(".0 %", " %")
