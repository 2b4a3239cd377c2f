"""Poisson samples of records, and the estimated size of a sample."""

import numpy as np
import pytest

from secagg.core.randomness import replayable_random
from secagg.errors import JobError
from secagg.models.common.sampled_gradients import (
    mean_gradient,
    poisson_sample,
    private_stage,
    sums_of_sample,
)


def test_a_poisson_sample_takes_each_record_with_its_probability() -> None:
    """2e5 draws: the share's standard deviation is root(.3 .7 / 2e5) = .001."""
    random = replayable_random(4)
    drawn = poisson_sample(200_000, 0.3, random)
    assert abs(drawn.mean() - 0.3) < 5 * 0.001
    again = poisson_sample(200_000, 0.3, random)
    assert abs(np.mean(drawn & again) - 0.09) < 5 * 0.0007
    assert poisson_sample(7, 1.0, random).all()
    assert not poisson_sample(1000, 1e-30, random).any()


@pytest.mark.parametrize("clip", [2.0, 0.3])
def test_the_size_of_a_sample_is_known_from_its_sums(clip: float) -> None:
    """A quarter of the clip for each record, cut to the grid: off by less than a step of it."""
    stage = private_stage("some", 3, 5, clip, 0.2, 1000)
    bits = stage.spec[0].fraction_bits
    sums = sums_of_sample(np.array([1.0, -2.0, 3.0]), 40, clip, bits)
    assert sums["size"][0] * 2.0**bits == np.rint(sums["size"][0] * 2.0**bits)
    assert sums["size"][0] <= 40 * clip / 4
    mean, size = mean_gradient(sums, clip, float(sums["size"][0]) + 50 * clip / 4, 2)
    np.testing.assert_allclose(size, 45, rtol=4 * 2.0**-bits / clip)
    np.testing.assert_allclose(mean, sums["change"] / size)
    assert mean_gradient(sums, clip, -3.0, 2)[1] == 1  # noise may make it negative


def test_sums_that_could_be_rounded_are_refused() -> None:
    private_stage("some", 3, 5, 1.0, 1.0, 2**41)
    with pytest.raises(JobError) as caught:
        private_stage("some", 3, 5, 1.0, 1.0, 2**42)
    assert caught.value.where == "sites.max_rows"
