"""The warnings of a plan or a run about privacy, disclosure and rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from secagg.evidence.claims.claim import Banner
from secagg.evidence.claims.disclosure import determined, disclosure_kind, headline
from secagg.evidence.claims.ledgers import LedgerClaims
from secagg.evidence.claims.privacy import (
    NO_CLAIM,
    VOID,
    PrivacyClaims,
    nothing_hidden,
)
from secagg.evidence.numbers import counted, listing

Facts = Mapping[str, Any]
EXACT_BEFORE = "Exact sums of these sites were released before"
EXACT_STAYS = "An exact sum has no finite epsilon, and noise in later sums cannot undo this"


def warnings(facts: Facts, claims: PrivacyClaims) -> list[Banner]:
    """Return what a reader of the run must know first."""
    found = list[Banner]()
    noised = claims.noised
    if not facts["protocol"]["hides_from_coordinator"]:
        found.append(_nothing_hidden(facts, claims))
    if claims.void:
        found.append(Banner(f"{VOID} Replayable randomness", claims.void, void=True))
    elif noised and not claims.holds:
        found.append(Banner("The claim of differential privacy does not hold", NO_CLAIM))
    if noised and (before := exact_before(claims.ledger)):
        text = f"{before} Against anybody who has both, the epsilon of this run bounds nothing."
        found.append(Banner(EXACT_BEFORE, text))
    if title := headline(disclosure_kind(facts), noised=noised):
        text = determined(facts["method"]["disclosure"]["text"], noised=noised)
        found.append(Banner(title, text))
    if min(claims.thresholds) == 2:
        noise = ", with that site's noise" if noised else ""
        text = (
            "A site signed that two sites are enough. In a sum over two sites, each site can "
            f"subtract its own contribution and read the other's{noise}."
        )
        found.append(Banner("A sum over two sites does not protect a site from the other", text))
    return found


def _nothing_hidden(facts: Facts, claims: PrivacyClaims) -> Banner:
    name = facts["protocol"]["name"]
    read = nothing_hidden(claims)
    if claims.noised and not claims.void:
        text = f"{read} Only that noise protects its records, and not protocol “{name}”."
        return Banner("Only noise protects: the coordinator saw each site's contribution", text)
    text = f"{read} Protocol “{name}” protects nothing. Its purpose is to check the others."
    return Banner("This run protects nothing", text, void=True)


def exact_before(ledger: LedgerClaims) -> str:
    """Return which ledgers contain earlier exact sums; "" if none does."""
    if ledger.exact:
        releases = counted(ledger.exact, "exact release")
        return f"The coordinator's ledger contains {releases} of sums over these sites."
    if ledger.exact_at:
        return f"The ledgers of {listing(ledger.exact_at)} contain exact sums."
    return ""
