import pytest
from support.secure_sum_contract import SecureSumContract

from secagg.errors import JobError
from secagg.protocols.additive import Additive, run_ideal
from secagg.randomness import replayable_random


class TestTwoAggregators(SecureSumContract):
    aggregators = 2

    def make(self):
        return Additive(self.aggregators)

    def ideal(self, contributions, shape):
        return run_ideal(contributions, shape, self.aggregators, replayable_random(1))


class TestFourAggregators(TestTwoAggregators):
    aggregators = 4


def test_one_aggregator_is_refused():
    with pytest.raises(JobError, match="at least 2"):
        Additive(1)
