"""A party against a coordinator that asks for what it should not: it refuses on its own."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pytest
from support.world import STAGE, SumNumbers, World, run_until

from secagg.contracts import SiteRecords
from secagg.core import encoding
from secagg.core.frames import MAX_COUNT, read_frame, write_frame
from secagg.errors import DataError, InternalError, PeerError, PolicyRefusal
from secagg.privacy.policy.release_rules import ReleasePolicy
from secagg.protocols.additive import Additive
from secagg.protocols.masked.protocol import Masked
from secagg.protocols.plain import Plain
from secagg.runtime.attestations import digest_request
from secagg.runtime.party import REFUSED, Handled, Party, SiteContext
from secagg.runtime.rounds import COHORT

SITES = ("a", "b", "c", "d")
NUMBERS = {site: np.array([float(i), -0.5]) for i, site in enumerate(SITES)}
FOUR = list(SITES)


def world(rounds: int = 3, protocol: Any = None, **options: Any) -> World:
    return World(protocol or Additive(2), NUMBERS, SumNumbers((2,), rounds=rounds), **options)


def request(
    w: World, to: str, phase: str, round_: int, body: Any, sender: str = "coordinator"
) -> bytes:
    return write_frame(w.identities[sender], w.session, round_, phase, to, body)


def invite(stage: str = COHORT, cohort: Any = FOUR, records: Any = None) -> dict[str, Any]:
    return {"stage": stage, "cohort": cohort, "records": records, "message": {}}


def refusal(handled: Handled, error: type[Exception], match: str, state: bytes) -> None:
    """The party refuses with this error, sends only its code, and stays in the state it was in."""
    assert handled.state == state
    assert isinstance(handled.error, error), handled.error
    assert match in handled.error.line()


def code_of(w: World, handled: Handled) -> Any:
    frame = read_frame(handled.reply, w.roster, "coordinator", w.session)
    assert frame.header.phase == REFUSED and frame.header.note == {}
    return frame.body


# --- who may ask what, and when ------------------------------------------------------------------


def ask_site(w: World, round_: int, body: dict[str, Any], state: bytes | None = None) -> Handled:
    party = w.engine.parties["a"]
    return party.handle(request(w, "a", "share", round_, body), state or party.first_state())


def test_an_honest_request() -> None:
    w = world()
    handled = ask_site(w, 0, invite())
    assert handled.error is None
    frame = read_frame(handled.reply, w.roster, "coordinator", w.session)
    assert (frame.header.round, frame.header.phase) == (0, "share")
    asked = invite()
    digest = digest_request(asked["stage"], asked["cohort"], asked["records"], asked["message"])
    told = {"min_sites": 2, "sites": len(asked["cohort"]), "stage": asked["stage"], "asked": digest}
    assert frame.header.note == told


@pytest.mark.parametrize("sender", ["b", "aggregator_1", "a"])
def test_only_the_coordinator_asks(sender: str) -> None:
    w = world()
    party = w.engine.parties["a"]
    data = request(w, "a", "share", 0, invite(), sender=sender)
    handled = party.handle(data, party.first_state())
    refusal(handled, PeerError, "only the coordinator", party.first_state())
    assert code_of(w, handled) == {"code": "peer"}


@pytest.mark.parametrize(
    ("party", "phase"),
    [
        ("a", "hold"),
        ("a", "open"),
        ("aggregator_1", "share"),
        ("a", "submit"),
        ("a", REFUSED),
        ("a", ""),
    ],
)
def test_a_phase_that_is_not_its_own(party: str, phase: str) -> None:
    w = world()
    p = w.engine.parties[party]
    handled = p.handle(request(w, party, phase, 0, invite()), p.first_state())
    refusal(handled, PeerError, "not this party's", p.first_state())


def test_requests_are_answered_once_and_in_order() -> None:
    w = world()
    first = ask_site(w, 0, invite())
    refusal(ask_site(w, 0, invite(), first.state), PeerError, "repeats", first.state)
    later = ask_site(w, 2, invite(STAGE, records=9), first.state)
    assert later.error is None
    for round_ in (2, 1, 0):
        again = ask_site(w, round_, invite(STAGE, records=9), later.state)
        refusal(again, PeerError, "repeats", later.state)


@pytest.mark.parametrize("data", [b"", b"junk", encoding.dumps([b"", b"", b""])])
def test_junk(data: bytes) -> None:
    w = world()
    party = w.engine.parties["a"]
    handled = party.handle(data, party.first_state())
    refusal(handled, PeerError, "malformed", party.first_state())
    assert code_of(w, handled) == {"code": "peer"}


# --- a site's rules come before its data ---------------------------------------------------------


def unread() -> SiteRecords:
    raise AssertionError("the records were read")


def cautious(w: World, policy: ReleasePolicy) -> Party:
    side = SiteContext(w.method, w.public, unread)
    return replace(w.engine.parties["a"], policy=policy, site=side)


@pytest.mark.parametrize(
    ("policy", "body", "match"),
    [
        (ReleasePolicy(None, 1), invite(), "min_sites is not set"),
        (ReleasePolicy(2, None), invite(), "min_records is not set"),
        (ReleasePolicy(5, 1), invite(), "4 sites take part, and the release rule asks for 5"),
        (ReleasePolicy(2, 1), invite(cohort=["a"]), "1 sites take part"),
        (ReleasePolicy(2, 1), invite(cohort=["a", "a"]), "counted twice"),
        (ReleasePolicy(2, 1, 50), invite(STAGE, records=49), "49 records in all, and 50"),
        (ReleasePolicy(2, 1), invite(STAGE), "records in all is not known"),
        (ReleasePolicy(2, 1), invite(COHORT, records=5), "records in all is not known"),
    ],
)
def test_rules_refuse_before_records_are_read(
    policy: ReleasePolicy, body: dict[str, Any], match: str
) -> None:
    w = world()
    party = cautious(w, policy)
    handled = party.handle(request(w, "a", "share", 0, body), party.first_state())
    refusal(handled, PolicyRefusal, match, party.first_state())
    assert code_of(w, handled) == {"code": "policy"}


@pytest.mark.parametrize(
    "body",
    [{}, invite("other"), invite(cohort=["b", "c"]), invite(cohort=None), invite(cohort=["a", 1]),
     invite(cohort={"a": 1}), invite(records="9"), invite(STAGE, records=-1),
     invite(STAGE, records=-(10**5000)), invite(STAGE, records=2.0), invite(STAGE, records=True),
     invite(STAGE, records=MAX_COUNT + 1), invite(STAGE, records=10**5000),
     {**invite(), "message": []},
     {**invite(), "stage": None}, {**invite(), "stage": ["cohort"]}],
)  # fmt: skip
def test_malformed_invitations(body: dict[str, Any]) -> None:
    w = world()
    party = cautious(w, ReleasePolicy(2, 1))
    handled = party.handle(request(w, "a", "share", 0, body), party.first_state())
    refusal(handled, PeerError, "", party.first_state())


def test_too_few_records_at_the_site() -> None:
    w = world(policies={"a": ReleasePolicy(2, 3)})
    first = w.engine.parties["a"].first_state()
    handled = ask_site(w, 0, invite())
    refusal(handled, PolicyRefusal, "fewer complete records", first)
    assert code_of(w, handled) == {"code": "policy"}


def test_the_text_of_an_error_stays_at_the_site() -> None:
    w = world()

    def fail() -> SiteRecords:
        raise DataError("column 'age', row 7", "'Smith' is not a number")

    party = replace(w.engine.parties["a"], site=SiteContext(w.method, w.public, fail))
    handled = party.handle(request(w, "a", "share", 0, invite()), party.first_state())
    refusal(handled, DataError, "Smith", party.first_state())
    assert code_of(w, handled) == {"code": "data"}
    assert b"Smith" not in handled.reply and b"age" not in handled.reply


def test_the_cohort_is_fixed_by_the_first_contribution() -> None:
    """Sums over two cohorts differ by the sites between: a site lends itself to one cohort."""
    w = world()
    state = ask_site(w, 0, invite(cohort=FOUR)).state
    state = ask_site(w, 1, invite(STAGE, ["a", "b", "c"], 9), state).state  # one dropped out
    for cohort in (["a", "b"], FOUR, ["a", "b", "d"]):
        handled = ask_site(w, 2, invite(STAGE, cohort, 9), state)
        refusal(handled, PolicyRefusal, "the sites changed after the first release", state)
    assert ask_site(w, 2, invite(STAGE, ["c", "b", "a"], 9), state).error is None


def test_no_more_rounds_than_declared() -> None:
    w = world(rounds=2)
    state = ask_site(w, 0, invite()).state
    refusal(ask_site(w, 1, invite(), state), PolicyRefusal, "had all the rounds", state)
    for round_ in (1, 2):
        handled = ask_site(w, round_, invite(STAGE, records=9), state)
        assert handled.error is None
        state = handled.state
    handled = ask_site(w, 3, invite(STAGE, records=9), state)
    refusal(handled, PolicyRefusal, "'numbers' has had all the rounds it declares (2)", state)


@pytest.mark.parametrize("phase", ["consent", "share"])
@pytest.mark.parametrize("refuses", [False, True])
def test_a_session_has_one_number_of_records(phase: str, refuses: bool) -> None:
    """Rules compare a site's own with it: told others, it would answer a search for its own."""
    w = world(policies={"a": ReleasePolicy(2, 2)})
    state = ask_site(w, 0, invite()).state
    site = w.engine.parties["a"]
    party = replace(site, policy=ReleasePolicy(2, 3 if refuses else 2))
    asked = request(w, "a", phase, 1, invite(STAGE, records=9))
    first = party.handle(asked, state)
    assert isinstance(first.error, PolicyRefusal) == refuses
    for again in ("consent", "share"):
        data = request(w, "a", again, 2, invite(STAGE, records=10))
        handled = site.handle(data, first.state)
        if again == "consent" and not refuses:
            refusal(handled, PeerError, "had an answer to", first.state)
        else:
            refusal(handled, PolicyRefusal, "records in all has changed", first.state)
    if refuses:  # and once the rule is mended, the same may be asked for
        assert site.handle(asked, first.state).error is None


def test_a_refused_request_may_be_asked_again() -> None:
    w = world()
    party = w.engine.parties["a"]
    refused = ask_site(w, 0, invite(cohort=["a"]))
    assert refused.error is not None
    again = party.handle(request(w, "a", "share", 0, invite()), refused.state)
    assert again.error is None


# --- a method that does not answer ---------------------------------------------------------------


@dataclass(frozen=True)
class Probed(SumNumbers):
    """Refuses, or fails, where its first number is below what the message asks."""

    why: Exception = field(default_factory=Exception)

    def contribute(self, stage, rows, message, memory, public, random):
        if rows.values[0, 0] < message.get("least", -math.inf):
            raise self.why
        return super().contribute(stage, rows, message, memory, public, random)


def probe(w: World, site: str, round_: int, least: float, state: bytes) -> Handled:
    body = invite(STAGE, records=9) | {"message": {"least": least}}
    return w.engine.parties[site].handle(request(w, site, "submit", round_, body), state)


@pytest.mark.parametrize(
    ("why", "kind", "code"),
    [
        (DataError("here", "0.0 is below it"), DataError, "data"),
        (PeerError("here", "0.0 is below it"), PeerError, "peer"),
        (np.linalg.LinAlgError("0.0 is below it"), InternalError, "internal"),
        (MemoryError("0.0 is below it"), InternalError, "internal"),
    ],
)
def test_a_search_by_messages_ends_with_its_first_refusal(
    why: Exception, kind: type[Exception], code: str
) -> None:
    """One refusal tells that the site's number is below 0.5; a second question has no answer."""
    w = World(Plain(), NUMBERS, Probed((2,), rounds=40, why=why))
    party = w.engine.parties["a"]
    state = party.handle(request(w, "a", "submit", 0, invite()), party.first_state()).state
    handled = probe(w, "a", 1, -0.5, state)
    assert handled.error is None
    handled = probe(w, "a", 2, 0.5, handled.state)
    assert isinstance(handled.error, kind) and "0.0 is below it" in handled.error.line()
    assert code_of(w, handled) == {"code": code} and b"below" not in handled.reply
    over = handled.state
    for round_, least in ((2, 0.25), (3, 0.25), (3, -0.5), (99, 0.5)):
        again = probe(w, "a", round_, least, over)
        refusal(again, PolicyRefusal, "the session was over here", over)
        assert code_of(w, again) == {"code": "policy"}
    for phase, stage in (("consent", COHORT), ("consent", STAGE)):
        data = request(w, "a", phase, 3, invite(stage, records=None if stage == COHORT else 9))
        refusal(party.handle(data, over), PolicyRefusal, "the session was over here", over)
    party = w.engine.parties["b"]  # another site
    state = party.handle(request(w, "b", "submit", 0, invite()), party.first_state()).state
    assert probe(w, "b", 1, 0.5, state).error is None


def test_after_a_refusal_it_helps_to_open_nothing() -> None:
    """Nor in the phases of a sum in which it only lends its keys."""
    numbers = {site: np.array([0.0, 1.0]) for site in SITES}
    w = World(Masked(), numbers, Probed((2,), rounds=3, why=DataError("here", "no")))
    step = run_until(w, "mask", 1)
    party, state = w.engine.parties["a"], w.engine.states["a"]
    body = read_frame(step.requests["a"], w.roster, "a", w.session).body
    trap = request(w, "a", "mask", 1, body | {"message": {"least": 1.0}})
    over = party.handle(trap, state).state
    for phase in w.protocol.phases:
        for round_ in (1, 2):
            handled = party.handle(request(w, "a", phase.name, round_, body), over)
            refusal(handled, PolicyRefusal, "the session was over here", over)


def test_a_request_bound_to_be_refused_tells_nothing_twice() -> None:
    """The method answers and the protocol refuses: else that it answers could be asked for free."""
    numbers = {site: np.array([0.0, 1.0]) for site in SITES}
    w = World(Masked(), numbers, Probed((2,), rounds=3, why=DataError("here", "no")))
    step = run_until(w, "mask", 1)
    party, state = w.engine.parties["a"], w.engine.states["a"]
    body = read_frame(step.requests["a"], w.roster, "a", w.session).body
    unready = encoding.dumps(encoding.loads(state) | {"protocol": {}})
    handled = party.handle(request(w, "a", "mask", 1, body | {"message": {}}), unready)
    assert handled.error is not None
    assert not isinstance(handled.error, DataError)
    again = party.handle(request(w, "a", "mask", 1, body), handled.state)
    refusal(again, PolicyRefusal, "the session was over here", handled.state)


@dataclass
class Spent:
    """A guard without rules whose ledger has no budget left for one stage."""

    stage: str
    calibrated: None = None

    def admit(self, occasion: Any) -> None: ...

    def check(self, occasion: Any, rows: Any, public: Any) -> None: ...

    def record_release(self, answer: Any, random: Any) -> bytes:
        if answer.occasion.stage == self.stage:
            raise PolicyRefusal("a", "the budget is spent")
        return b""


@pytest.mark.parametrize("stage", [COHORT, STAGE])
def test_a_refusal_of_the_ledger_ends_the_session_once_the_method_has_answered(stage: str) -> None:
    """Else that it answers could be asked for free; a count may be asked for again."""
    w = world(protocol=Plain())
    site, guard = w.engine.parties["a"], cast(Any, Spent(stage))
    assert site.site is not None
    spent, state = replace(site, site=replace(site.site, guard=guard)), site.first_state()
    if stage == STAGE:
        state = spent.handle(request(w, "a", "submit", 0, invite()), state).state
    asked = request(w, "a", "submit", 1, invite(stage, records=9 if stage == STAGE else None))
    refused = spent.handle(asked, state)
    assert isinstance(refused.error, PolicyRefusal) and "budget" in refused.error.line()
    again = site.handle(asked, refused.state)
    if stage == STAGE:
        refusal(again, PolicyRefusal, "the session was over here", refused.state)
    else:
        assert again.error is None


def test_the_cause_of_a_bug_is_kept_for_whoever_looks_for_it() -> None:
    w = World(Plain(), NUMBERS, Probed((2,), rounds=3, why=ZeroDivisionError("by 0")))
    party = w.engine.parties["a"]
    state = party.handle(request(w, "a", "submit", 0, invite()), party.first_state()).state
    error = probe(w, "a", 1, 0.5, state).error
    assert error is not None and isinstance(error.__cause__, ZeroDivisionError)
    assert error.line().startswith("a: ZeroDivisionError: by 0. ")


def test_a_site_without_data_does_not_contribute() -> None:
    w = world(protocol=Plain())
    party = replace(w.engine.parties["a"], site=None)
    handled = party.handle(request(w, "a", "submit", 0, invite()), party.first_state())
    refusal(handled, PeerError, "a party without data", party.first_state())
