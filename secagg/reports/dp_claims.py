"""Differential privacy in a report: whether a promise holds, and the sentence that claims it.

The facts are those that `secagg.privacy.accounting.guarantee` left in run.json. The claim is
printed only if `holds` works it out again from the other numbers that the page shows. What it means
is said by `secagg.reports.dp_plain_language`, by which noise it holds by
`secagg.reports.dp_mechanisms`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from secagg.privacy.accounting.calibration import epsilon_at
from secagg.privacy.accounting.gaussian_dp import gaussian_delta
from secagg.privacy.accounting.guarantee import sentence
from secagg.reports.numbers import declared, probability, significant

Facts = Mapping[str, Any]
OPERATING_SYSTEM = "operating system"
_ROUNDING = 1e-9  # of sums and quotients of float64 that were rounded in another order

ADJACENT = {"add_remove": "{} added or removed", "replace": "{} replaced by another"}


def noised(facts: Facts) -> bool:
    """Say whether noise of differential privacy was added."""
    return facts["privacy"] is not None


def secret_randomness(facts: Facts) -> bool:
    """Say whether keys, shares and noise came from where nobody can draw them again."""
    return bool(facts["randomness"] == OPERATING_SYSTEM)


def thresholds(facts: Facts) -> list[int]:
    """Return every signed threshold of every release."""
    return [k for release in facts["releases"] for k in release["thresholds"].values()]


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
    mus = [mu_of(m, promise["adjacency"]) ** 2 * m["releases"] for m in parts.values()]
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
        made(facts, stage["stage"]) <= part["releases"]
        and together >= part["sigma"] * (1 - _ROUNDING)
        and all(mu * part["sigma"] >= moved * (1 - _ROUNDING) for mu, moved in costs)
    )


def mu_of(part: Mapping[str, Any], adjacency: str) -> float:
    """Return what one release costs under an adjacency."""
    return float(part["mu_add" if adjacency == "add_remove" else "mu_replace"])


def made(facts: Facts, stage: str) -> int:
    """Return how many sums of a stage were opened."""
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


def seen(facts: Facts) -> dict[str, str]:
    """Return what each role saw. A protocol knows of no noise, so what it says is put right."""
    sees: dict[str, str] = dict(facts["protocol"]["sees"])
    if not noised(facts):
        return sees
    exact = {
        "the number of records in all": "the number of records in all (with noise)",
        "in clear": "with its noise",
    }
    for words, put_right in exact.items():
        sees = {role: text.replace(words, put_right) for role, text in sees.items()}
    return sees


def promise_size(facts: Facts) -> str:
    """Return epsilon and delta."""
    promise = facts["privacy"]
    return f"ε {declared(promise['epsilon'])} at δ {probability(promise['delta'])}"


def changed(promise: Mapping[str, Any], adjacency: str) -> str:
    """Return what is hard to tell: one record added or removed, for instance."""
    return ADJACENT[adjacency].format(f"one {promise['unit']}")


def all_others(promise: Mapping[str, Any]) -> str:
    """Return all that an attacker may know and the promise still holds."""
    return "all other records" if promise["unit"] == "record" else "all other persons' records"


def distance(promise: Mapping[str, Any]) -> float:
    """Return how far all releases are from Gaussian ones, in total variation."""
    return float(promise["delta_for_discreteness"] / (1 + math.exp(promise["epsilon"])))


def other_adjacency(promise: Mapping[str, Any]) -> str:
    """Return epsilon at the promised delta under the other adjacency."""
    return _told(epsilon_at(promise["mu_other_adjacency"], promise["delta"], distance(promise)))


def of_two(promise: Mapping[str, Any]) -> str:
    """Return epsilon at the promised delta for two units that belong together.

    They move what was released twice as far and, of sites that noise alone, twice as many.
    """
    releases = 2 if promise["placement"] == "site" else 1
    return _told(epsilon_at(2 * promise["mu"], promise["delta"], releases * distance(promise)))


def _told(epsilon: float) -> str:
    return "no ε" if math.isinf(epsilon) else f"ε {significant(epsilon)}"
