"""A guarantee of differential privacy in words: of what, for whom, against whom, how strong.

The facts of a guarantee are those of `secagg.privacy.accounting.guarantee`: a plan has them, and so
has run.json, under `privacy`. So the epsilon of `sentence` is the job's: it covers all releases of
one run, and no ledger is read for it. `secagg.evidence.claims.ledgers` words the epsilon of all
runs on the same records, which is computed from ledger lines.

A site writes the cost of a release to its ledger before anything leaves it
(`secagg.privacy.policy.guard`). The coordinator writes the cost to its own ledger when it has the
sum, before the sum is stored (`secagg.runs.session_loop`). A cost has one event for each adjacency,
and a distance (`secagg.privacy.accounting.composition.Cost`). `events_of` returns the events of all
releases.

Epsilon is explained in two ways. The first is its definition, a bound on a factor: e^epsilon. The
second is the probability of a right guess. Somebody guesses, from all releases of a run, which of
two neighbouring data sets the run used. Beforehand, both seemed equally likely. Let T be the total
variation distance between the releases and releases with Gaussian noise, and delta(0) the delta
that Gaussian noise has at epsilon 0. Then

    P(right guess) <= (1 + delta(0)) / 2 + T.                                                (1)

Without sampling of records, (1 + delta(0)) / 2 is Phi(mu / 2): releases that are mu-GDP are no
easier to tell apart than N(0, 1) and N(mu, 1) (Dong, Roth & Su 2022, section 2). (1) follows from
the same events as epsilon, and is a stronger statement than e^epsilon alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from secagg.contracts.noise import Adjacency, Placement
from secagg.evidence.numbers import (
    ADJACENCIES,
    count,
    counted,
    declared,
    power_of_e,
    probability,
    significant,
)
from secagg.privacy.accounting.calibration import epsilon_at
from secagg.privacy.accounting.events import Event, delta_of, from_data, with_less_noise

Facts = Mapping[str, Any]
_GROUP_STEPS = 20  # of an iteration that converges in a few
_OF_JOB = (
    " The job chose the column that names persons, so the noise is large enough for a removal that "
    "lets another person's record in."
)


def sentence(guarantee: Facts) -> str:
    """Return the claim in one sentence; a second one says what a person or an event is."""
    unit = f"one {guarantee['unit']}"
    change = (
        f"whether {unit} at any site took part"
        if guarantee["adjacency"] == Adjacency.ADD_REMOVE.value
        else f"replacing {unit} at any site by another"
    )
    return (
        f"Differential privacy: {change} changes the probability of anything that was released by "
        f"at most a factor {power_of_e(guarantee['epsilon'])}, plus "
        f"{probability(guarantee['delta'])}, over all releases of this run, "
        f"{collusion(guarantee)}.{_unit_explained(guarantee)}"
    )


def collusion(guarantee: Facts) -> str:
    """Return which collusion the guarantee withstands. Each site knows its own noise."""
    if guarantee["placement"] == Placement.SITE.value:
        return "even if all other sites collude"
    if guarantee["colluding"] == 0:
        return (
            "as long as no site reveals its share of the noise; the claim does not hold against "
            "the sites themselves, because each knows its own share"
        )
    sites = counted(guarantee["colluding"], "site colludes", "sites collude")
    return f"as long as at most {sites} with the coordinator"


def unit_in_words(guarantee: Facts) -> str:
    """Return what the unit is."""
    if guarantee["unit"] == "record":
        return "one row of a site's table"
    if guarantee["unit"] == "event":
        return (
            f"the values of a series at one step, in at most {guarantee['records_per_event']} "
            "records (windows) of a site (nobody checks this)"
        )
    records = counted(guarantee["records_per_person"], "record")
    return (
        f"at most {records} at a site (the site drops further ones) and records at no more than "
        f"{counted(guarantee['sites_per_person'], 'site')} (nobody checks this)"
    )


def _unit_explained(guarantee: Facts) -> str:
    if guarantee["unit"] == "record":
        return ""
    text = f" One {guarantee['unit']} means {unit_in_words(guarantee)}."
    if guarantee["unit"] == "event":
        return text
    if (norm := guarantee["person_norm"]) is not None:
        text += (
            " The site scales a person's records down if the root of the sum of their squared "
            f"norms exceeds {declared(norm)}."
        )
    return text if guarantee["person_pinned"] else text + _OF_JOB


def epsilon_and_delta(guarantee: Facts) -> str:
    """Return both in words."""
    return f"ε {declared(guarantee['epsilon'])} at δ {probability(guarantee['delta'])}"


def adjacency_in_words(guarantee: Facts, adjacency: str) -> str:
    """Return the difference between neighbours, for example "one record added or removed"."""
    return ADJACENCIES[adjacency].format(guarantee["unit"])


def all_others(guarantee: Facts) -> str:
    """Return what an attacker may know without breaking the guarantee."""
    known = {"record": "all other records", "event": "all other events"}
    return known.get(guarantee["unit"], "all other persons' records")


def limit(guarantee: Facts) -> str:
    """Return what noise does for one unit."""
    return (
        f"Noise limits what the released numbers reveal about one {guarantee['unit']}, but does "
        "not exclude it."
    )


def what(guarantee: Facts) -> str:
    """Return what noise limits, and what it does not."""
    return (
        f"{limit(guarantee)} Nothing limits what they reveal about many {guarantee['unit']}s "
        "together: to learn that is the purpose of the run."
    )


def who(guarantee: Facts) -> str:
    """Return who is protected, and how much weaker the protection of two units is."""
    text = f"Each {guarantee['unit']}, that is, {unit_in_words(guarantee)}."
    several = {
        "record": "A person with several records has",
        "event": "A person with many events has",
        "person": "Related persons have",
    }[guarantee["unit"]]
    two = f"{epsilon_of_two_units(guarantee)} at the same δ"
    if guarantee["mu"] is not None:
        two = f"at most {right_guesses(guarantee, 2)} of 100 right guesses (see below; {two})"
    return f"{text} {several} less protection. With two: {two}."


def against(guarantee: Facts) -> str:
    """Return against whom the guarantee holds."""
    return (
        "Everybody who sees the released numbers, even somebody who knows "
        f"{all_others(guarantee)}. This holds {collusion(guarantee)}. Not against somebody who "
        "controls a computer that has the records."
    )


def how_strong(guarantee: Facts) -> str:
    """Return what epsilon means for somebody who guesses."""
    return (
        f"{guesses([all_others(guarantee)], [guess_of(guarantee)])} With them, at most "
        f"{right_guesses(guarantee)} of 100 are right. An attacker who suspects more starts above "
        "50, and may end above this."
    )


def guesses(known: Sequence[str], guessed: Sequence[str]) -> str:
    """Return what an attacker guesses, and how often it is right without any release."""
    return (
        f"An attacker who knows {known[0] if len(known) == 1 else 'all others'} guesses "
        f"{' or '.join(guessed)}. Without the released numbers, both answers are equally likely, "
        "and 50 of 100 guesses are right."
    )


def guess_of(guarantee: Facts) -> str:
    """Return what an attacker guesses: what differs between neighbours."""
    if guarantee["adjacency"] == "replace":
        return f"which of two {guarantee['unit']}s is in the data"
    return f"whether one {guarantee['unit']} is in the data"


def measure(guarantee: Facts) -> str:
    """Return what epsilon and delta are."""
    return (
        f"{epsilon_and_delta(guarantee)}. ε 0 would be perfect; smaller is stronger. The factor is "
        f"{factor(guarantee)}, and δ is added to it: δ should be far below 1 / number of records. "
        "The factor bounds every attack; the number of right guesses is an average, and a single "
        "guess can be surer."
    )


def factor(guarantee: Facts) -> str:
    """Return e^epsilon and its approximate value: "e⁸, about 2,981 times"."""
    value = math.exp(guarantee["epsilon"])
    about = count(round(value)) if 100 <= value < 1e7 else significant(value, 3)
    return f"{power_of_e(guarantee['epsilon'])}, about {about} times"


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


def distance(guarantee: Facts) -> float:
    """Return the total variation between all releases and Gaussian ones."""
    return float(guarantee["delta_for_discreteness"] / (1 + math.exp(guarantee["epsilon"])))


def epsilon_of_other_adjacency(guarantee: Facts) -> str:
    """Return epsilon at the delta of the guarantee under the other adjacency."""
    (other,) = set(guarantee["events"]) - {guarantee["adjacency"]}
    events = events_of(guarantee, other)
    return _epsilon(epsilon_at(events, guarantee["delta"], distance(guarantee)))


def events_of(guarantee: Facts, adjacency: str) -> list[Event]:
    """Return the events of all releases of the run under an adjacency."""
    return [from_data(event) for event in guarantee["events"][adjacency]]


def epsilon_of_two_units(guarantee: Facts) -> str:
    """Return epsilon at the delta of the guarantee for two records, or persons, together.

    Two units move the releases twice as far. With placement "site" they may move the releases of
    two sites. With samples, two units may take part in different ones, and the general bound for
    groups holds: twice the epsilon of delta / (1 + e^epsilon).
    """
    events = events_of(guarantee, guarantee["adjacency"])
    releases = 2 if guarantee["placement"] == "site" else 1
    delta, remainder = guarantee["delta"], releases * distance(guarantee)
    if guarantee["mu"] is not None:
        return _epsilon(epsilon_at([with_less_noise(e, 2.0) for e in events], delta, remainder))
    epsilon = guarantee["epsilon"]
    for _ in range(_GROUP_STEPS):
        epsilon = epsilon_at(events, delta / (1 + math.exp(min(epsilon, 700.0))), remainder)
    return _epsilon(2 * epsilon)


def _epsilon(epsilon: float) -> str:
    return "no ε" if math.isinf(epsilon) else f"ε {significant(epsilon)}"


def invalidating_conditions(guarantee: Facts, *, exact_before: bool) -> list[str]:
    """Return what voids the guarantee, now or later, without software being able to notice.

    exact_before: whether the ledger has exact sums of these records
    """
    own_noise = guarantee["placement"] == "site"
    conditions = [
        "Somebody releases the records, or sums of them without noise, in any other way, earlier "
        "or later, with this or other software."
        + (" The ledger contains such a release already." if exact_before else ""),
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
