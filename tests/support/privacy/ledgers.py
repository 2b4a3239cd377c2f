"""Releases of a known cost, and a clock that is set by hand, for tests of the ledger."""

import math
from dataclasses import replace
from datetime import UTC, datetime

from secagg.contracts.noise import Adjacency, Placement
from secagg.core.randomness import system_random
from secagg.privacy.accounting.composition import Cap, Cost
from secagg.privacy.accounting.events import Gaussian
from secagg.privacy.accounting.gaussian_dp import gaussian_mu
from secagg.privacy.ledger.ledger import Ledger
from secagg.privacy.ledger.records import Release

CAP = Cap(1.0, 1e-6, None, Adjacency.REPLACE)
START = datetime(2026, 1, 1, tzinfo=UTC)


def now() -> datetime:
    return datetime.now(UTC)


def part(of: int) -> Release:
    """Return a release of which exactly so many fit under CAP."""
    mu = gaussian_mu(CAP.epsilon, CAP.delta) / math.sqrt(of)
    return Release(
        "north", "heart", "5e55", 0, "moments", "d16e57", Placement.SUM,
        Cost(Gaussian(mu / math.sqrt(2)), Gaussian(mu)), CAP.delta, ("east", "north", "west"),
        variance=10**12, fraction_bits=32,
    )  # fmt: skip


def numbered(number: int, of: int) -> Release:
    return replace(part(of), round=number)


class Clock:
    """Time that stands still until it is set."""

    def __init__(self) -> None:
        self.time = START

    def __call__(self) -> datetime:
        return self.time


def seed_of(ledger: Ledger, release: Release, *caps: Cap) -> bytes:
    return ledger.record_release(release, caps, random=system_random).seed
