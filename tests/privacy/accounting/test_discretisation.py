"""The remainder against brute force: sums of discrete Gaussians, and a Gaussian rounded."""

import math

import mpmath
import numpy as np
import pytest
from scipy.special import ndtr

from secagg.errors import UsageError
from secagg.privacy.accounting.discretisation import distance, rounded_distance, summed_distance
from secagg.privacy.accounting.gaussian_dp import gaussian_delta


def discrete_gaussian(sigma: float, reach: int) -> np.ndarray:
    k = np.arange(-reach, reach + 1)
    weights = np.exp(-(k**2) / (2 * sigma**2))
    return weights / weights.sum()


def rounded_gaussian(sigma: float, reach: int) -> np.ndarray:
    k = np.arange(-reach, reach + 1)
    # by symmetry, where the distribution function keeps its digits
    right = ndtr((-np.abs(k) + 0.5) / sigma) - ndtr((-np.abs(k) - 0.5) / sigma)
    return np.where(k == 0, 1 - 2 * ndtr(-0.5 / sigma), right)


def total_variation(p: np.ndarray, q: np.ndarray) -> float:
    return 0.5 * float(np.abs(p - q).sum())


@pytest.mark.parametrize("sigma", [0.5, 0.7, 1.0, 2.0, 5.0, 10.0, 30.0, 100.0, 300.0])
def test_discrete_and_rounded_gaussian_are_as_close_as_claimed(sigma):
    reach = math.ceil(15 * sigma)
    true = total_variation(discrete_gaussian(sigma, reach), rounded_gaussian(sigma, reach))
    claimed = rounded_distance(sigma)
    assert true <= claimed
    if sigma >= 10:  # the bound's second term is below a sixth of its first there
        assert claimed <= 1.2 * true
        assert claimed <= 0.0234 / sigma**2


@pytest.mark.parametrize(("share", "shares"), [(0.5, 3), (0.7, 2), (0.7, 10), (1.0, 2), (1.0, 20)])
def test_a_sum_of_shares_is_as_close_to_one_draw_as_claimed(share, shares):
    # In 60 digits, because the true distance at a share of 1 is 1e-8 at most and below 1e-16 after.
    with mpmath.workdps(60):
        reach = 40
        weights = [
            mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * share**2)) for k in range(-reach, reach + 1)
        ]
        one = [w / mpmath.fsum(weights) for w in weights]
        total = [mpmath.mpf(1)]
        for _ in range(shares):
            grown = [mpmath.mpf(0)] * (len(total) + 2 * reach)
            for i, p in enumerate(total):
                for j, q in enumerate(one):
                    grown[i + j] += p * q
            middle = len(grown) // 2
            wide = min(middle, math.ceil(14 * share * math.sqrt(shares)))
            total = grown[middle - wide : middle + wide + 1]
        wide = len(total) // 2
        single = [
            mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * shares * share**2))
            for k in range(-wide, wide + 1)
        ]
        norm = mpmath.fsum(single)
        laws = [(p, w / norm) for p, w in zip(total, single, strict=True)]
        true = mpmath.fsum(abs(p - w) for p, w in laws) / 2
        ratio = max(abs(mpmath.log(p / w)) for p, w in laws)
    claimed = summed_distance(share, shares)
    assert 0 < true <= claimed
    assert ratio <= math.log1p(2 * claimed) <= 100 * ratio  # tau, of which the theorem speaks


@pytest.mark.parametrize(("step", "sigma"), [(1, 1.0), (3, 2.0), (10, 10.0), (7, 20.0)])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_the_delta_of_one_discrete_gaussian_is_within_its_bound(step, sigma, epsilon):
    """The true delta of an integer query of sensitivity `step` under discrete Gaussian noise."""
    reach = math.ceil(15 * sigma) + step
    p = discrete_gaussian(sigma, reach)
    shifted = np.concatenate([np.zeros(step), p[:-step]])
    true = float(np.maximum(p - math.exp(epsilon) * shifted, 0).sum())
    remainder = (1 + math.exp(epsilon)) * distance(sigma)
    assert true <= gaussian_delta(step / sigma, epsilon) + remainder


def test_parts_of_the_distance_add_up():
    assert distance(50.0) == rounded_distance(50.0)  # one share: no sum
    # four shares of 25 each: their sum is exact to exp(-2 pi^2 625 / 2), which is 0 in floats
    assert distance(50.0, 4) == distance(50.0)
    worse = distance(50.0, 4, sampler_error=1e-9) - distance(50.0, 4)
    assert worse == pytest.approx(4e-9, rel=1e-6)


def test_narrow_shares_are_refused():
    with pytest.raises(UsageError):
        distance(1.0, shares=5)


def test_the_distance_grows_with_the_number_of_shares():
    distances = [summed_distance(0.8, n) for n in (1, 2, 3, 10, 100)]
    assert distances[0] == 0
    assert distances == sorted(distances)
    assert summed_distance(0.5, 1000) == 1.0  # promises nothing, rather than something false
