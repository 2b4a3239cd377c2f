"""Every refusal of a site in the masked sum, one by one: each test fails without its condition.

Sections are rows of the table in `secagg.protocols.masked.protocol`; `test_messages.py` has the
others.
"""

import pytest
from contracts.secure_sum import numbers
from support.masked_steps import ALL, FIVE, OnARing, Steps, refuses
from support.world import STAGE, SumNumbers, World

from secagg.contracts import Context, Total
from secagg.core import encoding
from secagg.errors import PeerError, PolicyRefusal
from secagg.protocols.masked import masks, shamir
from secagg.protocols.masked import site as site_steps
from secagg.protocols.masked.graph import plan_graph
from secagg.protocols.masked.protocol import Masked


@pytest.mark.parametrize("first", [0, 3])
def test_the_honest_course_is_answered_and_opens(first):
    steps = Steps(first=first)
    outcome = steps.serve("unmask", steps.replies("unmask"))
    assert isinstance(outcome, Total)
    assert not outcome.values.any()
    assert not steps.later(round_=first + 1).any()
    assert not steps.later(round_=first + 2).any()


# --- fewer keys, maskers, survivors or signatures than the plan needs ----------------------------


def test_too_few_keys():
    steps = Steps()
    directory = steps.until("share")["site_0"]["directory"]
    with refuses(PolicyRefusal, "only 4 sites advertised keys; 5 are required"):
        steps.ask("site_0", "share", {"directory": {s: directory[s] for s in ALL[:4]}})
    assert "held" not in steps.states["site_0"]
    assert steps.ask("site_0", "share", {"directory": {s: directory[s] for s in FIVE}})


def test_too_few_maskers():
    steps = Steps()
    body = steps.until("mask")["site_0"]
    with refuses(PolicyRefusal, "too few sites shared"):
        steps.ask("site_0", "mask", {**body, "masking": ALL[:4]})
    assert steps.ask("site_0", "mask", {**body, "masking": FIVE})


def test_too_few_maskers_on_a_ring():
    """Enough of the neighbours but too few in all, or of this site's shareholders too few."""
    steps = Steps(OnARing())
    body = steps.until("mask")["site_0"]
    near = sorted(body["envelopes"])
    assert len(near) == 4
    with refuses(PolicyRefusal, "too few sites shared"):
        steps.ask("site_0", "mask", {**body, "masking": ["site_0", *near[:3]]})
    with refuses(PolicyRefusal, "too few sites shared"):
        steps.ask("site_0", "mask", {**body, "masking": [s for s in ALL if s not in near[:2]]})
    assert steps.ask("site_0", "mask", {**body, "masking": [s for s in ALL if s != near[0]]})


def test_too_few_survivors():
    steps = Steps()
    steps.until("agree")
    with refuses(PolicyRefusal, "only 4 sites survived; 5 are required"):
        steps.ask("site_0", "agree", {"survivors": ALL[:4]})
    with refuses(PolicyRefusal, "only 4 sites survived; 5 are required"):
        steps.ask("site_0", "agree", {"survivors": [*ALL[:4], "site_0"]})
    assert steps.ask("site_0", "agree", {"survivors": FIVE})


def test_too_few_signatures():
    steps = Steps()
    body = steps.until("unmask")["site_0"]
    four = dict(list(body["statements"].items())[:4])
    with refuses(PolicyRefusal, "only 4 sites signed the list of survivors; 5 are required"):
        steps.ask("site_0", "unmask", {**body, "statements": four})
    assert steps.ask("site_0", "unmask", body)


def test_a_later_sum_of_too_few():
    steps = Steps()
    steps.replies("mask")  # nobody is asked to agree, so nobody knows other survivors
    with refuses(PolicyRefusal, "too small or has sites that did not mask"):
        steps.later(ALL[:4])
    assert not steps.later(FIVE).any()


def test_shares_are_split_at_the_threshold():
    steps = Steps()
    steps.replies("mask")
    for kind in ("first", "self"):
        shares = {i + 1: steps.states[s]["held"]["site_6"][kind] for i, s in enumerate(FIVE)}
        secret = steps.states["site_6"]["advertised"][kind]
        assert shamir.combine(shares) == secret
        assert shamir.combine({point: shares[point] for point in (1, 2, 3, 4)}) != secret


def test_from_33_sites_on_the_plan_allows_for_tries_at_the_graph():
    world = World(Masked(), numbers(300, 1, 1), SumNumbers((1,)))
    shape = world.plans.of(STAGE).shape
    context = Context(world.session, 0, world.identities["site_0"], world.roster, shape, bytes)
    plan = Masked().plan(context)
    assert plan == plan_graph(300, 1 / 3, 0.1, -80.0)
    assert plan.degree > plan_graph(300, 1 / 3, 0.1, -40.0).degree


def test_the_graph_follows_from_session_and_directory():
    steps = Steps(OnARing())
    steps.replies("share")
    directory = site_steps._directory(steps.states["site_0"], steps.context("site_0"))
    other_keys = {**directory, "site_3": directory["site_2"]}
    drawn_from = {
        site_steps.neighbourhood_seed(keys, session)
        for keys in (directory, other_keys)
        for session in (bytes(16), bytes([1]) * 16)
    }
    assert len(drawn_from) == 4


# --- both secrets of one neighbour ---------------------------------------------------------------


def test_one_secret_of_each_neighbour_and_the_other_is_gone():
    steps = Steps()
    steps.replies("mask")
    for site in FIVE:
        steps.ask(site, "agree", {"survivors": FIVE})
    held, own = steps.states["site_0"]["held"], steps.states["site_0"]["advertised"]
    label = steps.states["site_0"]["label"]
    digest = {"survivors": masks.survivors_digest(label, FIVE)}
    signed = {site: steps.statement(site, "agree", digest) for site in FIVE}
    shares = steps.ask("site_0", "unmask", {"contributors": FIVE, "statements": signed})["shares"]
    kinds = {site: "self" if site in FIVE else "first" for site in ALL}
    assert shares == {site: held[site][kind] for site, kind in kinds.items()}
    gone = [held[site][kind] for site in ALL for kind in ("self", "first") if kind != kinds[site]]
    kept = encoding.dumps(steps.states["site_0"])
    assert not [secret for secret in [*gone, own["first"], own["self"]] if secret in kept]


def test_unmasking_twice():
    steps = Steps()
    body = steps.until("unmask")["site_0"]
    assert steps.ask("site_0", "unmask", body)
    with refuses(PolicyRefusal, "has already unmasked"):
        steps.ask("site_0", "unmask", body)


def test_secrets_of_the_first_sum_do_not_outlive_the_next_one():
    """Not even at a site that never came to unmask: its shares would still open others' secrets."""
    steps = Steps()
    steps.until("unmask")
    before = steps.states["site_0"]
    own = before["advertised"]
    secrets = [own[name] for name in ("first", "later", "self")]
    secrets += [share for held in before["held"].values() for share in held.values()]
    steps.later()
    kept = encoding.dumps(steps.states["site_0"])
    assert not [secret for secret in secrets if secret in kept]


# --- two lists of survivors ----------------------------------------------------------------------


def test_signing_a_second_list():
    steps = Steps()
    steps.until("agree")
    steps.ask("site_0", "agree", {"survivors": FIVE})
    for again in (ALL, FIVE):
        with refuses(PolicyRefusal, "has already signed a list of survivors"):
            steps.ask("site_0", "agree", {"survivors": again})


@pytest.mark.parametrize("agreed", [FIVE, None])
def test_unmasking_over_another_list_than_it_signed(agreed):
    """All others have signed that all survive, so its own signature is not even needed."""
    steps = Steps()
    bodies = steps.until("agree")
    if agreed:
        steps.ask("site_0", "agree", {"survivors": agreed})
    signed = {s: steps.ask(s, "agree", bodies[s])["statement"] for s in ALL[1:]}
    with refuses(PolicyRefusal, "signed another list of survivors"):
        steps.ask("site_0", "unmask", {"contributors": ALL, "statements": signed})


@pytest.mark.parametrize("by", ["another list", "no digest", "nothing"])
def test_signatures_on_another_list(by):
    steps = Steps()
    body = steps.until("unmask")["site_0"]
    label = steps.states["site_0"]["label"]
    said = {
        "another list": {"survivors": masks.survivors_digest(label, FIVE)},
        "no digest": {"survivors": [FIVE]},
        "nothing": {},
    }[by]
    statements = {**body["statements"], "site_3": steps.statement("site_3", "agree", said)}
    with refuses(PeerError, "site_3: signed another list"):
        steps.ask("site_0", "unmask", {**body, "statements": statements})


def test_a_signature_of_no_survivor():
    """Four survivors and a lost site that colludes: it signs, but does not count."""
    steps = Steps()
    steps.until("agree")
    steps.ask("site_0", "agree", {"survivors": FIVE})
    digest = {"survivors": masks.survivors_digest(steps.states["site_0"]["label"], FIVE)}
    signed = {site: steps.statement(site, "agree", digest) for site in [*ALL[:4], "site_6"]}
    with refuses(PeerError, "site_6: signed another list"):
        steps.ask("site_0", "unmask", {"contributors": FIVE, "statements": signed})


@pytest.mark.parametrize("statements", [None, [], b""])
def test_no_signatures(statements):
    steps = Steps()
    body = steps.until("unmask")["site_0"]
    with refuses(PeerError, "malformed request to unmask"):
        steps.ask("site_0", "unmask", {**body, "statements": statements})


def test_a_later_sum_over_another_list_than_it_signed():
    steps = Steps()
    steps.until("agree")
    steps.ask("site_0", "agree", {"survivors": FIVE})
    with refuses(PolicyRefusal, "differs from the first sum's"):
        steps.later(ALL)
    assert steps.ask("site_0", "mask", {"cohort": FIVE}, 1)


def test_a_cohort_that_changes_between_later_sums():
    steps = Steps()
    steps.replies("mask")
    steps.later(ALL)
    with refuses(PolicyRefusal, "changed after the first sum"):
        steps.later(FIVE, 2)


# --- survivors who did not mask, or not itself ---------------------------------------------------


def without_the_last(steps):
    """Mask among the first six of seven."""
    for site, body in list(steps.until("mask").items())[:6]:
        steps.ask(site, "mask", {**body, "masking": ALL[:6]})


def test_survivors_who_did_not_mask():
    steps = Steps()
    without_the_last(steps)
    with refuses(PeerError, "has a site that did not mask, or lacks this site"):
        steps.ask("site_0", "agree", {"survivors": ALL})


def test_survivors_without_itself():
    steps = Steps()
    steps.until("agree")
    with refuses(PeerError, "has a site that did not mask, or lacks this site"):
        steps.ask("site_0", "agree", {"survivors": ALL[1:]})


@pytest.mark.parametrize("survivors", [None, "site_0", {}, [*ALL, 1], [*ALL, []]])
def test_what_is_no_list_of_survivors(survivors):
    steps = Steps()
    steps.until("agree")
    with refuses(PeerError, "no list of survivors"):
        steps.ask("site_0", "agree", {"survivors": survivors})


def test_a_later_sum_with_who_did_not_mask():
    steps = Steps()
    without_the_last(steps)
    with refuses(PolicyRefusal, "too small or has sites that did not mask"):
        steps.ask("site_0", "mask", {"cohort": ALL}, 1)


def test_who_did_not_mask_takes_part_in_no_later_sum():
    steps = Steps()
    without_the_last(steps)
    with refuses(PolicyRefusal, "differs from the first sum's"):
        steps.ask("site_6", "mask", {"cohort": ALL}, 1)


MASKERS = {
    "not a list": None,
    "without itself": ALL[1:],
    "one twice": [*FIVE, "site_1"],
    "a stranger": [*FIVE, "coordinator"],
    "no name": [*FIVE, 1],
    "no key of a mapping": [*FIVE, []],
}


@pytest.mark.parametrize("case", MASKERS)
def test_what_is_no_list_of_maskers(case):
    steps = Steps()
    body = steps.until("mask")["site_0"]
    with refuses(PeerError, "malformed request to mask"):
        steps.ask("site_0", "mask", {**body, "masking": MASKERS[case]})
