"""The sentences of a report: what is claimed, what is warned of, what is not protected.

Every sentence is generated from the facts of the run, so that it cannot say more than they do.
There is no verdict: a status says whether evidence is attached, is missing, or a person must judge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from secagg.audits.format import count, counted
from secagg.audits.results import blocks

Facts = Mapping[str, Any]
Status = Literal["evidence attached", "evidence missing", "needs a person"]
OPERATING_SYSTEM = "operating system"


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
    return bool(facts["protocol"]["hides_from_coordinator"]) and _secret_randomness(facts)


def _secret_randomness(facts: Facts) -> bool:
    return bool(facts["randomness"] == OPERATING_SYSTEM)


def _rule_kept(facts: Facts) -> bool:
    """Say whether each release has a signed claim of each site and as many sites as they ask."""
    return bool(facts["releases"]) and all(
        set(release["contributors"]) == set(release["claims"]) == set(release["thresholds"])
        and len(release["contributors"]) >= max(release["thresholds"].values())
        for release in facts["releases"]
    )


def claim(facts: Facts) -> list[str]:
    """Return who saw what, over how many sites, under which rule; then what was not done."""
    releases, cohort, signed = facts["releases"], facts["cohort"], thresholds(facts)
    sees = facts["protocol"]["sees"]
    over = f"In {counted(len(releases), 'release')} over {counted(len(cohort), 'site')}, "
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
        "No differential privacy noise was added: the released sums themselves are exact.",
    ]


def banners(facts: Facts, summary: Mapping[str, Any]) -> list[Banner]:
    """Return what must be read before anything else."""
    found: list[Banner] = []
    if not facts["protocol"]["hides_from_coordinator"]:
        text = (
            f"Protocol “{facts['protocol']['name']}” protects nothing: the coordinator read every "
            "site's own contribution in clear. Its use is to check the other protocols."
        )
        found.append(Banner("This run protects nothing", text, void=True))
    if not _secret_randomness(facts):
        text = (
            "Its randomness was replayable: whoever knows the seed can compute every key and every "
            "share, and with them each site's own contribution. This run protects nothing."
        )
        found.append(Banner("Replayable randomness", text, void=True))
    for block in blocks(summary):
        if not block.usable:
            text = f"{block.title}: {next(iter(block.notes), 'the method did not reach its goal.')}"
            found.append(Banner("A result that must not be used", text))
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
        text = (
            "A site signed a threshold of two. In a sum over two sites, each reads the other's "
            "contribution by subtracting its own."
        )
        found.append(Banner("k = 2 protects no site from the other", text))
    return found


def questions(facts: Facts, *, fits: bool) -> list[Question]:
    """Return the officer's questions, each with its status; a verdict is never given.

    fits: whether every stage's proof of fit holds
    """
    hidden, kept = protects(facts), _rule_kept(facts)

    def shown(holds: bool, why: str, why_not: str) -> tuple[Status, str]:
        return ("evidence attached", why) if holds else ("evidence missing", why_not)

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
                 *shown(hidden, "Roles, messages and bytes.", "It is not: see the banner."),
                 "seen"),
        *(must_not_collude if hidden else []),
        Question("Does every opened sum cover enough sites?",
                 *shown(kept, "Each release with its sites' signed thresholds.",
                        "A release lacks a signature, or sites."), "releases"),
        Question("Were the sums computed without overflow?",
                 *shown(fits, "Bounds and bits, proved before any record was read.",
                        "The proof does not hold."), "bounds"),
        Question("May exact sums be released, without noise?", "needs a person",
                 "What they determine is stated.", "seen"),
        Question("Was this run attacked to measure what leaks?", "evidence missing",
                 "No attack was run on this transcript.", "unprotected"),
        Question("Is the record of this run unchanged?", "needs a person",
                 "Run the check, with the chain head kept elsewhere.", "integrity"),
    ]  # fmt: skip


def unprotected(facts: Facts) -> list[tuple[str, Sequence[str]]]:
    """Return what is not protected: a catchword each, and what it means in this run."""
    sites, k = len(facts["cohort"]), min(thresholds(facts))
    return [
        (f"Protocol {facts['protocol']['name']}", facts["protocol"]["unprotected"]),
        ("One computer", [_one_computer(facts)]),
        ("One record", [
            "No noise was added. Whoever knows all other records can compute the last one from an "
            "exact sum, and can test whether a known record took part."]),
        ("Colluding sites", [
            "Sites that pool their own contributions can subtract them from a sum: here all sites "
            f"but one, {counted(sites - 1, 'site')}, could together compute the last one's. In the "
            f"smallest sum that k = {k} allows, {count(k - 1)} would be enough."]),
        ("Other runs", [
            "Runs are not compared with each other. The same job run with and without a site gives "
            "two sums whose difference is what that site contributed."]),
        ("Dishonest data", [
            "A site may contribute invented numbers within its declared bounds. What is outside is "
            "clipped and counted; what is inside goes unnoticed."]),
        ("Who, when, how much", [
            "Which sites took part, and the sizes and times of messages, are visible to the "
            "coordinator and to the network."]),
        ("The result", [
            "Coefficients, means and graphs are published on purpose. What they tell about groups "
            "of people is not limited by secure summation."]),
    ]  # fmt: skip


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
