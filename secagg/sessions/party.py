"""A party other than the coordinator (a site or an aggregator): it answers signed requests.

`Party.handle` is a function of (request bytes, state bytes). It verifies the request, applies the
party's own release rules, runs one step of the protocol, and returns a signed reply. The order of
the steps is the same for every method and protocol (`secagg.sessions.site_steps`): rules, data,
clip and encode, ledger, noise, protect. Before a party helps to open a sum, it applies the rules
again. Two tables in `secagg.sessions.party_transitions` define which requests a party answers in
which state, and how a refusal changes that state.

Each site gives its consent before the first sum, and again once the number of records is known. For
consent, the site checks its rules and its budget. It computes nothing, writes nothing to the ledger
and sends no data. A coordinator that skips consent, or continues after a refusal, wastes the
budgets of other sites but learns nothing.

A refusal also reveals something. If it depends on the records and on a value that the coordinator
chose, it reveals one bit about the records. If a site kept answering, the coordinator could search
for a record. The job is such a value, because the coordinator writes it. So under differential
privacy no refusal depends on the records (`secagg.jobs.design_matrix`,
`secagg.privacy.policy.job_rules`). Without noise, a site limits such refusals:

* All refusals because of the records have one error code, `records`.
* The site's ledger counts them over all runs. After a few in a period (`max_refusals` in the site's
  policy), the site refuses every exact job before it reads its records.
* The ledger also counts the jobs that the records allowed, but that released nothing
  (`max_unreleased`).
* The site accepts one total number of records per session. Its rules compare its own number of
  records with that total.
* After the method has processed a message, any refusal ends the session, whether it comes from the
  method, the ledger or the protocol. The site then refuses every further request. Otherwise the
  coordinator could repeat requests that are certain to be refused, and see from each error code
  whether the method refused the request (which depends on the records) or a later step did.

A session therefore reveals at most the round in which it ended and the kind of error. A refusal
before the method has processed a message changes nothing: after the cause is fixed (a rule, a
file), the coordinator may send the same request again.

Only an error code, without data, is sent to the coordinator. The text of the error stays with the
party, in `Handled.error`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from secagg.contracts import Body, Context, Phase, Result, SecureSum
from secagg.core import canonical_encoding
from secagg.core.frames import Frame, Header, read_frame, write_frame
from secagg.core.identity import Identity, Roster
from secagg.core.randomness import RandomBytes
from secagg.core.ring import RingVector
from secagg.core.threads import single_threaded_blas
from secagg.errors import PeerError, SecaggError
from secagg.privacy.policy.named_sites import NamedSites
from secagg.privacy.policy.release_rules import ReleasePolicy, check_release
from secagg.sessions.attestations import ContributionAttestation, read_attestations
from secagg.sessions.countersignatures import Statement, extend_requests
from secagg.sessions.party_state import Attempt, PartyState, RefusedError
from secagg.sessions.party_transitions import Denial, RequestKind, Step
from secagg.sessions.rounds import COHORT, CONSENT, COUNTERSIGN, SETUP_SHAPE, StagePlans
from secagg.sessions.site_steps import SiteContext, SiteRequest, SiteSteps, are_names

__all__ = ["REFUSED", "Handled", "Party", "SiteContext"]

REFUSED = "refused"
"""Phase name of a reply that carries only an error code."""


@dataclass(frozen=True)
class Handled:
    """The outcome of one request: the reply, the new state, and the full error if there is one.

    site_result: the site's own result, once it has contributed to the last round
    """

    reply: bytes
    state: bytes = field(repr=False)  # may hold private keys
    error: SecaggError | None = None
    site_result: Result | None = None


@dataclass(frozen=True)
class _Answer:
    """An answer: the new state, the body of the reply and its signed note."""

    state: PartyState
    body: Body
    note: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Party:
    """A site or an aggregator in one session; all fields are constant."""

    identity: Identity
    roster: Roster
    session: bytes
    protocol: SecureSum
    plans: StagePlans
    policy: ReleasePolicy
    random: RandomBytes
    site: SiteContext | None = None
    named: NamedSites | None = None
    """the sites that the job names, if it does"""

    def first_state(self) -> bytes:
        """Return the state before any request."""
        return canonical_encoding.dumps(PartyState().to_plain())

    def handle(self, request: bytes, state_bytes: bytes) -> Handled:
        """Answer one frame of the coordinator; an error is in `Handled.error` and is not raised."""
        state = PartyState.from_plain(canonical_encoding.loads(state_bytes))
        round_ = max(state.round, 0)
        try:
            items = self.plans.message_items(len(self.roster.parties))
            keys = {phase.name for phase in self.protocol.setup}
            me, session = self.identity.name, self.session
            frame = read_frame(request, self.roster, me, session, items, keys)
            round_ = frame.header.round
            phase = self._admit(frame.header, state)
            answer = self._answer(frame, phase, state)
        except SecaggError as error:
            return Handled(self._refusal(round_, error.code), state_bytes, error)
        except RefusedError as refused:
            new_state = canonical_encoding.dumps(refused.state.to_plain())
            return Handled(self._refusal(round_, refused.code), new_state, refused.error)
        reply = self._frame(round_, phase.name, answer.body, answer.note)
        new_state = canonical_encoding.dumps(answer.state.to_plain())
        return Handled(reply, new_state, site_result=self._site_result(phase, answer.state))

    def _admit(self, header: Header, state: PartyState) -> Phase:
        """Return the requested phase, if this party runs it and has not answered it yet."""
        if header.sender != self.roster.coordinator:
            raise PeerError(header.sender, "only the coordinator may send requests")
        if state.over:  # before any other check: every request gets the same refusal
            raise Denial.SESSION_OVER.error(self.identity.name, self.roster.coordinator)
        phases = (CONSENT, *self.protocol.setup, *self.protocol.phases, COUNTERSIGN)
        phase = {phase.name: phase for phase in phases}.get(header.phase)
        if phase is None or phase.role is not self.identity.role:
            raise PeerError(header.sender, "requests a phase that this party does not run")
        if state.has_answered(header.round, phase):
            raise PeerError(header.sender, "sends an old request, or the same request twice")
        return phase

    def _answer(self, frame: Frame, phase: Phase, before: PartyState) -> _Answer:
        """Answer an admitted request."""
        if phase is COUNTERSIGN:
            return self._countersign(frame, before)
        round_, body, stage = frame.header.round, frame.body, frame.body.get("stage")
        kind, state = RequestKind.of(phase, stage), before.answering(round_, phase)
        if phase is CONSENT:
            site, request = self._site_steps(round_, body, before)
            attempt = Attempt(kind, before, request.records)
            return _Answer(site.consent(attempt, request, state), {}, {"asked": request.digest})
        shape = SETUP_SHAPE if phase in self.protocol.setup else self.plans.of(stage).shape
        attempt = Attempt(kind, before)
        contribution: RingVector | None = None
        note: Mapping[str, Any] = {}
        digest = b""
        if phase.contributes:
            site, request = self._site_steps(round_, body, before)
            attempt = replace(attempt, records=request.records)
            state, contribution = site.contribute(attempt, request, state)
            digest, note = request.digest, self._attestation(request).note()
            state = replace(state, requests=extend_requests(state.requests, digest))
        if phase.opens:
            with attempt.step(Step.FACTS):
                cohort = self._check_opening(round_, body, state)
            state = replace(state, cohort=cohort)
        context = Context(
            self.session, round_, self.identity, self.roster, shape, self.random, digest,
            self.policy.min_sites or 0, 0 if self.named is None else len(self.named.names),
        )  # fmt: skip
        with attempt.step(Step.PROTOCOL):
            memory, reply = self.protocol.client(
                phase.name, state.protocol, body, context, contribution
            )
        return _Answer(replace(state, protocol=memory), reply, note)

    def _site_steps(
        self, round_: int, body: Body, before: PartyState
    ) -> tuple[SiteSteps, SiteRequest]:
        """Return the steps of this site, and its request.

        Raises `PeerError` if it is no site, and `PolicyRefusal` for sites that no sum may cover.
        """
        if self.site is None:
            raise PeerError(self.roster.coordinator, "asks a party without data to contribute")
        site = SiteSteps(
            self.identity.name, self.roster, self.plans, self.policy, self.random, self.site
        )
        request = site.read_request(round_, body, before.requests)
        if self.named is not None:
            self.named.check(self.identity.name, request.cohort, self.policy.min_sites)
        return site, request

    def _attestation(self, request: SiteRequest) -> ContributionAttestation:
        """Return the public statement that a site signs when it contributes."""
        min_sites = self.policy.thresholds(self.identity.name)[0]
        return ContributionAttestation(
            min_sites, len(request.cohort), request.stage, request.digest
        )

    def _check_opening(self, round_: int, body: Body, state: PartyState) -> tuple[str, ...]:
        """Return the sites of the sum to open, if the release rules allow it.

        The rules apply with the thresholds that the contributors signed.
        """
        match body:
            case {"contributors": list(sites), "claims": dict(claims)} if are_names(sites):
                pass
            case _:
                raise PeerError(self.roster.coordinator, "malformed request to open a sum")
        stage, me = str(body.get("stage")), self.identity.name
        thresholds = read_attestations(claims, stage, round_, self.roster, self.session)
        check_release(self.policy, me, sites, thresholds, state.cohort)
        if self.named is not None:
            self.named.check(me, sites, self.policy.min_sites)
        if stage != COHORT and set(thresholds) != set(sites):
            # Each site signed the number of contributors for which it sized its noise. A further
            # claim would make that number match a sum over fewer sites, with less noise. (Noise in
            # the count of records is sized for min_sites.)
            raise PeerError(
                self.roster.coordinator, "sends claims of sites that are not in the sum"
            )
        if me in sites and self.site is not None and self.site.guard is not None:
            self.site.guard.opened(round_, stage, stage == COHORT, sites)
        return tuple(sorted(sites))

    def _countersign(self, frame: Frame, before: PartyState) -> _Answer:
        """Sign the end of the run (`secagg.sessions.countersignatures`), and end the session."""
        statement = Statement.read(frame.body, self.roster.coordinator)
        if not before.requests or statement.requests != before.requests:
            what = "asks to countersign other requests than those of this session"
            raise PeerError(self.roster.coordinator, what)
        state = replace(before.answering(frame.header.round, COUNTERSIGN), over=True)
        return _Answer(state, {}, statement.note())

    def _site_result(self, phase: Phase, state: PartyState) -> Result | None:
        """Return the site's own result, if the method has one and this was the last round."""
        site = self.site
        if site is None or not phase.contributes or site.facts.site_result is None:
            return None
        with single_threaded_blas():
            return site.facts.site_result(state.method, site.public)

    def _refusal(self, round_: int, code: str) -> bytes:
        return self._frame(round_, REFUSED, {"code": code}, {})

    def _frame(self, round_: int, phase: str, body: Body, note: Mapping[str, Any]) -> bytes:
        return write_frame(
            self.identity, self.session, round_, phase, self.roster.coordinator, body, note
        )
