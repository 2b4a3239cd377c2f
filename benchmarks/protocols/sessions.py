"""One whole session in one process: time, bytes sent and bytes received of each role in each phase.

Set-up, the cohort round, then sums of given numbers, by the real coordinator and parties
(`tests/support/protocols/world.py`), including frames, signatures and release rules.
Exactness is checked.

Parties that share a process also share what it remembers of valid signatures. A site that is timed
*alone* finds nothing remembered, as on a computer of its own.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import timed

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from support.protocols.world import SumNumbers, World

from secagg.contracts import SecureSum
from secagg.core import frames, identity
from secagg.core.frames import peek_header
from secagg.core.randomness import system_random
from secagg.protocols.masked import masks
from secagg.sessions.coordinator import Step
from secagg.sessions.party import Handled
from secagg.sessions.rounds import CONSENT

BOUND, FRACTION_BITS = 8.0, 20
SETUP, COHORT, SUM = "set-up", "cohort", "sum"
SHARING = ("consent", "advertise", "share")
"""The phases that a site answers before it falls silent."""
COORDINATOR = "coordinator"
ALONE = "site alone"
"""The role, in the ledger, of a site that is timed alone."""


def forget() -> None:
    """Empty what parties of one process remember of signatures together."""
    for cached in (frames._read_header_cached, identity._verify_cached, masks._read_once):
        cached.cache_clear()


class TimedRequests(Mapping[str, bytes]):
    """The requests of a step, which are written when they are read: the time and bytes of that."""

    def __init__(self, requests: Mapping[str, bytes]) -> None:
        self.requests, self.seconds, self.sent = requests, 0.0, 0

    def __getitem__(self, name: str) -> bytes:
        seconds, frame = timed(lambda: self.requests[name])
        self.seconds += seconds
        self.sent += len(frame)
        return frame

    def __iter__(self) -> Iterator[str]:
        return iter(self.requests)

    def __len__(self) -> int:
        return len(self.requests)


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
    each_round: bool = False
    """whether each sum after the count of records is a part of its own"""
    costs: dict[tuple[str, str, str], Cost] = field(default_factory=dict)
    names: dict[tuple[str, str, str], set[str]] = field(default_factory=dict)

    def key(self, frame: bytes, role: str) -> tuple[str, str, str]:
        round_, phase = peek_header(frame)
        part = SETUP if phase in self.setup else SUM if round_ else COHORT
        if part == SUM and self.each_round:
            part = f"{SUM} {round_}"
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

    def __init__(self, party: Any, ledger: Ledger, *, alone: bool = False) -> None:
        self.party, self.ledger, self.alone = party, ledger, alone

    def __getattr__(self, name: str) -> Any:
        return getattr(self.party, name)

    def handle(self, request: bytes, state: bytes) -> Handled:
        if self.alone:
            forget()
        began = time.process_time()
        handled: Handled = self.party.handle(request, state)
        seconds = time.process_time() - began
        who = self.party.identity
        key = self.ledger.key(request, ALONE if self.alone else who.role.value)
        self.ledger.add(key, who.name, seconds, len(handled.reply), len(request))
        return handled


def run_session(
    protocol: SecureSum,
    sites: int,
    values: int,
    rounds: int = 1,
    fraction_bits: int = FRACTION_BITS,
    lost: int = 0,
    alone: int = 0,
    each_round: bool = False,
) -> tuple[Ledger, int]:
    """Run a session; return its ledger and the increase of its memory peak in bytes.

    lost: how many sites fall silent once they have shared their secrets
    alone: how many of the other sites are timed alone; each_round: as for `Ledger`
    """
    rng = np.random.default_rng(1)
    numbers = {f"site_{i:05}": rng.normal(0, 1, values) for i in range(sites)}
    method = SumNumbers((values,), bound=BOUND, fraction_bits=fraction_bits, rounds=rounds)
    silent = set(list(numbers)[sites - lost :])

    def tamper(sender: str, recipient: str, frame: bytes) -> list[bytes]:
        dropped = sender in silent and peek_header(frame)[1] not in SHARING
        return [] if dropped else [frame]

    world = World(protocol, numbers, method, tamper=tamper, random=system_random)
    setup = frozenset(phase.name for phase in (CONSENT, *protocol.setup))
    ledger = Ledger(setup, each_round=each_round)
    parties = world.engine.parties.items()
    apart = set(list(numbers)[: sites - lost : -(-(sites - lost) // alone)] if alone else ())
    world.engine.parties = {n: TimedParty(party, ledger, alone=n in apart) for n, party in parties}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    key = (SETUP, "start", COORDINATOR)
    began, sent, received = time.process_time(), 0, 0
    step: Step = world.coordinator.start()
    while True:
        seconds = time.process_time() - began
        ledger.add(key, COORDINATOR, seconds, sent, received)
        if step.done:
            break
        replies: Sequence[bytes] = ()
        requests = TimedRequests(step.requests)
        if step.requests:
            key = ledger.key(next(iter(step.requests.values())), COORDINATOR)
            replies = world.engine.exchange(requests)
        else:  # a sum was recorded as released; decoding it comes next
            key = (key[0], "decode", COORDINATOR)
        sent, received = requests.sent, sum(map(len, replies))
        began = time.process_time() - requests.seconds
        step = world.coordinator.advance(step.state, replies)
        del replies
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    expected = sum(numbers[site] for site in step.state.cohort)
    for total in step.state.method["totals"]:
        half_steps = 0.51 * sites * 2.0**-fraction_bits  # of rounding to fixed point, and a little
        np.testing.assert_allclose(total, expected, rtol=0, atol=half_steps)
    return ledger, 1024 * peak  # Linux counts in KiB
