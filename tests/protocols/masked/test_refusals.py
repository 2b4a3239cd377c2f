"""The requests that a site refuses in the masked sum: one row each, fails without its condition.

The rows follow the table in `secagg.protocols.masked.protocol`.
"""

import pytest
from support.protocols.masked_steps import ALL, FIVE, OnARing, Steps, high_bit
from support.protocols.mutations import with_odd_values

from secagg.contracts import Total
from secagg.core import canonical_encoding
from secagg.core.frames import write_frame
from secagg.errors import PeerError, PolicyRefusal
from secagg.protocols.masked import masks

P = 2**255 - 19


def directory(make):
    """Return the change of a "share" request in which `make(steps)` is site_3's statement."""
    return lambda s, b: {"directory": {**b["directory"], "site_3": make(s)}}


def stated(phase="advertise", round_=None, **keys):
    """Return the same, in which site_3 signs its keys with these changes."""
    return directory(lambda s: s.statement("site_3", phase, {**s.keys("site_3"), **keys}, round_))


def framed(session=None, recipient=masks.ALL_RECIPIENTS):
    """Return the same, in which site_3 writes its keys into another frame."""
    return directory(
        lambda s: write_frame(s.world.identities["site_3"], session or s.world.session, 0,
                              "advertise", recipient, s.keys("site_3")))  # fmt: skip


def copied(name, site, other):
    """Return the same, in which one of site_3's keys is a key of `site`."""
    return lambda s, b: stated(**{name: s.keys(site)[other]})(s, b)


def unsigned(s):
    header, _, content = canonical_encoding.loads(
        s.statement("site_3", "advertise", s.keys("site_3"))
    )
    return canonical_encoding.dumps([header, bytes(64), content])


def own_key_replaced(s, b):
    keys = {**s.keys("site_0"), "later": masks.public_key(bytes(32))}
    return {"directory": {**b["directory"], "site_0": s.statement("site_0", "advertise", keys)}}


def coordinators_keys(s, b):
    keys = {name: bytes([i]) * 32 for i, name in enumerate(("first", "later", "commitment"))}
    statement = s.statement("coordinator", "advertise", keys)
    return {"directory": {**b["directory"], "coordinator": statement}}


def part(name, sites):
    """Return the change of a request in which only these sites are left of a mapping."""
    return lambda s, b: {name: {site: b[name][site] for site in sites}}


def sealed(steps, shares, sender="site_1", recipient="site_0"):
    later = steps.states[sender]["advertised"]["later"]
    public = steps.keys(recipient)["later"]
    pair = masks.pair_keys(later, {recipient: public}, "shares", sender, steps.world.session)
    sealing = pair[recipient], canonical_encoding.dumps(shares), sender, recipient
    return masks.seal_shares(*sealing, steps.world.random)


def envelope(make):
    """Return the change of a "mask" request in which `make(steps, envelopes)` is site_1's."""
    return lambda s, b: {"envelopes": {**b["envelopes"], "site_1": make(s, b["envelopes"])}}


def signature(site, make):
    """Return the change of an "unmask" request in which `site` signs the body `make(steps)`."""
    return lambda s, b: {
        "statements": {**b["statements"], site: s.statement(site, "agree", make(s))}
    }


def digest_of(s, survivors):
    return {"survivors": masks.survivors_digest(s.states["site_0"]["label"], survivors)}


def constant(**body):
    return lambda s, b: body


C, ME, KEY = "coordinator", "site_0", bytes(33)
REQUESTS = {
    "share: no directory": (C, constant(directory=None)),
    "share: directory in a list": (C, constant(directory=[b""])),
    "share: four keys": (ME, part("directory", ALL[:4])),
    "share: own keys missing": (C, part("directory", ALL[1:])),
    "share: own key replaced": (C, own_key_replaced),
    "share: the coordinator's keys": (C, coordinators_keys),
    "share: unsigned": ("site_3", directory(unsigned)),
    "share: of another site": (
        "site_3", directory(lambda s: s.statement("site_2", "advertise", s.keys("site_3")))),
    "share: of another phase": ("site_3", stated("agree")),
    "share: of another round": ("site_3", stated(round_=1)),
    "share: for one party": ("site_3", framed(recipient="site_0")),
    "share: of another session": ("site_3", framed(bytes(16))),
    "share: first p": ("site_3", stated(first=P.to_bytes(32, "little"))),
    "share: first, top bit": ("site_3", lambda s, b: stated(first=high_bit(s, "first"))(s, b)),
    "share: later, top bit": ("site_3", lambda s, b: stated(later=high_bit(s, "later"))(s, b)),
    "share: more than keys": ("site_3", stated(more=b"")),
    "share: own key twice": (C, copied("later", "site_3", "first")),
    "share: another's first key": (C, copied("first", "site_2", "first")),
    "share: another's first as later": (C, copied("later", "site_2", "first")),
    "mask: no shares": (C, constant(envelopes=None)),
    "mask: none of site_1": (C, envelope(lambda s, e: None)),
    "mask: not bytes": (C, envelope(lambda s, e: [e["site_1"]])),
    "mask: of another site": ("site_1", envelope(lambda s, e: e["site_2"])),
    "mask: for another site": ("site_1", envelope(lambda s, e: sealed(s, {}, recipient="site_2"))),
    "mask: its own, sent back": ("site_1", envelope(lambda s, e: sealed(s, {}, ME, "site_1"))),
    "mask: altered": ("site_1", envelope(lambda s, e: s.wrong(e["site_1"]))),
    "mask: short": ("site_1", envelope(lambda s, e: e["site_1"][:5])),
    "mask: one share": ("site_1", envelope(lambda s, e: sealed(s, {"first": KEY}))),
    "mask: more shares": (
        "site_1", envelope(lambda s, e: sealed(s, {"first": KEY, "self": KEY, "x": 0}))),
    "mask: four sites": (ME, constant(masking=ALL[:4])),
    "mask: sites not a list": (C, constant(masking=None)),
    "mask: without itself": (C, constant(masking=ALL[1:])),
    "mask: one site twice": (C, constant(masking=[*FIVE, "site_1"])),
    "mask: a stranger": (C, constant(masking=[*FIVE, "coordinator"])),
    "mask: no name": (C, constant(masking=[*FIVE, 1])),
    "mask: no key of a mapping": (C, constant(masking=[*FIVE, []])),
    "agree: four survivors": (ME, constant(survivors=ALL[:4])),
    "agree: four and one twice": (ME, constant(survivors=[*ALL[:4], "site_0"])),
    "agree: without itself": (C, constant(survivors=ALL[1:])),
    "agree: no list": (C, constant(survivors={})),
    "agree: no name": (C, constant(survivors=[*ALL, 1])),
    "agree: no key of a mapping": (C, constant(survivors=[*ALL, []])),
    "unmask: four signatures": (ME, part("statements", ALL[:4])),
    "unmask: no signatures": (C, constant(statements=None)),
    "unmask: signatures in a list": (C, constant(statements=[])),
    "unmask: another list": ("site_3", signature("site_3", lambda s: digest_of(s, FIVE))),
    "unmask: no digest": ("site_3", signature("site_3", lambda s: {"survivors": [FIVE]})),
    "unmask: nothing signed": ("site_3", signature("site_3", lambda s: {})),
}  # fmt: skip
"""By phase and fault: whom the error names (the site itself by its policy), and the change."""


def refuses(where):
    """Expect an error with this `where`."""
    kind = PolicyRefusal if where == ME else PeerError
    return pytest.raises(kind, check=lambda error: error.where == where)


@pytest.mark.parametrize("case", REQUESTS)
def test_after_a_refused_request_the_honest_one_is_answered(case):
    where, change = REQUESTS[case]
    phase = case.split(":")[0]
    steps = Steps()
    body = steps.until(phase)[ME]
    with refuses(where):
        steps.ask(ME, phase, {**body, **change(steps, body)})
    assert steps.ask(ME, phase, body)


@pytest.mark.parametrize("first", [0, 3])
def test_honest_requests_are_answered_and_open_the_sum(first):
    steps = Steps(first=first)
    outcome = steps.serve("unmask", steps.replies("unmask"))
    assert isinstance(outcome, Total)
    assert not outcome.values.any()
    assert not steps.later(round_=first + 1).any()
    assert not steps.later(round_=first + 2).any()


def test_the_planned_minimum_of_sites_is_enough():
    steps = Steps()
    bodies = steps.until("share")
    keys = {site: bodies[ME]["directory"][site] for site in FIVE}
    assert steps.ask(ME, "share", {"directory": keys})
    for phase, few in (("mask", {"masking": FIVE}), ("agree", {"survivors": FIVE})):
        steps = Steps()
        assert steps.ask(ME, phase, {**steps.until(phase)[ME], **few})


def test_malformed_statements_are_refused():
    steps = Steps()
    statements = steps.until("share")[ME]["directory"]
    keys = steps.keys("site_3")
    well_formed = [canonical_encoding.dumps({**keys, name: bytes(32)}) for name in keys]
    for odd in with_odd_values(keys):
        if canonical_encoding.dumps(odd) not in well_formed:
            statement = steps.statement("site_3", "advertise", odd)
            with pytest.raises(PeerError):
                steps.ask(ME, "share", {"directory": {**statements, "site_3": statement}})


def test_malformed_sealed_shares_are_refused():
    steps = Steps()
    body = steps.until("mask")[ME]
    good = {"first": KEY, "self": KEY}
    for odd in [[KEY, KEY], *with_odd_values(good)]:
        if canonical_encoding.dumps(odd) != canonical_encoding.dumps(good):
            with refuses("site_1"):
                steps.ask(
                    ME, "mask", {**body, **envelope(lambda s, e, o=odd: sealed(s, o))(steps, body)}
                )


def test_masking_with_too_few_neighbours_is_refused():
    """Enough of the neighbours but too few in all, or of this site's shareholders too few."""
    steps = Steps(OnARing())
    body = steps.until("mask")[ME]
    near = sorted(body["envelopes"])
    assert len(near) == 4
    for few in ([ME, *near[:3]], [s for s in ALL if s not in near[:2]]):
        with refuses(ME):
            steps.ask(ME, "mask", {**body, "masking": few})
    assert steps.ask(ME, "mask", {**body, "masking": [s for s in ALL if s != near[0]]})


# --- a past round, a phase twice or out of order -------------------------------------------------


def test_advertising_twice_is_refused():
    steps = Steps()
    steps.until("share")
    for round_ in (0, 1):
        with refuses(ME):
            steps.ask(ME, "advertise", {}, round_)


def test_sharing_twice_or_out_of_order_is_refused():
    steps = Steps()
    body = steps.until("share")[ME]
    statements = {s: steps.statement(s, "advertise", steps.keys(s), 1) for s in ALL}
    with refuses(C):
        steps.ask(ME, "share", {"directory": statements}, 1)
    steps.ask(ME, "share", body)
    with refuses(C):
        steps.ask(ME, "share", body)
    with refuses(C):
        Steps().ask(ME, "share", {"directory": {}})


def test_masking_before_sharing_is_refused():
    steps = Steps()
    with refuses(C):
        steps.ask(ME, "mask", {"cohort": ALL})
    steps.until("share")
    with refuses(C):
        steps.ask(ME, "mask", {"masking": ALL, "envelopes": {}})


def test_masking_twice_or_in_an_earlier_round_is_refused():
    steps = Steps()
    body = steps.until("mask")[ME]
    steps.ask(ME, "mask", body)
    with refuses(ME):
        steps.ask(ME, "mask", body)
    steps.ask(ME, "mask", {"cohort": ALL}, 2)
    for past in (2, 1):
        with refuses(ME):
            steps.ask(ME, "mask", {"cohort": ALL}, past)


def test_agreeing_before_masking_or_in_another_round_is_refused():
    steps = Steps()
    steps.until("mask")
    with refuses(ME):
        steps.ask(ME, "agree", {"survivors": ALL})
    steps = Steps()
    steps.until("agree")
    with refuses(ME):
        steps.ask(ME, "agree", {"survivors": ALL}, 1)
    steps.later()
    with refuses(ME):
        steps.ask(ME, "agree", {"survivors": ALL}, 1)


def test_unmasking_twice_or_in_another_round_is_refused():
    steps = Steps()
    body = steps.until("unmask")[ME]
    signed = {site: steps.statement(site, "agree", digest_of(steps, ALL), 1) for site in ALL}
    with refuses(ME):
        steps.ask(ME, "unmask", {**body, "statements": signed}, 1)
    assert steps.ask(ME, "unmask", body)
    with refuses(ME):
        steps.ask(ME, "unmask", body)


# --- two lists of survivors, and sites that did not mask -----------------------------------------


def test_signing_a_second_list_is_refused():
    steps = Steps()
    steps.until("agree")
    steps.ask(ME, "agree", {"survivors": FIVE})
    for again in (ALL, FIVE):
        with refuses(ME):
            steps.ask(ME, "agree", {"survivors": again})
    with refuses(ME):
        steps.later(ALL)
    assert steps.ask(ME, "mask", {"cohort": FIVE}, 1)


@pytest.mark.parametrize("agreed", [FIVE, None])
def test_unmasking_over_a_list_that_was_not_signed_is_refused(agreed):
    """All others have signed that all survive, so its own signature is not even needed."""
    steps = Steps()
    bodies = steps.until("agree")
    if agreed:
        steps.ask(ME, "agree", {"survivors": agreed})
    signed = {s: steps.ask(s, "agree", bodies[s])["statement"] for s in ALL[1:]}
    with refuses(ME):
        steps.ask(ME, "unmask", {"contributors": ALL, "statements": signed})


def test_the_signature_of_a_dropped_site_does_not_count():
    steps = Steps()
    steps.until("agree")
    steps.ask(ME, "agree", {"survivors": FIVE})
    signers = [*ALL[:4], "site_6"]
    signed = {site: steps.statement(site, "agree", digest_of(steps, FIVE)) for site in signers}
    with refuses("site_6"):
        steps.ask(ME, "unmask", {"contributors": FIVE, "statements": signed})


def test_sites_that_did_not_mask_are_in_no_list_and_no_later_sum():
    steps = Steps()
    for site, body in list(steps.until("mask").items())[:6]:
        steps.ask(site, "mask", {**body, "masking": ALL[:6]})
    with refuses(C):
        steps.ask(ME, "agree", {"survivors": ALL})
    with refuses(ME):
        steps.ask(ME, "mask", {"cohort": ALL}, 1)
    with pytest.raises(PolicyRefusal):
        steps.ask("site_6", "mask", {"cohort": ALL}, 1)


def test_a_later_sum_over_too_few_sites_or_another_cohort_is_refused():
    steps = Steps()
    steps.replies("mask")  # no site is asked to agree, so none knows other survivors
    with refuses(ME):
        steps.later(ALL[:4])
    assert not steps.later(FIVE).any()
    with refuses(ME):
        steps.later(ALL, 2)


# --- secrets that a site deletes -----------------------------------------------------------------


def test_each_neighbours_unrevealed_secret_is_deleted():
    steps = Steps()
    steps.replies("mask")
    for site in FIVE:
        steps.ask(site, "agree", {"survivors": FIVE})
    held, own = steps.states[ME]["held"], steps.states[ME]["advertised"]
    signed = {site: steps.statement(site, "agree", digest_of(steps, FIVE)) for site in FIVE}
    shares = steps.ask(ME, "unmask", {"contributors": FIVE, "statements": signed})["shares"]
    kinds = {site: "self" if site in FIVE else "first" for site in ALL}
    assert shares == {site: held[site][kind] for site, kind in kinds.items()}
    gone = [held[site][kind] for site in ALL for kind in ("self", "first") if kind != kinds[site]]
    state = canonical_encoding.dumps(steps.states[ME])
    assert not [secret for secret in [*gone, own["first"], own["self"]] if secret in state]


def test_the_next_sum_deletes_the_secrets_of_the_first_one():
    """Also at a site that was never asked to unmask: its shares could open others' secrets."""
    steps = Steps()
    steps.until("unmask")
    before = steps.states[ME]
    secrets = [before["advertised"][name] for name in ("first", "later", "self")]
    secrets += [share for held in before["held"].values() for share in held.values()]
    steps.later()
    state = canonical_encoding.dumps(steps.states[ME])
    assert not [secret for secret in secrets if secret in state]
