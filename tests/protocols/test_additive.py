from dataclasses import replace

import numpy as np
import pytest
from contracts.secure_sum import SecureSumContract, numbers
from scipy import stats

from secagg.contracts import Context, Shape
from secagg.core import ring
from secagg.core.randomness import replayable_random
from secagg.errors import JobError, PeerError, PolicyRefusal
from secagg.protocols import additive, prg
from secagg.protocols.additive import Additive, run_ideal, split


class TestTwoAggregators(SecureSumContract):
    aggregators = 2

    def make(self):
        return Additive(self.aggregators)

    def ideal(self, contributions, shape):
        return run_ideal(contributions, shape, self.aggregators, replayable_random(1))

    @pytest.mark.parametrize(
        ("kind", "wrong"),
        [
            ("vector", lambda x: x[:-2]),
            ("vector", lambda x: x.tolist()),
            ("seed", lambda x: x[:-1]),
        ],
    )
    def test_a_sealed_share_of_the_wrong_shape_is_ignored(self, kind, wrong):
        """The content of an envelope is the site's: too short, or a list."""
        sealed = additive.seal_frame

        class Misshapen(Additive):
            def client(self, phase, state, body, context, contribution=None):
                with pytest.MonkeyPatch.context() as patched:
                    if context.me == "site_1" and context.round == 0:
                        patched.setattr(additive, "seal_frame", sealed_wrong)
                    return super().client(phase, state, body, context, contribution)

        def sealed_wrong(*args):
            *before, body = args
            return sealed(*before, {k: wrong(v) if k == kind else v for k, v in body.items()})

        world = self.world(numbers(4, 6, 3), min_sites=3)
        for party in world.engine.parties.values():
            object.__setattr__(party, "protocol", Misshapen(self.aggregators))
        total, cohort = world.sum()
        assert cohort == ["site_0", "site_2", "site_3"]
        np.testing.assert_array_equal(total, world.expected(cohort))

    def test_an_aggregator_accepts_shares_of_a_round_once(self):
        """Otherwise shares of another cohort could take their place."""
        w = self.world(numbers(4, 2, 0))
        aggregator, _ = Additive(self.aggregators).parties()[0]
        shape = w.plans.of("numbers").shape
        context = Context(w.session, 0, w.identities[aggregator], w.roster, shape, w.random)
        state, _ = Additive(self.aggregators).client("hold", {}, {"envelopes": {}}, context)
        with pytest.raises(PolicyRefusal):
            Additive(self.aggregators).client("hold", state, {"envelopes": {}}, context)

    @pytest.mark.parametrize("other", [{"ring_bits": 128}, {"length": 3}])
    def test_shares_are_opened_only_in_the_shape_in_which_they_are_held(self, other):
        """Vectors of another ring or length cannot be added to shares of this stage."""
        w = self.world(numbers(4, 2, 0))
        aggregator, _ = Additive(self.aggregators).parties()[0]
        shape = Shape(64, 2, 8)
        context = Context(w.session, 0, w.identities[aggregator], w.roster, shape, w.random)
        state, _ = Additive(self.aggregators).client("hold", {}, {"envelopes": {}}, context)
        context = replace(context, shape=replace(shape, **other))
        with pytest.raises(PeerError):
            Additive(self.aggregators).client("open", state, {"contributors": []}, context)


class TestFourAggregators(TestTwoAggregators):
    aggregators = 4


def test_one_aggregator_is_refused():
    with pytest.raises(JobError):
        Additive(1)


@pytest.mark.parametrize("bits", ring.RING_BITS)
def test_all_shares_but_one_are_random(bits):
    """The sum of any S - 1 shares has uniform bytes.

    Chi-squared over byte values, three sets of shares, false alarm 1 in 10^6 each.
    """
    secret = ring.from_integers([7] * 20_000, bits)
    seeds, remainder = split(secret, 2, replayable_random(5))
    shares = [remainder, *(_expanded(seed, secret) for seed in seeds)]
    np.testing.assert_array_equal(ring.total(shares, 20_000, bits), secret)
    for left_out in range(3):
        rest = [share for i, share in enumerate(shares) if i != left_out]
        partial = ring.to_bytes(ring.total(rest, 20_000, bits))
        counts = np.bincount(np.frombuffer(partial, dtype=np.uint8), minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-6


def test_seeds_are_fresh():
    """The same contribution twice: no seed and no element of the long share repeats."""
    secret = ring.from_integers(range(1000), 64)
    random = replayable_random(5)
    (first, long_1), (second, long_2) = split(secret, 3, random), split(secret, 3, random)
    assert not set(first) & set(second)
    assert not np.any(long_1 == long_2)


def _expanded(seed, like):
    vector = np.zeros_like(like)
    prg.apply_masks(vector, [seed], [])
    return vector
