"""The state of a party in a session, and how one request changes it.

The tables in `secagg.sessions.party_transitions` define which requests a party answers, and what
remains of the state after a refusal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from secagg.contracts import Phase, ProtocolState, State
from secagg.errors import RecordsRefusal, SecaggError
from secagg.sessions.party_transitions import (
    READS_RECORDS,
    REFUSAL_EFFECTS,
    TRANSITIONS,
    Denial,
    RefusalEffect,
    RequestKind,
    Standing,
    Step,
)
from secagg.sessions.rounds import COHORT, CONSENT


@dataclass(frozen=True)
class PartyState:
    """What a party remembers between requests.

    round, handled: the latest round, and the phases of that round that the party has answered
    over: whether the party refuses every further request
    records: the total number of records that the coordinator announced
    contributed: for each stage, the number of rounds with a contribution
    consented: the method's stages to which the party consented
    cohort: the sites of the first release; later sums must cover the same sites
    protocol, method: the states of the protocol and the method
    requests: digest of the list of requests to which the party contributed
    answered: the messages to which the party contributed, if their weights are compared
    """

    round: int = -1
    handled: tuple[str, ...] = ()
    over: bool = False
    records: int | None = None
    contributed: Mapping[str, int] = field(default_factory=dict)
    consented: tuple[str, ...] = ()
    cohort: tuple[str, ...] | None = None
    protocol: ProtocolState = field(default_factory=dict, repr=False)  # may hold private keys
    method: State = field(default_factory=dict, repr=False)
    requests: bytes = b""
    answered: tuple[State, ...] = field(default=(), repr=False)

    def to_plain(self) -> State:
        """Return the state as plain data."""
        contributed, answered = dict(self.contributed), list(self.answered)
        return {**vars(self), "contributed": contributed, "answered": answered}

    @classmethod
    def from_plain(cls, plain: State) -> PartyState:
        """Return the state that `to_plain` converted."""
        cohort = plain["cohort"]
        return cls(**{
            **plain, "handled": tuple(plain["handled"]), "consented": tuple(plain["consented"]),
            "cohort": None if cohort is None else tuple(cohort),
            "answered": tuple(plain["answered"]),
        })  # fmt: skip

    def standing(self, stage: str, rounds: int) -> Standing:
        """Return the party's standing with a stage that has this many rounds."""
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
        """Return whether the round is over, or the phase already has its answer in this round."""
        again = round_ == self.round and phase.name in self.handled and phase is not CONSENT
        return round_ < self.round or again

    def answering(self, round_: int, phase: Phase) -> PartyState:
        """Return the state after an answer to this phase of this round."""
        earlier = self.handled if round_ == self.round else ()
        return replace(self, round=round_, handled=(*earlier, phase.name))

    def contributing(self, stage: str) -> PartyState:
        """Return the state after one more contribution to a stage."""
        done = self.contributed.get(stage, 0) + 1
        return replace(self, contributed={**self.contributed, stage: done})

    def with_records(self, records: int | None) -> PartyState:
        """Return the state with this total number of records; None changes nothing."""
        return self if records in (None, self.records) else replace(self, records=records)


class RefusedError(Exception):
    """The party refused a request with `error`; `state` is its state after the refusal.

    code: the only part of the error that the coordinator receives
    """

    def __init__(self, error: SecaggError, state: PartyState, code: str) -> None:
        super().__init__(error)
        self.error, self.state, self.code = error, state, code


@dataclass(frozen=True)
class Attempt:
    """One request that a party tries to answer.

    before: the state before the request; records: the total number in the request, if it has one
    """

    kind: RequestKind
    before: PartyState
    records: int | None = None

    def check_standing(self, me: str, coordinator: str, stage: str, rounds: int) -> None:
        """Raise the error that the transition table has for this request, if any."""
        verdict = TRANSITIONS[self.kind][self.before.standing(stage, rounds)]
        if isinstance(verdict, Denial):
            raise verdict.error(me, coordinator, stage, rounds)

    @contextmanager
    def step(self, step: Step) -> Iterator[None]:
        """Run one step; after a refusal, the state changes as `REFUSAL_EFFECTS` defines."""
        effect = REFUSAL_EFFECTS[self.kind][step]
        try:
            yield
        except SecaggError as error:
            code = RecordsRefusal.code if step in READS_RECORDS else error.code
            raise RefusedError(error, self._after_refusal(effect), code) from None

    def _after_refusal(self, effect: RefusalEffect) -> PartyState:
        match effect:
            case RefusalEffect.NOTHING:
                return self.before
            case RefusalEffect.RECORD_COUNT:
                return self.before.with_records(self.records)
            case RefusalEffect.OVER:
                return replace(self.before, over=True)
