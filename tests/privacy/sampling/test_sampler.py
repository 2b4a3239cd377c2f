"""Which sampler draws the noise of a vector, and which noise is refused."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from secagg.core.randomness import replayable_random
from secagg.errors import InternalError
from secagg.privacy.sampling import batched_gaussian as fast
from secagg.privacy.sampling.discrete_gaussian import discrete_gaussian
from secagg.privacy.sampling.sampler import sample, sample_error, sample_weighted


@pytest.mark.parametrize("size", [0, 1, 1024, 1025, 3 * fast._BLOCK + 1])
def test_the_number_of_draws_selects_the_sampler(size: int) -> None:
    """By this number for ever: noise is drawn again from its seed on a retry."""
    drawn = sample(4**25, size, replayable_random(7))
    assert drawn.shape == (size,)
    assert drawn.dtype == np.int64
    random = replayable_random(7)
    if size <= 1024:
        assert drawn.tolist() == [discrete_gaussian(4**25, random) for _ in range(size)]
        assert sample_error(size) == 0
    else:
        assert drawn.tolist() == fast.fast_gaussian(4**25, size, random).tolist()
        assert sample_error(size) == fast.ERROR == 2.0**-179


@pytest.mark.parametrize("draw", [sample, fast.fast_gaussian])
@pytest.mark.parametrize("size", [3, 1025])
@pytest.mark.parametrize("variance", [0, -1, Fraction(-1, 2), fast.MAX_VARIANCE + 1])
def test_noise_that_does_not_fit_is_refused(
    draw: Callable[..., object], size: int, variance: int
) -> None:
    with pytest.raises(InternalError):
        draw(variance, size, replayable_random(0))


def test_weights_multiply_the_variance_of_each_number() -> None:
    weights = [1, 4, 1, 9, 4]
    random = replayable_random(9)
    noise = sample_weighted(4**25, weights, 5, replayable_random(9))
    for weight in (1, 4, 9):  # in this order, from one stream of bytes
        places = [i for i, w in enumerate(weights) if w == weight]
        assert noise[places].tolist() == sample(4**25 * weight, len(places), random).tolist()
    same = sample(4**25, 5, replayable_random(9))
    assert np.array_equal(sample_weighted(4**25, (), 5, replayable_random(9)), same)
    with pytest.raises(InternalError):
        sample_weighted(4**25, weights, 4, replayable_random(9))
