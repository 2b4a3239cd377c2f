"""What each run guarantees, in a few sentences for a reader without special knowledge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from secagg.compliance.evidence import RunEvidence
from secagg.evidence.claims.guarantee import guess_of, right_guesses
from secagg.evidence.claims.privacy import all_others, epsilon_of_two_units
from secagg.evidence.numbers import counted, probability, rounded_up

NO_NOISE = (
    "No limit on what the released sums reveal about one record. The sums are exact: they have no "
    "noise."
)
SHORT = ("What is protected", "Right guesses of 100", "Against whom")
SAME = (
    "unit", "adjacency", "person", "records_per_person", "records_per_event", "sites_per_person",
)  # fmt: skip
"""What guarantees must have in common, so that their ε can be added."""


def plain_guarantee(run: RunEvidence) -> list[dict[str, str]]:
    """Return the guarantee of a run by topics; only the first topic if there is none."""
    claims = run.claims
    if not claims.noised:
        return [_point("What", NO_NOISE)]
    if not claims.holds:
        return [_point("What", claims.sentence)]
    guarantee = claims.guarantee
    what = (
        f"Noise (random numbers added on purpose) limits what the released numbers reveal about "
        f"one {guarantee['unit']}. Nothing limits what they reveal about many "
        f"{guarantee['unit']}s together: to learn that is the purpose of the run."
    )
    return [
        _point("What", what),
        _point("Who is protected", _who(guarantee)),
        _point("Against whom", _against(guarantee, len(run.facts["cohort"]))),
        _point("How strong", _how_strong(guarantee)),
        _point("The measure", f"{claims.epsilon_and_delta}. ε 0 would be perfect; smaller is "
               "stronger. ε limits each single guess, except with a probability of about δ; the "
               "number above is an average, and a single guess can be surer."),
        _point("For experts", claims.sentence),
    ]  # fmt: skip


def short_guarantee(run: RunEvidence) -> list[dict[str, str]]:
    """Return the guarantee of a run as the cells of a row, for reports on several runs."""
    claims = run.claims
    if not claims.holds:
        why = "the facts support no guarantee" if claims.noised else "the sums are exact"
        return _row(f"none: {why}", "up to 100", "no protection against anybody")
    guarantee = claims.guarantee
    if guarantee["placement"] == "site":
        others = "everybody who sees the result; also all other sites with the coordinator"
    elif colluding := guarantee["colluding"]:
        sites = counted(len(run.facts["cohort"]), "site")
        others = (
            f"everybody who sees the result; also the coordinator with up to {colluding} of {sites}"
        )
    else:
        others = "everybody but the sites, which know their own noise"
    what = f"one {guarantee['unit']}, by noise: {claims.epsilon_and_delta}"
    return _row(what, f"at most {right_guesses(guarantee)}", others)


def _row(what: str, guesses: str, against: str) -> list[dict[str, str]]:
    return [_point(*cell) for cell in zip(SHORT, (what, guesses, against), strict=True)]


def _point(topic: str, text: str) -> dict[str, str]:
    return {"topic": topic, "text": text}


def _who(guarantee: Mapping[str, Any]) -> str:
    two = epsilon_of_two_units(guarantee)
    if guarantee["mu"] is not None:
        two = f"at most {right_guesses(guarantee, 2)} of 100 right guesses (see below; {two})"
    if guarantee["unit"] == "record":
        return (
            "Each record, that is, each row of a site's table. A person with several records has "
            f"less protection. With two: {two}."
        )
    if guarantee["unit"] == "event":
        return (
            "Each event, that is, the values of a series at one step. A person with many events "
            f"has less protection. With two: {two}."
        )
    return (
        f"Each person with at most {counted(guarantee['records_per_person'], 'record')} at a site, "
        f"at no more than {counted(guarantee['sites_per_person'], 'site')}."
    )


def _against(guarantee: Mapping[str, Any], sites: int) -> str:
    everybody = (
        "Everybody who sees the released numbers, even somebody who knows "
        f"{all_others(guarantee)}. Not against somebody who controls a computer that has the "
        "records."
    )
    if guarantee["placement"] == "site":
        return f"{everybody} Also all other sites together with the coordinator."
    if guarantee["colluding"] == 0:
        return (
            f"{everybody} But not against the sites: each knows its own share of the noise, and "
            "must not tell anybody."
        )
    return (
        f"{everybody} Also the coordinator together with up to {guarantee['colluding']} of the "
        f"{counted(sites, 'site')}; with more sites, the guarantee is weaker."
    )


def _how_strong(guarantee: Mapping[str, Any]) -> str:
    return (
        f"An attacker who knows {all_others(guarantee)} guesses {guess_of(guarantee)}. Without the "
        "released numbers, both answers are equally likely, and 50 of 100 guesses are right. With "
        f"them, at most {right_guesses(guarantee)} of 100 are right. An attacker who suspects more "
        "starts above 50, and may end above this."
    )


def how_to_read(runs: Sequence[RunEvidence]) -> str:
    """Return what a guess is in the rows of `short_guarantee`; "" if no run has a guarantee."""
    guarantees = [run.claims.guarantee for run in runs if run.claims.holds]
    if not guarantees:
        return ""
    guesses = sorted({guess_of(each) for each in guarantees})
    known = {all_others(each) for each in guarantees}
    few = {"record": "records", "event": "events"}
    less = sorted({few[unit] for each in guarantees if (unit := each["unit"]) in few})
    return " ".join((
        f"An attacker who knows {known.pop() if len(known) == 1 else 'all others'} guesses "
        f"{' or '.join(guesses)}. Without the released numbers, 50 of 100 guesses are right.",
        *(f"A person with several {each} has less protection." for each in less),
        "Nothing limits what is learned about many people together.",
    ))  # fmt: skip


def strongest(runs: Sequence[RunEvidence], together: str) -> str:
    """Return the claim of all runs in a sentence or two.

    together: what the ledgers say of all runs; "" if nothing
    """
    if len(runs) == 1:
        return runs[0].claims.sentence
    exact = sum(not run.claims.noised for run in runs)
    if exact:
        return (
            f"{exact} of {len(runs)} runs released exact sums, so no bound holds for what all runs "
            "together reveal about one record."
        )
    if broken := sum(not run.claims.holds for run in runs):
        return (
            f"{broken} of {len(runs)} runs {'claims' if broken == 1 else 'claim'} no differential "
            "privacy, so no bound holds for what all runs together reveal about one record."
        )
    guarantees = [run.claims.guarantee for run in runs]
    largest = rounded_up(max(each["epsilon"] for each in guarantees))
    if len({tuple(each.get(key) for key in SAME) for each in guarantees}) > 1:
        return (
            f"Each of the {len(runs)} runs has a guarantee, of at most ε {largest}. They protect "
            "different things, so this report does not add them up."
        )
    each = (
        f"Each of the {len(runs)} runs bounds the effect of one {guarantees[0]['unit']} by at most "
        f"ε {largest}."
    )
    if together:
        return f"{each} {together}"
    total = rounded_up(sum(each["epsilon"] for each in guarantees))
    delta = probability(sum(each["delta"] for each in guarantees))
    return (
        f"{each} Together they bound it by ε {total} and δ {delta}, the sums; other runs on the "
        "same records come on top."
    )
