"""The guarantees of several runs side by side, and what they say together."""

from __future__ import annotations

from collections.abc import Sequence

from secagg.compliance.evidence import RunEvidence
from secagg.evidence.claims.guarantee import all_others, collusion, guess_of, guesses, right_guesses
from secagg.evidence.numbers import probability, rounded_up

SHORT = ("What is protected", "Right guesses of 100", "Against whom")
SAME = (
    "unit", "adjacency", "person", "records_per_person", "records_per_event", "sites_per_person",
)  # fmt: skip
"""What guarantees must have in common, so that their ε can be added."""


def plain_guarantee(run: RunEvidence) -> list[dict[str, str]]:
    """Return the guarantee of a run by topics; only the first topic if there is none."""
    claims = run.claims
    points = [_point(claim.topic, claim.text) for claim in claims.plain_words()]
    return [*points, _point("For experts", claims.sentence)] if claims.holds else points


def short_guarantee(run: RunEvidence) -> list[dict[str, str]]:
    """Return the guarantee of a run as the cells of a row, for reports on several runs."""
    claims = run.claims
    if not claims.holds:
        why = "the facts support no guarantee" if claims.noised else "the sums are exact"
        return _row(f"none: {why}", "up to 100", "no protection against anybody")
    guarantee = claims.guarantee
    against = f"everybody who sees the result, {collusion(guarantee)}"
    what = f"one {guarantee['unit']}, by noise: {claims.epsilon_and_delta}"
    return _row(what, f"at most {right_guesses(guarantee)}", against)


def _row(what: str, guesses: str, against: str) -> list[dict[str, str]]:
    return [_point(*cell) for cell in zip(SHORT, (what, guesses, against), strict=True)]


def _point(topic: str, text: str) -> dict[str, str]:
    return {"topic": topic, "text": text}


def how_to_read(runs: Sequence[RunEvidence]) -> str:
    """Return what a guess is in the rows of `short_guarantee`; "" if no run has a guarantee."""
    guarantees = [run.claims.guarantee for run in runs if run.claims.holds]
    if not guarantees:
        return ""
    known = sorted({all_others(each) for each in guarantees})
    few = {"record": "records", "event": "events"}
    less = sorted({few[unit] for each in guarantees if (unit := each["unit"]) in few})
    return " ".join((
        guesses(known, sorted({guess_of(each) for each in guarantees})),
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
