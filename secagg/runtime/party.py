"""One party beside the coordinator (a site or an aggregator): answers signed requests.

`Party.handle` is a function of (request bytes, state bytes): it verifies the request, applies the
party's own release rules, runs one protocol step and returns a signed reply. The order is fixed
here, for every method and protocol: rules, data, clip and encode, ledger, noise, protect; and
before anything is opened, rules again. Before the first sum, and again when that is known, a site
is asked for its consent: rules and budget, and nothing is computed, entered or sent. A coordinator
that leaves this out, or goes on after a refusal, wastes other sites' budgets; it learns nothing by
it. Consent costs nothing, so that it must not be a way to ask about records: with noise they are
looked at when the count is paid for, and no stage is consented to twice after that.

A refusal that depends on the records and on something that the coordinator chose tells a bit of
them; asked again and again, a site would answer a search. So a site remembers such refusals. It is
told one number of records in all, with which its rules compare its own. And once the method has
looked at a message, a refusal ends the session, whoever refused (the method, the ledger, the
protocol): it refuses whatever is asked from then on. Otherwise a request that is bound to be
refused later would tell for nothing that the method had not. What a session can tell by that is in
which round it ended, and by which kind of error. Refusals before that change nothing, so that what
is mended (a rule, a file) may be asked for again.

What crosses the wire when something is wrong is a code without data; the text stays in
`Handled.error`, at the party.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from secagg.contracts import (
    Body,
    Context,
    HasSiteResult,
    Method,
    Phase,
    PublicFacts,
    Result,
    SecureSum,
    SiteRecords,
    State,
)
from secagg.core import encoding
from secagg.core.frames import MAX_COUNT, Frame, is_whole, read_frame, write_frame
from secagg.core.identity import Identity, Role, Roster
from secagg.core.randomness import RandomBytes, expanded, system_random
from secagg.core.ring import RingVector
from secagg.core.threads import single_threaded_blas
from secagg.errors import InternalError, PeerError, PolicyRefusal, SecaggError
from secagg.privacy.policy.guard import ContributionRequest, Guard, PlannedRelease
from secagg.privacy.policy.release_rules import (
    ReleasePolicy,
    check_invitation,
    check_records,
    check_release,
)
from secagg.privacy.sampling.sampler import sample_weighted
from secagg.runtime.attestations import ContributionAttestation, digest_request, read_attestations
from secagg.runtime.fixed_point import add_noise, encode
from secagg.runtime.rounds import COHORT, CONSENT, SETUP_SHAPE, StagePlans, cohort_update

REFUSED = "refused"
"""Phase name of a reply that carries only an error code."""


@dataclass(frozen=True)
class SiteContext:
    """What only a site has: its records (read when first needed) and the method to run on them."""

    method: Method
    public: PublicFacts
    load: Callable[[], SiteRecords]
    guard: Guard | None = None
    """policy and ledger; None where nothing of this can be released: a dry run"""
    random: RandomBytes = system_random
    """for the method's own draws, a stream apart from the protocol's"""

    @cached_property
    def rows(self) -> SiteRecords:
        """The site's records."""
        return self.load()


@dataclass(frozen=True)
class Handled:
    """What came of one request: the reply, the new state, and the party's own view of an error.

    own: what the method leaves at this site, with its part in the last round
    """

    reply: bytes
    state: bytes = field(repr=False)  # may hold private keys
    error: SecaggError | None = None
    own: Result | None = None


class _RememberedError(Exception):
    """A refusal for the reason given, which leaves something in the party's state."""

    def __init__(self, why: SecaggError, **left: object) -> None:
        super().__init__(why)
        self.why, self.left = why, left


@contextmanager
def _over_if_refused() -> Iterator[None]:
    """Let a refusal end the session; see the module's docstring."""
    try:
        yield
    except SecaggError as error:
        raise _RememberedError(error, over=True) from None


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
        return encoding.dumps(
            {
                "round": -1,
                "over": False,
                "records": None,
                "handled": [],
                "contributed": {},
                "consented": [],
                "cohort": None,
                "protocol": {},
                "method": {},
            }
        )

    def handle(self, request: bytes, state_bytes: bytes) -> Handled:
        """Answer one frame of the coordinator; a `SecaggError` is in the result, not raised."""
        state: State = encoding.loads(state_bytes)
        round_ = state["round"]
        try:
            frame = read_frame(request, self.roster, self.identity.name, self.session)
            round_ = frame.header.round
            phase = self._admit(frame, state)
            new_state, body, note = self._step(frame, phase, state)
        except SecaggError as error:
            return Handled(self._refusal(round_, error), state_bytes, error)
        except _RememberedError as refused:
            after = encoding.dumps({**state, **refused.left})
            return Handled(self._refusal(round_, refused.why), after, refused.why)
        reply, own = self._frame(round_, phase.name, body, note), self._own_result(phase, new_state)
        return Handled(reply, encoding.dumps(new_state), own=own)

    def _own_result(self, phase: Phase, state: State) -> Result | None:
        """Return what the method leaves at this site, when this was its part in the last round."""
        site = self.site
        if site is None or not phase.contributes or not isinstance(site.method, HasSiteResult):
            return None
        with single_threaded_blas():
            return site.method.site_result(state["method"], site.public)

    def _refusal(self, round_: int, error: SecaggError) -> bytes:
        return self._frame(max(round_, 0), REFUSED, {"code": error.code}, {})

    def _frame(self, round_: int, phase: str, body: Body, note: Mapping[str, Any]) -> bytes:
        return write_frame(
            self.identity, self.session, round_, phase, self.roster.coordinator, body, note
        )

    def _admit(self, frame: Frame, state: State) -> Phase:
        """Return the phase that is asked for, if it is ours to run, now and for the first time."""
        header = frame.header
        if header.sender != self.roster.coordinator:
            raise PeerError(header.sender, "only the coordinator makes requests")
        if state["over"]:
            what = "the session was over here when an answer to the method's message was refused"
            raise PolicyRefusal(self.identity.name, what, "Begin a new run.")
        phases = (CONSENT, *self.protocol.setup, *self.protocol.phases)
        known = {phase.name: phase for phase in phases}
        phase = known.get(header.phase)
        if phase is None or phase.role is not self.identity.role:
            raise PeerError(header.sender, "asks for a phase that is not this party's")
        answered = header.phase in state["handled"] and phase is not CONSENT
        if header.round < state["round"] or (header.round == state["round"] and answered):
            raise PeerError(header.sender, "repeats an earlier request")
        return phase

    def _step(
        self, frame: Frame, phase: Phase, state: State
    ) -> tuple[State, Body, Mapping[str, Any]]:
        header, body, me = frame.header, frame.body, self.identity.name
        same_round = header.round == state["round"]
        handled = [*state["handled"], header.phase] if same_round else [header.phase]
        state = {**state, "round": header.round, "handled": handled}
        if phase is CONSENT:
            return self._consent(header.round, body, state)
        stage = body.get("stage")
        shape = SETUP_SHAPE if phase in self.protocol.setup else self.plans.of(stage).shape
        contribution: RingVector | None = None
        note: Mapping[str, Any] = {}
        asked = b""
        if phase.contributes:
            state, contribution = self._contribute(header.round, str(stage), body, state)
            asked = digest_request(str(stage), body["cohort"], body["records"], body["message"])
            least, told = self.policy.thresholds(me)[0], len(body["cohort"])
            note = ContributionAttestation(least, told, str(stage), asked).note()
        if phase.opens:
            self._check_opening(header.round, body, state)
            state = {**state, "cohort": sorted(body["contributors"])}
        context = Context(
            self.session, header.round, self.identity, self.roster, shape, self.random, asked,
            self.policy.min_sites or 0,
        )  # fmt: skip
        final = contribution is not None and stage != COHORT
        with _over_if_refused() if final else nullcontext():
            protocol_state, reply = self.protocol.client(
                phase.name, state["protocol"], body, context, contribution
            )
        return {**state, "protocol": protocol_state}, reply, note

    def _consent(
        self, round_: int, body: Body, state: State
    ) -> tuple[State, Body, Mapping[str, Any]]:
        """Decide whether to take part, as far as that is known before anybody contributes.

        To the first sum any number of times, because sites that are silent leave another cohort.
        """
        site, stage = self._side(), body.get("stage")
        self.plans.of(stage)
        cohort, records, sent = self._asked(str(stage), body)
        counting = stage == COHORT
        if stage in state["contributed"] or stage in state["consented"]:
            raise PeerError(self.roster.coordinator, "asks for consent to what it had an answer to")
        if not counting and COHORT not in state["contributed"]:
            raise PeerError(self.roster.coordinator, "asks for consent to more than is known")
        occasion = ContributionRequest(round_, str(stage), tuple(sorted(cohort)), records, 0)
        self._admit_to_records(site, occasion)
        guard = site.guard
        if not counting or guard is None or guard.calibrated is None:
            state = self._check_records(site, occasion, state)
        if guard is not None:
            answers = [self._answer(site, occasion, sent)]
            with single_threaded_blas():
                first = (
                    site.method.next_request(site.method.initial_state(site.public))
                    if counting
                    else None
                )
            if first is not None:
                following = replace(occasion, round=round_ + 1, stage=first[0], total=0)
                answers.append(self._answer(site, following, first[1]))
            guard.check_budget(answers, lambda: site.rows)
        if not counting:
            state = {**state, "consented": [*state["consented"], stage]}
        return state, {}, {"asked": digest_request(str(stage), cohort, records, sent)}

    def _contribute(
        self, round_: int, stage: str, body: Body, state: State
    ) -> tuple[State, RingVector]:
        """Apply the site's rules, then compute, encode and noise its contribution."""
        site = self._side()
        cohort, records, sent = self._asked(stage, body)
        before = state["contributed"].get(stage, 0)
        occasion = ContributionRequest(round_, stage, tuple(sorted(cohort)), records, before)
        self._admit_to_records(site, occasion)
        state = self._count_round(stage, state)
        if stage != COHORT:
            first = state["cohort"] or sorted(cohort)
            if sorted(cohort) != first:
                raise PolicyRefusal(self.identity.name, "the sites changed after the first release")
            state = {**state, "cohort": first}
        state = self._check_records(site, occasion, state)
        vector, memory = self._compute(site, stage, sent, state["method"])
        with nullcontext() if stage == COHORT else _over_if_refused():
            self._release(site, occasion, sent, vector)
        return {**state, "method": memory}, vector

    def _compute(
        self, site: SiteContext, stage: str, sent: Body, memory: State
    ) -> tuple[RingVector, State]:
        """Return the contribution, encoded, and what the method remembers."""
        plan = self.plans.of(stage)
        if stage == COHORT:
            return encode(plan, cohort_update(site.rows, self.plans.stages[stage].spec)), memory
        with _over_if_refused():
            try:
                with single_threaded_blas():
                    update, memory = site.method.contribute(
                        stage, site.rows, sent, memory, site.public, site.random
                    )
                return encode(plan, update), memory
            except SecaggError:
                raise
            except Exception as error:  # whatever it is, the message may have brought it about
                what = f"{type(error).__name__}: {error}".splitlines()[0]
                mend = "A bug of ours: set SECAGG_TRACEBACK=1 and report it."
                raise InternalError(self.identity.name, what, mend) from error

    def _side(self) -> SiteContext:
        """Return what only a site has. Raises `PeerError` at any other party."""
        if self.site is None:
            raise PeerError(self.roster.coordinator, "asks a party without data to contribute")
        return self.site

    def _admit_to_records(self, site: SiteContext, occasion: ContributionRequest) -> None:
        """Apply the rules that need no record."""
        if site.guard is None:
            check_invitation(self.policy, self.identity.name, occasion.cohort, occasion.total)
        else:
            site.guard.admit(occasion)

    def _check_records(
        self, site: SiteContext, occasion: ContributionRequest, state: State
    ) -> State:
        """Read the records, the first time, and apply the rules on them."""
        me, told = self.identity.name, occasion.total
        if told is not None and state["records"] not in (None, told):
            raise PolicyRefusal(me, "the number of records in all has changed")
        left = {} if told is None else {"records": told}
        try:
            if site.guard is None:
                check_records(self.policy, me, len(site.rows.values))
            else:
                site.guard.check(occasion, site.rows, site.public)
        except SecaggError as error:
            raise _RememberedError(error, **left) from None
        return {**state, **left}

    def _asked(self, stage: str, body: Body) -> tuple[list[str], int | None, Body]:
        """Return the cohort, the number of records in all and the message of a request."""
        match body:
            case {"cohort": list(cohort), "records": records, "message": dict(sent)} if _are_names(
                cohort
            ) and (records is None or is_whole(records, MAX_COUNT)):
                pass
            case _:
                raise PeerError(self.roster.coordinator, "malformed request to contribute")
        me = self.identity.name
        if (records is None) != (stage == COHORT):
            raise PolicyRefusal(me, "the number of records in all is not known")
        if me not in cohort or not set(cohort) <= set(self.roster.named(Role.SITE)):
            raise PeerError(self.roster.coordinator, "names a cohort that is not of these sites")
        return cohort, records, sent

    def _answer(
        self, site: SiteContext, occasion: ContributionRequest, sent: Body
    ) -> PlannedRelease:
        """Return what the ledger has to know of a contribution."""
        noise, variance = site.public.noise.get(occasion.stage), 0
        if noise is not None:
            # The first sum may lose sites, down to `least`; later sums are over these or none.
            sharing = noise.least if occasion.stage == COHORT else len(occasion.cohort)
            variance = noise.at_site(sharing)
        return PlannedRelease(occasion, self.plans.stages[occasion.stage].spec, sent, variance)

    def _release(
        self, site: SiteContext, occasion: ContributionRequest, sent: Body, vector: RingVector
    ) -> None:
        """Enter the contribution in the ledger, and add its noise. From here on it may leave."""
        plan, noise = self.plans.of(occasion.stage), site.public.noise.get(occasion.stage)
        answer = self._answer(site, occasion, sent)
        guard = site.guard
        seed = self.random(32) if guard is None else guard.record_release(answer, self.random)
        if noise is not None:
            random = expanded(seed)
            drawn = sample_weighted(answer.variance, noise.weights, plan.noised, random)
            add_noise(plan, vector, drawn)

    def _count_round(self, stage: str, state: State) -> State:
        """Refuse more rounds of a stage than the job declared: each one shows another sum."""
        done, most = state["contributed"].get(stage, 0), self.plans.stages[stage].max_rounds
        if done >= most:
            raise PolicyRefusal(
                self.identity.name, f"stage {stage!r} has had all the rounds it declares ({most})"
            )
        return {**state, "contributed": {**state["contributed"], stage: done + 1}}

    def _check_opening(self, round_: int, body: Body, state: State) -> None:
        """Check the release rules with the thresholds that the contributors signed."""
        match body:
            case {"contributors": list(sites), "claims": dict(claims)} if _are_names(sites):
                pass
            case _:
                raise PeerError(self.roster.coordinator, "malformed request to open a sum")
        thresholds = read_attestations(claims, body.get("stage"), round_, self.roster, self.session)
        me = self.identity.name
        check_release(self.policy, me, sites, thresholds, state["cohort"])
        if me in sites and self.site is not None and self.site.guard is not None:
            stage = str(body.get("stage"))
            self.site.guard.opened(round_, stage, stage == COHORT, sites)


def _are_names(values: list[object]) -> bool:
    return all(isinstance(value, str) for value in values)
