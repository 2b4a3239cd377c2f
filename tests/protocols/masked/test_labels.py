"""What the masks depend on: a site that receives another request masks with other seeds."""

import pytest
from contracts.secure_sum import numbers
from support.protocols.masked_steps import ALL, FIVE, OnARing, Steps
from support.protocols.world import STAGE, SumNumbers, World

from secagg.contracts import Context
from secagg.core import canonical_encoding
from secagg.errors import PeerError
from secagg.protocols.masked import masks, shamir
from secagg.protocols.masked import site as site_steps
from secagg.protocols.masked.graph import plan_graph
from secagg.protocols.masked.protocol import Masked


def first_sum(different=None):
    """Mask among the first six, site_0 with something `different`; return the steps."""
    steps = Steps()
    shared = steps.until("share")
    for site, body in shared.items():
        directory = dict(body["directory"])
        if different == "directory" and site == "site_0":
            del directory["site_6"]  # it does not mask, so nothing else changes
        shared[site] = steps.ask(site, "share", {"directory": directory})["envelopes"]
    for site in ALL[:6]:
        odd = site == "site_0"
        masking_sites = FIVE if different == "masking" and odd else ALL[:6]
        envelopes = {by: to[site] for by, to in shared.items() if site in to}
        body = {"masking": masking_sites, "envelopes": envelopes}
        request = b"another" if different == "request" and odd else b"request"
        steps.ask(site, "mask", body, asked=request)
    return steps


@pytest.mark.parametrize("different", ["directory", "masking", "request"])
def test_a_different_request_to_one_site_spoils_the_first_sum(different):
    """Masks have another label, signatures do not fit, and later sums stay noise as well."""
    steps = first_sum(different)
    labels = [steps.states[site]["label"] for site in ALL[:6]]
    assert labels[0] not in labels[1:]
    assert len(set(labels[1:])) == 1
    signed = {s: steps.ask(s, "agree", {"survivors": FIVE})["statement"] for s in FIVE}
    with pytest.raises(PeerError) as caught:
        steps.ask("site_1", "unmask", {"contributors": FIVE, "statements": signed})
    assert caught.value.where == "site_0"
    assert steps.later(FIVE).all()
    assert not first_sum().later(FIVE).any()


def test_a_different_request_to_one_site_spoils_a_later_sum():
    """This sum and all later ones are noise, although the later requests are the same."""
    steps = first_sum()
    assert steps.later(FIVE, 1, other=b"another").all()
    for round_ in (2, 3):
        assert steps.later(FIVE, round_).all()


def test_a_round_asked_of_one_site_only_spoils_later_sums():
    steps = first_sum()
    steps.ask("site_0", "mask", {"cohort": FIVE}, 1)
    assert steps.later(FIVE, 2).all()


def test_labels_agree_with_the_formula():
    """The formula of `masks`, whatever rounds the sums are in."""
    steps = Steps(first=3)
    body = steps.until("mask")["site_0"]
    session, directory = steps.world.session, {site: steps.keys(site) for site in ALL}
    steps.ask("site_0", "mask", {**body, "masking": FIVE})
    before = canonical_encoding.digest(["secagg key directory 1", directory])
    first = canonical_encoding.digest(["secagg masks 1", session, 3, before, FIVE, b"request"])
    assert steps.states["site_0"]["label"] == first
    steps.ask("site_0", "mask", {"cohort": FIVE}, 5, asked=b"another")
    later = canonical_encoding.digest(["secagg masks 1", session, 5, first, FIVE, b"another"])
    assert steps.states["site_0"]["session"]["label"] == later
    digests = [masks.survivors_digest(bytes([i]), names) for i in (1, 2) for names in (FIVE, ALL)]
    assert len(set(digests)) == 4


def test_both_sites_derive_the_same_key_and_no_other():
    a, b = bytes([1]) * 32, bytes([2]) * 32
    public_a, public_b = masks.public_key(a), masks.public_key(b)
    session = bytes(16)
    of_a = masks.pair_keys(a, {"b": public_b}, "first", "a", session)
    of_b = masks.pair_keys(b, {"a": public_a}, "first", "b", session)
    assert [*of_a.values()] == [*of_b.values()]
    others = {
        masks.pair_keys(a, {peer: public_b}, kind, "a", s)[peer]
        for kind in ("first", "later") for peer in ("b", "c") for s in (session, bytes([1]) * 16)
    }  # fmt: skip
    assert len(others) == 8
    with pytest.raises(PeerError):  # a key of small order
        masks.pair_keys(a, {"b": bytes(32)}, "first", "a", session)


def test_shares_are_split_at_the_threshold():
    steps = Steps()
    steps.replies("mask")
    for kind in ("first", "self"):
        shares = {i + 1: steps.states[s]["held"]["site_6"][kind] for i, s in enumerate(FIVE)}
        secret = steps.states["site_6"]["advertised"][kind]
        assert shamir.combine(shares) == secret
        assert shamir.combine({point: shares[point] for point in (1, 2, 3, 4)}) != secret


def test_plans_over_32_sites_allow_for_repeated_draws_of_the_graph():
    world = World(Masked(), numbers(300, 1, 1), SumNumbers((1,)))
    shape = world.plans.of(STAGE).shape
    context = Context(world.session, 0, world.identities["site_0"], world.roster, shape, bytes)
    plan = Masked().plan(context)
    assert plan == plan_graph(300, 1 / 3, 0.1, -80.0)
    assert plan.degree > plan_graph(300, 1 / 3, 0.1, -40.0).degree


def test_the_graph_depends_on_session_and_directory():
    steps = Steps(OnARing())
    steps.replies("share")
    directory = site_steps._directory(steps.states["site_0"], steps.context("site_0"))
    other_keys = {**directory, "site_3": directory["site_2"]}
    seeds = {
        site_steps.neighbourhood_seed(keys, session)
        for keys in (directory, other_keys)
        for session in (bytes(16), bytes([1]) * 16)
    }
    assert len(seeds) == 4
