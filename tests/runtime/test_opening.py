"""Opening a sum: an aggregator checks the release rules, whatever the coordinator asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from support.world import SumNumbers, World, run_until

from secagg.core import encoding
from secagg.core.frames import read_frame, write_frame
from secagg.errors import PeerError, PolicyRefusal
from secagg.privacy.policy.release_rules import ReleasePolicy
from secagg.protocols.additive import Additive
from secagg.runtime.attestations import read_attestation, read_attestations
from secagg.runtime.party import Handled

SITES = ("a", "b", "c", "d")
ME = "aggregator_1"


def world(**options: Any) -> World:
    numbers = {site: np.array([float(i), -0.5]) for i, site in enumerate(SITES)}
    return World(Additive(2), numbers, SumNumbers((2,), rounds=3), **options)


def about_to_open(w: World, round_: int = 0) -> dict[str, Any]:
    """Run until the sum of this round can be opened; return the honest request's body."""
    step = run_until(w, "open", round_)
    body = read_frame(step.requests[ME], w.roster, ME, w.session).body
    assert body["contributors"] == list(SITES) and set(body["claims"]) == set(SITES)
    return body


def ask(w: World, round_: int, body: Mapping[str, Any], state: bytes | None = None) -> Handled:
    coordinator = w.identities["coordinator"]
    request = write_frame(coordinator, w.session, round_, "open", ME, body)
    return w.engine.parties[ME].handle(request, state or w.engine.states[ME])


def check_refused(w: World, body: Mapping[str, Any], error: type[Exception], match: str) -> None:
    handled = ask(w, 0, body)
    assert isinstance(handled.error, error), handled.error
    assert match in handled.error.line()
    assert handled.state == w.engine.states[ME]


def contribution_header(
    w: World, site: str, round_: int, note: Any, session: bytes | None = None
) -> Any:
    """Return a signed claim; what `note` leaves out is as it should be, but for `min_sites`."""
    note = {"sites": len(SITES), "stage": "cohort", "asked": bytes(32)} | note
    data = write_frame(
        w.identities[site], session or w.session, round_, "share", "coordinator", {}, note
    )
    return list(read_frame(data, w.roster, "coordinator", session or w.session).proof)


def test_an_honest_opening() -> None:
    w = world()
    body = about_to_open(w)
    handled = ask(w, 0, body)
    assert handled.error is None
    again = ask(w, 0, body, handled.state)
    assert isinstance(again.error, PeerError) and "repeats" in again.error.line()


@pytest.mark.parametrize("survivors", [["a", "b", "c"], ["b", "c", "d"], list(SITES)])
def test_a_second_opening_of_the_round(survivors: list[str]) -> None:
    """Opened over four sites, then over three: the difference is the fourth's contribution."""
    w = world()
    body = about_to_open(w)
    opened = ask(w, 0, body)
    second = ask(w, 0, {**body, "contributors": survivors}, opened.state)
    assert second.error is not None and second.state == opened.state


def test_the_protocol_itself_opens_once() -> None:
    """Even for a party that forgot which requests it answered."""
    w = world()
    body = about_to_open(w)
    opened = ask(w, 0, body)
    forgetful = encoding.dumps({**encoding.loads(opened.state), "handled": [], "cohort": None})
    second = ask(w, 0, {**body, "contributors": ["a", "b", "c"]}, forgetful)
    assert isinstance(second.error, PolicyRefusal) and second.error.where == ME


@pytest.mark.parametrize("smaller", [["a", "b", "c"], ["a", "d"]])
def test_another_cohort_after_the_first_release(smaller: list[str]) -> None:
    w = world()
    body = about_to_open(w, round_=1)  # round 0 was opened over all four
    handled = ask(w, 1, {**body, "contributors": smaller})
    assert isinstance(handled.error, PolicyRefusal)
    assert "the sites changed after the first release (then 4" in handled.error.line()


def test_the_first_release_fixes_a_smaller_cohort_too() -> None:
    w = world()
    body = about_to_open(w)
    first = ask(w, 0, {**body, "contributors": ["a", "b", "c"]})
    assert first.error is None
    assert encoding.loads(first.state)["cohort"] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("contributors", "error", "match"),
    [
        ([], PolicyRefusal, "0 sites take part"),
        (["a"], PolicyRefusal, "1 sites take part"),
        (["a", "b"], PolicyRefusal, "2 sites take part, and the release rule asks for 3"),
        (["a", "b", "c", "c"], PolicyRefusal, "counted twice"),
        (["a", "a", "a", "a"], PolicyRefusal, "counted twice"),
        (["a", "b", "c", "e"], PolicyRefusal, "e has not signed"),
        (["a", "b", "c", "coordinator"], PolicyRefusal, "coordinator has not signed"),
        (["a", "b", 3], PeerError, "malformed"),
        ("abc", PeerError, "malformed"),
        (None, PeerError, "malformed"),
        ({"a": 1, "b": 1, "c": 1}, PeerError, "malformed"),
    ],
)
def test_contributors(contributors: Any, error: type[Exception], match: str) -> None:
    w = world(min_sites=3)
    body = about_to_open(w)
    check_refused(w, {**body, "contributors": contributors}, error, match)


def test_the_strictest_site_decides() -> None:
    """Site b signed that it wants four; nobody opens three of which it is one."""
    w = world(policies={"b": ReleasePolicy(4, 1)})
    body = about_to_open(w)
    check_refused(w, {**body, "contributors": ["a", "b", "c"]}, PolicyRefusal, "asks for 4")
    assert ask(w, 0, {**body, "contributors": ["a", "c", "d"]}).error is None


NO_PROOF = "shows no valid proof that d takes part"


def forged_claims(w: World) -> dict[str, tuple[Any, str]]:
    """What a coordinator might show in place of d's signed part in round 0."""
    good = contribution_header(w, "d", 0, {"min_sites": 2})
    return {
        "another round": (contribution_header(w, "d", 1, {"min_sites": 2}), NO_PROOF),
        "another site": (contribution_header(w, "a", 0, {"min_sites": 2}), NO_PROOF),
        "no threshold": (contribution_header(w, "d", 0, {}), NO_PROOF),
        "a threshold of zero": (contribution_header(w, "d", 0, {"min_sites": 0}), NO_PROOF),
        "a negative one": (contribution_header(w, "d", 0, {"min_sites": -3}), NO_PROOF),
        "an absurd one": (contribution_header(w, "d", 0, {"min_sites": 10**5000}), NO_PROOF),
        "no whole number": (contribution_header(w, "d", 0, {"min_sites": True}), NO_PROOF),
        "no number": (contribution_header(w, "d", 0, {"min_sites": "2"}), NO_PROOF),
        "another request": (good, "did not ask all contributors the same"),
        "another stage": (
            contribution_header(w, "d", 0, {"min_sites": 2, "stage": "sum"}),
            "shows contributions to another stage",
        ),
        "no number of sites": (
            contribution_header(w, "d", 0, {"min_sites": 2, "sites": "4"}),
            NO_PROOF,
        ),
        **{
            f"{sites} sites": (
                contribution_header(w, "d", 0, {"min_sites": 2, "sites": sites}),
                NO_PROOF,
            )
            for sites in (0, -4, True, 2**32, 2**63, 2**70)
        },
        "signed by itself": (
            [good[0], w.identities["coordinator"].sign(good[0])],
            "invalid signature",
        ),
        "header only": (good[:1], NO_PROOF),
        "nothing": (None, NO_PROOF),
        "a dict": ({"header": good[0]}, NO_PROOF),
        "another header": ([good[0][:-1] + b"x", good[1]], "invalid signature"),
        "another session": (
            contribution_header(w, "d", 0, {"min_sites": 2}, session=bytes(16)),
            "another session",
        ),
        "junk": ([b"", b""], "malformed"),
    }


@pytest.mark.parametrize("kind", sorted(forged_claims(world())))
def test_forged_claims(kind: str) -> None:
    w = world()
    body = about_to_open(w)
    claim, match = forged_claims(w)[kind]
    check_refused(w, {**body, "claims": {**body["claims"], "d": claim}}, PeerError, match)


def test_contributors_were_told_of_more_sites_than_contribute() -> None:
    """Each site would add a smaller share of the noise than the sum needs."""
    w = world()
    claims = {
        site: contribution_header(w, site, 1, {"min_sites": 2, "stage": "sum", "sites": 4})
        for site in ("a", "b", "c")
    }
    with pytest.raises(PeerError, match="told contributors of other sites"):
        read_attestations(claims, "sum", 1, w.roster, w.session)
    counted = {
        site: contribution_header(w, site, 0, {"min_sites": 2}) for site in ("a", "b", "c")
    }  # the round that counts may lose sites: its noise is sized for the fewest
    assert read_attestations(counted, "cohort", 0, w.roster, w.session) == {"a": 2, "b": 2, "c": 2}


def test_missing_claims() -> None:
    w = world()
    body = about_to_open(w)
    three = {site: body["claims"][site] for site in "abc"}
    check_refused(w, {**body, "claims": three}, PolicyRefusal, "d has not signed")
    for claims in (None, [], list(body["claims"].items())):
        check_refused(w, {**body, "claims": claims}, PeerError, "malformed")


@pytest.mark.parametrize("stand_in", ["coordinator", "aggregator_2"])
def test_only_sites_count_as_contributors(stand_in: str) -> None:
    """The coordinator pads a cohort with parties that have no data but can sign."""
    w = world()
    claim = contribution_header(w, stand_in, 0, {"min_sites": 2})
    with pytest.raises(PeerError, match="no valid proof"):
        read_attestation(stand_in, claim, 0, w.roster, w.session)
    body = about_to_open(w)
    padded = {**body, "contributors": [*SITES, stand_in],
              "claims": {**body["claims"], stand_in: claim}}  # fmt: skip
    check_refused(w, padded, PeerError, "no valid proof")


def test_a_site_whose_shares_are_not_here() -> None:
    """d took part and signed, but its share never reached this aggregator."""
    w = world()
    step = run_until(w, "hold")
    envelopes = read_frame(step.requests[ME], w.roster, ME, w.session).body
    del envelopes["envelopes"]["d"]
    coordinator = w.identities["coordinator"]
    request = write_frame(coordinator, w.session, 0, "hold", ME, envelopes)
    party = w.engine.parties[ME]
    held = party.handle(request, party.first_state())
    assert read_frame(held.reply, w.roster, "coordinator", w.session).body == {
        "held": ["a", "b", "c"]
    }
    body = about_to_open(world())  # the same keys and session, where everything arrived
    assert isinstance(ask(w, 0, body, held.state).error, PeerError)
    assert ask(w, 0, {**body, "contributors": ["a", "b", "c"]}, held.state).error is None
