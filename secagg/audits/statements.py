"""The sentences of a report: what is claimed, what is warned of, what is not protected.

Every sentence is generated from the facts of the run, so that it cannot say more than they do.
There is no verdict: a status says whether evidence is attached, is missing, or a person must judge.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from secagg.audits.format import count, counted, significant
from secagg.audits.privacy import (
    changed,
    claimed,
    epsilon_at,
    holds,
    ledger_standing,
    noised,
    promise_size,
    secret_randomness,
)
from secagg.audits.results import blocks

Facts = Mapping[str, Any]
Status = Literal["evidence attached", "evidence missing", "needs a person"]


@dataclass(frozen=True)
class Banner:
    """A warning that nobody may miss. `void`: the run protects nothing."""

    title: str
    text: str
    void: bool = False


@dataclass(frozen=True)
class Question:
    """One line of the first page: what an officer asks, how it stands, and where to read on."""

    asked: str
    status: Status
    why: str
    section: str


def thresholds(facts: Facts) -> list[int]:
    """Return every signed threshold of every release."""
    return [k for release in facts["releases"] for k in release["thresholds"].values()]


def protects(facts: Facts) -> bool:
    """Say whether the run hid anything: a protocol that hides, with secret randomness."""
    return bool(facts["protocol"]["hides_from_coordinator"]) and secret_randomness(facts)


def _rule_kept(facts: Facts) -> bool:
    """Say whether each release has a signed claim of each site and as many sites as they ask."""
    return bool(facts["releases"]) and all(
        set(release["contributors"]) == set(release["claims"]) == set(release["thresholds"])
        and len(release["contributors"]) >= max(release["thresholds"].values())
        for release in facts["releases"]
    )


def claim(facts: Facts) -> list[str]:
    """Return who saw what, over how many sites, under which rule; then what noise promises."""
    releases, cohort, signed = facts["releases"], facts["cohort"], thresholds(facts)
    sees = facts["protocol"]["sees"]
    over = f"In {counted(len(releases), 'release')} over {counted(len(cohort), 'site')}, "
    over += "all with noise, " if noised(facts) else ""
    parts = [
        f"{'the coordinator' if role == 'coordinator' else f'each {role}'} saw {seen}"
        for role, seen in sees.items()
    ]
    least = min(len(release["contributors"]) for release in releases)
    rule = (
        f"Every sum that was opened covers at least {counted(least, 'site')}; the smallest "
        f"threshold that a site signed is k = {min(signed)}"
    )
    if max(signed) > min(signed):
        rule += f", the strictest, which decides, {max(signed)}"
    return [
        over + "; ".join(parts) + ".",
        rule + ".",
        claimed(facts),
    ]


def banners(facts: Facts, summary: Mapping[str, Any]) -> list[Banner]:
    """Return what must be read before anything else."""
    found: list[Banner] = []
    if not facts["protocol"]["hides_from_coordinator"]:
        found.append(_nothing_hidden(facts))
    if not secret_randomness(facts):
        noise = ", and all noise, which they can subtract" if noised(facts) else ""
        text = (
            "Its randomness was replayable: whoever knows the seed can compute every key and every "
            f"share, and with them each site's own contribution{noise}. This run protects nothing."
        )
        found.append(Banner("Privacy: void. Replayable randomness", text, void=True))
    elif noised(facts) and not holds(facts):
        text = (
            "Noise was added, but the epsilon and delta that this run states do not follow from "
            "its other facts. Nothing is claimed of them here."
        )
        found.append(Banner("A claim of differential privacy that does not hold", text))
    exact = (facts.get("ledger") or {}).get("coordinator") or {}
    if noised(facts) and exact.get("exact"):
        text = (
            f"The coordinator's ledger has {counted(exact['exact'], 'exact release')} of sums over "
            "these sites. The epsilon of this run bounds nothing against whoever has both."
        )
        found.append(Banner("Exact sums of these sites were released before", text))
    useless = [block for block in blocks(summary) if not block.usable]
    if useless:
        goal = "the method did not reach its goal."
        text = " ".join(f"{block.title}: {next(iter(block.notes), goal)}" for block in useless)
        one = "A result that must not be used"
        several = f"{count(len(useless))} results that must not be used"
        found.append(Banner(one if len(useless) == 1 else several, text))
    clipped = sum(sum(fields.values()) for fields in summary["contributions_clipped"].values())
    if clipped:
        text = (
            f"{counted(clipped, 'contributed number')} lay outside the declared bounds and "
            "went into the sums as the bound: the result is not that of the pooled records."
        )
        found.append(Banner("Contributions were clipped", text))
    if "simulation" in summary:
        text = (
            "This page also shows what each site would find alone. That was computed by reading "
            "each site's records, which only a simulation can do: a federated run shows no such "
            "thing, and this page must be handled like the records themselves."
        )
        found.append(Banner("Simulation: single-site results shown", text))
    if min(thresholds(facts)) == 2:
        noise = ", with that site's noise" if noised(facts) else ""
        text = (
            "A site signed a threshold of two. In a sum over two sites, each reads the other's "
            f"contribution{noise}, by subtracting its own."
        )
        found.append(Banner("k = 2 protects no site from the other", text))
    return found


def _nothing_hidden(facts: Facts) -> Banner:
    name = facts["protocol"]["name"]
    if noised(facts) and secret_randomness(facts):
        text = (
            f"Protocol “{name}” hides no site: the coordinator read every site's own contribution. "
            "All that protects the records in it is the noise that the site had added."
        )
        return Banner("Only noise protects: each site's contribution was seen", text)
    text = (
        f"Protocol “{name}” protects nothing: the coordinator read every site's own contribution "
        "in clear. Its use is to check the other protocols."
    )
    return Banner("This run protects nothing", text, void=True)


def questions(facts: Facts, *, fits: bool) -> list[Question]:
    """Return the officer's questions, each with its status; a verdict is never given.

    fits: whether every stage's proof of fit holds
    """
    hidden, kept = protects(facts), _rule_kept(facts)

    must_not_collude = [
        Question(
            "Are the parties that must not collude run by different bodies?", "needs a person",
            facts["protocol"]["unprotected"][0], "unprotected",
        )
    ]  # fmt: skip
    return [
        Question("What are purpose, legal basis and permit?", "needs a person",
                 "Not known to software.", "sign"),
        Question("Is a single site's contribution hidden from the coordinator?",
                 *_shown(hidden, "Roles, messages and bytes.", "It is not: see the banner."),
                 "seen"),
        *(must_not_collude if hidden else []),
        Question("Does every opened sum cover enough sites?",
                 *_shown(kept, "Each release with its sites' signed thresholds.",
                        "A release lacks a signature, or sites."), "releases"),
        Question("Were the sums computed without overflow?",
                 *_shown(fits, "Bounds and bits, proved before any record was read.",
                        "The proof does not hold."), "bounds"),
        *_of_noise(facts),
        Question("Was this run attacked to measure what leaks?", "evidence missing",
                 "No attack was run on this transcript.", "unprotected"),
        Question("Is the record of this run unchanged?", "needs a person",
                 "Run the check, with the chain head kept elsewhere.", "integrity"),
    ]  # fmt: skip


def _shown(holds: bool, why: str, why_not: str) -> tuple[Status, str]:
    return ("evidence attached", why) if holds else ("evidence missing", why_not)


def _of_noise(facts: Facts) -> list[Question]:
    """Return the questions about what releases tell of one record."""
    if not noised(facts):
        return [
            Question("May exact sums be released, without noise?", "needs a person",
                     "What they determine is stated.", "seen"),
        ]  # fmt: skip
    promise, (added_up, standing) = facts["privacy"], ledger_standing(facts)
    why_not = "It does not follow from the facts: see the banner."
    size = f"{promise_size(facts)}, {changed(promise, promise['adjacency'])}."
    return [
        Question("Is what one record changes bounded in all that was released?",
                 *_shown(holds(facts), "Sensitivity, noise, composition, worked out again.",
                         why_not), "privacy"),
        Question("Are unit, ε and δ fit for these records?", "needs a person", size, "privacy"),
        Question("Are all releases of these records added up?",
                 *_shown(added_up, "In ledgers that outlive the run.", standing), "privacy"),
    ]  # fmt: skip


def unprotected(facts: Facts) -> list[tuple[str, Sequence[str]]]:
    """Return what is not protected: a catchword each, and what it means in this run."""
    noise = (
        [("What noise does not cover", facts["privacy"]["unprotected"])] if noised(facts) else []
    )
    return [
        (f"Protocol {facts['protocol']['name']}", facts["protocol"]["unprotected"]),
        ("One computer", [_one_computer(facts)]),
        ("One record", [_one_record(facts)]),
        ("Colluding sites", [_colluding(facts)]),
        ("Other runs", [_other_runs(facts)]),
        ("Dishonest data", [
            "A site may contribute invented numbers within its declared bounds. What is outside is "
            f"clipped{'' if noised(facts) else ' and counted'}; what is inside goes unnoticed."]),
        ("Who, when, how much", [
            "Which sites took part, and the sizes and times of messages, are visible to the "
            "coordinator and to the network."]),
        *noise,
        ("The result", [
            "Coefficients, means and graphs are published on purpose. What they tell about groups "
            f"of people is not limited by secure summation{', nor by noise' if noise else ''}."]),
    ]  # fmt: skip


def _one_record(facts: Facts) -> str:
    if not noised(facts):
        return (
            "No noise was added. Whoever knows all other records can compute the last one from an "
            "exact sum, and can test whether a known record took part."
        )
    promise = facts["privacy"]
    if not holds(facts):
        return "Noise was added, but what it protects is not borne out by the facts of this run."
    return (
        f"Noise bounds what is told of it and does not rule it out: {promise_size(facts)}, even to "
        "somebody who knows all other records. Several records that belong together are protected "
        f"by less: two by ε {significant(epsilon_at(promise, 2 * promise['mu']))} at the same δ."
    )


def _colluding(facts: Facts) -> str:
    sites, k = len(facts["cohort"]), min(thresholds(facts))
    who = (
        "Sites that pool their own contributions can subtract them from a sum: here all sites but "
        f"one, {counted(sites - 1, 'site')}, could together compute the last one's"
    )
    smallest = f"In the smallest sum that k = {k} allows, {count(k - 1)} would be enough."
    if not noised(facts) or not holds(facts):
        return f"{who}. {smallest}"
    promise = facts["privacy"]
    if promise["placement"] == "site":
        return (
            f"{who}, with all of that site's noise, which is what the promise rests on. {smallest}"
        )
    last = promise["if_more_collude"][-1][1]
    if last is None or math.isinf(last):
        worth = "promises nothing"
    else:
        worth = f"is worth ε {significant(last)} at the same δ"
    return f"{who}, with that site's share of the noise only, which {worth}. {smallest}"


def _other_runs(facts: Facts) -> str:
    kept, standing = ledger_standing(facts)
    if kept:
        spent = ", and add up what noised ones cost" if noised(facts) else ""
        return (
            "Ledgers compare the sites of each sum with those of all earlier ones, and refuse one "
            f"that would single out fewer than a site's rule asks for{spent}. They know of nothing "
            "that was released under another ledger, under another name of the same records, or "
            "by other software."
        )
    noise = ", with its noise" if noised(facts) else ""
    return (
        f"{standing} Without one, nothing compares this run with others: the same job run with "
        "and without a site gives two sums whose difference is what that site contributed"
        f"{noise}."
    )


def played_on(facts: Facts) -> str:
    """Return where the parties of this run were."""
    engine = facts["engine"]
    if engine["name"] == "memory":
        return "one computer, all parties in one process"
    words = (
        f"one computer, {counted(engine['processes'], 'process', 'processes')}, one for each party"
    )
    if engine["resumed"]:
        words += f"; interrupted and resumed {counted(engine['resumed'], 'time')}"
    return words


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


def dropped(facts: Facts) -> Sequence[str]:
    """Return the sites in the roster whose data is in no sum."""
    cohort = set(facts["cohort"])
    return [p["name"] for p in facts["roster"] if p["role"] == "site" and p["name"] not in cohort]
