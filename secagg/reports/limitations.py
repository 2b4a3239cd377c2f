"""What a run does not protect, made of its facts: a catchword each, and what it means here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from secagg.reports.disclosure import tells_of_sites
from secagg.reports.dp_claims import PrivacyClaims, all_others, of_two
from secagg.reports.numbers import count, counted, significant

Facts = Mapping[str, Any]


def unprotected(facts: Facts, claims: PrivacyClaims) -> list[tuple[str, Sequence[str]]]:
    """Return what is not protected: a catchword each, and what it means in this run."""
    noise = (
        [("What noise does not cover", claims.guarantee["unprotected"])] if claims.noised else []
    )
    unit = claims.guarantee["unit"] if claims.noised else "record"
    method = facts["method"]
    together = [("All sums together", [method["leaves"]])] if tells_of_sites(method["name"]) else []
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


_ASKED_ONCE = ("moments", "local_graphs")
"""Methods whose sites are sent no number but that of records in all."""
_SOLVED = ("fedlin_hm1", "fedlin_hm2")
"""Methods of which a coordinator that departs can solve sums of its choice for single sites."""
_SAMPLERS = ("sparse_regression", "sparse_markov", "sparse_directed")


def _departing(facts: Facts, claims: PrivacyClaims) -> list[str]:
    """Say what a coordinator can read that does not send what the method computes."""
    name, settings = facts["method"]["name"], facts["method"]["settings"]
    if name in _ASKED_ONCE:
        return [
            "It gains nothing by it: sites are asked once, and what they contribute depends on no "
            "number that the coordinator chooses. It is still the one to say who is asked."
        ]
    if claims.noised:
        return [
            "It may send other coefficients than the method's, and spoil the result. Noise is in "
            "every answer, and what bounds one record's part does not depend on what is sent."
        ]
    trusted = "It is trusted to send what the method computes, and sites cannot tell if it does."
    if name in _SOLVED:
        return [
            f"{trusted} One that chooses its messages itself can, in some tens of rounds, make "
            "sums into equations that it can solve for single sites' regressions and cross "
            "products, where sites and predictors are few. Its messages can be such as the method "
            "has over other sites, so that no check could tell."
        ]
    if name not in _SAMPLERS:
        return [
            f"{trusted} Every sum depends on what was sent: a coordinator that chooses its "
            "messages itself may make a sum depend mostly on few records. The number of rounds "
            "limits how often it can ask."
        ]
    if settings.get("step") == "collapsed":
        reads = (
            "A coordinator that chooses its messages itself can, in some tens of rounds, bring "
            "other sites to drown their own part in noise, and read a single site's X'X and X'y "
            "(how its columns go together, from which its regression follows) off the sums."
        )
    else:
        reads = (
            "A coordinator that chooses its messages itself chooses what the sums depend on, and "
            "may find a single site's part in them. How much of it is not bounded."
        )
    return [f"{trusted} {reads}", *_keeping_to_it(facts)]


def _keeping_to_it(facts: Facts) -> list[str]:
    """Answer what officers ask of samplers, of a coordinator that follows the method."""
    if not facts["protocol"]["hides_from_coordinator"]:
        return []
    return [
        "Can one that follows the method learn one site's coefficients? It is sent none: it sees "
        f"sums over {counted(len(facts['cohort']), 'site')}, of numbers that each site draws at "
        "random round its own. All rounds together show in part how much sites differ; where all "
        "but one are alike, or are known from elsewhere, that is about the one.",
        "Can it learn the records of a site that has only a few? It is sent no record, and not how "
        "many a site has; few records move the sums little. But no noise bounds what one record "
        "changes: how little that is, is not proved.",
    ]


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
        return (
            f"{who}, with all of that site's noise, which is what the guarantee rests "
            f"on. {smallest}"
        )
    last = guarantee["if_more_collude"][-1][1]
    if last is None or math.isinf(last):
        worth = "guarantees nothing"
    else:
        worth = f"is worth ε {significant(last)} at the same δ"
    return f"{who}, with that site's share of the noise only, which {worth}. {smallest}"


def _other_runs(facts: Facts, claims: PrivacyClaims) -> list[str]:
    if claims.ledger.kept:
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
            f"{claims.ledger.standing} Without one, nothing compares this run with others: the "
            "same job run with and without a site gives two sums whose difference is what that "
            f"site contributed{noise}."
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
    name, settings = facts["method"]["name"], facts["method"]["settings"]
    pooled = 'of method moments with centre = "pooled"'
    others = {
        "notears_admm": pooled,
        "sparse_regression": pooled,
        "sparse_markov": pooled,
        "sparse_directed": pooled,
        "moments": (
            'with centre = "pooled"'
            if settings.get("centre") == "site"
            else 'with centre = "site", or of method notears_admm,'
        ),
    }
    if settings.get("intercept") == "site":  # FedLin and what it is compared with
        others[name] = pooled
    if name not in others:
        return f"{text}."
    return (
        f"{text}. For one, a run {others[name]} over the same records shows by subtraction how the "
        "sites' means scatter."
    )


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
