"""The masked sum meets the contract and survives the dropouts that it plans for, and no others."""

import re

import numpy as np
import pytest
from contracts.secure_sum import SecureSumContract, numbers, silence
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.protocols.world import SumNumbers, World, reopened

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
    """Each named party stops answering from a phase of the first sum on."""

    def __init__(self, since: dict[str, str]):
        self.since = since

    def __call__(self, sender, recipient, frame):
        round_, phase = peek_header(frame)
        lost = sender in self.since and (
            round_ > 0 or FIRST_SUM.index(phase) >= FIRST_SUM.index(self.since[sender])
        )
        return [] if lost else [frame]


class OneSum(SumNumbers):
    """A method that ends after the cohort round: only the first sum."""

    def next_request(self, state):
        return None


def first_sum(sites, since, protocol=None):
    """Return (record count, cohort) of a first sum with dropouts; each site has two rows."""
    values = {f"site_{i}": np.array([i, 1.0]) for i in range(sites)}
    world = World(protocol or Masked(), values, OneSum((2,)), tamper=Silent(since))
    step = world.coordinator.start()
    while not step.done:
        frames = world.engine.exchange(step.requests)
        step = world.coordinator.advance(reopened(step.state), frames)
    return step.state.records, list(step.state.cohort)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), sites=st.integers(4, 9))
def test_any_enough_survivors_give_their_exact_sum(data, sites):
    """Any sites may drop out in any phase: the exact sum of those that sent, or a typed abort."""
    names = [f"site_{i}" for i in range(sites)]
    since = data.draw(st.dictionaries(st.sampled_from(names), st.sampled_from(FIRST_SUM)))
    enough = len(names) - len(since) >= 2 * sites // 3 + 1
    sent = [n for n in names if since.get(n) not in FIRST_SUM[:4]]
    if enough:
        assert first_sum(sites, since) == (2 * len(sent), sent)
    else:
        with pytest.raises((ProtocolAbort, PolicyRefusal)):
            first_sum(sites, since)


def test_a_site_that_signs_late_still_takes_part_in_later_sums():
    """A site that sent, then missed `agree` and `unmask`, is in the cohort and goes on."""

    def tamper(sender, recipient, frame):
        missed = (sender, peek_header(frame)[0]) == ("site_1", 0)
        return [] if missed and peek_header(frame)[1] in ("agree", "unmask") else [frame]

    world = World(Masked(), numbers(5, 4, 2), SumNumbers((4,), rounds=3), tamper=tamper)
    total, cohort = world.sum()
    assert "site_1" in cohort
    np.testing.assert_array_equal(total, world.expected(cohort))


# --- sessions ------------------------------------------------------------------------------------


def test_a_later_sum_takes_one_message_from_each_site():
    rounds = 20
    world = World(Masked(), numbers(7, 33, 5), SumNumbers((33,), rounds=rounds))
    total, cohort = world.sum()
    np.testing.assert_array_equal(total, world.expected(cohort))
    later = [d for d in world.engine.transcript if d.round > 0 and d.phase != "consent"]
    assert {d.phase for d in later} == {"mask"}
    assert len(later) == 2 * 7 * rounds  # request and upload


def test_a_later_sum_is_never_opened_over_fewer_sites():
    """A site that drops out of a later round ends the run; no other site answers for it."""
    world = World(Masked(), numbers(5, 3, 1), SumNumbers((3,), rounds=4),
                  tamper=silence("site_2", "mask", 3))  # fmt: skip
    with pytest.raises(ProtocolAbort):
        world.sum()


# --- larger graphs and settings ------------------------------------------------------------------


@pytest.mark.parametrize("lost", [0, 3])
def test_sums_over_an_incomplete_graph_are_exact(lost):
    """34 sites with few colluding: neighbours only, which also recover the dropouts."""
    protocol = Masked(colluding=0.05, dropping=0.1)
    names = sorted(f"site_{i}" for i in range(34))
    since = {name: FIRST_SUM[i % 5] for i, name in enumerate(names[:lost])}
    sent = [n for n in names if since.get(n) not in FIRST_SUM[:4]]
    assert "shares masks with" in protocol.guarantee_text(34)
    assert first_sum(34, since, protocol) == (2 * len(sent), sent)


@pytest.mark.parametrize("settings_", [{"colluding": 1.0}, {"colluding": -0.1}, {"dropping": 2.0}])
def test_settings_out_of_range_are_refused(settings_):
    with pytest.raises(JobError):
        Masked(**settings_)


@pytest.mark.parametrize(
    ("sites", "numbers_in_text"),
    [(3, [3, 1, 3]), (4, [4, 1, 3]), (10, [10, 3, 7]), (100, [100, 33, 90, 54])],
)
def test_the_guarantee_text_states_the_planned_numbers(sites, numbers_in_text):
    """Sites, colluding ones, those that the first sum needs, neighbours in an incomplete graph."""
    assert [int(n) for n in re.findall(r"\d+", Masked().guarantee_text(sites))] == numbers_in_text


@pytest.mark.parametrize(
    ("colluding", "sites", "max_colluding"),
    [(1 / 3, 5, 1), (1 / 3, 8, 2), (1 / 3, 9, 3), (0.29, 100, 29), (0.29, 99, 28), (0.0, 50, 0)],
)
def test_the_number_of_colluding_sites_is_rounded_down(colluding, sites, max_colluding):
    assert Masked(colluding=colluding).max_colluding(sites) == max_colluding
