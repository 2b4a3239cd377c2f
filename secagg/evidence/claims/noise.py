"""The noise behind a guarantee of differential privacy: its terms, and the numbers of each stage.

NIST SP 800-226 requires a claim to state unit, adjacency, clipping and scaling of records,
sensitivity, noise and its placement, accountant, epsilon and delta, and composition.
"""

from __future__ import annotations

from collections.abc import Sequence

from secagg.contracts.noise import SITE_MOMENTS
from secagg.evidence.claims.guarantee import (
    Facts,
    adjacency_in_words,
    epsilon_of_other_adjacency,
    unit_in_words,
)
from secagg.evidence.claims.privacy import PrivacyClaims, mu_of
from secagg.evidence.numbers import (
    count,
    counted,
    declared,
    epsilon_or_no_bound,
    power_of_two,
    share,
    significant,
)

_OTHER_ADJACENCY = {"add_remove": "replace", "replace": "add_remove"}


def terms(claims: PrivacyClaims, privacy: Facts) -> list[tuple[str, str]]:
    """Return the guarantee as (term, value) pairs; privacy: the job's table `[privacy]`."""
    guarantee = claims.guarantee
    other = _OTHER_ADJACENCY[guarantee["adjacency"]]
    releases = sum(part["releases"] for part in guarantee["mechanisms"])
    norm = "which the public bounds imply, so no record is shrunk"
    whole = "constant" in guarantee
    if privacy["record_norm"] is not None or whole:
        norm = "and longer records are shrunk to it; the run does not count them"
    return [
        ("Unit", _unit(guarantee)),
        (
            "Adjacency",
            f"{adjacency_in_words(guarantee, guarantee['adjacency'])}: the releases make it hard "
            "to distinguish two sets of records that differ only in this",
        ),
        (
            "ε and δ",
            f"{claims.epsilon_and_delta}, for {counted(releases, 'release')} together",
        ),
        (
            "Accounted ε",
            f"{significant(guarantee['epsilon_accounted'], 5)} at that δ"
            f"{_from_mu(guarantee['mu'])}",
        ),
        ("Accountant", guarantee["accountant"]),
        (
            "Part of δ due to discrete noise",
            significant(guarantee["delta_for_discreteness"], 2),
        ),
        (
            "Under the other adjacency",
            f"{adjacency_in_words(guarantee, other)}: {epsilon_of_other_adjacency(guarantee)} at "
            f"the same δ{_from_mu(guarantee['mu_other_adjacency'])}",
        ),
        ("Noise", "discrete Gaussian: the sites draw integers and add them to each number"),
        ("Placement", f"“{guarantee['placement']}”: {_placement_in_words(guarantee)}"),
        (
            "Scale of records",
            "each variable is shifted by its typical centre and divided by four of its typical "
            f"standard deviations, and each record has a further number, {guarantee['constant']:g}"
            if whole
            else "each continuous variable is shifted and scaled from its public bounds to [−1, 1]"
            ", and each level to −1/2 or 1/2",
        ),
        (
            "Clipping of records",
            f"the L2 norm of a record's scaled variables{' and that number' * whole} is at most "
            f"{declared(guarantee['record_norm'])}, {norm}. {_person_norm(guarantee)}Then the "
            f"values are truncated towards zero to multiples of {step(guarantee['grid'])}. Each "
            "site does this first",
        ),
        (
            "Share for counting records",
            f"{share(privacy['count_share'])} of μ², {_when_counted(guarantee)}",
        ),
        ("Sampling", _sampling(guarantee)),
    ]


def _person_norm(guarantee: Facts) -> str:
    if guarantee["person_norm"] is None:
        return ""
    return (
        f"The root of the summed squared norms of all records of a person at a site is at most "
        f"{declared(guarantee['person_norm'])}; otherwise all of them are shrunk by one factor. "
    )


def _placement_in_words(guarantee: Facts) -> str:
    if guarantee["placement"] != "site":
        once, to = "once, in the sum", "its contribution"
        if guarantee["placement"] == "round":
            once, to = "in every round", "each contribution"
        return f"{once}: each site adds a share of the noise to {to}"
    to, again = "its own contribution", "for the same question about the same records"
    if _kept_at_sites(guarantee):
        to = "its moments, from which it computes all its contributions"
        again = "in later runs on the same records"
    return (
        f"once, at each site: each site adds the full noise to {to}, and uses the same noise again "
        f"{again}"
    )


def _when_counted(guarantee: Facts) -> str:
    return "with the moments" if _kept_at_sites(guarantee) else "in the first release of the run"


def _kept_at_sites(guarantee: Facts) -> bool:
    return any(part["stage"] == SITE_MOMENTS for part in guarantee["mechanisms"])


def _unit(guarantee: Facts) -> str:
    named = f", identified by column “{guarantee['person']}”" if guarantee["person"] else ""
    return f"one {guarantee['unit']}{named}: {unit_in_words(guarantee)}"


def _sampling(guarantee: Facts) -> str:
    if guarantee["mu"] is None:
        return (
            "in each release of some stages, every complete record takes part with the probability "
            "in the table below; its site draws this at random and in secret"
        )
    capped = ", up to the cap of a person," if guarantee["unit"] == "person" else ""
    return f"none: every complete record{capped} is part of each release"


def step(power: str) -> str:
    """Write 2^-16 as 2⁻¹⁶."""
    return power_of_two(int(power.removeprefix("2^")))


def mechanisms(claims: PrivacyClaims) -> list[tuple[str, list[str]]]:
    """Return the noise table: (name of a row, a cell for each stage); stages' names come first.

    Sizes are L2 norms and standard deviations, in the units of the sum.
    """
    guarantee, parts = claims.guarantee, claims.guarantee["mechanisms"]

    def sizes(key: str) -> list[str]:
        return [significant(part[key]) for part in parts]

    return [
        ("Stage", [part["stage"] for part in parts]),
        ("Releases made", [_releases_made(claims, part["stage"]) for part in parts]),
        ("Releases paid for", [count(part["releases"]) for part in parts]),
        ("Numbers in each", [count(part["numbers"]) for part in parts]),
        (f"Sensitivity: {adjacency_in_words(guarantee, 'add_remove')}", sizes("sensitivity_add")),
        (f"Sensitivity: {adjacency_in_words(guarantee, 'replace')}", sizes("sensitivity_replace")),
        ("σ that protects", sizes("sigma")),
        ("σ of a site's noise", sizes("sigma_of_a_site")),
        ("σ of the noise in the sum", sizes("sigma_in_the_sum")),
        ("Noise and numbers are multiples of", [step(part["step"]) for part in parts]),
        *_samples(parts),
        ("μ of one release", [significant(mu_of(part, guarantee["adjacency"])) for part in parts]),
    ]


def _releases_made(claims: PrivacyClaims, stage: str) -> str:
    """Return how many sums a stage opened; of moments that sites keep, that each drew them once."""
    return "1 at each site" if stage == SITE_MOMENTS else count(claims.sums.get(stage, 0))


def colluders(guarantee: Facts) -> list[tuple[int, str, bool]]:
    """Return (number of colluding sites, epsilon, whether the guarantee covers that number)."""
    return [
        (number, epsilon_or_no_bound(epsilon), number == guarantee["colluding"])
        for number, epsilon in guarantee["if_more_collude"]
    ]


def noise_exhausted(guarantee: Facts, protocol: str) -> str:
    """Return from how many colluding sites on epsilon no longer grows, and why; else "".

    guarantee: what `secagg.privacy.accounting.guarantee` returns; protocol: its name
    """
    numbers = [number for number, _ in guarantee["if_more_collude"]]
    first = guarantee["withstands"] + 1
    if first not in numbers:
        return ""
    return (
        f"From {counted(first, 'colluding site')} on, protocol {protocol} no longer hides a single "
        "site's contribution. Then only that site's own share of the noise protects its records, "
        "and more colluding sites do not change that."
    )


def _from_mu(mu: float | None) -> str:
    return "" if mu is None else f", from μ = {significant(mu)}"


def _samples(parts: Sequence[Facts]) -> list[tuple[str, list[str]]]:
    """Return the rows about samples and steps, if there are any."""
    rows: list[tuple[str, list[str]]] = []
    if any(part["steps"] > 1 for part in parts):
        rows.append(("Noisy sums in one release", [counted(p["steps"], "sum") for p in parts]))
    if any(part["sampling_rate"] < 1 for part in parts):
        rates = [significant(part["sampling_rate"]) for part in parts]
        rows.append(("Probability that a record takes part", rates))
    return rows
