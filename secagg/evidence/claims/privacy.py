"""What a run may claim about privacy: evaluated once for all sections of a report.

The facts come from `secagg.privacy.accounting.guarantee`, by way of run.json. The report claims the
guarantee only if it follows from the other numbers on the page; each step is computed again here.
`secagg.evidence.claims.guarantee` explains the guarantee, `secagg.evidence.claims.noise` the noise.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from secagg.contracts.noise import SITE_MOMENTS, Adjacency, Placement
from secagg.evidence.claims.ledgers import LedgerClaims
from secagg.evidence.numbers import (
    ADJACENCIES,
    declared,
    probability,
    significant,
    what_rules_count,
)
from secagg.privacy.accounting.calibration import epsilon_at
from secagg.privacy.accounting.events import (
    Event,
    delta_of,
    from_data,
    sampled_event,
    with_less_noise,
)
from secagg.privacy.accounting.guarantee import sentence

Facts = Mapping[str, Any]
OPERATING_SYSTEM = "operating system"
_GROUP_STEPS = 20  # of an iteration that converges in a few
_ROUNDING = 1e-8  # relative error of float64 sums in another order


@dataclass(frozen=True)
class PrivacyClaims:
    """What a run may claim about privacy, each statement checked against its facts.

    guarantee: as `secagg.privacy.accounting.guarantee` returned it; empty if no noise was added
    secret_randomness: nobody can reproduce keys, shares and noise
    hides_sites: the protocol hides contributions, with secret randomness
    holds: the guarantee follows from the other facts
    sentence: the claim about one record
    epsilon_and_delta: both in words; empty without noise
    thresholds: every signed threshold of every release
    sums: number of opened sums of each stage
    sees: what each role saw
    """

    guarantee: Facts
    secret_randomness: bool
    hides_sites: bool
    holds: bool
    sentence: str
    epsilon_and_delta: str
    thresholds: tuple[int, ...]
    sums: Mapping[str, int]
    sees: Mapping[str, str]
    ledger: LedgerClaims

    @classmethod
    def of(cls, facts: Facts) -> Self:
        """Evaluate the facts of a run."""
        guarantee: Facts = facts["privacy"] or {}
        sums = Counter(release["stage"] for release in facts["releases"])
        secret = facts["randomness"] == OPERATING_SYSTEM
        holds = secret and _holds(facts, guarantee, sums)
        epsilon = ""
        if guarantee:
            epsilon = f"ε {declared(guarantee['epsilon'])} at δ {probability(guarantee['delta'])}"
        return cls(
            guarantee=guarantee,
            secret_randomness=secret,
            hides_sites=bool(facts["protocol"]["hides_from_coordinator"]) and secret,
            holds=holds,
            sentence=_sentence(guarantee, secret, holds, facts["job"]["privacy"].get("person")),
            epsilon_and_delta=epsilon,
            thresholds=tuple(
                k for release in facts["releases"] for k in release["thresholds"].values()
            ),
            sums=sums,
            sees=sees_in_words(facts["protocol"]["sees"], noised=bool(guarantee)),
            ledger=LedgerClaims.of(facts),
        )

    @property
    def noised(self) -> bool:
        """Whether the sites added noise for differential privacy."""
        return bool(self.guarantee)

    def noise_in_short(self) -> str:
        """Return the noise in a few words, for the first page."""
        if not self.noised:
            return "none"
        noise = f"discrete Gaussian, placement “{self.guarantee['placement']}”"
        if not self.secret_randomness:
            return f"void, because anybody can reproduce it: {noise}"
        adjacency = adjacency_in_words(self.guarantee, self.guarantee["adjacency"])
        return f"{noise}; {self.epsilon_and_delta}, {adjacency}"


def _holds(facts: Facts, guarantee: Facts, sums: Mapping[str, int]) -> bool:
    """Return whether the guarantee follows from the other facts; compute each step again.

    Every number of every release has noise, and the overflow check includes it. No stage has more
    releases than the budget paid for. Each cost is at least sensitivity / noise, and the honest
    sites together add that noise. The costs compose to epsilon and delta.
    """
    if not guarantee:
        return False
    job = facts["job"]["privacy"]
    if any(job[key] != guarantee[key] for key in ("placement", "epsilon", "delta", "adjacency")):
        return False
    parts = {m["stage"]: m for m in guarantee["mechanisms"]}
    reads = any(stage.get("reads_records", True) for stage in facts["plan"])
    if not reads and set(parts) != {SITE_MOMENTS}:  # nothing that the stages use has noise
        return False
    sites = len(facts["cohort"])
    honest = 1 if guarantee["placement"] == "site" else sites - guarantee["colluding"]
    if not all(_stage_noised(s, parts.get(s["stage"]), honest, sums) for s in facts["plan"]):
        return False
    events = [event_of(m, guarantee) for m in parts.values()]
    needed = delta_of(events, guarantee["epsilon"])
    stated = delta_of(events_of(guarantee, guarantee["adjacency"]), guarantee["epsilon"])
    spent = stated + guarantee["delta_for_discreteness"]
    return bool(
        needed <= stated * (1 + _ROUNDING) and spent <= guarantee["delta"] * (1 + _ROUNDING)
    )


def event_of(part: Facts, guarantee: Facts) -> Event:
    """Return the event of all releases of one stage, under the adjacency of the guarantee."""
    replaced = guarantee["adjacency"] == Adjacency.REPLACE.value
    return sampled_event(
        part["mu_add"],
        part["sampling_rate"],
        part["releases"] * part["steps"],
        part["mu_replace"] if replaced else 0.0,
        elsewhere=replaced and guarantee["placement"] == Placement.SITE.value,
    )


def _stage_noised(stage: Facts, part: Facts | None, honest: int, sums: Mapping[str, int]) -> bool:
    """Return whether a stage's releases have the noise that their cost assumes."""
    if not stage.get("reads_records", True):
        return part is None  # it is computed from what earlier stages left
    fields = [field for field in stage["fields"] if field["name"] != "clipped"]
    inside = stage.get("trains_at_sites", False)
    if part is None or not (inside or all(field["noise_tail"] > 0 for field in fields)):
        return False
    together = math.sqrt(max(honest, 0)) * part["sigma_of_a_site"]
    costs = [(part["mu_add"], part["sensitivity_add"])]
    costs += [(part["mu_replace"], part["sensitivity_replace"])]
    return bool(
        sums.get(stage["stage"], 0) <= part["releases"]
        and together >= part["sigma"] * (1 - _ROUNDING)
        and all(mu * part["sigma"] >= moved * (1 - _ROUNDING) for mu, moved in costs)
    )


def _sentence(guarantee: Facts, secret: bool, holds: bool, person: str | None) -> str:
    """Return the claim about one record, in one sentence; without noise, also what rules count."""
    if not guarantee:
        exact = "No differential privacy: the released sums are exact, without noise."
        return f"{exact} {what_rules_count(person)}"
    if not secret:
        return (
            "Privacy: void. This run claims no differential privacy: anybody who knows the seed "
            "can reproduce the noise and subtract it."
        )
    if not holds:
        return (
            "This run claims no differential privacy: the sites added noise, but epsilon and delta "
            "do not follow from the facts of this run."
        )
    return sentence(guarantee)


def sees_in_words(sees: Mapping[str, str], *, noised: bool) -> dict[str, str]:
    """Return what each role saw; protocols do not know about noise, so add it to their texts."""
    if not noised:
        return dict(sees)
    with_noise = {
        "the total number of records": "the total number of records (with noise)",
        "in clear": "with its noise",
    }
    roles = dict(sees)
    for exact, noisy in with_noise.items():
        roles = {role: text.replace(exact, noisy) for role, text in roles.items()}
    return roles


def mu_of(part: Facts, adjacency: str) -> float:
    """Return the cost of one release under an adjacency."""
    return float(part["mu_add" if adjacency == "add_remove" else "mu_replace"])


def adjacency_in_words(guarantee: Facts, adjacency: str) -> str:
    """Return the difference between neighbours, for example "one record added or removed"."""
    return ADJACENCIES[adjacency].format(guarantee["unit"])


def all_others(guarantee: Facts) -> str:
    """Return what an attacker may know without breaking the guarantee."""
    known = {"record": "all other records", "event": "all other events"}
    return known.get(guarantee["unit"], "all other persons' records")


def distance(guarantee: Facts) -> float:
    """Return the total variation between all releases and Gaussian ones."""
    return float(guarantee["delta_for_discreteness"] / (1 + math.exp(guarantee["epsilon"])))


def epsilon_of_other_adjacency(guarantee: Facts) -> str:
    """Return epsilon at the delta of the guarantee under the other adjacency."""
    (other,) = set(guarantee["events"]) - {guarantee["adjacency"]}
    events = events_of(guarantee, other)
    return _epsilon(epsilon_at(events, guarantee["delta"], distance(guarantee)))


def events_of(guarantee: Facts, adjacency: str) -> list[Event]:
    """Return the events of all releases of the run under an adjacency."""
    return [from_data(event) for event in guarantee["events"][adjacency]]


def epsilon_of_two_units(guarantee: Facts) -> str:
    """Return epsilon at the delta of the guarantee for two records, or persons, together.

    Two units move the releases twice as far. With placement "site" they may move the releases of
    two sites. With samples, two units may take part in different ones, and the general bound for
    groups holds: twice the epsilon of delta / (1 + e^epsilon).
    """
    events = events_of(guarantee, guarantee["adjacency"])
    releases = 2 if guarantee["placement"] == "site" else 1
    delta, remainder = guarantee["delta"], releases * distance(guarantee)
    if guarantee["mu"] is not None:
        return _epsilon(epsilon_at([with_less_noise(e, 2.0) for e in events], delta, remainder))
    epsilon = guarantee["epsilon"]
    for _ in range(_GROUP_STEPS):
        epsilon = epsilon_at(events, delta / (1 + math.exp(min(epsilon, 700.0))), remainder)
    return _epsilon(2 * epsilon)


def _epsilon(epsilon: float) -> str:
    return "no ε" if math.isinf(epsilon) else f"ε {significant(epsilon)}"
