"""Masked sums, first and later ones of a session, their steps called one by one and timed.

Only the steps of `secagg.protocols.masked.protocol` are timed, on vectors of any length, without
frames of requests and replies and without release rules. This is comparable with the functions of
other libraries. `sessions.py` times whole sessions.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import timed
from secagg.contracts import Body, Context, Field, Kind, PhaseRequest, State, Total
from secagg.core import canonical_encoding as wire_encoding
from secagg.core.identity import Identity, Role, Roster
from secagg.core.randomness import system_random
from secagg.protocols.masked.graph import GraphPlan
from secagg.protocols.masked.protocol import Masked
from secagg.sessions.fixed_point import decode, encode
from secagg.sessions.sum_plan import SumPlan, plan_sum

Values = NDArray[np.float64]
COORDINATOR = "coordinator"
SHARING = ("advertise", "share")
BOUND, FRACTION_BITS = 8.0, 18  # Flower's defaults: clipped at 8, 2^22 steps in [-8, 8]


@dataclass(frozen=True)
class MaskedAt(Masked):
    """Masked sums on a graph of a degree that the benchmark chooses, to be like the peer's."""

    degree: int = 2
    threshold: int = 2
    least: int = 2

    def plan(self, context: Context) -> GraphPlan:
        sites = len(context.roster.with_role(Role.SITE))
        return GraphPlan(sites, self.degree, self.threshold, self.least, -1.0)


@dataclass
class MaskedSums:
    """All parties of a session, and the seconds their steps took: one entry a party a step."""

    protocol: Masked
    sites: int
    values: Values
    fraction_bits: int = FRACTION_BITS
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    sent: dict[str, int] = field(default_factory=dict)
    """bytes that a site sends in a phase"""
    round: int = 0
    state: State = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [f"site_{i:03}" for i in range(self.sites)]
        roles = [(COORDINATOR, Role.COORDINATOR), *((name, Role.SITE) for name in names)]
        identities = {name: Identity.generate(name, role, system_random) for name, role in roles}
        roster = Roster({name: identity.public for name, identity in identities.items()})
        session = roster.session(system_random(16), b"benchmark")
        spec = (Field("x", self.values.shape, BOUND, self.fraction_bits, Kind.BOUNDED),)
        self.plan: SumPlan = plan_sum(spec, self.sites, self.protocol.capabilities.ring_bits)
        self.cohort = names
        self.contexts = {
            name: Context(
                session, 0, identity, roster, self.plan.shape, system_random, b"request"
            )
            for name, identity in identities.items()
        }  # fmt: skip
        self.states: dict[str, State] = {name: {} for name in names}

    def run(self, lost: int = 0) -> None:
        """Run one sum to its end: the session's first, then later ones.

        The last `lost` sites fall silent once they have shared their secrets. The sum is checked.
        """
        cohort = self.cohort
        silent = set(cohort[len(cohort) - lost :])
        self.state, outcome = self.server("sum", {name: {} for name in cohort})
        while isinstance(outcome, PhaseRequest):
            phase = outcome.phase
            answering = [n for n in outcome.bodies if phase in SHARING or n not in silent]
            common = {"cohort": cohort, "contributors": list(outcome.contributors)}
            replies = {n: self.client(phase, n, {**outcome.bodies[n], **common}) for n in answering}
            self.state, outcome = self.server(phase, replies)
        assert isinstance(outcome, Total)
        total = outcome.values
        fields, _ = self.clock("server: decode", lambda: decode(self.plan, total))
        step = 2.0**-self.fraction_bits
        expected = np.rint(self.values / step) * len(outcome.contributors) * step
        np.testing.assert_array_equal(fields["x"], expected)
        self.cohort = sorted(outcome.contributors)
        self.round += 1

    def client(self, phase: str, name: str, body: Body) -> Body:
        """Run one site's step; encoding and writing the message are clocked by themselves."""
        contribution = None
        if phase == "mask":
            encoding = functools.partial(encode, self.plan, {"x": self.values})
            contribution = self.clock("site: encode", encoding)
        context = dataclasses.replace(self.contexts[name], round=self.round)
        before = self.states[name]
        step = functools.partial(self.protocol.client, phase, before, body, context, contribution)
        self.states[name], reply = self.clock(f"site: {phase}", step)
        message = self.clock(f"site: write {phase}", functools.partial(wire_encoding.dumps, reply))
        self.sent[phase] = len(message)
        return reply

    def server(self, phase: str, replies: dict[str, Body]) -> tuple[State, Any]:
        context = dataclasses.replace(self.contexts[COORDINATOR], round=self.round)
        step = functools.partial(self.protocol.server, phase, self.state, replies, context)
        return self.clock(f"server: {phase}", step)

    def clock(self, name: str, action: Callable[[], Any]) -> Any:
        taken, result = timed(action)
        self.seconds[name if self.round == 0 else f"later {name}"].append(taken)
        return result

    def each(self, *names: str) -> float:
        """Return the seconds of one party in these steps: medians over the parties, added."""
        return sum(statistics.median(self.seconds[name]) for name in names)
