"""A guarantee of differential privacy in plain words: of what, to whom, against whom, until when.

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

from scipy.special import ndtr

from secagg.reports.dp_claims import Facts, PrivacyClaims, all_others, distance, of_two
from secagg.reports.numbers import count, counted, power_of_e, probability, significant


def right_guesses(guarantee: Facts) -> int:
    """Return the bound (1) in per cent, rounded up."""
    chance: float = float(ndtr(guarantee["mu"] / 2)) + distance(guarantee)
    return min(100, math.ceil(100 * chance))


def factor(guarantee: Facts) -> str:
    """Return e^epsilon and about what it is: e⁸, about 2,981 times."""
    value = math.exp(guarantee["epsilon"])
    about = count(round(value)) if 100 <= value < 1e7 else significant(value, 3)
    return f"{power_of_e(guarantee['epsilon'])}, about {about} times"


def explain_epsilon(claims: PrivacyClaims) -> str:
    """Return what epsilon means for somebody who guesses; nothing where no guarantee holds."""
    if not claims.holds:
        return ""
    guarantee = claims.guarantee
    unit = guarantee["unit"]
    guess = f"whether one {unit} was there"
    if guarantee["adjacency"] == "replace":
        guess = f"which of two {unit}s was there"
    return (
        f"The factor is {factor(guarantee)}: a bound on any attack, not what one is expected to "
        f"gain. Who knows {all_others(guarantee)}, and has to tell {guess} by all that this run "
        f"released, is right in at most {right_guesses(guarantee)} of 100 cases if both were "
        "equally likely beforehand; by tossing a coin, in 50. Who knew more beforehand starts from "
        "more."
    )


def plain_words(claims: PrivacyClaims, sites: int) -> list[tuple[str, str]]:
    """Return the guarantee point by point, in words that need no knowledge of the matter.

    sites: whose data is in the sums
    """
    guarantee = claims.guarantee
    return [
        ("What is guaranteed", _what(guarantee)),
        ("About whom", _about_whom(guarantee)),
        ("Against whom", _against_whom(guarantee, sites)),
        ("By how much", explain_epsilon(claims)),
        (
            "The exception",
            f"δ = {probability(guarantee['delta'])}: a probability may change by so much on top of "
            "the factor. It should be far below 1 / number of records.",
        ),
        ("Over which releases", _releases(claims)),
        ("Over which runs", claims.ledger.adds_up),
    ]


def _what(guarantee: Facts) -> str:
    change = "is there at all" if guarantee["adjacency"] == "add_remove" else "says this or that"
    return (
        f"A bound on how much it can matter, to the chance of anything that was released, whether "
        f"one {guarantee['unit']} {change}; and so on what can be learnt from the run that is owed "
        f"to that {guarantee['unit']} alone. What holds of many is meant to be learnt."
    )


def _about_whom(guarantee: Facts) -> str:
    if guarantee["unit"] == "record":
        return (
            "Each record, that is each row of a site's table, whoever it belongs to. A person with "
            f"several records is protected by less: for two, {of_two(guarantee)} at the same δ."
        )
    records = counted(guarantee["records_per_person"], "record")
    return (
        f"Each person, with all that is used of theirs: at most {records} at a site, at no more "
        f"than {counted(guarantee['sites_per_person'], 'site')}. Someone with records at more "
        "sites is protected by less, and nobody can notice."
    )


def _against_whom(guarantee: Facts, sites: int) -> str:
    anybody = (
        "Everybody who sees what was released, the coordinator and readers of the result among "
        f"them, whatever else they know: {all_others(guarantee)}, too."
    )
    if guarantee["placement"] == "site":
        return (
            f"{anybody} Also all other sites together with the coordinator, because each site's "
            "own noise is enough for its records."
        )
    if guarantee["colluding"] == 0:
        return (
            f"{anybody} But not the sites themselves: each knows its own share of the noise, and "
            "against one of them the guarantee is worth at least what “If more sites collude” says "
            "of one. No site may tell anybody its share."
        )
    return (
        f"{anybody} Also up to {guarantee['colluding']} of the {counted(sites, 'site')} that tell "
        "the coordinator their noise; against more, see “If more sites collude”."
    )


def _releases(claims: PrivacyClaims) -> str:
    made = counted(sum(claims.sums.values()), "release")
    text = f"The {made} of this run, all together: {claims.size} is for their sum."
    return f"{text} {claims.ledger.repeats}".rstrip()


def invalidating_conditions(claims: PrivacyClaims) -> list[str]:
    """Return what makes the guarantee void, now or later, and no software sees."""
    guarantee = claims.guarantee
    own = guarantee["placement"] == "site"
    found = [
        "The records, or sums of them without noise, are released in any other way, before or "
        "later, by this or other software."
        + (" The ledger has such a release already." if claims.ledger.exact else ""),
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
        most = guarantee["colluding"]
        tell = f"More than {most} of the sites tell the coordinator their noise"
        found.insert(
            1,
            f"{tell if most else 'A site tells anybody its noise'}: it then is worth what "
            "“If more sites collude” says.",
        )
    if guarantee["unit"] == "person":
        found.append(
            f"A person has records at more than {counted(guarantee['sites_per_person'], 'site')}, "
            f"or goes by two names in column “{guarantee['person']}” of one site: not void, but "
            "less."
        )
    return found
