"""A party against a coordinator that asks for what it should not: it refuses on its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.world import STAGE, SumNumbers, World

from secagg import wire
from secagg.claims import digest_request
from secagg.contracts import Rows
from secagg.errors import DataError, PeerError, PolicyRefusal
from secagg.frames import read_frame, write_frame
from secagg.party import REFUSED, Handled, Party, SiteSide
from secagg.privacy.gate import ReleasePolicy
from secagg.protocols.additive import Additive
from secagg.protocols.plain import Plain
from secagg.stages import COHORT

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
    for round_ in (2, 1, 0, -1):
        again = ask_site(w, round_, invite(STAGE, records=9), later.state)
        refusal(again, PeerError, "repeats", later.state)


@pytest.mark.parametrize("data", [b"", b"junk", wire.dumps([b"", b"", b""])])
def test_junk(data: bytes) -> None:
    w = world()
    party = w.engine.parties["a"]
    handled = party.handle(data, party.first_state())
    refusal(handled, PeerError, "malformed", party.first_state())
    assert code_of(w, handled) == {"code": "peer"}


# --- a site's rules come before its data ---------------------------------------------------------


def unread() -> Rows:
    raise AssertionError("the records were read")


def cautious(w: World, policy: ReleasePolicy) -> Party:
    side = SiteSide(w.method, w.public, unread)
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
     invite(STAGE, records=-(10**5000)), invite(STAGE, records=2.0), {**invite(), "message": []},
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

    def fail() -> Rows:
        raise DataError("column 'age', row 7", "'Smith' is not a number")

    party = replace(w.engine.parties["a"], site=SiteSide(w.method, w.public, fail))
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


def test_a_refused_request_may_be_asked_again() -> None:
    w = world()
    party = w.engine.parties["a"]
    refused = ask_site(w, 0, invite(cohort=["a"]))
    assert refused.error is not None
    again = party.handle(request(w, "a", "share", 0, invite()), refused.state)
    assert again.error is None


def test_a_site_without_data_does_not_contribute() -> None:
    w = world(protocol=Plain())
    party = replace(w.engine.parties["a"], site=None)
    handled = party.handle(request(w, "a", "submit", 0, invite()), party.first_state())
    refusal(handled, PeerError, "a party without data", party.first_state())
