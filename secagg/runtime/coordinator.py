"""The coordinator of one session: asks, collects, and never sees more than the sums.

`start` and `advance` are functions of plain state and the frames that came back. A `Step` says what
to write to the log, what to send, and whether the run is done; the caller writes `events` to disk
*before* it sends or advances. When a sum has been opened the coordinator first yields a step whose
event records the release, and decodes only in the next one: a release that is not on disk is never
used (invariant 5 of the design).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from secagg.contracts import (
    Ask,
    Body,
    Context,
    Method,
    Phase,
    PublicFacts,
    Ready,
    SecureSum,
    State,
    Total,
)
from secagg.core.frames import Frame, read_frame, write_frame
from secagg.core.identity import Identity, Roster
from secagg.core.randomness import RandomBytes
from secagg.core.threads import single_threaded_blas
from secagg.errors import (
    CapabilityError,
    DataError,
    EvidenceError,
    InternalError,
    JobError,
    OverflowRefusal,
    PeerError,
    PolicyRefusal,
    ProtocolAbort,
    SecaggError,
    UsageError,
)
from secagg.privacy.policy.release_rules import (
    ReleasePolicy,
    check_cohort,
    check_invitation,
    check_release,
)
from secagg.runtime.attestations import digest_request, read_attestations
from secagg.runtime.fixed_point import decode
from secagg.runtime.party import REFUSED
from secagg.runtime.rounds import COHORT, CONSENT, SETUP_SHAPE, StagePlans

_REFUSALS: Mapping[str, type[SecaggError]] = {
    kind.code: kind
    for kind in (
        PolicyRefusal,
        UsageError,
        JobError,
        DataError,
        OverflowRefusal,
        CapabilityError,
        InternalError,
        EvidenceError,
    )
}
"""Codes of a party's refusal that end the run. Any other code counts as not having answered."""
_PER_SUM_KEYS = ("total", "contributors", "claims", "checked")
"""What the state holds of one sum only."""


@dataclass(frozen=True)
class Step:
    """What follows from one step: log `events`, then send `requests`, then advance."""

    state: State
    requests: dict[str, bytes] = field(default_factory=dict)
    events: tuple[dict[str, Any], ...] = ()
    done: bool = False


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
    """the sites of sums that were released in earlier sessions"""

    @single_threaded_blas()
    def start(self) -> Step:
        """Begin the session by asking every site for its consent."""
        state: State = {
            "round": 0,
            "stage": None,
            "cohort": list(self.public.sites),
            "released": False,
            "records": None,
            "request": b"",
            "counts": {},
            "clipped": {},
            "protocol": {},
            "method": self.method.initial_state(self.public),
        }
        return self._ask_consent({**state, "stage": COHORT, "message": {}}, ())

    def advance(self, state: State, frames: Sequence[bytes]) -> Step:
        """Take the frames that came back for the last step's requests, and go on."""
        if "total" in state:
            return self._use_release(state)
        replies, claims, events = self._collect(state, frames)
        phase = self._phase(state["phase"])
        if phase.contributes or phase is CONSENT:
            lost = sorted(set(state["asked"]) - set(replies))
            if lost and state["released"]:
                raise ProtocolAbort(
                    f"round {state['round']}",
                    f"{lost[0]} dropped out after the first release; a sum over the others would "
                    "show what it contributed",
                    "Run again with the same sites: sums without it would differ by its records.",
                )
            state = {**state, "claims": claims, "checked": None}
        if phase is CONSENT:
            return self._consented(state, events)
        return self._run_server(phase.name, state, replies, events)

    # --- consent -------------------------------------------------------------------------------

    def _ask_consent(self, state: State, events: tuple[dict[str, Any], ...]) -> Step:
        """Ask each site whether it will take part: before the first sum, and once it is known."""
        check_invitation(self.policy, self.identity.name, state["cohort"], state["records"])
        check_cohort(self.policy, self.identity.name, state["cohort"], self.earlier)
        body = {key: state[key] for key in ("stage", "cohort", "records", "message")}
        requests = {
            site: write_frame(self.identity, self.session, state["round"], CONSENT.name, site, body)
            for site in state["cohort"]
        }
        asked = {**state, "phase": CONSENT.name, "asked": sorted(requests)}
        return Step(asked, requests, events)

    def _consented(self, state: State, events: tuple[dict[str, Any], ...]) -> Step:
        """Go on when all who were asked have consented; a refusal has ended the run.

        Silence is no consent. The others are then asked anew, because they consent to a sum over
        certain sites, and one of them may want more than are left.
        """
        sites = sorted(state["claims"])
        if state["released"]:
            return self._begin_sum(state, events)
        if sites != state["asked"]:
            return self._ask_consent({**state, "cohort": sites}, events)
        consented = {"event": "consent", "round": 0, "claims": _as_hex(state["claims"])}
        state = {**state, "stage": None}
        return self._run_server("setup", state, {site: {} for site in sites}, (*events, consented))

    # --- one protocol step ---------------------------------------------------------------------

    def _run_server(
        self,
        phase: str,
        state: State,
        replies: Mapping[str, Body],
        events: tuple[dict[str, Any], ...],
    ) -> Step:
        stage = state["stage"]
        shape = SETUP_SHAPE if stage is None else self.plans.of(stage).shape
        context = Context(
            self.session, state["round"], self.identity, self.roster, shape, self.random,
            state["request"],
        )  # fmt: skip
        protocol_state, outcome = self.protocol.server(phase, state["protocol"], replies, context)
        state = {**state, "protocol": protocol_state}
        match outcome:
            case Ready():
                return self._begin_sum({**state, "stage": COHORT}, events)
            case Ask():
                return self._ask(state, outcome, events)
            case Total():
                return self._release(state, outcome, events)

    def _ask(self, state: State, ask: Ask, events: tuple[dict[str, Any], ...]) -> Step:
        phase = self._phase(ask.phase)
        shared: Body = {}
        if state["stage"] is not None:
            shared["stage"] = state["stage"]
        if phase.contributes:
            shared |= {key: state[key] for key in ("cohort", "records", "message")}
        if phase.opens:
            state = self._check_release(state, ask.contributors)
            shared["contributors"] = list(ask.contributors)
            shared["claims"] = {site: state["claims"][site] for site in ask.contributors}
        requests = {
            party: write_frame(
                self.identity, self.session, state["round"], phase.name, party, {**body, **shared}
            )
            for party, body in ask.bodies.items()
        }
        return Step({**state, "phase": phase.name, "asked": sorted(requests)}, requests, events)

    def _collect(
        self, state: State, frames: Sequence[bytes]
    ) -> tuple[dict[str, Body], dict[str, list[bytes]], tuple[dict[str, Any], ...]]:
        """Keep the first good reply of each party that was asked; log what was not good."""
        replies: dict[str, Body] = {}
        claims: dict[str, list[bytes]] = {}
        events: list[dict[str, Any]] = []
        refusals: dict[str, str] = {}
        for data in frames:
            try:
                frame = read_frame(data, self.roster, self.identity.name, self.session)
                sender = frame.header.sender
                if (
                    frame.header.phase == REFUSED
                    and frame.header.round == state["round"]
                    and sender in state["asked"]
                ):
                    code = frame.body.get("code")
                    refusals.setdefault(sender, code if isinstance(code, str) else "")
                    continue
                self._expect(frame, state)
            except PeerError as error:
                events.append({"event": "rejected", "round": state["round"], "why": error.line()})
                continue
            if sender not in replies:
                replies[sender] = frame.body
                claims[sender] = list(frame.proof)
        for party, code in refusals.items():
            if party not in replies and code in _REFUSALS:
                raise _REFUSALS[code](party, f"refuses ({code}); its own log says why")
        missing = sorted(set(state["asked"]) - set(replies))
        if missing:
            about = {"round": state["round"], "phase": state["phase"], "parties": missing}
            events.append({"event": "missing", **about})
        return dict(sorted(replies.items())), claims, tuple(events)

    def _expect(self, frame: Frame, state: State) -> None:
        header = frame.header
        if (header.round, header.phase) != (state["round"], state["phase"]):
            raise PeerError(header.sender, "answers another round or phase")
        if header.sender not in state["asked"]:
            raise PeerError(header.sender, "answers without being asked")

    def _phase(self, name: str) -> Phase:
        for phase in (CONSENT, *self.protocol.setup, *self.protocol.phases):
            if phase.name == name:
                return phase
        raise InternalError("coordinator", f"protocol has no phase {name!r}")

    # --- releases --------------------------------------------------------------------------------

    def _check_release(self, state: State, contributors: Sequence[str]) -> State:
        """Apply all rules to a sum over these sites, and note what they signed; once for each sum.

        It is asked for before the parties are asked to open a sum and again when it is open. Claims
        come with contributions, and nothing else that is looked at changes in between.
        """
        if state["checked"] is not None and sorted(state["checked"]) == sorted(contributors):
            return state
        claims = {site: state["claims"].get(site) for site in contributors}
        thresholds = read_attestations(
            claims, state["stage"], state["round"], self.roster, self.session
        )
        first = state["cohort"] if state["released"] else None
        check_release(self.policy, self.identity.name, contributors, thresholds, first)
        check_cohort(self.policy, self.identity.name, contributors, self.earlier)
        return {**state, "checked": thresholds}

    def _release(self, state: State, total: Total, events: tuple[dict[str, Any], ...]) -> Step:
        """Record the release, once the rules allow it; the sum itself is not used yet."""
        state = self._check_release(state, total.contributors)
        event = {
            "event": "release",
            "round": state["round"],
            "stage": state["stage"],
            "contributors": sorted(total.contributors),
            "thresholds": state["checked"],
            "claims": _as_hex({site: state["claims"][site] for site in total.contributors}),
        }
        state = {**state, "total": total.values, "contributors": sorted(total.contributors)}
        return Step(state, events=(*events, event))

    @single_threaded_blas()
    def _use_release(self, state: State) -> Step:
        """Decode the recorded release, hand it to the method, and begin the next round."""
        stage, plan = state["stage"], self.plans.of(state["stage"])
        fields, clipped = decode(plan, state["total"])
        cohort = state["contributors"]
        state = {k: v for k, v in state.items() if k not in _PER_SUM_KEYS}
        state |= {"released": True, "cohort": cohort, "round": state["round"] + 1}
        state["clipped"] = {**state["clipped"], stage: clipped + state["clipped"].get(stage, 0.0)}
        if stage == COHORT:
            # With noise it may be anything; that each site keeps to min_records is known.
            least = len(cohort) * (self.policy.min_records or 0)
            records = max(least, round(float(fields["records"][0])))
            state |= {"counts": fields, "records": records}
        else:
            state["method"] = self.method.aggregate(state["method"], fields, len(cohort))
        following = self.method.next_request(state["method"])
        if following is None:
            return Step(state, done=True)
        state["stage"], state["message"] = following
        return self._ask_consent(state, ()) if stage == COHORT else self._begin_sum(state, ())

    def _begin_sum(self, state: State, events: tuple[dict[str, Any], ...]) -> Step:
        state = {"message": {}, **state}
        check_invitation(self.policy, self.identity.name, state["cohort"], state["records"])
        what = (state["stage"], state["cohort"], state["records"], state["message"])
        state = {**state, "request": digest_request(*what)}
        begun = {"event": "round", "round": state["round"], "stage": state["stage"]}
        replies: dict[str, Body] = {site: {} for site in state["cohort"]}
        return self._run_server("sum", state, replies, (*events, begun))


def _as_hex(claims: Mapping[str, Sequence[bytes]]) -> dict[str, list[str]]:
    return {site: [part.hex() for part in parts] for site, parts in sorted(claims.items())}
