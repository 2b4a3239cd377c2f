"""A party refuses requests that a coordinator must not send."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from support.protocols.world import STAGE, SumNumbers, World, run_until

from secagg.contracts import SiteRecords
from secagg.core import canonical_encoding
from secagg.core.frames import MAX_COUNT, read_frame, write_frame
from secagg.errors import DataError, InternalError, PeerError, PolicyRefusal, SecaggError
from secagg.privacy.policy.release_rules import ReleasePolicy
from secagg.protocols.additive import Additive
from secagg.protocols.masked.protocol import Masked
from secagg.protocols.plain import Plain
from secagg.sessions.attestations import digest_request
from secagg.sessions.party import REFUSED, Handled, SiteContext
from secagg.sessions.party_transitions import Denial
from secagg.sessions.rounds import COHORT

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


def refusal(
    w: World, handled: Handled, error: type[SecaggError], state: bytes, code: str = ""
) -> None:
    """The party refuses with this error, sends only a code, and its state does not change."""
    assert handled.state == state
    assert isinstance(handled.error, error), handled.error
    frame = read_frame(handled.reply, w.roster, "coordinator", w.session)
    assert frame.header.phase == REFUSED and frame.header.note == {}
    assert frame.body == {"code": code or handled.error.code}


def session_over(w: World, handled: Handled, state: bytes) -> None:
    refusal(w, handled, PolicyRefusal, state)
    assert str(handled.error) == str(Denial.SESSION_OVER.error("a", "coordinator"))


# --- who may ask what, and when ------------------------------------------------------------------


def ask_site(w: World, round_: int, body: dict[str, Any], state: bytes | None = None) -> Handled:
    party = w.engine.parties["a"]
    return party.handle(request(w, "a", "share", round_, body), state or party.first_state())


def test_an_honest_request_has_a_signed_reply() -> None:
    w = world()
    handled = ask_site(w, 0, invite())
    assert handled.error is None
    frame = read_frame(handled.reply, w.roster, "coordinator", w.session)
    assert (frame.header.round, frame.header.phase) == (0, "share")
    digest = digest_request(COHORT, FOUR, None, {})
    assert frame.header.note == {"min_sites": 2, "sites": 4, "stage": COHORT, "asked": digest}


@pytest.mark.parametrize("sender", ["b", "aggregator_1", "a"])
def test_requests_from_other_parties_are_refused(sender: str) -> None:
    w = world()
    party = w.engine.parties["a"]
    data = request(w, "a", "share", 0, invite(), sender=sender)
    handled = party.handle(data, party.first_state())
    refusal(w, handled, PeerError, party.first_state())


@pytest.mark.parametrize(
    ("party", "phase"),
    [("a", "open"), ("aggregator_1", "share"), ("a", "submit"), ("a", REFUSED), ("a", "")],
)
def test_a_phase_of_another_party_is_refused(party: str, phase: str) -> None:
    w = world()
    p = w.engine.parties[party]
    handled = p.handle(request(w, party, phase, 0, invite()), p.first_state())
    refusal(w, handled, PeerError, p.first_state())


def test_requests_are_answered_once_and_in_order() -> None:
    w = world()
    first = ask_site(w, 0, invite())
    refusal(w, ask_site(w, 0, invite(), first.state), PeerError, first.state)
    later = ask_site(w, 2, invite(STAGE, records=9), first.state)
    assert later.error is None
    for round_ in (2, 1, 0):
        again = ask_site(w, round_, invite(STAGE, records=9), later.state)
        refusal(w, again, PeerError, later.state)


@pytest.mark.parametrize("data", [b"", b"junk", canonical_encoding.dumps([b"", b"", b""])])
def test_junk_frames_are_refused(data: bytes) -> None:
    w = world()
    party = w.engine.parties["a"]
    handled = party.handle(data, party.first_state())
    refusal(w, handled, PeerError, party.first_state())


# --- a site's rules come before its data ---------------------------------------------------------


def unread() -> SiteRecords:
    raise AssertionError("the records were read")


RULES = ReleasePolicy(2, 1)


@pytest.mark.parametrize(
    ("error", "policy", "body"),
    [
        *(
            (PolicyRefusal, policy, body)
            for policy, body in [
                (ReleasePolicy(None, 1), invite()),
                (ReleasePolicy(2, None), invite()),
                (ReleasePolicy(5, 1), invite()),
                (RULES, invite(cohort=["a"])),
                (RULES, invite(cohort=["a", "a"])),
                (ReleasePolicy(2, 1, 50), invite(STAGE, records=49)),
                (RULES, invite(STAGE)),
                (RULES, invite(COHORT, records=5)),
            ]
        ),
        *(
            (PeerError, RULES, body)
            for body in [
                {}, invite("other"), invite(cohort=["b", "c"]), invite(cohort=None),
                invite(cohort=["a", 1]), invite(cohort={"a": 1}), invite(cohort=["a", "b", "e"]),
                *(invite(STAGE, records=records)
                  for records in ("9", -1, -(10**5000), 2.0, True, MAX_COUNT + 1, 10**5000)),
                {**invite(), "message": []}, {**invite(), "stage": ["cohort"]},
            ]
        ),
    ],
)  # fmt: skip
def test_requests_refused_before_records_are_read(
    error: type[SecaggError], policy: ReleasePolicy, body: dict[str, Any]
) -> None:
    w = world()
    site = SiteContext(w.method, w.public, unread)
    party = replace(w.engine.parties["a"], policy=policy, site=site)
    handled = party.handle(request(w, "a", "share", 0, body), party.first_state())
    refusal(w, handled, error, party.first_state())


def test_too_few_records_at_the_site_are_refused() -> None:
    w = world(policies={"a": ReleasePolicy(2, 3)})
    first = w.engine.parties["a"].first_state()
    refusal(w, ask_site(w, 0, invite()), PolicyRefusal, first, "records")


def test_the_text_of_an_error_stays_at_the_site() -> None:
    w = world()

    def fail() -> SiteRecords:
        raise DataError("column 'age', row 7", "'Smith' is not a number")

    party = replace(w.engine.parties["a"], site=SiteContext(w.method, w.public, fail))
    handled = party.handle(request(w, "a", "share", 0, invite()), party.first_state())
    refusal(w, handled, DataError, party.first_state(), "records")
    assert "Smith" in str(handled.error)
    assert b"Smith" not in handled.reply and b"age" not in handled.reply


def test_the_cohort_is_fixed_by_the_first_contribution() -> None:
    """Sums over two cohorts differ by the sites between: a site lends itself to one cohort."""
    w = world()
    state = ask_site(w, 0, invite(cohort=FOUR)).state
    state = ask_site(w, 1, invite(STAGE, ["a", "b", "c"], 9), state).state  # one dropped out
    for cohort in (["a", "b"], FOUR, ["a", "b", "d"]):
        handled = ask_site(w, 2, invite(STAGE, cohort, 9), state)
        refusal(w, handled, PolicyRefusal, state)
    assert ask_site(w, 2, invite(STAGE, ["c", "b", "a"], 9), state).error is None


def test_rounds_beyond_the_declared_number_are_refused() -> None:
    w = world(rounds=2)
    state = ask_site(w, 0, invite()).state
    refusal(w, ask_site(w, 1, invite(), state), PolicyRefusal, state)
    for round_ in (1, 2):
        handled = ask_site(w, round_, invite(STAGE, records=9), state)
        assert handled.error is None
        state = handled.state
    refusal(w, ask_site(w, 3, invite(STAGE, records=9), state), PolicyRefusal, state)


@pytest.mark.parametrize("phase", ["consent", "share"])
@pytest.mark.parametrize("refuses", [False, True])
def test_a_second_number_of_records_in_a_session_is_refused(phase: str, refuses: bool) -> None:
    """Rules compare the site's own number with the total: other totals would reveal its number."""
    w = world(policies={"a": ReleasePolicy(2, 2)})
    state = ask_site(w, 0, invite()).state
    site = w.engine.parties["a"]
    party = replace(site, policy=ReleasePolicy(2, 3 if refuses else 2))
    asked = request(w, "a", phase, 1, invite(STAGE, records=9))
    first = party.handle(asked, state)
    assert isinstance(first.error, PolicyRefusal) == refuses
    for again in ("consent", "share"):
        data = request(w, "a", again, 2, invite(STAGE, records=10))
        consented = again == "consent" and not refuses
        error = PeerError if consented else PolicyRefusal
        refusal(w, site.handle(data, first.state), error, first.state)
    if refuses:  # once the rule is fixed, the same request is answered
        assert site.handle(asked, first.state).error is None


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
    ("why", "kind"),
    [
        (DataError("here", "0.0 is below it"), DataError),
        (PeerError("here", "0.0 is below it"), PeerError),
        (np.linalg.LinAlgError("0.0 is below it"), InternalError),
        (MemoryError("0.0 is below it"), InternalError),
    ],
)
def test_a_search_by_messages_ends_with_its_first_refusal(
    why: Exception, kind: type[SecaggError]
) -> None:
    """One refusal tells that the site's number is below 0.5; a second question has no answer."""
    w = World(Plain(), NUMBERS, Probed((2,), rounds=40, why=why))
    party = w.engine.parties["a"]
    state = party.handle(request(w, "a", "submit", 0, invite()), party.first_state()).state
    handled = probe(w, "a", 1, -0.5, state)
    assert handled.error is None
    handled = probe(w, "a", 2, 0.5, handled.state)
    over = handled.state
    refusal(w, handled, kind, over, "records")
    assert "0.0 is below it" in str(handled.error) and b"below" not in handled.reply
    if kind is InternalError:
        assert handled.error.__cause__ is why
    for round_, least in ((2, 0.25), (3, 0.25), (3, -0.5), (99, 0.5)):
        session_over(w, probe(w, "a", round_, least, over), over)
    for phase, stage in (("consent", COHORT), ("consent", STAGE)):
        data = request(w, "a", phase, 3, invite(stage, records=None if stage == COHORT else 9))
        session_over(w, party.handle(data, over), over)
    party = w.engine.parties["b"]  # another site
    state = party.handle(request(w, "b", "submit", 0, invite()), party.first_state()).state
    assert probe(w, "b", 1, 0.5, state).error is None


def test_after_a_refusal_a_site_answers_no_phase_of_the_sum() -> None:
    """Not even in the phases of a sum in which it sends only keys or shares."""
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
            session_over(w, handled, over)


def test_a_site_without_data_does_not_contribute() -> None:
    w = world(protocol=Plain())
    party = replace(w.engine.parties["a"], site=None)
    handled = party.handle(request(w, "a", "submit", 0, invite()), party.first_state())
    refusal(w, handled, PeerError, party.first_state())
