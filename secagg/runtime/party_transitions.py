"""What a party answers when: all of it in two tables, as data.

In the first table, rows are the requests of the coordinator, and columns are where the party stands
with the stage that a request names. An entry says where it stands after an answer, or why it
refuses. Each request has at most one answer: rounds never go back, and within a round a phase is
answered once. (Consent is the exception: when sites are silent, the others are asked again.)

================  ===========  ===========  ===========  ===========  ========  ============
request           uncounted    new          consented    contributed  complete  over
================  ===========  ===========  ===========  ===========  ========  ============
consent to count  .            new          .            answered     answered  session over
count             .            contributed  .            contributed  no round  session over
consent to stage  too early    consented    answered     answered     answered  session over
contribute        contributed  contributed  contributed  contributed  no round  session over
open a sum        uncounted    new          consented    contributed  complete  session over
other             uncounted    new          consented    contributed  complete  session over
================  ===========  ===========  ===========  ===========  ========  ============

uncounted: nothing was answered about this stage of the method, nor was the first sum, the count.
complete: contributed in all rounds that the job declares for the stage. A dot cannot happen.

A refusal may leave something behind. The second table names the steps of each answer in their
order, and what a refusal at that step leaves:

================  =======  ============  =======  =======  =======  ========
request           facts    records       budget   method   ledger   protocol
================  =======  ============  =======  =======  =======  ========
consent to count  nothing  nothing       nothing  .        .        .
count             nothing  nothing       .        nothing  nothing  nothing
consent to stage  nothing  record count  nothing  .        .        .
contribute        nothing  record count  .        over     over     over
open a sum        nothing  .             .        .        .        nothing
other             .        .             .        .        .        nothing
================  =======  ============  =======  =======  =======  ========

nothing: the state stays as it was, so that the same may be asked again once the cause is mended.
record count: the party remembers the number of records in all that it was told, and accepts no
other in this session. Its rules compare the site's own records with this number, so that refusals
under many numbers would answer a search.
over: the party refuses every further request of this session. The method has looked at a message by
then, so that a second question would tell more about the records than the first refusal did.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from secagg.contracts import Phase
from secagg.errors import PeerError, PolicyRefusal, SecaggError
from secagg.runtime.rounds import COHORT, CONSENT


class Request(Enum):
    """What the coordinator asks of a party."""

    CONSENT_TO_COUNT = "consent to count"
    COUNT = "count"
    CONSENT_TO_STAGE = "consent to stage"
    CONTRIBUTE = "contribute"
    OPEN = "open a sum"
    OTHER = "other"
    """a protocol's set-up, and phases in which parties only pass on keys or shares"""

    @classmethod
    def of(cls, phase: Phase, stage: object) -> Request:
        """Return what a phase asks for, given the stage that the message names."""
        is_count = isinstance(stage, str) and stage == COHORT  # an array would not compare
        if phase is CONSENT:
            return cls.CONSENT_TO_COUNT if is_count else cls.CONSENT_TO_STAGE
        if phase.contributes:
            return cls.COUNT if is_count else cls.CONTRIBUTE
        return cls.OPEN if phase.opens else cls.OTHER


class Standing(Enum):
    """Where a party stands with one stage."""

    UNCOUNTED = "uncounted"
    NEW = "new"
    CONSENTED = "consented"
    CONTRIBUTED = "contributed"
    COMPLETE = "complete"
    OVER = "over"


class Denial(Enum):
    """Why a request is refused whatever it says."""

    TOO_EARLY = "too early"
    ANSWERED = "answered"
    NO_ROUND = "no round"
    SESSION_OVER = "session over"

    def error(self, me: str, coordinator: str, stage: str = "", rounds: int = 0) -> SecaggError:
        """Return the error. `rounds` is how many the job declares for the stage."""
        match self:
            case Denial.TOO_EARLY:
                return PeerError(coordinator, "asks for consent to more than is known")
            case Denial.ANSWERED:
                return PeerError(coordinator, "asks for consent to what it had an answer to")
            case Denial.NO_ROUND:
                what = f"stage {stage!r} has had all the rounds it declares ({rounds})"
                return PolicyRefusal(me, what)
            case Denial.SESSION_OVER:
                what = "the session was over here when an answer to the method's message was "
                return PolicyRefusal(me, f"{what}refused", "Begin a new run.")


class Step(Enum):
    """One step of an answer, in the order in which they are taken."""

    FACTS = "facts"
    """rules that need no record"""
    RECORDS = "records"
    """rules on the records, which are read for this if they were not yet"""
    BUDGET = "budget"
    METHOD = "method"
    """the method's contribution, encoded"""
    LEDGER = "ledger"
    """the entry in the ledger, and the noise"""
    PROTOCOL = "protocol"


class Leaves(Enum):
    """What a refusal leaves in the party's state."""

    NOTHING = "nothing"
    RECORD_COUNT = "record count"
    OVER = "over"


_KEPT = {standing: standing for standing in Standing if standing is not Standing.OVER} | {
    Standing.OVER: Denial.SESSION_OVER
}
TRANSITIONS: Mapping[Request, Mapping[Standing, Standing | Denial]] = {
    Request.CONSENT_TO_COUNT: {
        Standing.NEW: Standing.NEW,
        Standing.CONTRIBUTED: Denial.ANSWERED,
        Standing.COMPLETE: Denial.ANSWERED,
        Standing.OVER: Denial.SESSION_OVER,
    },
    Request.COUNT: {
        Standing.NEW: Standing.CONTRIBUTED,
        Standing.CONTRIBUTED: Standing.CONTRIBUTED,
        Standing.COMPLETE: Denial.NO_ROUND,
        Standing.OVER: Denial.SESSION_OVER,
    },
    Request.CONSENT_TO_STAGE: {
        Standing.UNCOUNTED: Denial.TOO_EARLY,
        Standing.NEW: Standing.CONSENTED,
        Standing.CONSENTED: Denial.ANSWERED,
        Standing.CONTRIBUTED: Denial.ANSWERED,
        Standing.COMPLETE: Denial.ANSWERED,
        Standing.OVER: Denial.SESSION_OVER,
    },
    Request.CONTRIBUTE: {
        Standing.UNCOUNTED: Standing.CONTRIBUTED,
        Standing.NEW: Standing.CONTRIBUTED,
        Standing.CONSENTED: Standing.CONTRIBUTED,
        Standing.CONTRIBUTED: Standing.CONTRIBUTED,
        Standing.COMPLETE: Denial.NO_ROUND,
        Standing.OVER: Denial.SESSION_OVER,
    },
    Request.OPEN: _KEPT,
    Request.OTHER: _KEPT,
}
"""Where a party stands after an answer (CONTRIBUTED, or COMPLETE after the last round), or why it
refuses."""

REFUSAL_LEAVES: Mapping[Request, Mapping[Step, Leaves]] = {
    Request.CONSENT_TO_COUNT: {
        Step.FACTS: Leaves.NOTHING,
        Step.RECORDS: Leaves.NOTHING,
        Step.BUDGET: Leaves.NOTHING,
    },
    Request.COUNT: {
        Step.FACTS: Leaves.NOTHING,
        Step.RECORDS: Leaves.NOTHING,
        Step.METHOD: Leaves.NOTHING,
        Step.LEDGER: Leaves.NOTHING,
        Step.PROTOCOL: Leaves.NOTHING,
    },
    Request.CONSENT_TO_STAGE: {
        Step.FACTS: Leaves.NOTHING,
        Step.RECORDS: Leaves.RECORD_COUNT,
        Step.BUDGET: Leaves.NOTHING,
    },
    Request.CONTRIBUTE: {
        Step.FACTS: Leaves.NOTHING,
        Step.RECORDS: Leaves.RECORD_COUNT,
        Step.METHOD: Leaves.OVER,
        Step.LEDGER: Leaves.OVER,
        Step.PROTOCOL: Leaves.OVER,
    },
    Request.OPEN: {Step.FACTS: Leaves.NOTHING, Step.PROTOCOL: Leaves.NOTHING},
    Request.OTHER: {Step.PROTOCOL: Leaves.NOTHING},
}
"""The steps of each answer in their order, and what a refusal at that step leaves."""

REMEMBERS: Mapping[Request, frozenset[str]] = {
    Request.CONSENT_TO_COUNT: frozenset(),
    Request.COUNT: frozenset({"contributed", "protocol"}),
    Request.CONSENT_TO_STAGE: frozenset({"records", "consented"}),
    Request.CONTRIBUTE: frozenset({"records", "cohort", "contributed", "method", "protocol"}),
    Request.OPEN: frozenset({"cohort", "protocol"}),
    Request.OTHER: frozenset({"protocol"}),
}
"""The fields of `PartyState` that an answer may change, beside `round` and `handled`."""
