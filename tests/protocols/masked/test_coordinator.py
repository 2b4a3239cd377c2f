"""The coordinator of the masked sum: fewer replies than it needs, and replies that are wrong."""

import numpy as np
import pytest
from support.protocols.masked_steps import ALL, FIVE, OnARing, Steps

from secagg.contracts import PhaseRequest, Total
from secagg.core import ring
from secagg.errors import PeerError, ProtocolAbort
from secagg.protocols.masked import masks


def blames(site):
    """Expect a `PeerError` about this site."""
    return pytest.raises(PeerError, check=lambda error: error.where == site)


@pytest.mark.parametrize("phase", ["advertise", "share", "mask", "agree", "unmask"])
def test_too_few_replies_end_the_sum(phase):
    steps = Steps()
    replies = steps.replies(phase)
    with pytest.raises(ProtocolAbort) as caught:
        steps.serve(phase, {site: replies[site] for site in ALL[:4]})
    assert caught.value.where == "masked"
    assert isinstance(steps.serve(phase, {s: replies[s] for s in FIVE}), PhaseRequest | Total)


REPLIES = {
    "no keys": ("advertise", {}),
    "keys in a list": ("advertise", {"keys": []}),
    "no envelopes": ("share", {}),
    "envelopes in a list": ("share", {"envelopes": [b""]}),
    "no contribution": ("mask", {}),
    "a contribution of another ring": ("mask", {"masked": ring.zeros(4, 32)}),
    "a contribution too long": ("mask", {"masked": ring.zeros(5, 64)}),
    "a contribution of reals": ("mask", {"masked": np.zeros((4, 1))}),
    "no signature": ("agree", {}),
}


@pytest.mark.parametrize("case", REPLIES)
def test_malformed_replies_are_rejected(case):
    phase, reply = REPLIES[case]
    steps = Steps()
    replies = steps.replies(phase)
    with blames("site_3"):
        steps.serve(phase, {**replies, "site_3": reply})
    assert isinstance(steps.serve(phase, replies), PhaseRequest)


def test_a_signature_on_another_list_is_rejected():
    steps = Steps()
    replies = steps.replies("agree")
    digest = masks.survivors_digest(steps.states["site_3"]["label"], FIVE)
    other = steps.statement("site_3", "agree", {"survivors": digest})
    with blames("site_3"):
        steps.serve("agree", {**replies, "site_3": {"statement": other}})


@pytest.mark.parametrize("shares", [None, [], {"site_5": 33}, {}])
def test_missing_or_malformed_shares_do_not_count(shares):
    """Two sites more than needed reply, so two may send nonsense; a third may not."""
    for malformed in (2, 3):
        steps = Steps()
        replies = steps.replies("unmask")
        replies |= {site: {"shares": shares} for site in ALL[:malformed]}
        if malformed == 2:
            assert not steps.serve("unmask", replies).values.any()
        else:
            with pytest.raises(ProtocolAbort):
                steps.serve("unmask", replies)


@pytest.mark.parametrize(("owner", "lost"), [("site_0", False), ("site_6", True)])
def test_a_wrong_share_of_any_site_is_detected(owner, lost):
    """The combined secret is not the advertised one: of its self mask, or of its key."""
    steps = Steps()
    masked = steps.replies("mask")
    agreed = steps.serve("mask", {s: masked[s] for s in (ALL[:6] if lost else ALL)})
    signed = {s: steps.ask(s, "agree", body) for s, body in agreed.bodies.items()}
    ask = steps.serve("agree", signed)
    assert list(ask.contributors) == list(agreed.bodies)
    replies = {s: steps.ask(s, "unmask", body) for s, body in steps.bodies(ask).items()}
    shares = replies["site_1"]["shares"]
    wrong = {"shares": {**shares, owner: steps.wrong(shares[owner])}}
    with blames(owner):
        steps.serve("unmask", {**replies, "site_1": wrong})
    assert not steps.serve("unmask", replies).values.any()


@pytest.mark.parametrize(("never_masked", "lost"), [(5, 6), (6, 5)])
def test_sites_may_drop_out_before_and_after_masking(never_masked, lost):
    """Only the masks of the site that was asked to mask are removed."""
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


def test_the_coordinator_relays_only_what_each_site_needs():
    """The envelopes that are sealed for a site, and no more signatures than it must verify."""
    steps = Steps(OnARing())
    shared = steps.replies("share")
    for site, body in steps.serve("share", shared).bodies.items():
        sealed = {by: reply["envelopes"][site] for by, reply in shared.items()
                  if site in reply["envelopes"]}  # fmt: skip
        assert body["envelopes"] == sealed
        assert len(sealed) == 4
    assert list(Steps().until("unmask")["site_6"]["statements"]) == FIVE
