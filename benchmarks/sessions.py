"""One whole session in one process: time, bytes sent and bytes received of each role in each phase.

Set-up, the cohort round, then sums of given numbers, by the real coordinator and parties
(`tests/support/world.py`), including frames, signatures and release rules. Exactness is checked.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.world import SumNumbers, World

from secagg.contracts import SecureSum
from secagg.core.frames import peek_header
from secagg.core.randomness import system_random
from secagg.runtime.coordinator import Step
from secagg.runtime.party import Handled
from secagg.runtime.rounds import CONSENT

BOUND, FRACTION_BITS = 8.0, 20
SETUP, COHORT, SUM = "set-up", "cohort", "sum"
COORDINATOR = "coordinator"


@dataclass(frozen=True)
class Cost:
    """What one role did in one phase: sums over its parties, and over the rounds."""

    part: str
    phase: str
    role: str
    parties: int = 0
    seconds: float = 0.0
    sent: int = 0
    received: int = 0


@dataclass
class Ledger:
    """The costs of a session, in the order in which phases first came."""

    setup: frozenset[str]
    """names of the phases that are no part of a sum: consent, and the protocol's set-up"""
    costs: dict[tuple[str, str, str], Cost] = field(default_factory=dict)
    names: dict[tuple[str, str, str], set[str]] = field(default_factory=dict)

    def key(self, frame: bytes, role: str) -> tuple[str, str, str]:
        round_, phase = peek_header(frame)
        part = SETUP if phase in self.setup else SUM if round_ else COHORT
        return part, phase, role

    def add(
        self, key: tuple[str, str, str], name: str, seconds: float, sent: int, received: int
    ) -> None:
        self.names.setdefault(key, set()).add(name)
        before = self.costs.get(key, Cost(*key))
        self.costs[key] = replace(
            before,
            parties=len(self.names[key]),
            seconds=before.seconds + seconds,
            sent=before.sent + sent,
            received=before.received + received,
        )

    def seconds(self, *parts: str) -> float:
        """Return the seconds of all roles in these parts of the session."""
        return sum(cost.seconds for cost in self.costs.values() if cost.part in parts)


class TimedParty:
    """A party that records the cost of its steps in the ledger."""

    def __init__(self, party: Any, ledger: Ledger) -> None:
        self.party, self.ledger = party, ledger

    def __getattr__(self, name: str) -> Any:
        return getattr(self.party, name)

    def handle(self, request: bytes, state: bytes) -> Handled:
        began = time.process_time()
        handled: Handled = self.party.handle(request, state)
        seconds = time.process_time() - began
        who = self.party.identity
        key = self.ledger.key(request, who.role.value)
        self.ledger.add(key, who.name, seconds, len(handled.reply), len(request))
        return handled


def run_session(
    protocol: SecureSum,
    sites: int,
    values: int,
    rounds: int = 1,
    fraction_bits: int = FRACTION_BITS,
) -> tuple[Ledger, int]:
    """Run a session; return its ledger and the increase of its memory peak in bytes."""
    rng = np.random.default_rng(1)
    numbers = {f"site_{i:03}": rng.normal(0, 1, values) for i in range(sites)}
    method = SumNumbers((values,), bound=BOUND, fraction_bits=fraction_bits, rounds=rounds)
    world = World(protocol, numbers, method, random=system_random)
    ledger = Ledger(frozenset(phase.name for phase in (CONSENT, *protocol.setup)))
    parties = world.engine.parties.items()
    world.engine.parties = {name: TimedParty(party, ledger) for name, party in parties}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    key = (SETUP, "start", COORDINATOR)
    began, sent, received = time.process_time(), 0, 0
    step: Step = world.coordinator.start()
    while True:
        seconds = time.process_time() - began
        ledger.add(key, COORDINATOR, seconds, sent, received)
        if step.done:
            break
        frames: Sequence[bytes] = ()
        if step.requests:
            key = ledger.key(next(iter(step.requests.values())), COORDINATOR)
            frames = world.engine.exchange(step.requests)
        else:  # a sum was recorded as released; decoding it comes next
            key = (key[0], "decode", COORDINATOR)
        sent, received = sum(map(len, step.requests.values())), sum(map(len, frames))
        began = time.process_time()
        step = world.coordinator.advance(step.state, frames)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    for total in step.state.method["totals"]:
        half_steps = 0.51 * sites * 2.0**-fraction_bits  # of rounding to fixed point, and a little
        np.testing.assert_allclose(total, sum(numbers.values()), rtol=0, atol=half_steps)
    return ledger, 1024 * peak  # Linux counts in KiB
