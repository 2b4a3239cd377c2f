"""By which noise a guarantee of differential privacy holds: its terms, and each stage's numbers.

What NIST SP 800-226 asks a claim to state: unit, adjacency, clipping and how records are scaled,
sensitivity, noise and its placement, accountant, epsilon and delta, composition.
"""

from __future__ import annotations

import math

from secagg.reports.dp_claims import Facts, PrivacyClaims, changed, mu_of, other_adjacency
from secagg.reports.numbers import (
    count,
    counted,
    declared,
    power_of_two,
    share,
    significant,
)

_PLACEMENT_WORDS = {
    "sum": "once, in the sum: each site adds a share of it to its contribution",
    "site": "once, at each site, which adds all of it to its own contribution and draws it once "
    "for the same question on the same records",
    "round": "in every round: each site adds a share of it to each contribution",
}
_OTHER_ADJACENCY = {"add_remove": "replace", "replace": "add_remove"}


def terms(claims: PrivacyClaims, asked: Facts) -> list[tuple[str, str]]:
    """Return the guarantee point by point: what, and how it stands here.

    asked: the job's table `[privacy]`
    """
    guarantee = claims.guarantee
    other = _OTHER_ADJACENCY[guarantee["adjacency"]]
    releases = sum(part["releases"] for part in guarantee["mechanisms"])
    norm = "which the public bounds imply, so that none is shrunk"
    if asked["record_norm"] is not None:
        norm = "to which longer ones are shrunk; how many were is not told"
    return [
        ("Unit", _unit(guarantee)),
        (
            "Adjacency",
            f"{changed(guarantee, guarantee['adjacency'])}: two sets of records that differ in "
            "nothing else are hard to tell apart by all that was released",
        ),
        (
            "ε and δ",
            f"{claims.size}, for {counted(releases, 'release')} together",
        ),
        (
            "ε accounted",
            f"{significant(guarantee['epsilon_accounted'], 5)} at that δ, from μ = "
            f"{significant(guarantee['mu'])}",
        ),
        ("Accountant", guarantee["accountant"]),
        (
            "Of δ, for noise being discrete",
            significant(guarantee["delta_for_discreteness"], 2),
        ),
        (
            "Under the other adjacency",
            f"{changed(guarantee, other)}: {other_adjacency(guarantee)} at the same δ, from μ = "
            f"{significant(guarantee['mu_other_adjacency'])}",
        ),
        ("Noise", "discrete Gaussian, drawn on integers and added to each number by the sites"),
        ("Placement", f"“{guarantee['placement']}”: {_PLACEMENT_WORDS[guarantee['placement']]}"),
        (
            "Scale of records",
            "each variable is moved and scaled from its public bounds to [−1, 1], levels to −1 "
            "and 1",
        ),
        (
            "Clip of records",
            f"the L2 norm of a record's scaled variables is at most "
            f"{declared(guarantee['record_norm'])}, {norm}; then they are truncated towards zero "
            f"to multiples of {step(guarantee['grid'])}. Each site does so before anything else",
        ),
        (
            "Share for counting records",
            f"{share(asked['count_share'])} of μ², in the release that every run begins with",
        ),
        ("Sampling", _sampling(guarantee)),
    ]  # fmt: skip


def _unit(guarantee: Facts) -> str:
    if guarantee["unit"] == "record":
        return "one record, that is one row of a site's table"
    records = guarantee["records_per_person"]
    first = "the first record" if records == 1 else f"the first {count(records)} records"
    return (
        f"one person, named by column “{guarantee['person']}”: {first} of theirs at each "
        f"of at most {counted(guarantee['sites_per_person'], 'site')}; further ones at a site are "
        "left out"
    )


def _sampling(guarantee: Facts) -> str:
    capped = "" if guarantee["unit"] == "record" else ", up to the cap of a person,"
    return f"none: every complete record{capped} takes part in each release"


def step(power: str) -> str:
    """Write 2^-16 as a reader wants it."""
    return power_of_two(int(power.removeprefix("2^")))


def mechanisms(claims: PrivacyClaims) -> list[tuple[str, list[str]]]:
    """Return each stage's noise: names of rows with a cell for each stage, the stages' names first.

    Sizes are L2 norms and standard deviations, in the sum's own units.
    """
    guarantee, parts = claims.guarantee, claims.guarantee["mechanisms"]

    def sizes(key: str) -> list[str]:
        return [significant(part[key]) for part in parts]

    return [
        ("Stage", [part["stage"] for part in parts]),
        ("Releases made", [count(claims.sums.get(part["stage"], 0)) for part in parts]),
        ("Releases paid for", [count(part["releases"]) for part in parts]),
        ("Numbers in each", [count(part["numbers"]) for part in parts]),
        (f"Sensitivity: {changed(guarantee, 'add_remove')}", sizes("sensitivity_add")),
        (f"Sensitivity: {changed(guarantee, 'replace')}", sizes("sensitivity_replace")),
        ("σ that protects", sizes("sigma")),
        ("σ of a site's noise", sizes("sigma_of_a_site")),
        ("σ of the noise in the sum", sizes("sigma_in_the_sum")),
        ("Noise and numbers are multiples of", [step(part["step"]) for part in parts]),
        ("μ of one release", [significant(mu_of(part, guarantee["adjacency"])) for part in parts]),
    ]


def colluders(guarantee: Facts) -> list[tuple[int, str, bool]]:
    """Return (colluding sites, epsilon then, whether the guarantee is for that number)."""
    return [
        (number, _bound(epsilon), number == guarantee["colluding"])
        for number, epsilon in guarantee["if_more_collude"]
    ]


def gives_way(guarantee: Facts, protocol: str) -> str:
    """Return from how many colluding sites on epsilon no longer grows, and why; else nothing.

    guarantee: what `secagg.privacy.accounting.guarantee` returns; protocol: its name
    """
    numbers = [number for number, _ in guarantee["if_more_collude"]]
    at = guarantee["withstands"] + 1
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
