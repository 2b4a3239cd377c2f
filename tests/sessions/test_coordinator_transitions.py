"""The coordinator's table: as documented, reachable, and what a session really goes through."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from support.protocols.vectors import PaillierOfVectors
from support.protocols.world import STAGE, SumNumbers, World, reopened

from secagg.contracts import SecureSum
from secagg.core import canonical_encoding
from secagg.core.frames import peek_header
from secagg.errors import InternalError
from secagg.protocols.additive import Additive
from secagg.protocols.plain import Plain
from secagg.sessions import coordinator_state
from secagg.sessions.coordinator_state import TRANSITIONS, CoordinatorState, Event, Status

NUMBERS = {site: np.array([2.0**i, -0.5]) for i, site in enumerate("abcd")}


def world(protocol: SecureSum, **options: Any) -> World:
    return World(protocol, NUMBERS, SumNumbers((2,), rounds=2), **options)


def test_the_transition_table_is_documented_and_complete() -> None:
    rows = [("status", "event", "next")]
    rows += [(s.value, e.value, t.value) for s, row in TRANSITIONS.items() for e, t in row.items()]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    rule = "  ".join("=" * width for width in widths)
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    table = "\n".join([rule, lines[0], rule, *lines[1:], rule])
    assert table in str(coordinator_state.__doc__), table
    assert set(TRANSITIONS) == set(Status)
    assert {event for row in TRANSITIONS.values() for event in row} == set(Event)
    reached, left = {Status.INVITING}, [Status.INVITING]
    while left:
        for following in TRANSITIONS[left.pop()].values():
            if following not in reached:
                reached.add(following)
                left.append(following)
    assert reached == set(Status)
    assert [status for status, row in TRANSITIONS.items() if not row] == [Status.CLOSED]
    # a sum is used only once its release is on record, and only the method ends a session
    assert [s for s, row in TRANSITIONS.items() if Status.RELEASED in row.values()] == [Status.SUM]
    assert [s for s, row in TRANSITIONS.items() if Status.DONE in row.values()] == [Status.RELEASED]


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("event", Event)
def test_events_outside_the_transition_table_are_errors(status: Status, event: Event) -> None:
    state = CoordinatorState(status, ("a", "b"), {})
    if event in TRANSITIONS[status]:
        assert state.after(event, round=3) == replace(state, status=TRANSITIONS[status][event],
                                                      round=3)  # fmt: skip
    else:
        with pytest.raises(InternalError):
            state.after(event)


@pytest.mark.parametrize(
    ("protocol", "set_up"),
    [(Plain(), False), (Additive(2), False), (PaillierOfVectors(2048), True)],
    ids=lambda each: getattr(each, "name", None),
)
def test_a_session_passes_through_the_expected_events(
    protocol: SecureSum, set_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In particular: consent before anything else, and again before the method's first stage."""
    happened: list[Event] = []
    real = CoordinatorState.after

    def noting(self: CoordinatorState, event: Event, **changed: Any) -> CoordinatorState:
        happened.append(event)
        return real(self, event, **changed)

    monkeypatch.setattr(CoordinatorState, "after", noting)

    def tamper(sender: str, _: str, frame: bytes) -> list[bytes]:
        return [] if (sender, peek_header(frame)) == ("d", (0, "consent")) else [frame]

    w = world(protocol, tamper=tamper)
    step = w.coordinator.start()
    while not step.done:
        state = step.state
        if state.status in (Status.INVITING, Status.CONFIRMING):
            assert {peek_header(f)[1] for f in step.requests.values()} == {"consent"}
            assert state.released == (state.status is Status.CONFIRMING)
        assert (state.total is not None) == (state.status is Status.RELEASED)
        assert bool(step.requests) == (state.status is not Status.RELEASED)
        assert canonical_encoding.dumps(reopened(state).to_plain()) == canonical_encoding.dumps(
            state.to_plain()
        )
        step = w.coordinator.advance(reopened(state), w.engine.exchange(step.requests))
    asks = [event for event in happened if event is not Event.ASK]
    assert asks == [
        Event.SILENCE, Event.CONSENT, Event.READY,
        Event.TOTAL, Event.COUNTED, Event.CONSENT,
        Event.TOTAL, Event.NEXT,
        Event.TOTAL, Event.FINISHED,
    ]  # fmt: skip
    before_set_up = happened[: happened.index(Event.READY)]
    assert (Event.ASK in before_set_up) == set_up
    assert step.state.stage is None and step.state.cohort == ("a", "b", "c")


def test_the_coordinators_state_is_plain_data() -> None:
    state = CoordinatorState(Status.SUM, ("a", "b"), {"x": [1]}, asked=("a",), stage=STAGE,
                             claims={"a": [b"1", b"2"]}, checked={"a": 2})  # fmt: skip
    plain = canonical_encoding.loads(canonical_encoding.dumps(state.to_plain()))
    assert list(plain) == sorted(field.name for field in fields(CoordinatorState))
    assert CoordinatorState.from_plain(plain) == state
