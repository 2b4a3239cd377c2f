"""What the coordinator knows of a session between two steps, and the one table of its transitions.

==========  =====================  ==========
status      when                   then
==========  =====================  ==========
inviting    some are silent        inviting
inviting    all consent            set-up
set-up      the protocol asks      set-up
set-up      the protocol is ready  sum
sum         the protocol asks      sum
sum         a sum is open          released
released    it was the count       confirming
released    the method asks        sum
released    the method is done     done
confirming  all consent            sum
==========  =====================  ==========

inviting: every site is asked whether it consents to the count. confirming: once more, to the
method's first stage, now that the number of records is known. set-up, sum: the protocol's phases.
released: a sum is open and its release is in this step's events, which are on disk before the next
step uses it. done: the method has its result.

Whatever is not in the table ends the run by an error: a rule that refuses, a party that refuses, a
site that drops out after the first release (sums without it would show what it contributed).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from secagg.contracts import Body, State, Update
from secagg.core.ring import RingVector
from secagg.errors import InternalError


class Status(Enum):
    """Where the session stands."""

    INVITING = "inviting"
    SETUP = "set-up"
    SUM = "sum"
    RELEASED = "released"
    CONFIRMING = "confirming"
    DONE = "done"


class Event(Enum):
    """What moves the session on."""

    SILENCE = "some are silent"
    CONSENT = "all consent"
    ASK = "the protocol asks"
    READY = "the protocol is ready"
    TOTAL = "a sum is open"
    COUNTED = "it was the count"
    NEXT = "the method asks"
    FINISHED = "the method is done"


TRANSITIONS: Mapping[Status, Mapping[Event, Status]] = {
    Status.INVITING: {Event.SILENCE: Status.INVITING, Event.CONSENT: Status.SETUP},
    Status.SETUP: {Event.ASK: Status.SETUP, Event.READY: Status.SUM},
    Status.SUM: {Event.ASK: Status.SUM, Event.TOTAL: Status.RELEASED},
    Status.RELEASED: {
        Event.COUNTED: Status.CONFIRMING,
        Event.NEXT: Status.SUM,
        Event.FINISHED: Status.DONE,
    },
    Status.CONFIRMING: {Event.CONSENT: Status.SUM},
    Status.DONE: {},
}


@dataclass(frozen=True)
class CoordinatorState:
    """What the coordinator knows between two steps.

    cohort: the sites that take part
    method, protocol: what these remember
    stage, message: what the sites are asked to contribute to; no stage during set-up
    records: the number of records in all, once counted
    released: whether a sum of this session has been used; its sites stay the same from then on
    phase, asked: of the requests that were sent last
    request: digest of what this sum's contributors answer
    claims: what the sites signed with their contributions (or consent)
    checked: the thresholds in these claims, once the release rules allowed a sum over the sites
    total, contributors: the open sum, not used yet, and whose it is
    counts: the decoded count; clipped: for each stage, how many values of each field were clipped
    """

    status: Status
    cohort: tuple[str, ...]
    method: State
    protocol: State = field(default_factory=dict)
    round: int = 0
    stage: str | None = None
    message: Body = field(default_factory=dict)
    records: int | None = None
    released: bool = False
    phase: str = ""
    asked: tuple[str, ...] = ()
    request: bytes = b""
    claims: Mapping[str, list[bytes]] = field(default_factory=dict)
    checked: Mapping[str, int] | None = None
    total: RingVector | None = None
    contributors: tuple[str, ...] = ()
    counts: Update = field(default_factory=dict)
    clipped: Update = field(default_factory=dict)

    def after(self, event: Event, **changed: Any) -> CoordinatorState:
        """Return the state after an event, with these fields changed."""
        following = TRANSITIONS[self.status].get(event)
        if following is None:
            what = f"{event.value!r} cannot happen while the session is {self.status.value!r}"
            raise InternalError("coordinator", what)
        return replace(self, status=following, **changed)

    def to_plain(self) -> State:
        """Return the state as plain data."""
        return {**vars(self), "status": self.status.value}

    @classmethod
    def from_plain(cls, plain: State) -> CoordinatorState:
        """Return the state that `to_plain` gave."""
        names = {key: tuple(plain[key]) for key in ("cohort", "asked", "contributors")}
        return cls(**{**plain, **names, "status": Status(plain["status"])})
