"""What a run does not protect, from its facts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from secagg.contracts import DisclosureKind
from secagg.evidence.claims.disclosure import disclosure_kind
from secagg.evidence.claims.privacy import PrivacyClaims, all_others, epsilon_of_two_units
from secagg.evidence.numbers import count, listing, significant

Facts = Mapping[str, Any]


def unprotected(facts: Facts, claims: PrivacyClaims) -> list[tuple[str, Sequence[str]]]:
    """Return what is not protected: (heading, explanations for this run)."""
    noise, unit = [], "record"
    if claims.noised:
        noise = [("What noise does not cover", claims.guarantee["unprotected"])]
        unit = claims.guarantee["unit"]
    pooled = disclosure_kind(facts) is DisclosureKind.POOLED
    disclosure = facts["method"]["disclosure"]
    together = [] if pooled else [("All sums together", [disclosure["text"]])]
    if attacks := disclosure.get("attacks"):  # not in folders of earlier versions
        listed = listing(attacks)
        text = f"secagg audit JOB carries out what is stated here: {listed}."
        together.append(("Attacks", [text]))
    return [
        (f"Protocol {facts['protocol']['name']}", facts["protocol"]["unprotected"]),
        *together,
        ("A dishonest coordinator", _dishonest_coordinator(facts, claims)),
        ("One computer", [_one_computer(facts)]),
        (f"One {unit}", [_one_unit(claims)]),
        ("Colluding sites", [_colluding(facts, claims)]),
        ("Other runs", _other_runs(facts, claims)),
        ("Dishonest data", [
            "A site may contribute invented numbers within its declared bounds. The site clips"
            f"{'' if claims.noised else ' and counts'} numbers outside the bounds. Nobody can "
            "detect invented numbers within the bounds."]),
        ("Participation, times and sizes", [
            "The coordinator and the network see which sites took part, and the sizes and times of "
            "messages."]),
        *noise,
        ("The result", [
            "Coefficients, means and graphs are published on purpose. Secure summation"
            f"{' and noise do' if noise else ' does'} not limit what they reveal about groups of "
            "people."]),
    ]  # fmt: skip


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
            "The sums have no noise. Anybody who knows all other records can compute the last one "
            "from an exact sum, and can test whether a known record took part."
        )
    guarantee = claims.guarantee
    if not claims.holds:
        return "The sums have noise, but the facts of this run do not support a guarantee."
    return (
        f"Noise limits what the releases reveal about one {guarantee['unit']}, but does not "
        f"exclude it: {claims.epsilon_and_delta}, even for somebody who knows "
        f"{all_others(guarantee)}. The protection of several related {guarantee['unit']}s is "
        f"weaker: for two, {epsilon_of_two_units(guarantee)} at the same δ."
    )


def _colluding(facts: Facts, claims: PrivacyClaims) -> str:
    sites, k = len(facts["cohort"]), min(claims.thresholds)
    text = (
        "Colluding sites can subtract their own contributions from a sum. In this run, all other "
        f"sites together ({count(sites - 1)}) could compute the contribution of the remaining site"
    )
    smallest = (
        f"In the smallest sum that the sites allow, over at least {count(k)} sites, {count(k - 1)} "
        "would be enough."
    )
    if not claims.noised or not claims.holds:
        return f"{text}. {smallest}"
    guarantee = claims.guarantee
    if guarantee["placement"] == "site":
        return f"{text}, but with all of its noise, which the guarantee assumes. {smallest}"
    last = guarantee["if_more_collude"][-1][1]
    if last is None or math.isinf(last):
        strength = "which guarantees nothing"
    else:
        strength = f"which gives ε {significant(last)} at the same δ"
    return f"{text}, with its own share of the noise only, {strength}. {smallest}"


def _other_runs(facts: Facts, claims: PrivacyClaims) -> list[str]:
    ledger = claims.ledger
    if ledger.kept:
        cost = ", and add up the cost of noised sums" if claims.noised else ""
        differencing = (
            "Ledgers compare the sites of each sum with those of all earlier sums. They refuse a "
            "sum whose difference from an earlier one covers fewer sites than a site's rule "
            f"requires{cost}. They do not contain releases under another ledger, under another "
            "name of the same records, or by other software."
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
    text = (
        "secagg does not check what the sums of this run and of other runs over the same sites "
        "determine together"
    )
    if claims.noised:
        bound = "; if all of them have noise, their total cost bounds it" if claims.holds else ""
        return f"{text}{bound}."
    return " ".join(filter(None, [f"{text}.", facts["method"]["disclosure"]["other_runs"]]))


def _one_computer(facts: Facts) -> str:
    if facts["engine"]["name"] == "memory":
        return (
            "All parties of this run ran in one process: the person who ran it could read every "
            "site's records. The roles were separate, but on one computer."
        )
    if "pinned_roster" in facts["engine"]:
        return (
            "Each party of this run had its own home with its keys and records, and they spoke "
            f"over {facts['engine']['name'].upper()}. secagg cannot tell which parties shared a "
            "computer or an administrator: whoever administers two parties' computers can read "
            "both. The operator of the server holds the coordinator's key, and sees who took part, "
            "when, and the sizes of messages."
        )
    return (
        "Each party of this run had its own process, and only that process read its records and "
        "keys. But all processes ran on one computer for one user: this user could read every "
        "site's records. The run deletes its temporary keys and states at its end, but does not "
        "erase them securely."
    )
