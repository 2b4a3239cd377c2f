"""The verdict of `secagg plan` on the expected usefulness of a result, with what a reader needs.

The plan words the verdict: `secagg.evidence.feasibility.simulated` and
`secagg.privacy.expected_error` for coefficients, `secagg.evidence.feasibility.edges` for graphs. It
uses public numbers only. So it is the same before and after the run, and reveals nothing about any
record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from secagg.evidence.claims.counts import records_of
from secagg.evidence.numbers import count, counted, percent, typeset
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
_SIMULATED_WORDS = {
    "green": "noise and limits of records cost at most the sampling error",
    "amber": "large effects are visible",
    "red": "the noise is far above the sampling error, or the error above 50 %",
}
_GRAPH_WORDS = {
    "green": "the noise hardly changes which edges are found",
    "amber": "large effects are likely to be found, but maybe in the wrong direction",
    "red": "even large effects may be missed",
}

_TABLE_WORDS = {
    "green": "the noise is small beside most counts",
    "amber": "large counts are usable",
    "red": "the expected error is above 30 %",
}

_COLOURS = (
    "Coefficient error: the expected change of all slopes of a regression together, in percent of "
    "their size. It is due to the noise, and in a search of many rounds also to its end before the "
    f"optimum. Green: up to {percent(GREEN_ERROR)}; amber: up to {percent(USABLE_ERROR)}, which is "
    "usable; red: above."
)
_COLOURS_OF_SIMULATED = (
    "Coefficient error: the expected change of all slopes of a regression together, by noise and "
    "by limits of records, in percent of their size. Sampling error: that of the fit without "
    "noise and limits. Green: the error is at most the sampling error; amber: intervals are at "
    "most twice as long as without noise and limits, or the error is at most "
    f"{percent(USABLE_ERROR)}; red: more, or an error above 50 %."
)
_COLOURS_OF_TABLES = (
    "Error of a cell: the standard deviation of the noise in each count, in percent of the table's "
    f"mean count; the largest of all tables decides. Green: up to {percent(GREEN_ERROR)}; amber: "
    f"up to {percent(USABLE_ERROR)}; red: above. Cells with few records have larger errors."
)
_COLOURS_OF_A_GRAPH = (
    "Green: the smallest weight of an edge that is likely to be found is at most a tenth larger "
    "than without noise; amber: it is at most 0.5, a large effect; red: larger."
)


def in_short(facts: Facts) -> str:
    """Return the verdict for the first page."""
    judged = facts["feasibility"]
    if judged["verdict"] is None:
        return f"The plan's verdict: {judged['words']}."
    if not judged.get("known", True):
        return "Expected before the run: red, the error is not known and can be above 100 %."
    words = _GRAPH_WORDS if _of_a_graph(judged) else _VERDICT_WORDS
    words = _TABLE_WORDS if "tables" in judged else words
    words = _SIMULATED_WORDS if "sampling" in judged else words
    return f"Expected before the run: {judged['verdict']}, {words[judged['verdict']]}."


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
    words = typeset(judged["words"]).replace("epsilon", "ε")
    verdict = f"The plan's verdict on the usefulness of the result: {words}."
    if judged["verdict"] is None:
        return [verdict]
    records = count(facts["job"]["privacy"]["expected_records"])
    of_edges = _of_a_graph(judged)
    limits = (
        f"The verdict uses public numbers only: {records} expected records, and guesses about the "
        f"columns. It does not include {'' if of_edges else 'sampling error and '}the bias of "
        "clipping."
    )
    colours = _COLOURS_OF_A_GRAPH if of_edges else _COLOURS
    if "sampling" in judged:
        colours = _COLOURS_OF_SIMULATED
        limits = (
            f"The verdict is from runs on simulated records: {records} expected records, with what "
            "the job says of the columns. It does not know skewed columns and effects that are "
            "not linear."
        )
    if "tables" in judged:
        colours = _COLOURS_OF_TABLES
        limits = f"The errors are exact. The mean counts use {records} expected records."
    texts = [
        verdict,
        colours,
        limits,
        f"The verdict {judged['assumes']}." if "assumes" in judged else "",
        ". ".join(fewer_records_than_expected(facts, summary) or ()),
    ]
    return [text for text in texts if text]


def _of_a_graph(judged: Facts) -> bool:
    return "smallest_edge" in judged
