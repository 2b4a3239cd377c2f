"""A guarantee of differential privacy in plain words: of what, for whom, and against whom.

The report explains epsilon in two ways. The definition bounds a factor of e^epsilon. For somebody
who guesses, from all releases of a run, which of two data sets the run used, and who thought both
equally likely before, the chance of success is

    P(right guess) <= Phi(mu / 2) + T.                                                       (1)

(Dong, Roth & Su 2022, section 2: releases of mu-GDP are no easier to tell apart than N(0, 1) and
N(mu, 1). This is (1 + delta(0)) / 2, which also holds for samples of records.) T is the total
variation between discrete and Gaussian noise. (1) follows from the same mu as epsilon, and is a
stronger statement than e^epsilon alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from secagg.evidence.claims.privacy import (
    Facts,
    PrivacyClaims,
    all_others,
    distance,
    epsilon_of_two_units,
    events_of,
)
from secagg.evidence.numbers import count, counted, power_of_e, probability, significant
from secagg.privacy.accounting.events import Event, delta_of, with_less_noise


def right_guesses(guarantee: Facts, units: int = 1) -> int:
    """Return the bound (1) in percent, rounded up.

    units: 2 for two records or persons together, which is known if the guarantee has a mu
    """
    events = events_of(guarantee, guarantee["adjacency"])
    if units > 1:
        events = [with_less_noise(event, float(units)) for event in events]
    return percent_right(events, units * distance(guarantee))


def percent_right(events: Sequence[Event], discrete: float) -> int:
    """Return the bound (1) of these releases together, in percent, rounded up. discrete: T"""
    chance = (1 + delta_of(events, 0.0)) / 2 + discrete
    return min(100, math.ceil(100 * chance))


def factor(guarantee: Facts) -> str:
    """Return e^epsilon and its approximate value: "e⁸, about 2,981 times"."""
    value = math.exp(guarantee["epsilon"])
    about = count(round(value)) if 100 <= value < 1e7 else significant(value, 3)
    return f"{power_of_e(guarantee['epsilon'])}, about {about} times"


def guess_of(guarantee: Facts) -> str:
    """Return what an attacker guesses: what differs between neighbours."""
    if guarantee["adjacency"] == "replace":
        return f"which of two {guarantee['unit']}s is in the data"
    return f"whether one {guarantee['unit']} is in the data"


def explain_epsilon(claims: PrivacyClaims) -> str:
    """Return what epsilon means for somebody who guesses; "" if no guarantee holds."""
    if not claims.holds:
        return ""
    guarantee = claims.guarantee
    return (
        f"The factor is {factor(guarantee)}. It bounds every attack; it is not the expected gain "
        f"of an attack. Suppose that an attacker knows {all_others(guarantee)}, sees all releases "
        f"of this run and guesses {guess_of(guarantee)}. If both answers were equally likely "
        f"before, the guess is right in at most {right_guesses(guarantee)} of 100 cases; without "
        "the releases, in 50. An attacker with more prior knowledge starts from a higher number."
    )


def plain_words(claims: PrivacyClaims, sites: int) -> list[tuple[str, str]]:
    """Return the guarantee as (question, answer) pairs, for readers without special knowledge.

    sites: number of sites whose data is in the sums
    """
    guarantee = claims.guarantee
    return [
        ("What is guaranteed", _what(guarantee)),
        ("Who is protected", _who_is_protected(guarantee)),
        ("Against whom", _against_whom(guarantee, sites)),
        ("How strong it is", explain_epsilon(claims)),
        (
            "The exception",
            f"δ = {probability(guarantee['delta'])}: a probability may change by this much in "
            "addition to the factor. δ should be far below 1 / number of records.",
        ),
        ("Which releases it covers", _releases(claims)),
        ("Which runs it covers", claims.ledger.adds_up),
    ]


def _what(guarantee: Facts) -> str:
    unit = guarantee["unit"]
    change = f"adding or removing one {unit}"
    if guarantee["adjacency"] == "replace":
        change = f"replacing one {unit} by another"
    return (
        f"A bound on how much {change} can change the probability of any released result. So it "
        f"limits what the run reveals because of that one {unit}. It does not limit what the run "
        f"reveals about many {unit}s together: that is the purpose of the run."
    )


def _who_is_protected(guarantee: Facts) -> str:
    if guarantee["unit"] == "record":
        return (
            "Each record: each row of a site's table. The protection of a person with several "
            f"records is weaker: for two, {epsilon_of_two_units(guarantee)} at the same δ."
        )
    if guarantee["unit"] == "event":
        windows = counted(guarantee["records_per_event"], "record")
        return (
            f"Each event: the values of a series at one step, in at most {windows} (windows) of a "
            "site's table. The protection of a series, for example of a patient with many events, "
            f"is weaker: for two events, {epsilon_of_two_units(guarantee)} at the same δ."
        )
    records = counted(guarantee["records_per_person"], "record")
    return (
        f"Each person, with at most {records} at a site, and at no more than "
        f"{counted(guarantee['sites_per_person'], 'site')}. The protection of a person with "
        "records at more sites is weaker, and nobody can notice that."
    )


def _against_whom(guarantee: Facts, sites: int) -> str:
    everybody = (
        "Everybody who sees the releases, such as the coordinator and readers of the result, with "
        f"any other knowledge, even of {all_others(guarantee)}."
    )
    if guarantee["placement"] == "site":
        return (
            f"{everybody} Also all other sites together with the coordinator, because each site's "
            "own noise is enough for its records."
        )
    if guarantee["colluding"] == 0:
        return (
            f"{everybody} But not the sites themselves: each site knows its own share of the "
            "noise. Against one of them, the guarantee has at least the strength that “If more "
            "sites collude” states for one site. No site may tell anybody its share."
        )
    return (
        f"{everybody} Also up to {guarantee['colluding']} of the {counted(sites, 'site')} that "
        "tell the coordinator their noise; for more sites, see “If more sites collude”."
    )


def _releases(claims: PrivacyClaims) -> str:
    releases = counted(sum(claims.sums.values()), "release")
    text = f"The {releases} of this run together have {claims.epsilon_and_delta}."
    return f"{text} {claims.ledger.repeats}".rstrip()


def invalidating_conditions(claims: PrivacyClaims) -> list[str]:
    """Return what voids the guarantee, now or later, without software being able to notice."""
    guarantee = claims.guarantee
    own_noise = guarantee["placement"] == "site"
    conditions = [
        "Somebody releases the records, or sums of them without noise, in any other way, earlier "
        "or later, with this or other software."
        + (" The ledger contains such a release already." if claims.ledger.exact else ""),
        "A site did not clip its records, or did not add its noise, for example because its "
        "program was changed. Then its records are not protected"
        + ("." if own_noise else ", and it counts as a colluding site."),
        "Somebody reads a site's ledger, which contains the seeds of its noise.",
        "Somebody deletes a ledger or restores an older copy. Then the ledger no longer counts the "
        "releases since, and a repeated question gets new noise in place of the same noise.",
        "Somebody chose columns, bounds, levels or settings after looking at these records: the "
        "guarantee does not cover earlier experiments.",
    ]
    if not own_noise:
        colluding = guarantee["colluding"]
        collusion = "A site tells anybody its noise"
        if colluding:
            collusion = f"More than {colluding} of the sites tell the coordinator their noise"
        conditions.insert(1, f"{collusion}: then “If more sites collude” applies.")
    if guarantee["unit"] == "person":
        conditions.append(
            f"A person has records at more than {counted(guarantee['sites_per_person'], 'site')}, "
            f"or has two names in column “{guarantee['person']}” of one site. Then the guarantee "
            "for this person is weaker."
        )
    if guarantee["unit"] == "event":
        windows = counted(guarantee["records_per_event"], "record")
        conditions.append(
            f"A value of a series is in more than {windows} of a site, for example because a "
            "window is in the table twice. Or a missing event was closed up, so that its removal "
            "joined the events before and after it. Then the guarantee for this event is weaker."
        )
    return conditions
