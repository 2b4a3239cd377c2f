"""A promise of differential privacy in plain words: of what, to whom, against whom, until when.

How large epsilon is, is said twice. e^epsilon is what the definition bounds. What that bound leaves
to somebody who guesses is the chance

    P(right guess) <= Phi(mu / 2) + T,                                                       (1)

for a guess, from all that a run released, on which of two data sets it read, each as likely as the
other beforehand (Dong, Roth & Su 2022, section 2: releases of mu-GDP are no easier to tell apart
than N(0, 1) and N(mu, 1)); T is how far discrete noise is from Gaussian, in total variation. (1)
follows from the same mu as epsilon does, and says more than e^epsilon alone would.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from scipy.special import ndtr

from secagg.reports.dp_claims import all_others, distance, holds, noised, of_two, promise_size
from secagg.reports.ledgers import adds_up, exact_before, repeats
from secagg.reports.numbers import count, counted, power_of_e, probability, significant

Facts = Mapping[str, Any]


def right_guesses(promise: Mapping[str, Any]) -> int:
    """Return the bound (1) in per cent, rounded up."""
    chance: float = float(ndtr(promise["mu"] / 2)) + distance(promise)
    return min(100, math.ceil(100 * chance))


def factor(promise: Mapping[str, Any]) -> str:
    """Return e^epsilon and about what it is: e⁸, about 2,981 times."""
    value = math.exp(promise["epsilon"])
    about = count(round(value)) if 100 <= value < 1e7 else significant(value, 3)
    return f"{power_of_e(promise['epsilon'])}, about {about} times"


def explain_epsilon(facts: Facts) -> str:
    """Return what epsilon means for somebody who guesses; nothing where no promise holds."""
    if not noised(facts) or not holds(facts):
        return ""
    promise = facts["privacy"]
    unit = promise["unit"]
    guess = f"whether one {unit} was there"
    if promise["adjacency"] == "replace":
        guess = f"which of two {unit}s was there"
    return (
        f"The factor is {factor(promise)}: a bound on any attack, not what one is expected to "
        f"gain. Who knows {all_others(promise)}, and has to tell {guess} by all that this run "
        f"released, is right in at most {right_guesses(promise)} of 100 cases if both were equally "
        "likely beforehand; by tossing a coin, in 50. Who knew more beforehand starts from more."
    )


def promised(facts: Facts) -> list[tuple[str, str]]:
    """Return the promise point by point, in words that need no knowledge of the matter."""
    promise = facts["privacy"]
    return [
        ("What is promised", _what(promise)),
        ("About whom", _about_whom(promise)),
        ("Against whom", _against_whom(facts)),
        ("By how much", explain_epsilon(facts)),
        (
            "The exception",
            f"δ = {probability(promise['delta'])}: a probability may change by so much on top of "
            "the factor. It should be far below 1 / number of records.",
        ),
        ("Over which releases", _releases(facts)),
        ("Over which runs", adds_up(facts)),
    ]


def _what(promise: Mapping[str, Any]) -> str:
    change = "is there at all" if promise["adjacency"] == "add_remove" else "says this or that"
    return (
        f"A bound on how much it can matter, to the chance of anything that was released, whether "
        f"one {promise['unit']} {change}; and so on what can be learnt from the run that is owed "
        f"to that {promise['unit']} alone. What holds of many is meant to be learnt."
    )


def _about_whom(promise: Mapping[str, Any]) -> str:
    if promise["unit"] == "record":
        return (
            "Each record, that is each row of a site's table, whoever it belongs to. A person with "
            f"several records is protected by less: for two, {of_two(promise)} at the same δ."
        )
    records = counted(promise["records_per_person"], "record")
    return (
        f"Each person, with all that is used of theirs: at most {records} at a site, at no more "
        f"than {counted(promise['sites_per_person'], 'site')}. Someone with records at more sites "
        "is protected by less, and nobody can notice."
    )


def _against_whom(facts: Facts) -> str:
    promise, sites = facts["privacy"], len(facts["cohort"])
    anybody = (
        "Everybody who sees what was released, the coordinator and readers of the result among "
        f"them, whatever else they know: {all_others(promise)}, too."
    )
    if promise["placement"] == "site":
        return (
            f"{anybody} Also all other sites together with the coordinator, because each site's "
            "own noise is enough for its records."
        )
    if promise["colluding"] == 0:
        return (
            f"{anybody} But not the sites themselves: each knows its own share of the noise, and "
            "against one of them the promise is worth at least what “If more sites collude” says "
            "of one. No site may tell anybody its share."
        )
    return (
        f"{anybody} Also up to {promise['colluding']} of the {counted(sites, 'site')} that tell "
        "the coordinator their noise; against more, see “If more sites collude”."
    )


def _releases(facts: Facts) -> str:
    made = counted(len(facts["releases"]), "release")
    text = f"The {made} of this run, all together: {promise_size(facts)} is for their sum."
    if again := repeats(facts):
        text += f" {again}"
    return text


def invalidating_conditions(facts: Facts) -> list[str]:
    """Return what makes the promise void, now or later, and no software sees."""
    promise = facts["privacy"]
    own = promise["placement"] == "site"
    found = [
        "The records, or sums of them without noise, are released in any other way, before or "
        "later, by this or other software."
        + (" The ledger has such a release already." if exact_before(facts) else ""),
        "A site did not clip its records, or did not add its noise: a changed program, say. Then "
        + (
            "that site's records are not protected."
            if own
            else "its own records are not protected, and it counts as a site that colludes."
        ),
        "Somebody reads a site's ledger, which holds the seeds of its noise. Or a ledger is "
        "deleted or put back to an older copy: it forgets what was spent, and what should have the "
        "same noise again gets other noise.",
        "Columns, bounds, levels or settings were chosen by looking at these records: what was "
        "tried on them before is not counted.",
    ]
    if not own:
        most = promise["colluding"]
        tell = f"More than {most} of the sites tell the coordinator their noise"
        found.insert(
            1,
            f"{tell if most else 'A site tells anybody its noise'}: it then is worth what "
            "“If more sites collude” says.",
        )
    if promise["unit"] == "person":
        found.append(
            f"A person has records at more than {counted(promise['sites_per_person'], 'site')}, "
            f"or goes by two names in column “{promise['person']}” of one site: not void, but less."
        )
    return found
