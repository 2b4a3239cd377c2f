"""Two tables: which requests a party answers, and what a refusal changes.

In the first table, a row is a request of the coordinator. A column is the party's standing: what it
has done so far for the stage that the request names. An entry is the standing after the answer, or
the reason for a refusal. Each request has at most one answer: round numbers never decrease, and a
party answers a phase once per round. (Consent is the exception: if a site does not answer, the
coordinator asks the other sites again.)

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

uncounted: the party has answered no request for this stage, and has not contributed to the count of
records, which is the first sum. complete: it has contributed to every round that the job declares
for the stage. over: the party answers no further request in this session. A dot is a case that
cannot occur.

The second table has the steps of each answer in their order, and what a refusal at that step
changes in the party's state:

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

nothing: the state does not change. The coordinator may send the same request again once the cause
is fixed.
record count: the party remembers the announced total number of records, and accepts no other total
in this session. Its rules compare the site's own number of records with the total, so refusals
under many totals would reveal that number.
over: the party refuses every further request of this session. The method has processed a message,
so a second refusal would reveal more about the records than the first one.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from secagg.contracts import Phase
from secagg.errors import PeerError, PolicyRefusal, SecaggError
from secagg.sessions.rounds import COHORT, CONSENT


class RequestKind(Enum):
    """The kind of a request from the coordinator."""

    CONSENT_TO_COUNT = "consent to count"
    COUNT = "count"
    CONSENT_TO_STAGE = "consent to stage"
    CONTRIBUTE = "contribute"
    OPEN = "open a sum"
    OTHER = "other"
    """a protocol's set-up, and phases in which parties only pass on keys or shares"""

    @classmethod
    def of(cls, phase: Phase, stage: object) -> RequestKind:
        """Return the kind of a request for this phase and the stage that its message names."""
        is_count = isinstance(stage, str) and stage == COHORT  # an array has no single truth value
        if phase is CONSENT:
            return cls.CONSENT_TO_COUNT if is_count else cls.CONSENT_TO_STAGE
        if phase.contributes:
            return cls.COUNT if is_count else cls.CONTRIBUTE
        return cls.OPEN if phase.opens else cls.OTHER


class Standing(Enum):
    """The standing of a party with one stage."""

    UNCOUNTED = "uncounted"
    NEW = "new"
    CONSENTED = "consented"
    CONTRIBUTED = "contributed"
    COMPLETE = "complete"
    OVER = "over"


class Denial(Enum):
    """Why the party refuses a request regardless of its content."""

    TOO_EARLY = "too early"
    ANSWERED = "answered"
    NO_ROUND = "no round"
    SESSION_OVER = "session over"

    def error(self, me: str, coordinator: str, stage: str = "", rounds: int = 0) -> SecaggError:
        """Return the error; `rounds` is the number of rounds declared for the stage."""
        match self:
            case Denial.TOO_EARLY:
                return PeerError(
                    coordinator, "asks for consent to this stage before the records were counted"
                )
            case Denial.ANSWERED:
                return PeerError(coordinator, "asks again for consent that the site already gave")
            case Denial.NO_ROUND:
                what = f"stage {stage!r} has already used its declared rounds ({rounds})"
                return PolicyRefusal(me, what)
            case Denial.SESSION_OVER:
                what = "the session ended at this site with an earlier refusal"
                return PolicyRefusal(me, what, "Start a new run.")


class Step(Enum):
    """The steps of an answer, in their order."""

    FACTS = "facts"
    """rules that need no record"""
    RECORDS = "records"
    """rules on the records; the site reads them here for the first time"""
    BUDGET = "budget"
    METHOD = "method"
    """the method's contribution, encoded"""
    LEDGER = "ledger"
    """the ledger entry, and the noise"""
    PROTOCOL = "protocol"


READS_RECORDS = frozenset({Step.RECORDS, Step.METHOD})
"""The steps whose refusals depend on the site's records. They all send the same error code."""


class RefusalEffect(Enum):
    """What a refusal changes in the party's state."""

    NOTHING = "nothing"
    RECORD_COUNT = "record count"
    OVER = "over"


_KEPT = {standing: standing for standing in Standing if standing is not Standing.OVER} | {
    Standing.OVER: Denial.SESSION_OVER
}
TRANSITIONS: Mapping[RequestKind, Mapping[Standing, Standing | Denial]] = {
    RequestKind.CONSENT_TO_COUNT: {
        Standing.NEW: Standing.NEW,
        Standing.CONTRIBUTED: Denial.ANSWERED,
        Standing.COMPLETE: Denial.ANSWERED,
        Standing.OVER: Denial.SESSION_OVER,
    },
    RequestKind.COUNT: {
        Standing.NEW: Standing.CONTRIBUTED,
        Standing.CONTRIBUTED: Standing.CONTRIBUTED,
        Standing.COMPLETE: Denial.NO_ROUND,
        Standing.OVER: Denial.SESSION_OVER,
    },
    RequestKind.CONSENT_TO_STAGE: {
        Standing.UNCOUNTED: Denial.TOO_EARLY,
        Standing.NEW: Standing.CONSENTED,
        Standing.CONSENTED: Denial.ANSWERED,
        Standing.CONTRIBUTED: Denial.ANSWERED,
        Standing.COMPLETE: Denial.ANSWERED,
        Standing.OVER: Denial.SESSION_OVER,
    },
    RequestKind.CONTRIBUTE: {
        Standing.UNCOUNTED: Standing.CONTRIBUTED,
        Standing.NEW: Standing.CONTRIBUTED,
        Standing.CONSENTED: Standing.CONTRIBUTED,
        Standing.CONTRIBUTED: Standing.CONTRIBUTED,
        Standing.COMPLETE: Denial.NO_ROUND,
        Standing.OVER: Denial.SESSION_OVER,
    },
    RequestKind.OPEN: _KEPT,
    RequestKind.OTHER: _KEPT,
}
"""The standing after an answer (COMPLETE in place of CONTRIBUTED after the last round), or the
reason for a refusal."""

REFUSAL_EFFECTS: Mapping[RequestKind, Mapping[Step, RefusalEffect]] = {
    RequestKind.CONSENT_TO_COUNT: {
        Step.FACTS: RefusalEffect.NOTHING,
        Step.RECORDS: RefusalEffect.NOTHING,
        Step.BUDGET: RefusalEffect.NOTHING,
    },
    RequestKind.COUNT: {
        Step.FACTS: RefusalEffect.NOTHING,
        Step.RECORDS: RefusalEffect.NOTHING,
        Step.METHOD: RefusalEffect.NOTHING,
        Step.LEDGER: RefusalEffect.NOTHING,
        Step.PROTOCOL: RefusalEffect.NOTHING,
    },
    RequestKind.CONSENT_TO_STAGE: {
        Step.FACTS: RefusalEffect.NOTHING,
        Step.RECORDS: RefusalEffect.RECORD_COUNT,
        Step.BUDGET: RefusalEffect.NOTHING,
    },
    RequestKind.CONTRIBUTE: {
        Step.FACTS: RefusalEffect.NOTHING,
        Step.RECORDS: RefusalEffect.RECORD_COUNT,
        Step.METHOD: RefusalEffect.OVER,
        Step.LEDGER: RefusalEffect.OVER,
        Step.PROTOCOL: RefusalEffect.OVER,
    },
    RequestKind.OPEN: {Step.FACTS: RefusalEffect.NOTHING, Step.PROTOCOL: RefusalEffect.NOTHING},
    RequestKind.OTHER: {Step.PROTOCOL: RefusalEffect.NOTHING},
}
"""The steps of each answer in their order, and what a refusal at that step changes."""
