"""The masked sum keeps the contract, survives every set of dropouts it plans for, and no other."""

import itertools

import numpy as np
import pytest
from contracts.secure_sum import SecureSumContract, numbers, silence
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.world import SumNumbers, World, reopened, run_until

from secagg.contracts import Context, Shape
from secagg.core import encoding, ring
from secagg.core.frames import peek_header
from secagg.core.randomness import replayable_random
from secagg.errors import JobError, PolicyRefusal, ProtocolAbort
from secagg.protocols.masked.protocol import Masked, run_ideal

FIRST_SUM = ["consent", "advertise", "share", "mask", "agree", "unmask"]
"""Every phase until the first sum is known; the last three of them after sites have sent."""


class TestMasked(SecureSumContract):
    def make(self):
        return Masked()

    def ideal(self, contributions, shape):
        return run_ideal(contributions, ["lost_1", "a_lost_one"], shape, replayable_random(1))


class Silent:
    """Each named party falls silent from a phase of the first sum on, and stays so."""

    def __init__(self, since: dict[str, str]):
        self.since = since

    def __call__(self, sender, recipient, frame):
        round_, phase = peek_header(frame)
        lost = sender in self.since and (
            round_ > 0 or FIRST_SUM.index(phase) >= FIRST_SUM.index(self.since[sender])
        )
        return [] if lost else [frame]


class OneSum(SumNumbers):
    """A method that is done after the cohort round: nothing but the first sum."""

    def next_request(self, state):
        return None


def first_sum(sites, since):
    """Return (record count, cohort) of a first sum in which sites fall silent; each has 2 rows."""
    values = {f"site_{i}": np.array([i, 1.0]) for i in range(sites)}
    world = World(Masked(), values, OneSum((2,)), tamper=Silent(since))
    step = world.coordinator.start()
    while not step.done:
        frames = world.engine.exchange(step.requests)
        step = world.coordinator.advance(reopened(step.state), frames)
    return step.state.records, list(step.state.cohort)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), sites=st.integers(4, 9))
def test_any_survivors_above_the_threshold_give_their_exact_sum(data, sites):
    """Whoever drops out, wherever: the exact sum of those who sent, or a typed abort."""
    names = [f"site_{i}" for i in range(sites)]
    since = data.draw(st.dictionaries(st.sampled_from(names), st.sampled_from(FIRST_SUM)))
    enough = len(names) - len(since) >= 2 * sites // 3 + 1
    sent = [n for n in names if since.get(n) not in FIRST_SUM[:4]]
    if enough:
        assert first_sum(sites, since) == (2 * len(sent), sent)
    else:
        with pytest.raises((ProtocolAbort, PolicyRefusal)):
            first_sum(sites, since)


@pytest.mark.parametrize("phase", FIRST_SUM)
def test_below_the_threshold_nothing_is_released_and_no_share_leaves(phase):
    """Four sites need three. Two fall silent: no reply to `unmask` that could be used, no sum."""
    unmasked = []

    def tamper(sender, recipient, frame):
        arrived = Silent(dict.fromkeys(("site_0", "site_3"), phase))(sender, recipient, frame)
        if arrived and sender != "coordinator" and peek_header(frame)[1] == "unmask":
            unmasked.append(sender)
        return arrived

    values = numbers(4, 3, 0)
    world = World(Masked(), values, SumNumbers((3,)), tamper=tamper)
    with pytest.raises((ProtocolAbort, PolicyRefusal)) as caught:
        world.sum()
    assert caught.value.exit_code in (3, 4)
    assert len(unmasked) == (2 if phase == "unmask" else 0)  # two shares of three: random alone


def test_one_dropout_in_every_phase_of_ten_sites():
    for name, phase in zip(itertools.cycle(("site_0", "site_5", "site_9")), FIRST_SUM):
        count, cohort = first_sum(10, {name: phase})
        assert (name in cohort) == (phase in ("agree", "unmask"))
        assert count == 2 * len(cohort)


def test_who_signs_late_still_takes_part_in_later_sums():
    """A site that sent, then missed `agree` and `unmask`, is in the cohort and goes on."""

    def tamper(sender, recipient, frame):
        missed = (sender, peek_header(frame)[0]) == ("site_1", 0)
        return [] if missed and peek_header(frame)[1] in ("agree", "unmask") else [frame]

    world = World(Masked(), numbers(5, 4, 2), SumNumbers((4,), rounds=3), tamper=tamper)
    total, cohort = world.sum()
    assert "site_1" in cohort
    np.testing.assert_array_equal(total, world.expected(cohort))


# --- sessions ------------------------------------------------------------------------------------


def test_a_later_sum_is_one_message_a_site():
    rounds = 20
    world = World(Masked(), numbers(7, 33, 5), SumNumbers((33,), rounds=rounds))
    total, cohort = world.sum()
    np.testing.assert_array_equal(total, world.expected(cohort))
    later = [d for d in world.engine.transcript if d.round > 0 and d.phase != "consent"]
    assert {d.phase for d in later} == {"mask"}
    assert len(later) == 2 * 7 * rounds  # request and upload


def test_a_later_sum_is_never_opened_without_somebody():
    """A site that is lost in a later round ends the run; nobody answers for it."""
    world = World(Masked(), numbers(5, 3, 1), SumNumbers((3,), rounds=4),
                  tamper=silence("site_2", "mask", 3))  # fmt: skip
    with pytest.raises(ProtocolAbort, match="site_2 dropped out after the first release"):
        world.sum()


def test_masks_are_never_the_same_twice():
    """One contribution, sent in many rounds: no two uploads have an element in common."""
    uploads = []

    def tamper(sender, recipient, frame):
        if sender == "site_0" and peek_header(frame)[1] == "mask":
            uploads.append(encoding.loads(encoding.loads(frame)[2])["masked"])
        return [frame]

    values = {f"site_{i}": np.zeros(50) for i in range(3)}
    World(Masked(), values, SumNumbers((50,), rounds=6), tamper=tamper).sum()
    elements = np.concatenate([u.reshape(-1) for u in uploads[1:]])
    assert len(np.unique(elements)) == len(elements)


def test_secrets_leave_the_state_when_they_are_no_longer_needed():
    """No share, self secret or shared key is left after `unmask`, no key of its own later on."""
    world = World(Masked(), numbers(4, 3, 1), SumNumbers((3,), rounds=3))

    def kept():
        return encoding.loads(world.engine.states["site_0"])["protocol"]

    step = run_until(world, "unmask")
    assert "held" in kept()
    step = world.coordinator.advance(step.state, world.engine.exchange(step.requests))
    assert set(kept()) == {"advertised", "directory", "masking", "label", "survivors", "round"}
    assert set(kept()["advertised"]) == {"round", "later"}
    while not step.done:
        step = world.coordinator.advance(step.state, world.engine.exchange(step.requests))
    assert set(kept()) == {"advertised", "session", "round"}
    assert set(kept()["advertised"]) == {"round"}
    assert set(kept()["session"]) == {"cohort", "label", "peers"}


def context_of(world):
    shape = world.plans.of("cohort").shape
    return Context(world.session, 0, world.identities["coordinator"], world.roster, shape, bytes)


# --- larger graphs and settings ------------------------------------------------------------------


@pytest.mark.parametrize("lost", [0, 3])
def test_a_graph_that_is_not_complete(lost):
    """34 sites with few colluding: neighbours only, and dropouts recovered through them."""
    protocol = Masked(colluding=0.05, dropping=0.1)
    names = [f"site_{i:03}" for i in range(34)]
    values = {name: np.array([float(i)]) for i, name in enumerate(names)}
    since = {name: FIRST_SUM[i % 5] for i, name in enumerate(names[:lost])}
    world = World(protocol, values, OneSum((1,)), tamper=Silent(since))
    assert protocol.plan(context_of(world)).degree < 33
    step = world.coordinator.start()
    while not step.done:
        step = world.coordinator.advance(step.state, world.engine.exchange(step.requests))
    sent = [n for n in names if since.get(n) not in FIRST_SUM[:4]]
    assert (step.state.records, list(step.state.cohort)) == (len(sent), sent)


@pytest.mark.parametrize("settings_", [{"colluding": 1.0}, {"colluding": -0.1}, {"dropping": 2.0}])
def test_settings_out_of_range_are_refused(settings_):
    with pytest.raises(JobError):
        Masked(**settings_)


@pytest.mark.parametrize("bits", [64, 128])
def test_ideal_needs_the_lost_sites_masks_removed(bits):
    shape = Shape(bits, 2, 20)
    values = {"b": ring.from_integers([1, -2], bits), "d": ring.from_integers([10, 20], bits)}
    total = run_ideal(values, ["a", "c", "e"], shape, replayable_random(3))
    assert ring.to_integers(total) == [11, 18]


@pytest.mark.parametrize(
    ("sites", "said"),
    [
        (3, "up to 1 may collude with the coordinator; up to 0 may drop out of the first sum"),
        (4, "up to 1 may collude with the coordinator; up to 1 may drop out of the first sum"),
        (10, "up to 3 may collude with the coordinator; up to 3 may drop out of the first sum"),
        (100, "up to 33 may collude with the coordinator; up to 10 may drop out of the first sum"),
    ],
)
def test_what_it_stands_for_in_numbers(sites, said):
    text = Masked().guarantee_text(sites)
    assert said in text
    assert ("shares masks with 54 others" in text) == (sites == 100)


@pytest.mark.parametrize(
    ("colluding", "sites", "most"),
    [(1 / 3, 5, 1), (1 / 3, 8, 2), (1 / 3, 9, 3), (0.29, 100, 29), (0.29, 99, 28), (0.0, 50, 0)],
)
def test_a_share_of_the_sites_is_rounded_down(colluding, sites, most):
    """One more than it withstands would be claimed otherwise."""
    assert Masked(colluding=colluding).max_colluding(sites) == most
