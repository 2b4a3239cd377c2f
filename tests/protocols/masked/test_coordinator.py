"""The coordinator of the masked sum: fewer replies than it needs, and replies that are wrong."""

import numpy as np
import pytest
from support.masked_steps import ALL, FIVE, OnARing, Steps, refuses

from secagg.contracts import PhaseRequest, Total
from secagg.core import ring
from secagg.errors import InternalError, PeerError, ProtocolAbort
from secagg.protocols.masked import masks
from secagg.protocols.masked.protocol import Masked

NEEDED = {
    "advertise": "only 4 sites advertised keys; 5 are required",
    "share": "only 4 sites shared their secrets; 5 are required",
    "mask": "only 4 sites sent a masked contribution; 5 are required",
    "agree": "only 4 sites signed the list of survivors; 5 are required",
    "unmask": "only 4 shares of a secret of site_0 arrived; 5 are required",
}


@pytest.mark.parametrize("phase", NEEDED)
def test_too_few_replies(phase):
    steps = Steps()
    replies = steps.replies(phase)
    with refuses(ProtocolAbort, NEEDED[phase]) as caught:
        steps.serve(phase, {site: replies[site] for site in ALL[:4]})
    assert not isinstance(caught.value, PeerError)
    assert isinstance(steps.serve(phase, {s: replies[s] for s in FIVE}), PhaseRequest | Total)


def wrong_bytes(given):
    return bytes([given[0] ^ 1]) + given[1:]


REPLIES = {
    "no keys": ("advertise", {}, "site_3: malformed message: no signed statement"),
    "keys that are none": (
        "advertise",
        {"keys": []},
        "site_3: malformed message: no signed statement",
    ),
    "no envelopes": ("share", {}, "site_3: malformed message: no sealed shares"),
    "envelopes in a list": (
        "share",
        {"envelopes": [b""]},
        "site_3: malformed message: no sealed shares",
    ),
    "no contribution": ("mask", {}, "wrong shape"),
    "a contribution of another ring": ("mask", {"masked": ring.zeros(4, 32)}, "wrong shape"),
    "a contribution too long": ("mask", {"masked": ring.zeros(5, 64)}, "wrong shape"),
    "a contribution of reals": ("mask", {"masked": np.zeros((4, 1))}, "wrong shape"),
    "no signature": ("agree", {}, "site_3: malformed message: no signed statement"),
    "a signature that is none": ("agree", {"statement": b""}, "malformed"),
}


@pytest.mark.parametrize("case", REPLIES)
def test_malformed_replies(case):
    phase, reply, why = REPLIES[case]
    steps = Steps()
    replies = steps.replies(phase)
    with refuses(PeerError, why):
        steps.serve(phase, {**replies, "site_3": reply})
    assert isinstance(steps.serve(phase, replies), PhaseRequest)


def test_a_signature_on_another_list():
    steps = Steps()
    replies = steps.replies("agree")
    digest = masks.survivors_digest(steps.states["site_3"]["label"], FIVE)
    other = steps.statement("site_3", "agree", {"survivors": digest})
    with refuses(PeerError, "site_3: signed another list"):
        steps.serve("agree", {**replies, "site_3": {"statement": other}})


def test_who_sent_is_in_the_sum_whether_it_signs_or_not():
    steps = Steps()
    signed = steps.replies("agree")
    ask = steps.serve("agree", {site: signed[site] for site in FIVE})
    assert isinstance(ask, PhaseRequest)
    assert (list(ask.bodies), ask.contributors) == (FIVE, tuple(ALL))


def test_a_contribution_of_the_wrong_shape_in_a_later_sum():
    steps = Steps()
    steps.serve("unmask", steps.replies("unmask"))
    uploads = {s: steps.ask(s, "mask", {"cohort": ALL}, 1) for s in ALL}
    with refuses(PeerError, "site_3: its masked contribution has the wrong shape"):
        steps.serve("mask", {**uploads, "site_3": {"masked": ring.zeros(1, 32)}}, 1)
    total = steps.serve("mask", uploads, 1)
    assert isinstance(total, Total)
    assert not total.values.any()


@pytest.mark.parametrize("given", [None, [], {"site_5": 33}, {"site_5": None}, {}])
def test_shares_that_are_missing_or_malformed_do_not_count(given):
    """Two sites' are spare, so two that are silent, or send nonsense, are no harm; a third is."""
    steps = Steps()
    replies = steps.replies("unmask")
    nonsense = {"shares": given}
    some = {**replies, "site_0": nonsense, "site_1": nonsense}
    total = steps.serve("unmask", some)
    assert isinstance(total, Total)
    assert not total.values.any()

    steps = Steps()
    replies = steps.replies("unmask")
    nonsense = {site: {"shares": given} for site in ALL[:3]}
    with refuses(ProtocolAbort, "only 4 shares of a secret of site_0 arrived"):
        steps.serve("unmask", {**replies, **nonsense})


@pytest.mark.parametrize(("owner", "lost"), [("site_0", False), ("site_6", True)])
def test_a_wrong_share_of_a_survivor_or_of_a_lost_site(owner, lost):
    """The secret put together is not the one that was advertised: of its own mask, of its key."""
    steps = Steps()
    masked = steps.replies("mask")
    agreed = steps.serve("mask", {s: masked[s] for s in (ALL[:6] if lost else ALL)})
    signed = {s: steps.ask(s, "agree", body) for s, body in agreed.bodies.items()}
    ask = steps.serve("agree", signed)
    assert list(ask.contributors) == list(agreed.bodies)
    replies = {s: steps.ask(s, "unmask", body) for s, body in steps.bodies(ask).items()}
    shares = replies["site_1"]["shares"]
    wrong = {"shares": {**shares, owner: wrong_bytes(shares[owner])}}
    with refuses(PeerError, f"{owner}: its shares do not combine to the secret"):
        steps.serve("unmask", {**replies, "site_1": wrong})
    total = steps.serve("unmask", replies)
    assert isinstance(total, Total)
    assert not total.values.any()


@pytest.mark.parametrize(("never_masked", "lost"), [(5, 6), (6, 5)])
def test_sites_that_are_lost_before_and_after_they_masked(never_masked, lost):
    """Masks of the one that is lost later are removed, but for those that never were."""
    steps = Steps()
    shared = steps.replies("share")
    ask = steps.serve("share", {s: shared[s] for s in ALL if s != ALL[never_masked]})
    assert sorted(ask.bodies) == [s for s in ALL if s != ALL[never_masked]]
    ask.bodies.pop(ALL[lost])
    for phase in ("mask", "agree", "unmask"):
        replies = {s: steps.ask(s, phase, body) for s, body in steps.bodies(ask).items()}
        ask = steps.serve(phase, replies)
    assert isinstance(ask, Total)
    assert ask.contributors == tuple(FIVE)
    assert not ask.values.any()


def test_each_site_is_relayed_what_is_sealed_for_it_and_no_more_signatures_than_it_needs():
    steps = Steps(OnARing())
    shared = steps.replies("share")
    bodies = steps.serve("share", shared).bodies
    for site, body in bodies.items():
        sealed = {by: reply["envelopes"][site] for by, reply in shared.items()
                  if site in reply["envelopes"]}  # fmt: skip
        assert body["envelopes"] == sealed
        assert len(sealed) == 4
    signed = Steps().until("unmask")["site_6"]["statements"]
    assert list(signed) == FIVE


def test_steps_that_do_not_exist():
    steps = Steps()
    with refuses(InternalError, "no server step 'nonsense'"):
        steps.serve("nonsense", {})
    with refuses(InternalError, "no client step 'nonsense'"):
        steps.ask("site_0", "nonsense", {})
    with refuses(InternalError, "no client step 'mask'"):
        Masked().client("mask", {}, {}, steps.context("site_0"), None)
