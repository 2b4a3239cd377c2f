"""One party beside the coordinator (a site or an aggregator): it answers signed requests.

`Party.handle` is a function of (request bytes, state bytes). It verifies the request, applies the
party's own release rules, runs one step of the protocol, and returns a signed reply. The order is
fixed here and in `secagg.runtime.site_steps`, for every method and protocol: rules, data, clip and
encode, ledger, noise, protect; and before anything is opened, rules again. Which requests a party
answers in which state, and what a refusal leaves behind, is in the two tables of
`secagg.runtime.party_transitions`, and nowhere else.

Consent comes first. Before the first sum, and again once the number of records is known, each site
checks rules and budget, and nothing is computed, entered or sent. A coordinator that skips this, or
goes on after a refusal, wastes the budgets of other sites; it learns nothing from it.

A refusal tells something too. If it depends on the records and on something that the coordinator
chose, it tells a bit about the records, and a site that answered again and again would answer a
search. Therefore a site remembers such refusals:

* It accepts one number of records in all. Its rules compare its own records with that number.
* Once the method has looked at a message, a refusal ends the session, whoever refused: the method,
  the ledger or the protocol. The site then refuses every further request. Otherwise the coordinator
  could send a request that the ledger or the protocol is bound to refuse, and learn without cost
  whether the method had refused it first.

So a session tells at most in which round it ended, and by which kind of error. Refusals before the
method has looked at a message change nothing: once the cause is mended (a rule, a file), the same
request may come again.

When something is wrong, only a code without data crosses the wire. The text stays at the party, in
`Handled.error`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from secagg.contracts import Body, Context, HasSiteResult, Phase, Result, SecureSum
from secagg.core import encoding
from secagg.core.frames import Frame, Header, read_frame, write_frame
from secagg.core.identity import Identity, Roster
from secagg.core.randomness import RandomBytes
from secagg.core.ring import RingVector
from secagg.core.threads import single_threaded_blas
from secagg.errors import PeerError, SecaggError
from secagg.privacy.policy.release_rules import ReleasePolicy, check_release
from secagg.runtime.attestations import ContributionAttestation, read_attestations
from secagg.runtime.party_state import Attempt, PartyState, RefusedError
from secagg.runtime.party_transitions import Denial, Request, Step
from secagg.runtime.rounds import COHORT, CONSENT, SETUP_SHAPE, StagePlans
from secagg.runtime.site_steps import Asked, SiteContext, SiteSteps, are_names

__all__ = ["REFUSED", "Handled", "Party", "SiteContext"]

REFUSED = "refused"
"""Phase name of a reply that carries only an error code."""


@dataclass(frozen=True)
class Handled:
    """What came of one request: the reply, the new state, and the party's own view of an error.

    own: what the method leaves at this site, with its part in the last round
    """

    reply: bytes
    state: bytes = field(repr=False)  # may hold private keys
    error: SecaggError | None = None
    own: Result | None = None


@dataclass(frozen=True)
class _Answer:
    """What a party answers: its state from then on, the reply's body and its signed note."""

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

    def first_state(self) -> bytes:
        """Return the state before any request."""
        return encoding.dumps(PartyState().to_plain())

    def handle(self, request: bytes, state_bytes: bytes) -> Handled:
        """Answer one frame of the coordinator; a `SecaggError` is in the result, not raised."""
        state = PartyState.from_plain(encoding.loads(state_bytes))
        round_ = max(state.round, 0)
        try:
            frame = read_frame(request, self.roster, self.identity.name, self.session)
            round_ = frame.header.round
            phase = self._admit(frame.header, state)
            answer = self._answer(frame, phase, state)
        except SecaggError as error:
            return Handled(self._refusal(round_, error), state_bytes, error)
        except RefusedError as refused:
            left = encoding.dumps(refused.left.to_plain())
            return Handled(self._refusal(round_, refused.why), left, refused.why)
        reply = self._frame(round_, phase.name, answer.body, answer.note)
        own = self._own_result(phase, answer.state)
        return Handled(reply, encoding.dumps(answer.state.to_plain()), own=own)

    def _admit(self, header: Header, state: PartyState) -> Phase:
        """Return the phase that is asked for, if it is ours to run, now and for the first time."""
        if header.sender != self.roster.coordinator:
            raise PeerError(header.sender, "only the coordinator makes requests")
        if state.over:  # whatever is asked, even what no table has
            raise Denial.SESSION_OVER.error(self.identity.name, self.roster.coordinator)
        phases = (CONSENT, *self.protocol.setup, *self.protocol.phases)
        phase = {phase.name: phase for phase in phases}.get(header.phase)
        if phase is None or phase.role is not self.identity.role:
            raise PeerError(header.sender, "asks for a phase that is not this party's")
        if state.has_answered(header.round, phase):
            raise PeerError(header.sender, "repeats an earlier request")
        return phase

    def _answer(self, frame: Frame, phase: Phase, before: PartyState) -> _Answer:
        """Answer a request that was admitted."""
        round_, body, stage = frame.header.round, frame.body, frame.body.get("stage")
        request, state = Request.of(phase, stage), before.answering(round_, phase)
        if phase is CONSENT:
            site, asked = self._site_steps(round_, body)
            attempt = Attempt(request, before, asked.records)
            return _Answer(site.consent(attempt, asked, state), {}, {"asked": asked.digest})
        shape = SETUP_SHAPE if phase in self.protocol.setup else self.plans.of(stage).shape
        attempt = Attempt(request, before)
        contribution: RingVector | None = None
        note: Mapping[str, Any] = {}
        digest = b""
        if phase.contributes:
            site, asked = self._site_steps(round_, body)
            attempt = replace(attempt, told=asked.records)
            state, contribution = site.contribute(attempt, asked, state)
            digest = asked.digest
            note = self._attested(asked)
        if phase.opens:
            with attempt.step(Step.FACTS):
                cohort = self._check_opening(round_, body, state)
            state = replace(state, cohort=cohort)
        context = Context(
            self.session, round_, self.identity, self.roster, shape, self.random, digest,
            self.policy.min_sites or 0,
        )  # fmt: skip
        with attempt.step(Step.PROTOCOL):
            kept, reply = self.protocol.client(
                phase.name, state.protocol, body, context, contribution
            )
        return _Answer(replace(state, protocol=kept), reply, note)

    def _site_steps(self, round_: int, body: Body) -> tuple[SiteSteps, Asked]:
        """Return a site's own steps, and what it is asked. Raises `PeerError` elsewhere."""
        if self.site is None:
            raise PeerError(self.roster.coordinator, "asks a party without data to contribute")
        site = SiteSteps(
            self.identity.name, self.roster, self.plans, self.policy, self.random, self.site
        )
        return site, site.read_request(round_, body)

    def _attested(self, asked: Asked) -> Mapping[str, Any]:
        """Return what a site signs in public when it contributes."""
        least = self.policy.thresholds(self.identity.name)[0]
        told = len(asked.cohort)
        return ContributionAttestation(least, told, asked.stage, asked.digest).note()

    def _check_opening(self, round_: int, body: Body, state: PartyState) -> tuple[str, ...]:
        """Return whose sum is opened, once the release rules allow it.

        They are checked with the thresholds that the contributors signed.
        """
        match body:
            case {"contributors": list(sites), "claims": dict(claims)} if are_names(sites):
                pass
            case _:
                raise PeerError(self.roster.coordinator, "malformed request to open a sum")
        stage, me = str(body.get("stage")), self.identity.name
        thresholds = read_attestations(claims, stage, round_, self.roster, self.session)
        check_release(self.policy, me, sites, thresholds, state.cohort)
        if me in sites and self.site is not None and self.site.guard is not None:
            self.site.guard.opened(round_, stage, stage == COHORT, sites)
        return tuple(sorted(sites))

    def _own_result(self, phase: Phase, state: PartyState) -> Result | None:
        """Return what the method leaves at this site, when this was its part in the last round."""
        site = self.site
        if site is None or not phase.contributes or not isinstance(site.method, HasSiteResult):
            return None
        with single_threaded_blas():
            return site.method.site_result(state.method, site.public)

    def _refusal(self, round_: int, error: SecaggError) -> bytes:
        return self._frame(round_, REFUSED, {"code": error.code}, {})

    def _frame(self, round_: int, phase: str, body: Body, note: Mapping[str, Any]) -> bytes:
        return write_frame(
            self.identity, self.session, round_, phase, self.roster.coordinator, body, note
        )
