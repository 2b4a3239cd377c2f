"""Forged, repeated and contradictory messages of the masked sum, as a site gets them.

Sections are rows of the table in `secagg.protocols.masked.protocol`; `test_refusals.py` has the
others.
"""

import pytest
from support.masked_steps import ALL, FIVE, Steps, refuses
from support.mutations import with_odd_values

from secagg.core import encoding
from secagg.core.frames import write_frame
from secagg.errors import PeerError, PolicyRefusal
from secagg.protocols.masked import masks

P = 2**255 - 19


# --- another site's key, or an unsigned one; one key twice; without its own keys -----------------


def with_keys(**changed):
    """Return how to make a directory in which site_3 states other keys."""
    return lambda s: s.statement("site_3", "advertise", {**s.keys("site_3"), **changed})


def high_bit(key):
    return key[:31] + bytes([key[31] | 0x80])


BAD_STATEMENTS = {
    "no statement": (lambda s: None, "no signed statement"),
    "of another site": (
        lambda s: s.statement("site_2", "advertise", s.keys("site_3")), "another site, round"),
    "of another phase": (
        lambda s: s.statement("site_3", "agree", s.keys("site_3")), "another site, round or phase"),
    "of another round": (
        lambda s: s.statement("site_3", "advertise", s.keys("site_3"), 1), "another site, round"),
    "for one party only": (
        lambda s: write_frame(s.world.identities["site_3"], s.world.session, 0, "advertise",
                              "site_0", s.keys("site_3")), "addressed to another party"),
    "of another session": (
        lambda s: write_frame(s.world.identities["site_3"], bytes(16), 0, "advertise",
                              masks.ALL_RECIPIENTS, s.keys("site_3")), "another session"),
    "unsigned": (
        lambda s: encoding.dumps([*encoding.loads(s.statement("site_3", "advertise", {}))[:1],
            bytes(64),
                              encoding.dumps({})]), "invalid signature"),
    "first: short": (with_keys(first=bytes(31)), "malformed keys"),
    "first: p": (with_keys(first=P.to_bytes(32, "little")), "malformed keys"),
    "first: p + 9": (with_keys(first=(P + 9).to_bytes(32, "little")), "malformed keys"),
    "later: long": (with_keys(later=bytes(33)), "malformed keys"),
    "first, top bit set": (
        lambda s: with_keys(first=high_bit(s.keys("site_3")["first"]))(s), "malformed keys"),
    "later, top bit set": (
        lambda s: with_keys(later=high_bit(s.keys("site_3")["later"]))(s), "malformed keys"),
    "first: no bytes": (with_keys(first=[0] * 32), "malformed keys"),
    "commitment: short": (with_keys(commitment=bytes(31)), "malformed keys"),
    "more than keys": (with_keys(more=b""), "malformed keys"),
    "own key twice": (
        lambda s: with_keys(later=s.keys("site_3")["first"])(s), "a repeated key"),
    "another's first key": (
        lambda s: with_keys(first=s.keys("site_2")["first"])(s), "a repeated key"),
    "another's first as later": (
        lambda s: with_keys(later=s.keys("site_2")["first"])(s), "a repeated key"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_STATEMENTS)
def test_a_directory_with_a_bad_key_is_refused(case):
    make, why = BAD_STATEMENTS[case]
    steps = Steps()
    directory = steps.until("share")["site_0"]["directory"]
    with refuses(PeerError, why):
        steps.ask("site_0", "share", {"directory": {**directory, "site_3": make(steps)}})
    assert steps.ask("site_0", "share", {"directory": directory})


def test_odd_values_in_a_statement():
    steps = Steps()
    directory = steps.until("share")["site_0"]["directory"]
    keys = steps.keys("site_3")
    well_formed = [encoding.dumps({**keys, name: bytes(32)}) for name in keys]
    for odd in with_odd_values(keys):
        if encoding.dumps(odd) in well_formed:
            continue
        statement = steps.statement("site_3", "advertise", odd)
        with pytest.raises(PeerError):
            steps.ask("site_0", "share", {"directory": {**directory, "site_3": statement}})


def test_a_directory_with_the_coordinators_own_key_is_refused():
    steps = Steps()
    directory = steps.until("share")["site_0"]["directory"]
    keys = {name: bytes([i]) * 32 for i, name in enumerate(("first", "later", "commitment"))}
    directory["coordinator"] = steps.statement("coordinator", "advertise", keys)
    with refuses(PeerError, "only sites"):
        steps.ask("site_0", "share", {"directory": directory})


def test_a_directory_without_own_keys_is_refused():
    steps = Steps()
    directory = steps.until("share")["site_0"]["directory"]
    fewer = {site: statement for site, statement in directory.items() if site != "site_0"}
    with refuses(PeerError, "without this site's own keys"):
        steps.ask("site_0", "share", {"directory": fewer})
    for name in ("first", "later", "commitment"):
        keys = {**steps.keys("site_0"), name: masks.public_key(bytes(32))}
        other = steps.statement("site_0", "advertise", keys)
        with refuses(PeerError, "without this site's own keys"):
            steps.ask("site_0", "share", {"directory": {**directory, "site_0": other}})


@pytest.mark.parametrize("body", [{}, {"directory": None}, {"directory": [b""]}])
def test_what_is_no_directory_is_refused(body):
    steps = Steps()
    steps.until("share")
    with refuses(PeerError, "a second key directory"):
        steps.ask("site_0", "share", body)


# --- shares that are not what they should be -----------------------------------------------------


def sealed(steps, shares, sender="site_1", recipient="site_0"):
    later = steps.states[sender]["advertised"]["later"]
    public = steps.keys(recipient)["later"]
    pair = masks.pair_keys(later, {recipient: public}, "shares", sender, steps.world.session)
    sealing = pair[recipient], encoding.dumps(shares), sender, recipient
    return masks.seal_shares(*sealing, steps.world.random)


GOOD = bytes(33)
ENVELOPES = {
    "none": (lambda s, b: None, "did not relay the shares of site_1"),
    "not bytes": (lambda s, b: [b["site_1"]], "did not relay the shares of site_1"),
    "of another site": (lambda s, b: b["site_2"], "cannot open"),
    "for another site": (lambda s, b: sealed(s, {}, recipient="site_2"), "cannot open"),
    "its own, sent back": (lambda s, b: sealed(s, {}, "site_0", "site_1"), "cannot open"),
    "altered": (lambda s, b: b["site_1"][:-1] + bytes([b["site_1"][-1] ^ 1]), "cannot open"),
    "short": (lambda s, b: b["site_1"][:5], "cannot open"),
    "one only": (lambda s, b: sealed(s, {"first": GOOD}), "malformed shares"),
    "no mapping": (lambda s, b: sealed(s, [GOOD, GOOD]), "malformed shares"),
    "more": (lambda s, b: sealed(s, {"first": GOOD, "self": GOOD, "x": 0}), "malformed shares"),
    "first too long": (
        lambda s, b: sealed(s, {"first": GOOD + b"0", "self": GOOD}), "malformed shares"),
    "self too short": (lambda s, b: sealed(s, {"first": GOOD, "self": b""}), "malformed shares"),
    "first: no bytes": (lambda s, b: sealed(s, {"first": [], "self": GOOD}), "malformed shares"),
    "self: no bytes": (lambda s, b: sealed(s, {"first": GOOD, "self": 33}), "malformed shares"),
}  # fmt: skip


@pytest.mark.parametrize("case", ENVELOPES)
def test_shares_that_are_not_the_neighbours(case):
    make, why = ENVELOPES[case]
    steps = Steps()
    body = steps.until("mask")["site_0"]
    envelopes = {**body["envelopes"], "site_1": make(steps, body["envelopes"])}
    with refuses(PeerError, why):
        steps.ask("site_0", "mask", {**body, "envelopes": envelopes})
    assert sealed(steps, {"first": GOOD, "self": GOOD})


def test_odd_values_in_sealed_shares():
    steps = Steps()
    body = steps.until("mask")["site_0"]
    good = {"first": bytes(33), "self": bytes(33)}
    for odd in with_odd_values(good):
        if encoding.dumps(odd) == encoding.dumps(good):
            continue
        envelopes = {**body["envelopes"], "site_1": sealed(steps, odd)}
        with refuses(PeerError, "malformed shares"):
            steps.ask("site_0", "mask", {**body, "envelopes": envelopes})


def test_no_shares_at_all():
    steps = Steps()
    body = steps.until("mask")["site_0"]
    with refuses(PeerError, "malformed request to mask"):
        steps.ask("site_0", "mask", {**body, "envelopes": None})


# --- a round that is past, or one phase twice ----------------------------------------------------


def test_advertising_twice():
    steps = Steps()
    steps.until("share")
    for round_ in (0, 1):
        with refuses(PolicyRefusal, "has already advertised its keys"):
            steps.ask("site_0", "advertise", {}, round_)


def test_two_directories():
    steps = Steps()
    body = steps.until("share")["site_0"]
    steps.ask("site_0", "share", body)
    with refuses(PeerError, "a second key directory"):
        steps.ask("site_0", "share", body)


def test_sharing_in_another_round():
    steps = Steps()
    steps.until("share")
    directory = {s: steps.statement(s, "advertise", steps.keys(s), 1) for s in ALL}
    with refuses(PeerError, "another round's keys"):
        steps.ask("site_0", "share", {"directory": directory}, 1)


def test_sharing_before_it_advertised():
    with refuses(PeerError, "another round's keys"):
        Steps().ask("site_0", "share", {"directory": {}})


def test_masking_before_it_shared():
    steps = Steps()
    with refuses(PeerError, "before keys were shared"):
        steps.ask("site_0", "mask", {"cohort": ALL})
    steps.until("share")
    with refuses(PeerError, "before keys were shared"):
        steps.ask("site_0", "mask", {"masking": ALL, "envelopes": {}})


def test_masking_twice_in_a_round_or_in_one_before():
    steps = Steps()
    body = steps.until("mask")["site_0"]
    steps.ask("site_0", "mask", body)
    with refuses(PolicyRefusal, "in this round or a later one"):
        steps.ask("site_0", "mask", body)
    steps.ask("site_0", "mask", {"cohort": ALL}, 2)
    for past in (2, 1):
        with refuses(PolicyRefusal, "in this round or a later one"):
            steps.ask("site_0", "mask", {"cohort": ALL}, past)


def test_agreeing_before_it_masked_or_in_another_round():
    steps = Steps()
    steps.until("mask")
    with refuses(PolicyRefusal, "no masked contribution in this round"):
        steps.ask("site_0", "agree", {"survivors": ALL})
    steps = Steps()
    steps.until("agree")
    with refuses(PolicyRefusal, "no masked contribution in this round"):
        steps.ask("site_0", "agree", {"survivors": ALL}, 1)
    steps.later()
    with refuses(PolicyRefusal, "no masked contribution in this round"):
        steps.ask("site_0", "agree", {"survivors": ALL}, 1)


def test_unmasking_in_another_round():
    steps = Steps()
    body = steps.until("unmask")["site_0"]
    digest = {"survivors": masks.survivors_digest(steps.states["site_0"]["label"], ALL)}
    signed = {site: steps.statement(site, "agree", digest, 1) for site in ALL}
    with refuses(PolicyRefusal, "no masked contribution in this round"):
        steps.ask("site_0", "unmask", {**body, "statements": signed}, 1)


# --- other requests or directories for some sites, now or in any sum before ----------------------


def first_sum(told=None):
    """Mask among the first six, site_0 being told something else; return the steps."""
    steps = Steps()
    shared = steps.until("share")
    for site, body in shared.items():
        directory = dict(body["directory"])
        if told == "directory" and site == "site_0":
            del directory["site_6"]  # it does not mask, so nothing else changes
        shared[site] = steps.ask(site, "share", {"directory": directory})["envelopes"]
    for site in ALL[:6]:
        odd = site == "site_0"
        masking_sites = FIVE if told == "maskers" and odd else ALL[:6]
        envelopes = {by: to[site] for by, to in shared.items() if site in to}
        body = {"masking": masking_sites, "envelopes": envelopes}
        steps.ask(site, "mask", body, asked=b"another" if told == "request" and odd else b"request")
    return steps


@pytest.mark.parametrize("told", ["directory", "maskers", "request"])
def test_something_else_in_the_first_sum(told):
    """Masks have another label, signatures do not fit, and later sums stay noise as well."""
    steps = first_sum(told)
    labels = [steps.states[site]["label"] for site in ALL[:6]]
    assert labels[0] not in labels[1:]
    assert len(set(labels[1:])) == 1
    signed = {s: steps.ask(s, "agree", {"survivors": FIVE})["statement"] for s in FIVE}
    with refuses(PeerError, "site_0: signed another list"):
        steps.ask("site_1", "unmask", {"contributors": FIVE, "statements": signed})
    assert steps.later(FIVE).all()
    assert not first_sum().later(FIVE).any()


def test_something_else_in_a_later_sum():
    """It and every one after it are noise, though nobody is told anything else again."""
    steps = first_sum()
    assert steps.later(FIVE, 1, other=b"another").all()
    for round_ in (2, 3):
        assert steps.later(FIVE, round_).all()


def test_a_round_that_only_some_were_asked_for():
    steps = first_sum()
    steps.ask("site_0", "mask", {"cohort": FIVE}, 1)
    assert steps.later(FIVE, 2).all()


def test_labels_are_made_of_what_sites_are_told():
    """By the formula in `masking`, whatever rounds the sums are in."""
    steps = Steps(first=3)
    body = steps.until("mask")["site_0"]
    session, directory = steps.world.session, {site: steps.keys(site) for site in ALL}
    steps.ask("site_0", "mask", {**body, "masking": FIVE})
    before = encoding.digest(["secagg key directory 1", directory])
    first = encoding.digest(["secagg masks 1", session, 3, before, FIVE, b"request"])
    assert steps.states["site_0"]["label"] == first
    steps.ask("site_0", "mask", {"cohort": FIVE}, 5, asked=b"another")
    later = encoding.digest(["secagg masks 1", session, 5, first, FIVE, b"another"])
    assert steps.states["site_0"]["session"]["label"] == later


def test_a_label_holds_all_that_sites_are_told():
    told = [bytes(16), 1, bytes(32), FIVE, b"request"]
    others = [bytes(15), 2, bytes(31), ALL, b"another"]
    labels = {masks.label(*told[:i], other, *told[i + 1 :]) for i, other in enumerate(others)}
    assert len(labels | {masks.label(*told)}) == 6
    assert masks.label(*told) == masks.label(*told[:3], FIVE[::-1], *told[4:])
    digests = [masks.survivors_digest(bytes([i]), names) for i in (1, 2) for names in (FIVE, ALL)]
    assert len(set(digests)) == 4
