"""What a run may claim about privacy, evaluated once for the terminal and both reports.

The facts come from `secagg.privacy.accounting.guarantee`, by way of run.json. The guarantee is
claimed only if it follows from the other numbers in run.json; this module computes each step again.
`secagg.evidence.claims.guarantee` puts the guarantee in words, and `secagg.evidence.claims.noise`
explains the noise.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from secagg.contracts import DisclosureKind
from secagg.contracts.noise import SITE_MOMENTS, Adjacency, Placement
from secagg.evidence.claims import guarantee as words
from secagg.evidence.claims.claim import Claim, Status
from secagg.evidence.claims.disclosure import disclosure_kind
from secagg.evidence.claims.ledgers import LedgerClaims
from secagg.evidence.claims.rules import what_rules_count
from secagg.evidence.numbers import counted
from secagg.privacy.accounting.events import Event, delta_of, sampled_event

Facts = Mapping[str, Any]
OPERATING_SYSTEM = "operating system"
_ROUNDING = 1e-8  # relative error of float64 sums in another order
EXACT = (
    "No differential privacy: the sums are exact, without noise. Nothing limits what they reveal "
    "about one record."
)
NO_CLAIM = (
    "This run claims no differential privacy: the sites added noise, but epsilon and delta do not "
    "follow from the facts of this run."
)
VOID = "Privacy: void."


@dataclass(frozen=True)
class PrivacyClaims:
    """What a run may claim about privacy, each statement checked against its facts.

    guarantee: as `secagg.privacy.accounting.guarantee` returned it; empty if no noise was added
    hides_sites: the protocol hides contributions, with secret randomness
    holds: the guarantee follows from the other facts
    sentence: the claim about one record
    void: what anybody can compute who knows the seed; empty if the randomness is secret
    epsilon_and_delta: both in words; empty without noise
    thresholds: every signed threshold of every release
    sums: number of opened sums of each stage
    sees: what each role saw
    """

    guarantee: Facts
    hides_sites: bool
    holds: bool
    sentence: str
    void: str
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
        void = "" if secret else _void(noised=bool(guarantee))
        holds = secret and _holds(facts, guarantee, sums)
        return cls(
            guarantee=guarantee,
            hides_sites=bool(facts["protocol"]["hides_from_coordinator"]) and secret,
            holds=holds,
            sentence=_sentence(guarantee, void, holds, facts["job"]["privacy"].get("person")),
            void=void,
            epsilon_and_delta=words.epsilon_and_delta(guarantee) if guarantee else "",
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
        if self.void:
            return f"void: {noise}"
        adjacency = words.adjacency_in_words(self.guarantee, self.guarantee["adjacency"])
        return f"{noise}; {self.epsilon_and_delta}, {adjacency}"

    def plain_words(self) -> list[Claim]:
        """Return the guarantee for readers without special knowledge; if none holds, why.

        "Which runs it covers" is computed from ledger lines, the rest from the job's epsilon.
        """
        if not self.noised:
            return [Claim("What is guaranteed", EXACT, Status.PERSON, "privacy")]
        if not self.holds:
            return [Claim("What is guaranteed", self.sentence, Status.MISSING, "privacy")]
        guarantee = self.guarantee
        texts = {
            "What is guaranteed": words.what(guarantee),
            "Who is protected": words.who(guarantee),
            "Against whom": words.against(guarantee),
            "How strong it is": words.how_strong(guarantee),
            "The measure": words.measure(guarantee),
            "Which releases it covers": self._releases(),
            "Which runs it covers": self.ledger.adds_up,
        }
        places = {"Which releases it covers": "release_counts", "Which runs it covers": "ledger"}
        return [Claim(t, text, where=places.get(t, "privacy")) for t, text in texts.items()]

    def _releases(self) -> str:
        releases = counted(sum(self.sums.values()), "release")
        text = f"The {releases} of this run together have {self.epsilon_and_delta}."
        return f"{text} {self.ledger.repeats}".rstrip()


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
    stated = delta_of(words.events_of(guarantee, guarantee["adjacency"]), guarantee["epsilon"])
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
    together = math.sqrt(1 if inside else max(honest, 0)) * part["sigma_of_a_site"]
    costs = [(part["mu_add"], part["sensitivity_add"])]
    costs += [(part["mu_replace"], part["sensitivity_replace"])]
    return bool(
        sums.get(stage["stage"], 0) <= part["releases"]
        and together >= part["sigma"] * (1 - _ROUNDING)
        and all(mu * part["sigma"] >= moved * (1 - _ROUNDING) for mu, moved in costs)
    )


def _void(*, noised: bool) -> str:
    what = "keys, shares and noise" if noised else "keys and shares"
    return (
        f"Anybody who knows the seed of this run can compute all {what}, and with them each site's "
        "contribution: this run protects nothing."
    )


def _sentence(guarantee: Facts, void: str, holds: bool, person: str | None) -> str:
    """Return the claim about one record, in one sentence; without noise, also what rules count."""
    if not guarantee:
        return exact_sentence(person)
    if void:
        return f"{VOID} {void}"
    return words.sentence(guarantee) if holds else NO_CLAIM


def exact_sentence(person: str | None) -> str:
    """Return the claim of a plan or a run without noise. person: `privacy.person`"""
    return f"{EXACT} {what_rules_count(person)}"


def nothing_hidden(claims: PrivacyClaims) -> str:
    """Return what the coordinator read under a protocol that hides nothing."""
    noise = ", with its noise" if claims.noised else " in clear"
    return f"The coordinator read each site's own contribution{noise}."


def contribution_hidden(facts: Facts, claims: PrivacyClaims) -> Claim:
    """Return whether a single site's contribution is hidden, in each sum and in all together."""
    kind, topic = disclosure_kind(facts), "a site's contribution"
    if claims.void:
        return Claim(topic, claims.void, Status.MISSING, "randomness")
    if not claims.hides_sites:
        return Claim(topic, nothing_hidden(claims), Status.MISSING, "protocol")
    hidden = "The protocol hides a single site's contribution from the coordinator"
    if kind is DisclosureKind.SOLVABLE:
        text = f"{hidden}, but with few sites all sums together can be solved for it."
        return Claim(topic, text, Status.MISSING, "method/disclosure")
    if kind is DisclosureKind.SITES:
        text = f"{hidden}, but all sums together may reveal parts of it."
        return Claim(topic, text, Status.PERSON, "method/disclosure")
    if facts["engine"]["name"] == "memory":
        text = f"{hidden}, but one process played all parties: judge who controlled it."
        return Claim(topic, text, Status.PERSON, "engine")
    if "pinned_roster" in facts["engine"]:
        return Claim(topic, f"{hidden}, if their computers are separate.", where="protocol")
    text = f"{hidden}. Separate computers were not tested: all parties ran on one."
    return Claim(topic, text, where="protocol")


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
