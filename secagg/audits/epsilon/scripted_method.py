"""A method whose coordinator sends given messages and looks at no sum."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from secagg.contracts import (
    ANY_MESSAGE,
    Body,
    Disclosure,
    DisclosureKind,
    Method,
    MethodFacts,
    PublicFacts,
    RecordCount,
    Result,
    ResultTable,
    SiteRecords,
    Stage,
    State,
    Update,
)
from secagg.contracts.noise import Placements
from secagg.core import canonical_encoding
from secagg.core.randomness import RandomBytes


@dataclass(frozen=True)
class ScriptedMethod:
    """A method whose sites answer as those of `method`.

    script: stages and messages of all rounds after the count; messages are in hexadecimal, because
        a session's name depends on a method's fields
    """

    method: Method
    script: tuple[tuple[str, str], ...]

    name: ClassVar[str] = "scripted"
    placements: ClassVar[Placements] = Placements((), "")
    title: ClassVar[str] = "Many runs at once"
    disclosure: ClassVar[Disclosure] = Disclosure(DisclosureKind.POOLED, "all sums", ANY_MESSAGE)

    @property
    def facts(self) -> MethodFacts:
        return replace(self.method.facts, site_result=None, contribute_batched=None)

    def tables(self, public: PublicFacts) -> tuple[ResultTable, ...]:
        return (ResultTable(self.title),)

    def stages(self, public: PublicFacts) -> tuple[Stage, ...]:
        return self.method.stages(public)

    def initial_state(self, public: PublicFacts) -> State:
        return {"rounds": 0}

    def next_request(self, state: State) -> tuple[str, Body] | None:
        done: int = state["rounds"]
        if done == len(self.script):
            return None
        stage, message = self.script[done]
        return stage, canonical_encoding.loads(bytes.fromhex(message))

    def contribute(
        self,
        stage: str,
        rows: SiteRecords,
        message: Body,
        memory: State,
        public: PublicFacts,
        random: RandomBytes,
    ) -> tuple[Update, State]:
        return self.method.contribute(stage, rows, message, memory, public, random)

    def aggregate(self, state: State, total: Update, sites: int) -> State:
        return {"rounds": state["rounds"] + 1}

    def result(self, state: State, public: PublicFacts, counted: RecordCount) -> Result:
        return Result({})
