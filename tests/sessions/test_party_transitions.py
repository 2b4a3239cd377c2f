"""The tables of a party: documented, complete, and the same as the behaviour of parties."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any, cast

import numpy as np
import pytest
from support.protocols.world import STAGE, SumNumbers, World

from secagg.contracts import SecureSum
from secagg.core import canonical_encoding
from secagg.core.frames import read_frame, write_frame
from secagg.errors import DataError, PolicyRefusal
from secagg.protocols.additive import Additive
from secagg.protocols.masked.protocol import Masked
from secagg.protocols.plain import Plain
from secagg.sessions import party_transitions
from secagg.sessions.party import Party
from secagg.sessions.party_state import PartyState
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

SITES = ("a", "b", "c", "d")
NUMBERS = {site: np.array([float(i), -0.5]) for i, site in enumerate(SITES)}
ROUNDS = 2
MEMORY: Mapping[RequestKind, frozenset[str]] = {
    RequestKind.CONSENT_TO_COUNT: frozenset(),
    RequestKind.COUNT: frozenset({"contributed", "requests", "protocol"}),
    RequestKind.CONSENT_TO_STAGE: frozenset({"records", "consented"}),
    RequestKind.CONTRIBUTE: frozenset(
        {"records", "cohort", "contributed", "requests", "method", "protocol"}
    ),
    RequestKind.OPEN: frozenset({"cohort", "protocol"}),
    RequestKind.OTHER: frozenset({"protocol"}),
}
"""The fields of `PartyState` that an answer may change, apart from `round` and `handled`."""
COUNTS = (RequestKind.CONSENT_TO_COUNT, RequestKind.COUNT)


def grid(head: type[Enum], table: Mapping[RequestKind, Mapping[Any, Enum]]) -> str:
    """Return a table as in the module's docstring."""
    rows = [["request", *(column.value for column in head)]]
    for request, row in table.items():
        rows.append([request.value, *(row[c].value if c in row else "." for c in head)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    rule = "  ".join("=" * width for width in widths)
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join([rule, lines[0], rule, *lines[1:], rule])


def test_the_transition_tables_are_documented_and_complete() -> None:
    docstring = str(party_transitions.__doc__)
    assert grid(Standing, TRANSITIONS) in docstring, grid(Standing, TRANSITIONS)
    assert grid(Step, REFUSAL_EFFECTS) in docstring, grid(Step, REFUSAL_EFFECTS)
    assert set(TRANSITIONS) == set(REFUSAL_EFFECTS) == set(MEMORY) == set(RequestKind)
    impossible = {(r, s) for r in COUNTS for s in (Standing.UNCOUNTED, Standing.CONSENTED)}
    there = {(request, standing) for request, row in TRANSITIONS.items() for standing in row}
    assert there == {(r, s) for r in RequestKind for s in Standing} - impossible
    assert {row[Standing.OVER] for row in TRANSITIONS.values()} == {Denial.SESSION_OVER}
    names = {field.name for field in fields(PartyState)}
    assert all(remembered < names for remembered in MEMORY.values())


def test_only_refusals_after_the_method_ran_end_a_session() -> None:
    """And what depends on records and on a number that the coordinator chose is remembered."""
    ends = {
        (r, s) for r, row in REFUSAL_EFFECTS.items() for s in row if row[s] is RefusalEffect.OVER
    }
    assert ends == {(RequestKind.CONTRIBUTE, s) for s in (Step.METHOD, Step.LEDGER, Step.PROTOCOL)}
    counted = {
        (r, s)
        for r, row in REFUSAL_EFFECTS.items()
        for s in row
        if row[s] is RefusalEffect.RECORD_COUNT
    }
    assert counted == {
        (r, Step.RECORDS) for r in (RequestKind.CONSENT_TO_STAGE, RequestKind.CONTRIBUTE)
    }  # fmt: skip


# --- what parties do -----------------------------------------------------------------------------


def world(protocol: SecureSum, **options: Any) -> World:
    return World(protocol, NUMBERS, SumNumbers((2,), rounds=ROUNDS), **options)


@dataclass(frozen=True)
class Transition:
    """A request to a party in an honest run, and its state before and after."""

    request: RequestKind
    stage: str
    before: PartyState
    after: PartyState

    def standings(self) -> list[Standing]:
        rounds = 1 if self.stage == COHORT else ROUNDS
        return [state.standing(self.stage, rounds) for state in (self.before, self.after)]


def honest_run(w: World) -> Iterator[Transition]:
    phases = {p.name: p for p in (CONSENT, *w.protocol.setup, *w.protocol.phases)}
    step = w.coordinator.start()
    while not step.done:
        before = {n: w.engine.states.get(n) or w.engine.parties[n].first_state()
                  for n in step.requests}  # fmt: skip
        frames = w.engine.exchange(step.requests)
        for name, data in step.requests.items():
            frame = read_frame(data, w.roster, name, w.session)
            stage = frame.body.get("stage")
            plain = [
                canonical_encoding.loads(each) for each in (before[name], w.engine.states[name])
            ]
            states = [PartyState.from_plain(each) for each in plain]
            assert [canonical_encoding.dumps(state.to_plain()) for state in states] == [
                before[name], w.engine.states[name],
            ]  # fmt: skip
            request = RequestKind.of(phases[frame.header.phase], stage)
            yield Transition(request, str(stage), *states)
        step = w.coordinator.advance(step.state, frames)


def reaches(verdict: Standing | Denial, after: Standing) -> bool:
    done = (Standing.CONTRIBUTED, Standing.COMPLETE)
    return after is verdict or (verdict in done and after in done)


@pytest.mark.parametrize("protocol", [Plain(), Additive(2), Masked()], ids=lambda p: p.name)
def test_an_honest_run_follows_the_transition_table(protocol: SecureSum) -> None:
    seen = set()
    for one in honest_run(world(protocol)):
        before, after = one.standings()
        assert reaches(TRANSITIONS[one.request][before], after), (one.request, before)
        changed = {
            f.name for f in fields(PartyState)
            if canonical_encoding.dumps(getattr(one.before, f.name))
            != canonical_encoding.dumps(getattr(one.after, f.name))
        }  # fmt: skip
        assert changed - {"round", "handled"} <= MEMORY[one.request], one.request
        assert one.after.handled[-1:] and not one.after.over
        seen.add(one.request)
    everything = set(RequestKind) - (
        {RequestKind.OPEN, RequestKind.OTHER} if protocol.name == "plain" else set()
    )
    assert seen == everything


def prepared(standing: Standing) -> PartyState:
    """Return a site's state with this standing in the method's stage."""
    counted = {COHORT: 1}
    match standing:
        case Standing.UNCOUNTED:
            return PartyState()
        case Standing.NEW:
            return PartyState(contributed=counted)
        case Standing.CONSENTED:
            return PartyState(contributed=counted, consented=(STAGE,))
        case Standing.CONTRIBUTED:
            return PartyState(contributed={**counted, STAGE: 1})
        case Standing.COMPLETE:
            return PartyState(contributed={**counted, STAGE: ROUNDS})
        case Standing.OVER:
            return PartyState(contributed=counted, over=True)


def ask(w: World, party: Party, request: RequestKind, state: PartyState) -> tuple[Any, PartyState]:
    """Return the error, if any, and the state after a valid request."""
    counting = request in COUNTS
    consent = request in (RequestKind.CONSENT_TO_COUNT, RequestKind.CONSENT_TO_STAGE)
    body = {"stage": COHORT if counting else STAGE, "cohort": list(SITES),
            "records": None if counting else 9, "message": {}}  # fmt: skip
    phase = "consent" if consent else "submit"
    frame = write_frame(w.identities["coordinator"], w.session, 5, phase, "a", body)
    handled = party.handle(frame, canonical_encoding.dumps(state.to_plain()))
    return handled.error, PartyState.from_plain(canonical_encoding.loads(handled.state))


SITE_REQUESTS = (*COUNTS, RequestKind.CONSENT_TO_STAGE, RequestKind.CONTRIBUTE)


@pytest.mark.parametrize(
    ("request_", "standing"),
    [
        (r, s) for r in SITE_REQUESTS for s in TRANSITIONS[r]
        if r not in COUNTS or s is not Standing.CONTRIBUTED  # a count has one round: then COMPLETE
    ],
    ids=lambda each: each.value,
)  # fmt: skip
def test_sites_behave_as_each_entry_of_the_table_states(
    request_: RequestKind, standing: Standing
) -> None:
    w = world(Plain())
    counting = request_ in COUNTS
    stage, rounds = (COHORT, 1) if counting else (STAGE, ROUNDS)
    before = prepared(standing)
    if counting and standing is Standing.NEW:
        before = PartyState()
    if counting and standing is Standing.COMPLETE:
        before = prepared(Standing.NEW)
    assert before.standing(stage, rounds) is standing
    error, after = ask(w, w.engine.parties["a"], request_, before)
    verdict = TRANSITIONS[request_][standing]
    if isinstance(verdict, Denial):
        expected = verdict.error("a", "coordinator", stage, rounds)
        assert (type(error), str(error)) == (type(expected), str(expected)) and after == before
    else:
        assert error is None and reaches(verdict, after.standing(stage, rounds))


@dataclass
class Refusing:
    """A guard that refuses at one step."""

    at: Step
    calibrated: None = None

    def _maybe(self, step: Step) -> None:
        if step is self.at:
            raise PolicyRefusal("a", f"refused at {step.value}")

    def admit(self, request: Any) -> None:
        self._maybe(Step.FACTS)

    def check(self, request: Any, rows: Any, public: Any) -> None:
        self._maybe(Step.RECORDS)

    def refused(self, request: Any, error: Any) -> None:
        assert self.at in READS_RECORDS or self.at is Step.METHOD

    def check_budget(self, answers: Any, load: Any) -> None:
        self._maybe(Step.BUDGET)

    def count_numbers(self, request: Any, spec: Any, message: Any) -> None:
        pass

    def record_release(self, answer: Any, random: Any) -> bytes:
        self._maybe(Step.LEDGER)
        return b""


class Refuses(Plain):
    def client(self, phase, state, body, context, contribution=None):
        raise DataError("a", "refused at protocol")


class MethodRefuses(SumNumbers):
    def contribute(self, stage, rows, message, memory, public, random):
        raise DataError("a", "refused at method")


@pytest.mark.parametrize(
    ("request_", "step"),
    [
        (r, s) for r in SITE_REQUESTS for s in REFUSAL_EFFECTS[r]
        if (r, s) != (RequestKind.COUNT, Step.METHOD)  # the count needs no method
    ],
    ids=lambda each: each.value,
)  # fmt: skip
def test_the_state_after_a_refusal_agrees_with_the_table(request_: RequestKind, step: Step) -> None:
    w = world(Refuses() if step is Step.PROTOCOL else Plain())
    party = w.engine.parties["a"]
    assert party.site is not None
    site = replace(party.site, guard=cast(Any, Refusing(step)))
    if step is Step.METHOD:
        site = replace(site, method=MethodRefuses((2,), rounds=ROUNDS))
    party = replace(party, site=site)
    counting = request_ in COUNTS
    before = PartyState() if counting else prepared(Standing.NEW)
    error, after = ask(w, party, request_, before)
    assert f"refused at {step.value}" in error.line()
    match REFUSAL_EFFECTS[request_][step]:
        case RefusalEffect.NOTHING:
            assert after == before
        case RefusalEffect.RECORD_COUNT:
            assert after == replace(before, records=9)
        case RefusalEffect.OVER:
            assert after == replace(before, over=True)


def test_a_partys_state_is_plain_data_with_stable_bytes() -> None:
    state = PartyState(
        3, ("share", "agree"), True, 7, {"cohort": 1}, ("numbers",), ("a", "b"),
        {"key": b"x"}, {"memory": np.zeros(2)},
    )  # fmt: skip
    plain = canonical_encoding.loads(canonical_encoding.dumps(state.to_plain()))
    assert list(plain) == sorted(field.name for field in fields(PartyState))
    again = PartyState.from_plain(plain)
    assert canonical_encoding.dumps(again.to_plain()) == canonical_encoding.dumps(state.to_plain())
    assert replace(again, method={}) == replace(state, method={})
