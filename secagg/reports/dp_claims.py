"""What a run may claim about privacy, evaluated once; every section of a report is handed it.

The facts are those that `secagg.privacy.accounting.guarantee` left in run.json. The guarantee is
claimed only if it follows from the other numbers that the page shows, each step worked out again.
What it means is said by `secagg.reports.dp_plain_language`, by which noise it holds by
`secagg.reports.dp_mechanisms`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from secagg.privacy.accounting.calibration import epsilon_at
from secagg.privacy.accounting.gaussian_dp import gaussian_delta
from secagg.privacy.accounting.guarantee import sentence
from secagg.reports.ledgers import LedgerClaims
from secagg.reports.numbers import ADJACENCIES, declared, probability, significant

Facts = Mapping[str, Any]
OPERATING_SYSTEM = "operating system"
_ROUNDING = 1e-9  # of sums and quotients of float64 that were rounded in another order


@dataclass(frozen=True)
class PrivacyClaims:
    """What a run may claim about privacy, each statement checked against its facts.

    guarantee: as `secagg.privacy.accounting.guarantee` returned it; empty if no noise was added
    secret_randomness: keys, shares and noise came from where nobody can draw them again
    hides_sites: the protocol hides contributions, with secret randomness
    holds: the guarantee follows from the other facts
    sentence: what is claimed of one record
    size: epsilon and delta; empty without noise
    thresholds: every signed threshold of every release
    sums: how many sums of each stage were opened
    sees: what each role saw
    """

    guarantee: Facts
    secret_randomness: bool
    hides_sites: bool
    holds: bool
    sentence: str
    size: str
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
        size = ""
        if guarantee:
            size = f"ε {declared(guarantee['epsilon'])} at δ {probability(guarantee['delta'])}"
        return cls(
            guarantee,
            secret,
            bool(facts["protocol"]["hides_from_coordinator"]) and secret,
            holds,
            _sentence(guarantee, secret, holds),
            size,
            tuple(k for release in facts["releases"] for k in release["thresholds"].values()),
            sums,
            seen(facts["protocol"]["sees"], noised=bool(guarantee)),
            LedgerClaims.of(facts),
        )

    @property
    def noised(self) -> bool:
        """Whether noise of differential privacy was added."""
        return bool(self.guarantee)

    def noise_in_short(self) -> str:
        """Return the noise in a few words, for the first page."""
        if not self.noised:
            return "none"
        placed = f"discrete Gaussian, placement “{self.guarantee['placement']}”"
        if not self.secret_randomness:
            return f"void, as it can be drawn again: {placed}"
        return f"{placed}; {self.size}, {changed(self.guarantee, self.guarantee['adjacency'])}"


def _holds(facts: Facts, guarantee: Facts, sums: Mapping[str, int]) -> bool:
    """Say whether the guarantee follows from the other facts, each step worked out again.

    Every number of every release has noise, planned for in the proof of fit; no stage was released
    more often than was paid for; each cost is at least sensitivity / noise, of which the honest
    sites together add enough; and the costs compose to epsilon and delta.
    """
    if not guarantee:
        return False
    asked = facts["job"]["privacy"]
    if any(asked[key] != guarantee[key] for key in ("placement", "epsilon", "delta", "adjacency")):
        return False
    parts = {m["stage"]: m for m in guarantee["mechanisms"]}
    sites = len(facts["cohort"])
    honest = 1 if guarantee["placement"] == "site" else sites - guarantee["colluding"]
    if not all(_stage_noised(s, parts.get(s["stage"]), honest, sums) for s in facts["plan"]):
        return False
    mus = [mu_of(m, guarantee["adjacency"]) ** 2 * m["releases"] for m in parts.values()]
    square = math.fsum(mus)
    spent = gaussian_delta(guarantee["mu"], guarantee["epsilon"])
    spent += guarantee["delta_for_discreteness"]
    return bool(
        square <= guarantee["mu"] ** 2 * (1 + _ROUNDING)
        and spent <= guarantee["delta"] * (1 + _ROUNDING)
    )


def _stage_noised(stage: Facts, part: Facts | None, honest: int, sums: Mapping[str, int]) -> bool:
    """Say whether a stage's releases have the noise that their cost is computed from."""
    fields = [field for field in stage["fields"] if field["name"] != "clipped"]
    if part is None or not all(field["noise_tail"] > 0 for field in fields):
        return False
    together = math.sqrt(max(honest, 0)) * part["sigma_of_a_site"]
    costs = [(part["mu_add"], part["sensitivity_add"])]
    costs += [(part["mu_replace"], part["sensitivity_replace"])]
    return bool(
        sums.get(stage["stage"], 0) <= part["releases"]
        and together >= part["sigma"] * (1 - _ROUNDING)
        and all(mu * part["sigma"] >= moved * (1 - _ROUNDING) for mu, moved in costs)
    )


def _sentence(guarantee: Facts, secret: bool, holds: bool) -> str:
    """Return what is claimed of one record, in one sentence."""
    if not guarantee:
        return "No differential privacy noise was added: the released sums themselves are exact."
    if not secret:
        return (
            "Privacy: void. No differential privacy is claimed: whoever knows the seed can draw "
            "the noise again and subtract it."
        )
    if not holds:
        return (
            "No differential privacy is claimed: noise was added, but epsilon and delta do not "
            "follow from the facts of this run."
        )
    return sentence(guarantee)


def seen(sees: Mapping[str, str], *, noised: bool) -> dict[str, str]:
    """Return what each role saw. A protocol knows of no noise, so what it says is put right."""
    if not noised:
        return dict(sees)
    exact = {
        "the total number of records": "the total number of records (with noise)",
        "in clear": "with its noise",
    }
    found = dict(sees)
    for words, put_right in exact.items():
        found = {role: text.replace(words, put_right) for role, text in found.items()}
    return found


def mu_of(part: Facts, adjacency: str) -> float:
    """Return what one release costs under an adjacency."""
    return float(part["mu_add" if adjacency == "add_remove" else "mu_replace"])


def changed(guarantee: Facts, adjacency: str) -> str:
    """Return what is hard to tell: one record added or removed, for instance."""
    return ADJACENCIES[adjacency].format(guarantee["unit"])


def all_others(guarantee: Facts) -> str:
    """Return all that an attacker may know and the guarantee still holds."""
    return "all other records" if guarantee["unit"] == "record" else "all other persons' records"


def distance(guarantee: Facts) -> float:
    """Return how far all releases are from Gaussian ones, in total variation."""
    return float(guarantee["delta_for_discreteness"] / (1 + math.exp(guarantee["epsilon"])))


def other_adjacency(guarantee: Facts) -> str:
    """Return epsilon at the delta of the guarantee under the other adjacency."""
    mu, delta = guarantee["mu_other_adjacency"], guarantee["delta"]
    return _epsilon(epsilon_at(mu, delta, distance(guarantee)))


def of_two(guarantee: Facts) -> str:
    """Return epsilon at the delta of the guarantee for two units that belong together.

    They move what was released twice as far and, of sites that noise alone, twice as many.
    """
    releases = 2 if guarantee["placement"] == "site" else 1
    off = releases * distance(guarantee)
    return _epsilon(epsilon_at(2 * guarantee["mu"], guarantee["delta"], off))


def _epsilon(epsilon: float) -> str:
    return "no ε" if math.isinf(epsilon) else f"ε {significant(epsilon)}"
