"""Opening a sum: an aggregator checks the release rules for every request."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from support.protocols.world import SumNumbers, World, run_until

from secagg.core import canonical_encoding
from secagg.core.frames import read_frame, write_frame
from secagg.errors import PeerError, PolicyRefusal
from secagg.privacy.policy.release_rules import ReleasePolicy
from secagg.protocols.additive import Additive
from secagg.sessions.attestations import read_attestation, read_attestations
from secagg.sessions.party import Handled

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


def over(body: Mapping[str, Any], sites: str) -> dict[str, Any]:
    """Return a request to open the sum of these sites, with their claims."""
    return {**body, "contributors": list(sites), "claims": {s: body["claims"][s] for s in sites}}


def check_refused(w: World, body: Mapping[str, Any], error: type[Exception]) -> None:
    handled = ask(w, 0, body)
    assert isinstance(handled.error, error), handled.error
    assert handled.state == w.engine.states[ME]


def contribution_header(
    w: World, site: str, round_: int, note: Any, session: bytes | None = None
) -> Any:
    """Return a signed claim, with valid defaults for all of `note` except `min_sites`."""
    note = {"sites": len(SITES), "stage": "cohort", "asked": bytes(32)} | note
    data = write_frame(
        w.identities[site], session or w.session, round_, "share", "coordinator", {}, note
    )
    header, signature, _ = canonical_encoding.split(data, "a frame")
    return [bytes(header), bytes(signature)]


def test_an_honest_request_opens_one_sum() -> None:
    w = world()
    body = about_to_open(w)
    handled = ask(w, 0, body)
    assert handled.error is None
    for sites in (list(SITES), ["a", "b", "c"]):  # a second sum would show what d contributed
        again = ask(w, 0, {**body, "contributors": sites}, handled.state)
        assert isinstance(again.error, PeerError) and again.state == handled.state


def test_the_protocol_itself_opens_a_sum_only_once() -> None:
    """Even if the party has lost its record of answered requests."""
    w = world()
    body = about_to_open(w)
    opened = ask(w, 0, body)
    forgetful = canonical_encoding.dumps(
        {**canonical_encoding.loads(opened.state), "handled": [], "cohort": None}
    )
    second = ask(w, 0, over(body, "abc"), forgetful)
    assert isinstance(second.error, PolicyRefusal) and second.error.where == ME


@pytest.mark.parametrize("smaller", [["a", "b", "c"], ["a", "d"]])
def test_another_cohort_after_the_first_release_is_refused(smaller: list[str]) -> None:
    w = world()
    body = about_to_open(w, round_=1)  # round 0 was opened over all four
    handled = ask(w, 1, {**body, "contributors": smaller})
    assert isinstance(handled.error, PolicyRefusal)


def test_a_first_release_over_fewer_sites_fixes_the_cohort() -> None:
    w = world()
    body = about_to_open(w)
    first = ask(w, 0, over(body, "cab"))
    assert first.error is None
    assert canonical_encoding.loads(first.state)["cohort"] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("contributors", "error"),
    [
        ([], PolicyRefusal),
        (["a", "b"], PolicyRefusal),
        (["a", "b", "c", "c"], PolicyRefusal),
        (["a", "b", "b"], PolicyRefusal),
        (["a", "b", "c", "e"], PolicyRefusal),
        (["a", "b", "c", "coordinator"], PolicyRefusal),
        (["a", "b", 3], PeerError),
        ("abc", PeerError),
        (None, PeerError),
        ({"a": 1, "b": 1, "c": 1}, PeerError),
    ],
)
def test_invalid_contributor_lists_are_refused(contributors: Any, error: type[Exception]) -> None:
    w = world(min_sites=3)
    body = about_to_open(w)
    check_refused(w, {**body, "contributors": contributors}, error)


def test_the_strictest_sites_threshold_applies() -> None:
    """Site b signed that it requires four sites, so no sum of b and two others is opened."""
    w = world(policies={"b": ReleasePolicy(4, 1)})
    body = about_to_open(w)
    check_refused(w, over(body, "abc"), PolicyRefusal)
    assert ask(w, 0, over(body, "acd")).error is None


def forged_claims(w: World) -> dict[str, Any]:
    """Claims that a coordinator might send in place of d's signed claim in round 0."""
    header, signature = contribution_header(w, "d", 0, {"min_sites": 2})
    notes: dict[str, dict[str, Any]] = {
        "another request": {"min_sites": 2},
        "another stage": {"min_sites": 2, "stage": "sum"},
        "no threshold": {},
        "threshold as text": {"min_sites": "2"},
        "threshold as bool": {"min_sites": True},
        "number of sites as text": {"min_sites": 2, "sites": "4"},
        **{f"min_sites={n}": {"min_sites": n} for n in (0, -3, 10**300)},
        **{f"sites={n}": {"min_sites": 2, "sites": n} for n in (0, -4, 2**32, 2**70)},
    }
    return {
        **{kind: contribution_header(w, "d", 0, note) for kind, note in notes.items()},
        "another round": contribution_header(w, "d", 1, {"min_sites": 2}),
        "another site": contribution_header(w, "a", 0, {"min_sites": 2}),
        "another session": contribution_header(w, "d", 0, {"min_sites": 2}, session=bytes(16)),
        "another signer": [header, w.identities["coordinator"].sign(header)],
        "another header": [header[:-1] + b"x", signature],
        "header only": [header],
        "nothing": None,
        "a dict": {"header": header},
        "junk": [b"", b""],
    }


@pytest.mark.parametrize("kind", sorted(forged_claims(world())))
def test_forged_claims_are_refused(kind: str) -> None:
    """Each claim alone is rejected, and so is the request to open a sum with it."""
    w = world()
    body = about_to_open(w)
    claim = forged_claims(w)[kind]
    check_refused(w, {**body, "claims": {**body["claims"], "d": claim}}, PeerError)
    if kind not in ("another request", "another stage"):  # valid alone, but not like the others
        with pytest.raises(PeerError):
            read_attestation("d", claim, 0, w.roster, w.session)


def test_fewer_contributors_than_announced_are_refused() -> None:
    """Each site would add a smaller share of the noise than the sum needs."""
    w = world()
    claims = {
        site: contribution_header(w, site, 1, {"min_sites": 2, "stage": "sum", "sites": 4})
        for site in ("a", "b", "c")
    }
    with pytest.raises(PeerError):
        read_attestations(claims, "sum", 1, w.roster, w.session)
    counted = {
        site: contribution_header(w, site, 0, {"min_sites": 2}) for site in ("a", "b", "c")
    }  # the count may lose sites: its noise is for min_sites
    assert read_attestations(counted, "cohort", 0, w.roster, w.session) == {"a": 2, "b": 2, "c": 2}
    announced = {
        site: contribution_header(w, site, 1, {"min_sites": 2, "stage": "sum"}) for site in SITES
    }
    assert len(read_attestations(announced, "sum", 1, w.roster, w.session)) == 4
    with pytest.raises(PeerError):  # all contributed to another stage
        read_attestations(announced, "other", 1, w.roster, w.session)


def test_missing_claims_are_refused() -> None:
    w = world()
    body = about_to_open(w)
    three = {site: body["claims"][site] for site in "abc"}
    check_refused(w, {**body, "claims": three}, PolicyRefusal)
    for claims in (None, [], list(body["claims"].items())):
        check_refused(w, {**body, "claims": claims}, PeerError)


@pytest.mark.parametrize("stand_in", ["coordinator", "aggregator_2"])
def test_only_sites_count_as_contributors(stand_in: str) -> None:
    """The coordinator adds parties to the cohort that have no data but can sign."""
    w = world()
    claim = contribution_header(w, stand_in, 0, {"min_sites": 2})
    with pytest.raises(PeerError):
        read_attestation(stand_in, claim, 0, w.roster, w.session)
    body = about_to_open(w)
    padded = {**body, "contributors": [*SITES, stand_in],
              "claims": {**body["claims"], stand_in: claim}}  # fmt: skip
    check_refused(w, padded, PeerError)


def test_a_sum_with_a_missing_share_is_not_opened() -> None:
    """d took part and signed, but its share did not reach this aggregator."""
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
    assert ask(w, 0, over(body, "abc"), held.state).error is None
