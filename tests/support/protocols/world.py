"""A small session in which every site contributes given numbers, for tests of protocols."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from support.protocols.integers import quantised

from secagg.contracts import (
    ASKED_ONCE,
    NO_WINDOWS,
    Disclosure,
    DisclosureKind,
    EqualWeights,
    Field,
    Kind,
    MethodFacts,
    PublicFacts,
    Result,
    ResultTable,
    SecureSum,
    SingleRecords,
    SiteRecords,
    Stage,
    Variable,
)
from secagg.core import canonical_encoding
from secagg.core.frames import peek_header
from secagg.core.identity import Identity, Role, Roster
from secagg.core.randomness import RandomBytes, replayable_random
from secagg.privacy.policy.named_sites import NamedSites
from secagg.privacy.policy.release_rules import ReleasePolicy
from secagg.sessions.coordinator import Coordinator, Step
from secagg.sessions.coordinator_state import CoordinatorState
from secagg.sessions.engines.memory import MemoryEngine, Tamper
from secagg.sessions.party import Party, SiteContext
from secagg.sessions.rounds import plan_stages

STAGE = "numbers"


@dataclass(frozen=True)
class SumNumbers:
    """A method that sums one array `x` in each of `rounds` rounds."""

    shape: tuple[int, ...]
    bound: float = 1000.0
    fraction_bits: int = 20
    rounds: int = 1

    name: ClassVar[str] = "numbers"
    title: ClassVar[str] = "Sums of numbers"
    disclosure: ClassVar[Disclosure] = Disclosure(DisclosureKind.POOLED, "the sum", ASKED_ONCE)
    facts: ClassVar[MethodFacts] = MethodFacts(
        derivation=__name__,
        weights=EqualWeights("All numbers have the weight 1."),
        reads=SingleRecords(reason="sums single numbers", repeatable=True),
        windows=NO_WINDOWS, named_code=(), network=False, regression=None, edge_rule=None,
    )  # fmt: skip

    def tables(self, public: PublicFacts) -> tuple[ResultTable, ...]:
        return (ResultTable(self.title),)

    def stages(self, public: PublicFacts) -> tuple[Stage, ...]:
        spec = (Field("x", self.shape, self.bound, self.fraction_bits, Kind.BOUNDED),)
        return (Stage(STAGE, spec, self.rounds, "the sum"),)

    def initial_state(self, public: PublicFacts) -> dict[str, Any]:
        return {"totals": []}

    def next_request(self, state: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
        return None if len(state["totals"]) == self.rounds else (STAGE, {})

    def contribute(self, stage, rows, message, memory, public, random):
        return {
            "x": rows.values.reshape(-1)[: int(np.prod(self.shape))].reshape(self.shape)
        }, memory

    def aggregate(self, state, total, sites):
        return {"totals": [*state["totals"], total["x"]]}

    def result(self, state, public, counted):
        return Result({}, {"x": state["totals"][-1]})


@dataclass
class World:
    """One session over `numbers` (site -> array), run to its end by `sum`."""

    protocol: SecureSum
    numbers: Mapping[str, NDArray[np.float64]]
    method: SumNumbers
    min_sites: int = 2
    tamper: Tamper | None = None
    random: RandomBytes = field(default_factory=lambda: replayable_random(7))
    policies: Mapping[str, ReleasePolicy] | None = None
    named: NamedSites | None = None

    def __post_init__(self) -> None:
        sites = tuple(sorted(self.numbers))
        self.public = PublicFacts((Variable("x", "x", 0.0, 1.0),), ("x",), 1 << 20, sites)
        self.plans = plan_stages(self.method, self.public, self.protocol.capabilities.ring_bits)
        roles = [("coordinator", Role.COORDINATOR), *((s, Role.SITE) for s in sites)]
        roles += self.protocol.parties()
        self.identities = {n: Identity.generate(n, role, self.random) for n, role in roles}
        self.roster = Roster({n: i.public for n, i in self.identities.items()})
        self.session = self.roster.session(self.random(16), b"job")
        self.shared = ReleasePolicy(self.min_sites, 1, min_level_sites=1)
        parties = {name: self.party(name) for name, role in roles if role is not Role.COORDINATOR}
        self.coordinator = Coordinator(
            self.identities["coordinator"], self.roster, self.session, self.protocol, self.method,
            self.public, self.plans, self.shared, self.random, named=self.named,
        )  # fmt: skip
        self.engine = MemoryEngine("coordinator", parties, self.tamper)

    def party(self, name: str) -> Party:
        site = None
        if name in self.numbers:
            values = np.asarray(self.numbers[name], dtype=np.float64).reshape(-1, 1)
            rows = SiteRecords(values, 0, np.zeros(1))
            site = SiteContext(self.method, self.public, lambda: rows)
        policy = (self.policies or {}).get(name, self.shared)
        return Party(
            self.identities[name], self.roster, self.session, self.protocol, self.plans, policy,
            self.random, site, self.named,
        )  # fmt: skip

    def sum(self) -> tuple[NDArray[np.float64], list[str]]:
        """Run to the end; return the decoded sum and its sites."""
        step = self.coordinator.start()
        while not step.done:
            frames = self.engine.exchange(step.requests)
            step = self.coordinator.advance(reopened(step.state), frames)
        return step.state.method["totals"][-1], list(step.state.cohort)

    def expected(self, sites: list[str]) -> NDArray[np.float64]:
        """Return the exact fixed-point sum over `sites`, by Python integers."""
        plan = self.plans.of(STAGE)
        size = int(np.prod(self.method.shape))
        columns = [quantised(plan, {"x": self._shaped(s)})[:size] for s in sites]
        totals = [sum(values) for values in zip(*columns, strict=True)]
        scale = 2**self.method.fraction_bits
        return np.array([t / scale for t in totals]).reshape(self.method.shape)

    def _shaped(self, site: str) -> NDArray[np.float64]:
        return np.asarray(self.numbers[site], dtype=np.float64).reshape(self.method.shape)


def reopened(state: CoordinatorState) -> CoordinatorState:
    """Return the state after a stop and a resume, which are possible after any step."""
    return CoordinatorState.from_plain(
        canonical_encoding.loads(canonical_encoding.dumps(state.to_plain()))
    )


def run_until(world: World, phase: str, round_: int = 0) -> Step:
    """Run a world until the coordinator is about to send the requests of this phase and round."""
    step = world.coordinator.start()
    while not step.done:
        frames = list(step.requests.values())
        if frames and peek_header(frames[0]) == (round_, phase):
            return step
        step = world.coordinator.advance(step.state, world.engine.exchange(step.requests))
    raise AssertionError(f"no requests for {phase} in round {round_}")


def events(steps: Sequence[Step], kind: str) -> list[dict[str, Any]]:
    """Return the events of this kind that the steps would have logged."""
    return [event for step in steps for event in step.events if event["event"] == kind]
