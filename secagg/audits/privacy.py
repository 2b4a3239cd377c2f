"""Differential privacy in a report: what is promised, by which noise, and what that rests on.

What NIST SP 800-226 asks a claim to state: unit, adjacency, clipping and how records are scaled,
sensitivity, noise and its placement, accountant, epsilon and delta, composition, assumptions. All
of it is in the facts that `secagg.privacy.guarantee` left in run.json. The claim is printed only if
`holds` works it out again from the other numbers that the page shows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from secagg.audits.format import (
    count,
    counted,
    declared,
    power_of_two,
    probability,
    share,
    significant,
)
from secagg.privacy.gaussian import gaussian_delta, gaussian_epsilon
from secagg.privacy.guarantee import sentence

Facts = Mapping[str, Any]
OPERATING_SYSTEM = "operating system"
_ROUNDING = 1e-9  # of sums and quotients of float64 that were rounded in another order

_PLACED = {
    "sum": "once, in the sum: each site adds a share of it to its contribution",
    "site": "once, at each site, which adds all of it to its own contribution and draws it once "
    "for the same question on the same records",
    "round": "in every round: each site adds a share of it to each contribution",
}
_ADJACENT = {"add_remove": "{} added or removed", "replace": "{} replaced by another"}
_OTHER = {"add_remove": "replace", "replace": "add_remove"}


def noised(facts: Facts) -> bool:
    """Say whether noise of differential privacy was added."""
    return facts["privacy"] is not None


def secret_randomness(facts: Facts) -> bool:
    """Say whether keys, shares and noise came from where nobody can draw them again."""
    return bool(facts["randomness"] == OPERATING_SYSTEM)


def holds(facts: Facts) -> bool:
    """Say whether the promise follows from the other facts, each step worked out again.

    Randomness is secret; every number of every release has noise, planned for in the proof of fit;
    no stage was released more often than was paid for; each cost is at least sensitivity / noise,
    of which the honest sites together add enough; and the costs compose to epsilon and delta.
    """
    promise = facts["privacy"]
    if promise is None or not secret_randomness(facts):
        return False
    asked = facts["job"]["privacy"]
    if any(asked[key] != promise[key] for key in ("placement", "epsilon", "delta", "adjacency")):
        return False
    parts = {m["stage"]: m for m in promise["mechanisms"]}
    if not all(_stage_noised(s, parts, facts) for s in facts["plan"]):
        return False
    mus = [_mu(m, promise["adjacency"]) ** 2 * m["releases"] for m in parts.values()]
    square = math.fsum(mus)
    spent = gaussian_delta(promise["mu"], promise["epsilon"]) + promise["delta_for_discreteness"]
    return bool(
        square <= promise["mu"] ** 2 * (1 + _ROUNDING)
        and spent <= promise["delta"] * (1 + _ROUNDING)
    )


def _stage_noised(stage: Mapping[str, Any], parts: Mapping[str, Any], facts: Facts) -> bool:
    """Say whether a stage's releases have the noise that their cost is computed from."""
    part, promise = parts.get(stage["stage"]), facts["privacy"]
    fields = [field for field in stage["fields"] if field["name"] != "clipped"]
    if part is None or not all(field["noise_tail"] > 0 for field in fields):
        return False
    honest = 1 if promise["placement"] == "site" else len(facts["cohort"]) - promise["colluding"]
    together = math.sqrt(max(honest, 0)) * part["sigma_of_a_site"]
    costs = [(part["mu_add"], part["sensitivity_add"])]
    costs += [(part["mu_replace"], part["sensitivity_replace"])]
    return bool(
        _made(facts, stage["stage"]) <= part["releases"]
        and together >= part["sigma"] * (1 - _ROUNDING)
        and all(mu * part["sigma"] >= moved * (1 - _ROUNDING) for mu, moved in costs)
    )


def _mu(part: Mapping[str, Any], adjacency: str) -> float:
    return float(part["mu_add" if adjacency == "add_remove" else "mu_replace"])


def _made(facts: Facts, stage: str) -> int:
    return sum(release["stage"] == stage for release in facts["releases"])


def claimed(facts: Facts) -> str:
    """Return what is claimed of one record, in one sentence."""
    if not noised(facts):
        return "No differential privacy noise was added: the released sums themselves are exact."
    if not secret_randomness(facts):
        return (
            "Privacy: void. No differential privacy is claimed: whoever knows the seed can draw "
            "the noise again and subtract it."
        )
    if not holds(facts):
        return (
            "No differential privacy is claimed: noise was added, but epsilon and delta do not "
            "follow from the facts of this run."
        )
    return sentence(dict(facts["privacy"]))


def in_short(facts: Facts) -> str:
    """Return the noise in a few words, for the first page."""
    if not noised(facts):
        return "none"
    promise = facts["privacy"]
    size = f"{promise_size(facts)}, {changed(promise, promise['adjacency'])}"
    placed = f"discrete Gaussian, placement “{promise['placement']}”"
    if not secret_randomness(facts):
        return f"void, as it can be drawn again: {placed}"
    return f"{placed}; {size}"


def promise_size(facts: Facts) -> str:
    """Return epsilon and delta."""
    promise = facts["privacy"]
    return f"ε {declared(promise['epsilon'])} at δ {probability(promise['delta'])}"


def changed(promise: Mapping[str, Any], adjacency: str) -> str:
    """Return what is hard to tell: one record added or removed, for instance."""
    return _ADJACENT[adjacency].format(f"one {promise['unit']}")


def epsilon_at(promise: Mapping[str, Any], mu: float) -> float:
    """Return epsilon at the promised delta, for releases that cost mu together."""
    left = promise["delta"] - promise["delta_for_discreteness"]
    return gaussian_epsilon(mu, left) if left > 0 else math.inf


def terms(facts: Facts) -> list[tuple[str, str]]:
    """Return the promise point by point: what, and how it stands here."""
    promise, asked = facts["privacy"], facts["job"]["privacy"]
    other = _OTHER[promise["adjacency"]]
    other_epsilon = epsilon_at(promise, promise["mu_other_adjacency"])
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
            f"{changed(promise, other)}: ε {significant(other_epsilon)} at the same δ, from μ = "
            f"{significant(promise['mu_other_adjacency'])}",
        ),
        ("Noise", "discrete Gaussian, drawn on integers and added to each number by the sites"),
        ("Placement", f"“{promise['placement']}”: {_PLACED[promise['placement']]}"),
        (
            "Scale of records",
            "each variable is moved and scaled from its public bounds to [−1, 1], levels to −1 "
            "and 1",
        ),
        (
            "Clip of records",
            f"the L2 norm of a record's scaled variables is at most "
            f"{declared(promise['record_norm'])}, {norm}; then they are truncated towards zero "
            f"to multiples of {_step(promise['grid'])}. Each site does so before anything else",
        ),
        (
            "Share for counting records",
            f"{share(asked['count_share'])} of μ², in the release that every run begins with",
        ),
        ("Sampling", "none: every record takes part in each release"),
    ]  # fmt: skip


def _unit(promise: Mapping[str, Any]) -> str:
    if promise["unit"] == "record":
        return "one record, that is one row of a site's table"
    rows = counted(promise["records_per_person"], "record")
    return (
        f"one person, named by column “{promise['person']}”: the first {rows} of theirs at each of "
        f"at most {counted(promise['sites_per_person'], 'site')}; further ones are left out"
    )


def _step(power: str) -> str:
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
        ("Releases made", [count(_made(facts, part["stage"])) for part in parts]),
        ("Releases paid for", [count(part["releases"]) for part in parts]),
        ("Numbers in each", [count(part["numbers"]) for part in parts]),
        (f"Sensitivity: {changed(promise, 'add_remove')}", sizes("sensitivity_add")),
        (f"Sensitivity: {changed(promise, 'replace')}", sizes("sensitivity_replace")),
        ("σ that protects", sizes("sigma")),
        ("σ of a site's noise", sizes("sigma_of_a_site")),
        ("σ of the noise in the sum", sizes("sigma_in_the_sum")),
        ("Noise and numbers are multiples of", [_step(part["step"]) for part in parts]),
        ("μ of one release", [significant(_mu(part, promise["adjacency"])) for part in parts]),
    ]


def colluders(facts: Facts) -> list[tuple[int, str, bool]]:
    """Return (colluding sites, epsilon then, whether that is the number promised for)."""
    promise = facts["privacy"]
    return [
        (number, significant(epsilon), number == promise["colluding"])
        for number, epsilon in promise["if_more_collude"]
    ]


def assumptions(facts: Facts) -> list[str]:
    """Return what the promise rests on, and no software can see."""
    promise, found = facts["privacy"], []
    if promise["placement"] != "site":
        found.append(
            f"At most {promise['colluding']} of the {counted(len(facts['cohort']), 'site')} pool "
            "what they know with the coordinator. Their noise does not count."
        )
    found.append(
        "Every other site clipped its records and added its noise as its software does. One that "
        "does not goes unnoticed."
    )
    if promise["unit"] == "record":
        twice = significant(epsilon_at(promise, 2 * promise["mu"]))
        found.append(
            "What is protected is one record. Two that belong together, of one person or of twins, "
            f"are protected by ε {twice} at the same δ, and more of them by less."
        )
    else:
        found.append(
            f"No person has records at more than {counted(promise['sites_per_person'], 'site')}, "
            f"and within a site column “{promise['person']}” names the same person alike."
        )
    return [
        *found,
        "Columns, bounds, levels, the norm and the settings were chosen without looking at these "
        "records. What was tried on them before is not counted.",
        "The seeds of the noise, which each site keeps in its ledger, stay with the site.",
    ]


def ledger_standing(facts: Facts) -> tuple[bool, str]:
    """Say whether ledgers outlive the run, so that releases of many runs are added up; and how."""
    ledger = facts.get("ledger")
    if ledger is None:
        return False, "There is no word of a ledger that outlives this run."
    if not ledger["kept"]:
        return False, "No ledger of this run outlives it."
    text = "Each release is in ledgers that outlive the run: each site's own, and the coordinator's"
    standing = ledger.get("coordinator") or {}
    if "releases" not in standing:
        return True, f"{text}."
    exact = f", {count(standing['exact'])} of them exact" if standing.get("exact") else ""
    return True, f"{text}, which holds {counted(standing['releases'], 'release')}{exact}."


def ledger_totals(facts: Facts) -> list[tuple[str, str]]:
    """Return what the coordinator's ledger adds up to, this run included; empty if not known."""
    ledger = facts.get("ledger") or {}
    standing: Mapping[str, Any] = ledger.get("coordinator") or {}
    found = []
    for adjacency, words in _ADJACENT.items():
        key = f"epsilon_{adjacency}"
        if key in standing:
            spent = standing[key]
            text = "no bound: exact sums are among them"
            if spent is not None and math.isfinite(spent):
                text = f"ε {significant(spent)} at δ {probability(standing['delta'])}"
            found.append((f"All releases, {words.format('one unit')}", text))
    caps: Sequence[Mapping[str, Any]] = standing.get("caps", ())
    for cap in caps:
        left = cap["left"]
        found.append((f"Cap: {cap['words']}", f"left: ε {significant(left, 3)}"))
    return found
