"""The coordinator of one session: it sends requests, collects replies, and sees only sums.

`start` and `advance` are functions of a plain state and the frames that came back. The table in
`secagg.sessions.coordinator_state` defines the states and the transitions. A `Step` contains the
events to log, the requests to send, and whether the run is done; the caller writes the events to
disk *before* it sends requests or calls `advance`. When a sum is open, the coordinator first
returns a step whose event records the release, and decodes the sum only in the next step. So the
coordinator never uses a release that is not on disk (invariant 5 of the design).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from secagg.contracts import (
    Body,
    Context,
    Method,
    Phase,
    PhaseRequest,
    PublicFacts,
    Ready,
    SecureSum,
    Total,
)
from secagg.core.canonical_encoding import Pieces
from secagg.core.frames import MAX_COUNT, write_frame
from secagg.core.identity import Identity, Roster
from secagg.core.randomness import RandomBytes
from secagg.core.ring import RingVector
from secagg.core.threads import single_threaded_blas
from secagg.errors import InternalError, PeerError, PolicyRefusal, SitesLost
from secagg.privacy.policy.cell_counts import CHECKED_COUNTS, check_table_cells, count_refusals
from secagg.privacy.policy.named_sites import NamedSites
from secagg.privacy.policy.release_rules import (
    ReleasePolicy,
    check_cohort,
    check_invitation,
    check_release,
)
from secagg.sessions.attestations import digest_request, read_attestations
from secagg.sessions.coordinator_state import CoordinatorState, Event, Status
from secagg.sessions.countersignatures import (
    Statement,
    check_countersignature,
    extend_requests,
    sum_digest,
    sum_salt,
)
from secagg.sessions.fixed_point import decode
from secagg.sessions.received_frames import Replies, collect, collect_signed
from secagg.sessions.rounds import COHORT, CONSENT, COUNTERSIGN, SETUP_SHAPE, StagePlans

Events = tuple[dict[str, Any], ...]
"""The events that a step writes to the log."""


@dataclass(frozen=True)
class Step:
    """The outcome of one step: log `events`, then send `requests`, then advance."""

    state: CoordinatorState
    requests: Mapping[str, bytes] = field(default_factory=dict)
    events: Events = ()

    @property
    def done(self) -> bool:
        """Whether the method has its result."""
        return self.state.status in (Status.DONE, Status.CLOSED)


@dataclass(frozen=True)
class Requests(Mapping[str, bytes]):
    """The signed requests of one phase, each written whenever it is read, with the same bytes.

    In most phases all parties get the same body. With many parties, their requests take far more
    memory together than that body.
    """

    identity: Identity
    session: bytes
    round: int
    phase: str
    bodies: Mapping[str, Pieces]

    def __getitem__(self, party: str) -> bytes:
        body = self.bodies[party]
        return write_frame(self.identity, self.session, self.round, self.phase, party, body)

    def __iter__(self) -> Iterator[str]:
        return iter(self.bodies)

    def __len__(self) -> int:
        return len(self.bodies)


@dataclass(frozen=True)
class Coordinator:
    """The coordinator's side of one session; all fields are constant."""

    identity: Identity
    roster: Roster
    session: bytes
    protocol: SecureSum
    method: Method
    public: PublicFacts
    plans: StagePlans
    policy: ReleasePolicy
    random: RandomBytes
    earlier: tuple[frozenset[str], ...] = ()
    """for each sum of an earlier session, its sites"""
    named: NamedSites | None = None
    """the sites that the job names, if it does"""

    @single_threaded_blas()
    def start(self) -> Step:
        """Start the session with a request for consent to every site."""
        sites, method = self.public.sites, self.method.initial_state(self.public)
        return self._ask_consent(CoordinatorState(Status.INVITING, sites, method, stage=COHORT), ())

    def advance(self, state: CoordinatorState, frames: Sequence[bytes]) -> Step:
        """Process the frames that answer the last step's requests, and return the next step."""
        if state.status is Status.RELEASED:
            return self._use_release(state)
        if state.status is Status.COUNTERSIGNING:
            return self._countersigned(state, frames)
        items = self.plans.message_items(len(self.roster.parties))
        me, keys = self.identity.name, {phase.name for phase in self.protocol.setup}
        replies = collect(frames, state, me, self.roster, self.session, items, keys)
        phase = self._phase(state.phase)
        if phase is CONSENT or phase.contributes:
            if replies.missing and state.released:
                raise self._lost(state, replies.missing)
            if phase is not CONSENT:
                self._check_named(state, replies.claims)
            state = replace(state, claims=replies.claims, checked=None)
        if phase is CONSENT:
            return self._consented(state, replies)
        return self._run_server(phase.name, state, replies.bodies, replies.events)

    # --- consent -------------------------------------------------------------------------------

    def _ask_consent(self, state: CoordinatorState, events: Events) -> Step:
        """Ask each site for consent: to the count of records, or to the method's first stage."""
        check_invitation(self.policy, self.identity.name, state.cohort, state.records)
        check_cohort(self.policy, self.identity.name, state.cohort, self.earlier)
        return self._send(state, CONSENT, dict.fromkeys(state.cohort, _site_request(state)), events)

    def _consented(self, state: CoordinatorState, replies: Replies) -> Step:
        """Continue if all sites consented; a refusal has already ended the run.

        If a site does not answer, the coordinator asks the other sites again, because a site
        consents to a sum over certain sites, and may require more sites than are left. A site of a
        job that names its sites is left out with its whole group.
        """
        sites, events = tuple(sorted(state.claims)), replies.events
        if state.status is Status.CONFIRMING:
            return self._begin_sum(state.after(Event.CONSENT), events)
        if replies.missing:
            cohort = sites if self.named is None else self.named.whole_groups(sites)
            if self.named is not None and self.named.fault(cohort):
                raise self._lost(state, replies.missing)
            return self._ask_consent(state.after(Event.SILENCE, cohort=cohort), events)
        consented = {"event": "consent", "round": 0, "claims": _as_hex(state.claims)}
        state = state.after(Event.CONSENT, stage=None)
        return self._run_server("setup", state, {site: {} for site in sites}, (*events, consented))

    def _lost(self, state: CoordinatorState, sites: tuple[str, ...]) -> SitesLost:
        """Return the error for sites that dropped out, with what the rules say of the others."""
        where, left = f"round {state.round}", tuple(sorted(set(state.cohort) - set(sites)))
        if self.named is not None:
            whole = self.named.whole_groups(left)
            if forbidden := self.named.fault(whole or left):
                return SitesLost(where, sites, forbidden, released=state.released)
            left = whole
        earlier, forbidden = self.earlier, ""
        if state.released:
            earlier = (*earlier, frozenset(state.cohort))
        strictest = replace(self.policy, min_sites=max(self.policy.min_sites or 2, state.strictest))
        try:
            check_cohort(strictest, self.identity.name, left, earlier)
        except PolicyRefusal as refusal:
            forbidden = refusal.what
        return SitesLost(where, sites, forbidden, released=state.released)

    def _check_named(self, state: CoordinatorState, sites: Collection[str]) -> None:
        """Raise `SitesLost` if no sum of the job may cover exactly these sites."""
        if self.named is not None and self.named.fault(sites):
            raise self._lost(state, tuple(sorted(set(state.cohort) - set(sites))))

    # --- one protocol step ---------------------------------------------------------------------

    def _run_server(
        self, phase: str, state: CoordinatorState, replies: Mapping[str, Body], events: Events
    ) -> Step:
        """Run the protocol's step for the coordinator, and return the step that follows from it."""
        shape = SETUP_SHAPE if state.stage is None else self.plans.of(state.stage).shape
        context = Context(
            self.session, state.round, self.identity, self.roster, shape, self.random,
            state.request, named=0 if self.named is None else len(self.named.names),
        )  # fmt: skip
        memory, outcome = self.protocol.server(phase, state.protocol, replies, context)
        state = replace(state, protocol=memory)
        match outcome:
            case Ready():
                return self._begin_sum(state.after(Event.READY, stage=COHORT), events)
            case PhaseRequest():
                return self._ask(state.after(Event.ASK), outcome, events)
            case Total():
                return self._release(state.after(Event.TOTAL), outcome, events)

    def _begin_sum(self, state: CoordinatorState, events: Events) -> Step:
        assert state.stage is not None  # it is None only during set-up
        check_invitation(self.policy, self.identity.name, state.cohort, state.records)
        digest = digest_request(
            state.stage, state.cohort, state.records, state.message, state.requests
        )
        event = {"event": "round", "round": state.round, "stage": state.stage}
        replies: dict[str, Body] = {site: {} for site in state.cohort}
        return self._run_server("sum", replace(state, request=digest), replies, (*events, event))

    def _ask(self, state: CoordinatorState, request: PhaseRequest, events: Events) -> Step:
        """Send the protocol's request, with what contributors and openers need to check it."""
        phase = self._phase(request.phase)
        shared: Body = {} if state.stage is None else {"stage": state.stage}
        if phase.contributes:
            self._check_named(state, request.bodies)
            shared = _site_request(state)
        if phase.opens:
            state = self._check_release(state, request.contributors)
            shared["contributors"] = list(request.contributors)
            shared["claims"] = {site: state.claims[site] for site in request.contributors}
        # Equal bodies stay one object, which `_send` encodes once.
        whole = {id(body): {**body, **shared} if body else shared
                 for body in request.bodies.values()}  # fmt: skip
        bodies = {party: whole[id(body)] for party, body in request.bodies.items()}
        return self._send(state, phase, bodies, events)

    def _send(
        self, state: CoordinatorState, phase: Phase, bodies: Mapping[str, Body], events: Events
    ) -> Step:
        distinct = {id(body): body for body in bodies.values()}  # most are the same object
        encoded = {key: Pieces(body) for key, body in distinct.items()}
        each = {party: encoded[id(body)] for party, body in bodies.items()}
        requests = Requests(self.identity, self.session, state.round, phase.name, each)
        return Step(replace(state, phase=phase.name, asked=tuple(sorted(bodies))), requests, events)

    def _phase(self, name: str) -> Phase:
        for phase in (CONSENT, *self.protocol.setup, *self.protocol.phases):
            if phase.name == name:
                return phase
        raise InternalError("coordinator", f"protocol has no phase {name!r}")

    # --- releases --------------------------------------------------------------------------------

    def _check_release(
        self, state: CoordinatorState, contributors: Sequence[str]
    ) -> CoordinatorState:
        """Apply all rules to a sum over these sites; return the state with the signed thresholds.

        The coordinator calls it before it asks parties to open a sum, and again when the sum is
        open. In between, only the contributors may change, so it repeats the check only for others.
        """
        if state.checked is not None and sorted(state.checked) == sorted(contributors):
            return state
        self._check_named(state, contributors)
        claims = {site: state.claims.get(site) for site in contributors}
        thresholds = read_attestations(claims, state.stage, state.round, self.roster, self.session)
        first = state.cohort if state.released else None
        check_release(self.policy, self.identity.name, contributors, thresholds, first)
        check_cohort(self.policy, self.identity.name, contributors, self.earlier)
        return replace(state, checked=thresholds)

    def _release(self, state: CoordinatorState, total: Total, events: Events) -> Step:
        """Record the release, if the rules allow it. The next step uses the sum."""
        state = self._check_release(state, total.contributors)
        sites = tuple(sorted(total.contributors))
        event = {
            "event": "release",
            "round": state.round,
            "stage": state.stage,
            "contributors": list(sites),
            "thresholds": state.checked,
            "sum": self._sum_digest(state, total.values),
            "claims": _as_hex({site: state.claims[site] for site in sites}),
        }
        requests = extend_requests(state.requests, state.request)
        strictest = max(state.strictest, *(state.checked or {}).values())
        state = replace(
            state, total=total.values, contributors=sites, requests=requests, strictest=strictest
        )
        return Step(state, events=(*events, event))

    def _sum_digest(self, state: CoordinatorState, total: RingVector) -> str:
        assert state.stage is not None  # it is None only during set-up
        salt = sum_salt(self.identity, self.session, state.round)
        return sum_digest(self.session, state.round, state.stage, salt, total).hex()

    def _use_release(self, state: CoordinatorState) -> Step:
        """Use the recorded release, and start the next round."""
        counted = state.stage == COHORT
        state = self.absorb(state)
        if state.stage is None:
            return Step(state.after(Event.FINISHED))
        if counted:
            return self._ask_consent(state.after(Event.COUNTED), ())
        return self._begin_sum(state.after(Event.NEXT), ())

    @single_threaded_blas()
    def absorb(self, state: CoordinatorState) -> CoordinatorState:
        """Decode the recorded release, pass it to the method, and prepare the next request.

        The new state has the stage and the message of the next sum; its stage is None if the
        method is done. It depends on the sums only, so `secagg verify` can repeat it.
        """
        stage, cohort = state.stage, state.contributors
        assert stage is not None and state.total is not None  # after a release
        fields, clipped = decode(self.plans.of(stage), state.total)
        clipped = clipped + state.clipped.get(stage, 0.0)
        state = replace(
            state, round=state.round + 1, cohort=cohort, released=True,
            clipped={**state.clipped, stage: clipped},
            total=None, contributors=(), claims={}, checked=None,
        )  # fmt: skip
        if stage == COHORT:
            # Noise may make the count negative.
            records = min(max(0, round(float(fields["records"][0]))), MAX_COUNT)
            me, variables = self.identity.name, self.public.variables
            for refusal in count_refusals(me, self.policy, variables, records, fields):
                raise refusal
            fields = {name: n for name, n in fields.items() if name not in CHECKED_COUNTS}
            # All rules on the total count persons, if a column names them.
            total = records if "persons" not in fields else int(fields["persons"][0])
            state = replace(state, counts=fields, records=total)
        else:
            if self.plans.stages[stage].counts_cells and self.public.clip is None:
                check_table_cells(self.identity.name, self.policy.min_cell_records, fields)
            method = self.method.aggregate(state.method, fields, len(cohort))
            state = replace(state, method=method)
        following = self.method.next_request(state.method)
        stage, message = (None, {}) if following is None else following
        return replace(state, stage=stage, message=message)

    # --- the end -------------------------------------------------------------------------------

    def ask_countersignatures(self, state: CoordinatorState, head: str, result: str) -> Step:
        """Ask each site to countersign the end of the run (`secagg.sessions.countersignatures`).

        head: of the log, in hexadecimal; result: digest of result.json
        """
        statement = Statement(bytes.fromhex(head), bytes.fromhex(result), state.requests).note()
        state = state.after(Event.WRITTEN, message=statement)
        return self._send(state, COUNTERSIGN, dict.fromkeys(state.cohort, statement), ())

    def _countersigned(self, state: CoordinatorState, frames: Sequence[bytes]) -> Step:
        """Log the valid countersignatures. A site without one does not end the run."""
        replies = collect_signed(frames, state, self.identity.name, self.roster, self.session)
        statement, valid = Statement.read(state.message, self.identity.name), {}
        for site, claim in replies.claims.items():
            with suppress(PeerError):
                check_countersignature(site, claim, statement, self.roster, self.session)
                valid[site] = claim
        event = {
            "event": "countersigned", "round": state.round,
            **{name: digest.hex() for name, digest in statement.note().items()},
            "claims": _as_hex(valid), "missing": sorted(set(state.asked) - set(valid)),
        }  # fmt: skip
        return Step(state.after(Event.ANSWERED), events=(*replies.events, event))


def _site_request(state: CoordinatorState) -> Body:
    """Return a request for consent to a sum, or for a contribution to it."""
    return {
        "stage": state.stage, "cohort": list(state.cohort), "records": state.records,
        "message": state.message,
    }  # fmt: skip


def _as_hex(claims: Mapping[str, Sequence[bytes]]) -> dict[str, list[str]]:
    return {site: [part.hex() for part in parts] for site, parts in sorted(claims.items())}
