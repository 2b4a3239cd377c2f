"""What a run does not protect, made of its facts: a catchword each, and what it means here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from secagg.contracts import DisclosureKind
from secagg.reports.disclosure import disclosure_kind
from secagg.reports.dp_claims import PrivacyClaims, all_others, of_two
from secagg.reports.numbers import count, counted, significant

Facts = Mapping[str, Any]


def unprotected(facts: Facts, claims: PrivacyClaims) -> list[tuple[str, Sequence[str]]]:
    """Return what is not protected: a catchword each, and what it means in this run."""
    noise, unit = [], "record"
    if claims.noised:
        noise = [("What noise does not cover", claims.guarantee["unprotected"])]
        unit = claims.guarantee["unit"]
    pooled = disclosure_kind(facts) is DisclosureKind.POOLED
    together = [] if pooled else [("All sums together", [facts["method"]["disclosure"]["text"]])]
    return [
        (f"Protocol {facts['protocol']['name']}", facts["protocol"]["unprotected"]),
        *together,
        ("If the coordinator departs from the method", _departing(facts, claims)),
        ("One computer", [_one_computer(facts)]),
        (f"One {unit}", [_one_unit(claims)]),
        ("Colluding sites", [_colluding(facts, claims)]),
        ("Other runs", _other_runs(facts, claims)),
        ("Dishonest data", [
            "A site may contribute invented numbers within its declared bounds. What is outside is "
            f"clipped{'' if claims.noised else ' and counted'}; what is inside goes unnoticed."]),
        ("Who, when, how much", [
            "Which sites took part, and the sizes and times of messages, are visible to the "
            "coordinator and to the network."]),
        *noise,
        ("The result", [
            "Coefficients, means and graphs are published on purpose. What they tell about groups "
            f"of people is not limited by secure summation{', nor by noise' if noise else ''}."]),
    ]  # fmt: skip


def _departing(facts: Facts, claims: PrivacyClaims) -> list[str]:
    """Say what a coordinator can read that does not send what the method computes."""
    said = facts["method"]["disclosure"]
    if claims.noised:
        return [said["if_malicious_noised"] or said["if_malicious"]]
    honest = said["if_honest"] if facts["protocol"]["hides_from_coordinator"] else []
    return [said["if_malicious"], *honest]


def _one_unit(claims: PrivacyClaims) -> str:
    if not claims.noised:
        return (
            "No noise was added. Whoever knows all other records can compute the last one from an "
            "exact sum, and can test whether a known record took part."
        )
    guarantee = claims.guarantee
    if not claims.holds:
        return "Noise was added, but what it protects is not borne out by the facts of this run."
    return (
        f"Noise bounds what is told of it and does not rule it out: {claims.size}, even to "
        f"somebody who knows {all_others(guarantee)}. Several {guarantee['unit']}s that belong "
        f"together are protected by less: for two, {of_two(guarantee)} at the same δ."
    )


def _colluding(facts: Facts, claims: PrivacyClaims) -> str:
    sites, k = len(facts["cohort"]), min(claims.thresholds)
    who = (
        "Sites that pool their own contributions can subtract them from a sum: here all sites but "
        f"one, {counted(sites - 1, 'site')}, could together compute the last one's"
    )
    smallest = f"In the smallest sum that k = {k} allows, {count(k - 1)} would be enough."
    if not claims.noised or not claims.holds:
        return f"{who}. {smallest}"
    guarantee = claims.guarantee
    if guarantee["placement"] == "site":
        noise = "with all of that site's noise, which is what the guarantee rests on"
        return f"{who}, {noise}. {smallest}"
    last = guarantee["if_more_collude"][-1][1]
    if last is None or math.isinf(last):
        worth = "guarantees nothing"
    else:
        worth = f"is worth ε {significant(last)} at the same δ"
    return f"{who}, with that site's share of the noise only, which {worth}. {smallest}"


def _other_runs(facts: Facts, claims: PrivacyClaims) -> list[str]:
    ledger = claims.ledger
    if ledger.kept:
        spent = ", and add up what noised ones cost" if claims.noised else ""
        compared = (
            "Ledgers compare the sites of each sum with those of all earlier ones, and refuse one "
            f"that would single out fewer than a site's rule asks for{spent}. They know of nothing "
            "that was released under another ledger, under another name of the same records, or "
            "by other software."
        )
    else:
        noise = ", with its noise" if claims.noised else ""
        compared = (
            f"{ledger.standing} Without one, nothing compares this run with others: the same job "
            "run with and without a site gives two sums whose difference is what that site "
            f"contributed{noise}."
        )
    return [compared, _over_the_same_sites(facts, claims)]


def _over_the_same_sites(facts: Facts, claims: PrivacyClaims) -> str:
    """Say what a rule on the sites of a sum does not see: what sums over the same ones tell."""
    text = (
        "What the sums of this run determine together with those of other runs over the same sites "
        "is not examined"
    )
    if claims.noised:
        bound = "; where all have noise, what they cost together bounds it" if claims.holds else ""
        return f"{text}{bound}."
    return " ".join(filter(None, [f"{text}.", facts["method"]["disclosure"]["other_runs"]]))


def _one_computer(facts: Facts) -> str:
    if facts["engine"]["name"] == "memory":
        return (
            "All parties of this run were played in one process: whoever ran it could read every "
            "site's records. The roles were separate, the computer was not."
        )
    return (
        "Each party of this run was a process of its own, which alone read its records and held "
        "its keys. But all ran on one computer for one user: whoever ran it could read every "
        "site's records. Keys and states that a run keeps while it is under way are deleted at "
        "its end, which is not erasure."
    )
