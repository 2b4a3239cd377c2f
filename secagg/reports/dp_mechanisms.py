"""By which noise a promise of differential privacy holds: its terms, and each stage's numbers.

What NIST SP 800-226 asks a claim to state: unit, adjacency, clipping and how records are scaled,
sensitivity, noise and its placement, accountant, epsilon and delta, composition.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from secagg.reports.dp_claims import changed, made, mu_of, other_adjacency, promise_size
from secagg.reports.numbers import (
    count,
    counted,
    declared,
    power_of_two,
    share,
    significant,
)

Facts = Mapping[str, Any]

_PLACEMENT_WORDS = {
    "sum": "once, in the sum: each site adds a share of it to its contribution",
    "site": "once, at each site, which adds all of it to its own contribution and draws it once "
    "for the same question on the same records",
    "round": "in every round: each site adds a share of it to each contribution",
}
_OTHER_ADJACENCY = {"add_remove": "replace", "replace": "add_remove"}


def terms(facts: Facts) -> list[tuple[str, str]]:
    """Return the promise point by point: what, and how it stands here."""
    promise, asked = facts["privacy"], facts["job"]["privacy"]
    other = _OTHER_ADJACENCY[promise["adjacency"]]
    releases = sum(part["releases"] for part in promise["mechanisms"])
    norm = "which the public bounds imply, so that none is shrunk"
    if asked["record_norm"] is not None:
        norm = "to which longer ones are shrunk; how many were is not told"
    return [
        ("Unit", _unit(promise)),
        (
            "Adjacency",
            f"{changed(promise, promise['adjacency'])}: two sets of records that differ in "
            "nothing else are hard to tell apart by all that was released",
        ),
        (
            "ε and δ",
            f"{promise_size(facts)}, for {counted(releases, 'release')} together",
        ),
        (
            "ε accounted",
            f"{significant(promise['epsilon_accounted'], 5)} at that δ, from μ = "
            f"{significant(promise['mu'])}",
        ),
        ("Accountant", promise["accountant"]),
        (
            "Of δ, for noise being discrete",
            significant(promise["delta_for_discreteness"], 2),
        ),
        (
            "Under the other adjacency",
            f"{changed(promise, other)}: {other_adjacency(promise)} at the same δ, from μ = "
            f"{significant(promise['mu_other_adjacency'])}",
        ),
        ("Noise", "discrete Gaussian, drawn on integers and added to each number by the sites"),
        ("Placement", f"“{promise['placement']}”: {_PLACEMENT_WORDS[promise['placement']]}"),
        (
            "Scale of records",
            "each variable is moved and scaled from its public bounds to [−1, 1], levels to −1 "
            "and 1",
        ),
        (
            "Clip of records",
            f"the L2 norm of a record's scaled variables is at most "
            f"{declared(promise['record_norm'])}, {norm}; then they are truncated towards zero "
            f"to multiples of {step(promise['grid'])}. Each site does so before anything else",
        ),
        (
            "Share for counting records",
            f"{share(asked['count_share'])} of μ², in the release that every run begins with",
        ),
        ("Sampling", _sampling(promise)),
    ]  # fmt: skip


def _unit(promise: Mapping[str, Any]) -> str:
    if promise["unit"] == "record":
        return "one record, that is one row of a site's table"
    records = promise["records_per_person"]
    first = "the first record" if records == 1 else f"the first {count(records)} records"
    return (
        f"one person, named by column “{promise['person']}”: {first} of theirs at each "
        f"of at most {counted(promise['sites_per_person'], 'site')}; further ones at a site are "
        "left out"
    )


def _sampling(promise: Mapping[str, Any]) -> str:
    capped = "" if promise["unit"] == "record" else ", up to the cap of a person,"
    return f"none: every complete record{capped} takes part in each release"


def step(power: str) -> str:
    """Write 2^-16 as a reader wants it."""
    return power_of_two(int(power.removeprefix("2^")))


def mechanisms(facts: Facts) -> list[tuple[str, list[str]]]:
    """Return each stage's noise: names of rows with a cell for each stage, the stages' names first.

    Sizes are L2 norms and standard deviations, in the sum's own units.
    """
    promise = facts["privacy"]
    parts = promise["mechanisms"]

    def sizes(key: str) -> list[str]:
        return [significant(part[key]) for part in parts]

    return [
        ("Stage", [part["stage"] for part in parts]),
        ("Releases made", [count(made(facts, part["stage"])) for part in parts]),
        ("Releases paid for", [count(part["releases"]) for part in parts]),
        ("Numbers in each", [count(part["numbers"]) for part in parts]),
        (f"Sensitivity: {changed(promise, 'add_remove')}", sizes("sensitivity_add")),
        (f"Sensitivity: {changed(promise, 'replace')}", sizes("sensitivity_replace")),
        ("σ that protects", sizes("sigma")),
        ("σ of a site's noise", sizes("sigma_of_a_site")),
        ("σ of the noise in the sum", sizes("sigma_in_the_sum")),
        ("Noise and numbers are multiples of", [step(part["step"]) for part in parts]),
        ("μ of one release", [significant(mu_of(part, promise["adjacency"])) for part in parts]),
    ]


def colluders(facts: Facts) -> list[tuple[int, str, bool]]:
    """Return (colluding sites, epsilon then, whether that is the number promised for)."""
    promise = facts["privacy"]
    return [
        (number, _bound(epsilon), number == promise["colluding"])
        for number, epsilon in promise["if_more_collude"]
    ]


def gives_way(promise: Mapping[str, Any], protocol: str) -> str:
    """Return from how many colluding sites on epsilon no longer grows, and why; else nothing.

    promise: what `secagg.privacy.accounting.guarantee` returns; protocol: its name
    """
    numbers = [number for number, _ in promise["if_more_collude"]]
    at = promise["withstands"] + 1
    if at not in numbers:
        return ""
    return (
        f"From {counted(at, 'colluding site')} on, protocol {protocol} no longer hides a single "
        "site's contribution: all that protects its records then is that site's own share of the "
        "noise, however many collude."
    )


def _bound(epsilon: float | None) -> str:
    """Write an epsilon that may be infinite, which run.json writes as null."""
    return "no bound" if epsilon is None or math.isinf(epsilon) else significant(epsilon)
