"""What a party remembers of a session, and what one request does to it.

Which requests it answers, and what a refusal leaves behind, is in the tables of
`secagg.runtime.party_transitions`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from secagg.contracts import Phase, State
from secagg.errors import SecaggError
from secagg.runtime.party_transitions import (
    REFUSAL_LEAVES,
    TRANSITIONS,
    Denial,
    Leaves,
    Request,
    Standing,
    Step,
)
from secagg.runtime.rounds import COHORT, CONSENT


@dataclass(frozen=True)
class PartyState:
    """What a party remembers between requests.

    round, handled: the latest round, and its phases that have had an answer
    over: whether it refuses whatever is asked from now on
    records: the number of records in all that it was told
    contributed: for each stage, in how many rounds
    consented: the method's stages to which it consented
    cohort: the sites of the first release, which stay the same from then on
    protocol, method: what these remember
    """

    round: int = -1
    handled: tuple[str, ...] = ()
    over: bool = False
    records: int | None = None
    contributed: Mapping[str, int] = field(default_factory=dict)
    consented: tuple[str, ...] = ()
    cohort: tuple[str, ...] | None = None
    protocol: State = field(default_factory=dict, repr=False)  # may hold private keys
    method: State = field(default_factory=dict, repr=False)

    def to_plain(self) -> State:
        """Return the state as plain data."""
        return {**vars(self), "contributed": dict(self.contributed)}

    @classmethod
    def from_plain(cls, plain: State) -> PartyState:
        """Return the state that `to_plain` gave."""
        cohort = plain["cohort"]
        return cls(**{
            **plain, "handled": tuple(plain["handled"]), "consented": tuple(plain["consented"]),
            "cohort": None if cohort is None else tuple(cohort),
        })  # fmt: skip

    def standing(self, stage: str, rounds: int) -> Standing:
        """Return where the party stands with a stage of so many rounds."""
        done = self.contributed.get(stage, 0)
        if self.over:
            return Standing.OVER
        if done >= rounds:
            return Standing.COMPLETE
        if done:
            return Standing.CONTRIBUTED
        if stage in self.consented:
            return Standing.CONSENTED
        counted = stage == COHORT or COHORT in self.contributed
        return Standing.NEW if counted else Standing.UNCOUNTED

    def has_answered(self, round_: int, phase: Phase) -> bool:
        """Return whether a request for this phase comes too late: it is old, or a repetition."""
        again = round_ == self.round and phase.name in self.handled and phase is not CONSENT
        return round_ < self.round or again

    def answering(self, round_: int, phase: Phase) -> PartyState:
        """Return the state in which this phase of this round has been answered."""
        earlier = self.handled if round_ == self.round else ()
        return replace(self, round=round_, handled=(*earlier, phase.name))

    def contributing(self, stage: str) -> PartyState:
        """Return the state with one more contribution to a stage."""
        done = self.contributed.get(stage, 0) + 1
        return replace(self, contributed={**self.contributed, stage: done})

    def told(self, records: int | None) -> PartyState:
        """Return the state in which the party was told this number of records in all, if any."""
        return self if records is None else replace(self, records=records)


class RefusedError(Exception):
    """A request was refused for the reason given; `left` is the state that remains."""

    def __init__(self, why: SecaggError, left: PartyState) -> None:
        super().__init__(why)
        self.why, self.left = why, left


@dataclass(frozen=True)
class Attempt:
    """One request that a party tries to answer.

    before: its state until then; told: the number of records in all, if the request names one
    """

    request: Request
    before: PartyState
    told: int | None = None

    def check_standing(self, me: str, coordinator: str, stage: str, rounds: int) -> None:
        """Raise the error of the transition table, if it has one for this request."""
        verdict = TRANSITIONS[self.request][self.before.standing(stage, rounds)]
        if isinstance(verdict, Denial):
            raise verdict.error(me, coordinator, stage, rounds)

    @contextmanager
    def step(self, step: Step) -> Iterator[None]:
        """Take one step; a refusal in it leaves what `REFUSAL_LEAVES` says."""
        leaves = REFUSAL_LEAVES[self.request][step]
        try:
            yield
        except SecaggError as error:
            raise RefusedError(error, self._left(leaves)) from None

    def _left(self, leaves: Leaves) -> PartyState:
        match leaves:
            case Leaves.NOTHING:
                return self.before
            case Leaves.RECORD_COUNT:
                return self.before.told(self.told)
            case Leaves.OVER:
                return replace(self.before, over=True)
