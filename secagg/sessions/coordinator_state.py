"""The coordinator's state between two steps, and the table of its transitions.

==============  =====================  ==============
status          event                  next
==============  =====================  ==============
inviting        some are silent        inviting
inviting        all consent            set-up
set-up          the protocol asks      set-up
set-up          the protocol is ready  sum
sum             the protocol asks      sum
sum             a sum is open          released
released        it was the count       confirming
released        the method asks        sum
released        the method is done     done
confirming      all consent            sum
done            the result is written  countersigning
countersigning  sites have answered    closed
==============  =====================  ==============

inviting: the coordinator asks every site for consent to the count of records. confirming: it asks
again, for the method's first stage, now that the number of records is known. set-up, sum: the
phases of the protocol. released: a sum is open. The events of this step record the release. They
are on disk before the next step uses the sum. done: the method has its result. If the run is
written to a folder, the sites then countersign its end (`secagg.sessions.countersignatures`), and
the session is closed.

Any other case ends the run with an error: a release rule forbids the sum, a party refuses, or a
site drops out after the first release. (A sum without this site would show what the site
contributed. `secagg.runs.lost_sites` may then begin a new session.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from secagg.contracts import Body, ProtocolState, State, Update
from secagg.core.ring import RingVector
from secagg.errors import InternalError


class Status(Enum):
    """The status of the session."""

    INVITING = "inviting"
    SETUP = "set-up"
    SUM = "sum"
    RELEASED = "released"
    CONFIRMING = "confirming"
    DONE = "done"
    COUNTERSIGNING = "countersigning"
    CLOSED = "closed"


class Event(Enum):
    """The events that change the status."""

    SILENCE = "some are silent"
    CONSENT = "all consent"
    ASK = "the protocol asks"
    READY = "the protocol is ready"
    TOTAL = "a sum is open"
    COUNTED = "it was the count"
    NEXT = "the method asks"
    FINISHED = "the method is done"
    WRITTEN = "the result is written"
    ANSWERED = "sites have answered"


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
    Status.DONE: {Event.WRITTEN: Status.COUNTERSIGNING},
    Status.COUNTERSIGNING: {Event.ANSWERED: Status.CLOSED},
    Status.CLOSED: {},
}


@dataclass(frozen=True)
class CoordinatorState:
    """What the coordinator remembers between two steps.

    cohort: the sites that take part
    method, protocol: the states of the method and the protocol
    stage, message: of the current sum; stage is None during set-up
    records: the total number of records, once counted
    released: whether the method has used a sum; from then on the sites stay the same
    phase, asked: the phase of the last requests, and the parties that received them
    request: digest of the request that the contributors to this sum answer
    requests: digest of the list of these requests, for all released sums
    claims: for each site, the signed header of its contribution (or consent)
    checked: the thresholds in these claims, once the release rules allowed a sum over the sites
    strictest: the largest threshold in the claims of all released sums
    total, contributors: the open sum before it is used, and its sites
    counts: the decoded count of records
    clipped: for each stage, the number of clipped values in each field
    """

    status: Status
    cohort: tuple[str, ...]
    method: State
    protocol: ProtocolState = field(default_factory=dict)
    round: int = 0
    stage: str | None = None
    message: Body = field(default_factory=dict)
    records: int | None = None
    released: bool = False
    phase: str = ""
    asked: tuple[str, ...] = ()
    request: bytes = b""
    requests: bytes = b""
    claims: Mapping[str, list[bytes]] = field(default_factory=dict)
    checked: Mapping[str, int] | None = None
    strictest: int = 0
    total: RingVector | None = None
    contributors: tuple[str, ...] = ()
    counts: Update = field(default_factory=dict)
    clipped: Update = field(default_factory=dict)

    def after(self, event: Event, **changed: Any) -> CoordinatorState:
        """Return the state after this event, with the given fields changed."""
        status = TRANSITIONS[self.status].get(event)
        if status is None:
            what = f"{event.value!r} cannot happen while the session is {self.status.value!r}"
            raise InternalError("coordinator", what)
        return replace(self, status=status, **changed)

    def to_plain(self) -> State:
        """Return the state as plain data."""
        return {**vars(self), "status": self.status.value}

    @classmethod
    def from_plain(cls, plain: State) -> CoordinatorState:
        """Return the state that `to_plain` converted."""
        names = {key: tuple(plain[key]) for key in ("cohort", "asked", "contributors")}
        return cls(**{**plain, **names, "status": Status(plain["status"])})
