"""What a run does not protect, from its facts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from secagg.contracts import DisclosureKind
from secagg.evidence.claims.claim import Claim, Status, as_sentence
from secagg.evidence.claims.disclosure import (
    UNCHECKED,
    determined,
    disclosure_kind,
    other_runs,
)
from secagg.evidence.claims.guarantee import limit
from secagg.evidence.claims.ledgers import NOT_IN_LEDGERS
from secagg.evidence.claims.parties import where_it_ran
from secagg.evidence.claims.privacy import PrivacyClaims
from secagg.evidence.numbers import count, listing, significant

Facts = Mapping[str, Any]


def unprotected(facts: Facts, claims: PrivacyClaims) -> list[Claim]:
    """Return what is not protected in this run."""
    unit = claims.guarantee["unit"] if claims.noised else "record"
    disclosure = facts["method"]["disclosure"]
    texts = {f"Protocol {facts['protocol']['name']}": list(facts["protocol"]["unprotected"])}
    if disclosure_kind(facts) is not DisclosureKind.POOLED:
        texts["All sums together"] = [determined(disclosure["text"], noised=claims.noised)]
    if attacks := disclosure.get("attacks"):  # not in folders of earlier versions
        texts["Attacks"] = [
            f"secagg audit JOB carries out what is stated here: {listing(attacks)}."
        ]
    texts |= {
        "A dishonest coordinator": _dishonest_coordinator(facts, claims),
        "One computer": [_one_computer(facts)],
        f"One {unit}": [_one_unit(claims)],
        "Colluding sites": [_colluding(facts, claims)],
        "Other runs": _other_runs(facts, claims),
        "Dishonest data": [_dishonest_data(claims)],
        "Participation, times and sizes": [
            "The coordinator and the network see which sites took part, and the sizes and times of "
            "messages."
        ],
    }
    if claims.noised:
        texts["What noise does not cover"] = claims.guarantee["unprotected"]
    texts["The result"] = [
        "Results are published on purpose, and nothing limits what they reveal about groups of "
        "people."
    ]
    return [Claim(topic, " ".join(said), Status.PERSON) for topic, said in texts.items()]


def _dishonest_coordinator(facts: Facts, claims: PrivacyClaims) -> list[str]:
    """Return what a coordinator can learn that sends other messages than the method computes."""
    disclosure = facts["method"]["disclosure"]
    if claims.noised:
        return [disclosure["if_malicious_noised"] or disclosure["if_malicious"]]
    honest = disclosure["if_honest"] if facts["protocol"]["hides_from_coordinator"] else []
    return [disclosure["if_malicious"], *honest]


def _one_unit(claims: PrivacyClaims) -> str:
    if not claims.noised:
        return (
            "Anybody who knows all other records can compute the last one from an exact sum, and "
            "can test whether a known record took part."
        )
    return limit(claims.guarantee) if claims.holds else claims.sentence


def _dishonest_data(claims: PrivacyClaims) -> str:
    return (
        "A site may contribute invented numbers within its declared bounds, and nobody can detect "
        f"them. The site clips{'' if claims.noised else ' and counts'} numbers outside the bounds."
    )


def _colluding(facts: Facts, claims: PrivacyClaims) -> str:
    others, k = len(facts["cohort"]) - 1, min(claims.thresholds)
    who, whose = f"all other sites together ({count(others)})", "their"
    if others == 1:
        who, whose = "the other site", "its"
    noise = " with its own noise" if claims.noised and not claims.void else ""
    text = (
        f"Under any protocol, {who} can subtract {whose} own contributions from a sum and read "
        f"that of one site{noise}."
    )
    if noise and claims.holds and claims.guarantee["placement"] != "site":
        last = claims.guarantee["if_more_collude"][-1][1]
        strength = "no guarantee" if last is None or math.isinf(last) else f"ε {significant(last)}"
        text += f" This share of the noise alone gives {strength} at the same δ."
    return (
        f"{text} In the smallest sum that the sites allow, over at least {count(k)} sites, "
        f"{count(k - 1)} would be enough."
    )


def _other_runs(facts: Facts, claims: PrivacyClaims) -> list[str]:
    ledger = claims.ledger
    if ledger.kept:
        cost = ", and add up the cost of noised sums" if claims.noised else ""
        differencing = (
            "Ledgers compare the sites of each sum with those of all earlier sums. They refuse a "
            "sum whose difference from an earlier one covers fewer sites than a site's rule "
            f"requires{cost}. {NOT_IN_LEDGERS}."
        )
    else:
        noise = " with its noise" if claims.noised else ""
        differencing = (
            f"{ledger.standing} So nothing compares this run with others: the same job with and "
            "without a site gives two sums, and their difference is that site's "
            f"contribution{noise}."
        )
    return [differencing, _same_sites(facts, claims)]


def _same_sites(facts: Facts, claims: PrivacyClaims) -> str:
    """Return what rules on the sites of a sum cannot check: several sums over the same sites."""
    if not claims.noised:
        return other_runs(facts["method"]["disclosure"])
    bound = "; if all of them have noise, their total cost bounds it" if claims.holds else ""
    return f"{UNCHECKED}{bound}."


def _one_computer(facts: Facts) -> str:
    text = as_sentence(where_it_ran(facts))
    if facts["engine"]["name"] == "memory":
        return f"{text} The person who ran it could read every site's records."
    if "pinned_roster" in facts["engine"]:
        return (
            f"{text} secagg cannot tell which parties shared a computer or an administrator: "
            "a person who administers two parties' computers can read both. The operator of the "
            "server holds the coordinator's key, and sees who took part, when, and the sizes of "
            "messages."
        )
    return (
        f"{text} Only a site's own process read its records and keys. But all processes ran for "
        "one user, who could read every site's records. The run deletes its temporary keys and "
        "states at its end, but does not erase them securely."
    )
