"""The verdict of `secagg plan` on the expected usefulness of a result, in the words of a report.

The verdict uses public numbers only (`secagg.privacy.expected_error`). So it is the same before and
after the run, and reveals nothing about any record.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from secagg.evidence.claims.counts import records_of
from secagg.evidence.numbers import count, counted, fixed, percent
from secagg.privacy.expected_error import GREEN_ERROR, USABLE_ERROR

Facts = Mapping[str, Any]

_MIN_RECORDS_RATIO = 0.8
"""With at least this share of the expected records the verdict holds. Below it, the report warns if
noise cannot explain the difference, by three of its standard deviations."""

_VERDICT_WORDS = {
    "green": "the noise has hardly any effect",
    "amber": "directions and large effects are visible",
    "red": "the expected error is above 30 %",
}
_GRAPH_WORDS = {
    "green": "the noise hardly changes which edges are found",
    "amber": "large effects are likely to be found, but maybe in the wrong direction",
    "red": "even large effects may be missed",
}


def in_short(facts: Facts) -> str:
    """Return the verdict for the first page."""
    judged = facts["feasibility"]
    if judged["verdict"] is None:
        return f"The plan's verdict: {judged['words']}."
    return f"Expected before the run: {_verdict(judged)}."


def red_title(facts: Facts) -> str:
    """Return the heading of a warning about a red verdict."""
    if _of_a_graph(facts["feasibility"]):
        return "The planned noise can hide even large effects"
    return "The plan expected a result that is too inexact"


def fewer_records_than_expected(facts: Facts, summary: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return a warning, title and text, if there are far fewer records than the plan expected.

    Both numbers are public: the job states the guess, and the counted number has noise.
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
            f" A site uses at most {used} of each person in column “{person}” and ignores further "
            "records."
        )
    return (
        f"Far fewer records than the plan expected: about {count(records)} of {count(guess)}",
        "The noise has more effect with fewer records, so the plan's verdict does not hold for "
        f"this run.{why}",
    )


def expected(facts: Facts, summary: Mapping[str, Any]) -> list[str]:
    """Return the plan's verdict before the run, with an explanation of its terms."""
    judged = facts["feasibility"]
    if judged["verdict"] is None:
        return [f"The plan's verdict on the usefulness of the result: {judged['words']}."]
    records = count(facts["job"]["privacy"]["expected_records"])
    of_edges = _of_a_graph(judged)
    texts = [
        *(_of_edges(judged) if of_edges else _of_coefficients(judged)),
        f"The verdict uses public numbers only: {records} expected records, and guesses about the "
        f"columns. It does not include {'' if of_edges else 'sampling error and '}the bias of "
        "clipping.",
        f"The verdict {judged['assumes']}." if "assumes" in judged else "",
        ". ".join(fewer_records_than_expected(facts, summary) or ()),
    ]
    return [text for text in texts if text]


def _of_a_graph(judged: Facts) -> bool:
    return "smallest_edge" in judged


def _verdict(judged: Facts, joined: str = ", ") -> str:
    words = _GRAPH_WORDS if _of_a_graph(judged) else _VERDICT_WORDS
    return f"{judged['verdict']}{joined}{words[judged['verdict']]}"


def _of_coefficients(judged: Facts) -> list[str]:
    """Return the verdict on a regression."""
    texts = [
        f"The plan's verdict is {_verdict(judged, ': ')}. The expected coefficient error is "
        f"{percent(judged['error'])}.",
        "Coefficient error: the expected change of all slopes of a regression together, in percent "
        "of their size. It is due to the noise, and in a search of many rounds also to its end "
        "before the optimum. "
        f"Usable: at most {percent(USABLE_ERROR)}. Green: up to {percent(GREEN_ERROR)}; amber: up "
        f"to {percent(USABLE_ERROR)}; red: above.",
        _enough(judged),
    ]
    if "error_at_a_site" in judged:
        texts.append(
            "Each site also has coefficients of its own. From the site's records alone, their "
            f"expected error is {percent(judged['error_at_a_site'])} "
            f"({judged['verdict_at_a_site']})."
        )
    return texts


def _of_edges(judged: Facts) -> list[str]:
    """Return the verdict on a graph."""
    majority = judged["majority"]
    by = "" if majority is None else " by {} of {} sites".format(*majority)
    start = f"An edge is likely to be found{by} if its weight is about"
    if judged["smallest_edge"] >= 1:
        start = f"Hardly any edge is likely to be found{by}: its weight would have to be about"
    return [
        f"The plan's verdict is {_verdict(judged, ': ')}. {start} "
        f"{fixed(judged['smallest_edge'], 2)} standard deviations or more; without "
        f"noise, {fixed(judged['without_noise'], 2)}. Likely: more than half of such edges were "
        "found in simulations.",
        "Green: this smallest weight is at most a tenth larger than without noise; amber: it is at "
        "most 0.5, a large effect; red: larger.",
        f"Not red with ε of at least {_rounded_up(judged['least_epsilon'])} for this number of "
        f"records, or with at least {count(judged['least_records'])} records at this ε.",
    ]


def _enough(judged: Facts) -> str:
    """Return which epsilon, or which number of records, would make the result usable."""
    if judged["least_epsilon"] is None or judged["least_records"] is None:
        return "No ε is enough with so few rounds: increase method.rounds."
    return (
        f"Usable with ε of at least {_rounded_up(judged['least_epsilon'])} for this number of "
        f"records, or with at least {count(judged['least_records'])} records at this ε."
    )


def _rounded_up(epsilon: float) -> str:
    """Write an epsilon with two digits, rounded up so that the written value is enough."""
    decimals = max(1 - math.floor(math.log10(epsilon)), 0)
    return fixed(math.ceil(epsilon * 10**decimals) / 10**decimals, decimals)
