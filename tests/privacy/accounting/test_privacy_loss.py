"""Mixtures of Gaussian and Laplace releases against exact sums, quadrature and known bounds.

What dp-accounting says of them is in tests/oracles/test_dp_accounting.py.
"""

from __future__ import annotations

import functools
import itertools
import math
import time

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secagg.privacy.accounting.events import (
    Event,
    Gaussian,
    Laplace,
    compose,
    delta_of,
    epsilon_bracket,
    epsilon_of,
    rdp_epsilon,
    zcdp_epsilon,
)
from secagg.privacy.accounting.privacy_loss import delta_bounds

INF = math.inf
DELTAS = (1e-3, 1e-6, 1e-9, 1e-12)


def exact_gaussian(mu: float, epsilon: mpmath.mpf) -> mpmath.mpf:
    if mu == 0:
        return max(mpmath.mpf(0), 1 - mpmath.exp(epsilon))
    near, far = mu / mpmath.mpf(2) - epsilon / mu, -mu / mpmath.mpf(2) - epsilon / mu
    return mpmath.ncdf(near) - mpmath.exp(epsilon) * mpmath.ncdf(far)


def losses_of(law: Laplace) -> list[tuple[int, mpmath.mpf]]:
    """Return (multiple of a, P) of each loss of discrete Laplace noise."""
    steps = int(law.steps)
    a = mpmath.mpf(law.epsilon) / steps
    scale = (1 - mpmath.exp(-a)) / (1 + mpmath.exp(-a))
    inner = [(steps - 2 * k, scale * mpmath.exp(-a * k)) for k in range(1, steps)]
    top = 1 / (1 + mpmath.exp(-a))
    return [(steps, top), *inner, (-steps, top * mpmath.exp(-law.epsilon))]


@functools.cache
def summed_losses(law: Laplace, times: int) -> dict[int, mpmath.mpf]:
    """Return P of each sum of losses, by its multiple of a."""
    total = {0: mpmath.mpf(1)}
    for _ in range(times):
        grown: dict[int, mpmath.mpf] = {}
        for (i, p), (j, q) in itertools.product(total.items(), losses_of(law)):
            grown[i + j] = grown.get(i + j, mpmath.mpf(0)) + p * q
        total = grown
    return total


def exact_discrete(law: Laplace, times: int, mu: float, epsilon: float) -> mpmath.mpf:
    """Return delta of `times` releases of a discrete Laplace law and a Gaussian one, by (1)."""
    with mpmath.workdps(50):
        a = mpmath.mpf(law.epsilon) / int(law.steps)
        sums = summed_losses(law, times).items()
        return mpmath.fsum(p * exact_gaussian(mu, epsilon - i * a) for i, p in sums)


def exact_real(law: Laplace, mu: float, epsilon: float) -> mpmath.mpf:
    """Return delta of one real Laplace release and a Gaussian one, by quadrature."""
    with mpmath.workdps(30):
        e = mpmath.mpf(law.epsilon)
        ends = exact_gaussian(mu, epsilon - e) + mpmath.exp(-e) * exact_gaussian(mu, epsilon + e)
        inner = mpmath.quad(
            lambda x: mpmath.exp((x - e) / 2) / 4 * exact_gaussian(mu, epsilon - x),
            sorted({-e, e, *(x for x in (mpmath.mpf(epsilon),) if -e < x < e)}),
        )
        return ends / 2 + inner


@pytest.mark.parametrize(
    ("law", "times", "mu"),
    [
        (Laplace(1.0), 1, 0.0),
        (Laplace(0.5), 10, 0.0),
        (Laplace(0.05), 300, 0.0),
        (Laplace(0.3), 30, 0.4),
        (Laplace(2.0), 5, 3.0),
        (Laplace(1.0, 4), 6, 0.0),
        (Laplace(0.6, 7), 8, 0.5),
        (Laplace(0.2, 30), 4, 0.01),
    ],
)
def test_discrete_laplace_by_enumeration(law, times, mu):
    events: list[Event] = [law] * times + [Gaussian(mu)]
    for delta in DELTAS:
        low, high = epsilon_bracket(events, delta)
        assert exact_discrete(law, times, mu, high) <= delta
        assert exact_discrete(law, times, mu, low) >= delta * (1 - 1e-12)  # rounding in mpf(low)
        assert high - low <= 1e-4 * high
        under, over = delta_bounds(compose(events), high / 2)
        assert under <= exact_discrete(law, times, mu, high / 2) <= over


@pytest.mark.parametrize(("epsilon", "mu"), [(1.0, 1.0), (0.1, 0.3), (3.0, 0.05), (0.02, 2.0)])
def test_one_real_laplace_and_a_gaussian_by_quadrature(epsilon, mu):
    law = Laplace(epsilon, INF)
    for delta in DELTAS:
        low, high = epsilon_bracket([law, Gaussian(mu)], delta)
        # quadrature to 30 digits of a smooth function: its error is far below 1e-9
        assert exact_real(law, mu, high) <= delta * (1 + 1e-9)
        assert exact_real(law, mu, low) >= delta * (1 - 1e-9)
        assert high - low <= 1e-4 * high


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 5.0])
@pytest.mark.parametrize("delta", DELTAS)
def test_closed_forms_of_real_laplace(epsilon, delta):
    """One: delta(x) = 1 - e^((x - epsilon)/2). Two, by integrating it once, at x >= 0.

    E[delta(x - L)] over the density e^((l - epsilon)/2) / 4 and the atoms at the ends.
    """
    low, high = epsilon_bracket([Laplace(epsilon, INF)], delta)
    exact = max(0.0, epsilon + 2 * math.log1p(-delta))
    assert low <= exact * (1 + 1e-15)
    assert exact <= high <= exact + 1e-4 * epsilon

    def twice(x: float) -> float:
        u = 2 * epsilon - x  # distance from the top, at most 2 epsilon
        return -math.expm1(-u / 2) - math.exp(-u / 2) * u / 4

    low, high = epsilon_bracket([Laplace(epsilon, INF)] * 2, delta)
    assert twice(high) <= delta * (1 + 1e-9)  # u cancels digits of 2 epsilon where delta is small
    if low > 0:
        assert twice(low) >= delta * (1 - 1e-3) - 1e-15


events_strategy = st.lists(
    st.one_of(
        st.floats(0.01, 3).map(Gaussian),
        st.tuples(st.floats(0.01, 3), st.sampled_from([1, 2, 9, 1000, INF])).map(
            lambda pair: Laplace(*pair)
        ),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=30, deadline=None)
@given(events_strategy, st.sampled_from([1e-2, 1e-6, 1e-12]), st.randoms())
def test_properties_of_any_mixture(events, delta, random):
    low, high = epsilon_bracket(events, delta)
    assert 0 <= low <= high
    assert high <= rdp_epsilon(events, delta) * (1 + 1e-6) + 1e-9  # which is an upper bound
    assert low <= min(zcdp_epsilon(events, delta), rdp_epsilon(events, delta))
    # off by at most a sixtieth of the heaviest law for each of up to six, in the worst case
    assert high - low <= 0.02 * high + 1e-9
    shuffled = list(events)
    random.shuffle(shuffled)
    assert epsilon_of(shuffled, delta) == pytest.approx(high, rel=1e-9, abs=1e-12)
    # more releases, or a larger delta
    assert epsilon_bracket([*events, Laplace(0.1)], delta)[1] >= low
    assert epsilon_bracket([*events, Gaussian(0.1)], delta)[1] >= low
    assert epsilon_bracket(events, 3 * delta)[0] <= high
    # epsilon keeps delta and delta keeps epsilon
    assert delta_bounds(compose(events), high)[0] <= delta * (1 + 1e-9)
    assert delta_of(events, low) >= delta * (1 - 1e-9) or low == 0


def test_losses_whose_exponentials_are_no_floats():
    """Basic composition, which is a bound whatever the numbers."""
    low, high = epsilon_bracket([Laplace(400.0), Laplace(400.0, INF), Gaussian(0.1)], 1e-6)
    assert low < 800 < high < 801


@pytest.mark.parametrize(("epsilon", "times"), [(0.1, 1000), (0.01, 1000), (0.001, 100_000)])
@pytest.mark.parametrize("delta", [1e-3, 1e-12])
def test_many_randomised_responses_by_the_binomial_law(epsilon, times, delta):
    low, high = epsilon_bracket([Laplace(epsilon)] * times, delta)
    for bound, sign in ((low, 1), (high, -1)):
        with mpmath.workdps(40):
            p = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))
            k = math.ceil((bound / epsilon + times) / 2)  # the first loss (2k - n) epsilon above it
            chance = mpmath.binomial(times, k) * p**k * (1 - p) ** (times - k)
            true = mpmath.mpf(0)
            while chance > 1e-9 * true or not true:  # terms fall, soon by halves
                loss = (2 * k - times) * mpmath.mpf(epsilon)
                true += chance * max(mpmath.mpf(0), -mpmath.expm1(bound - loss))
                chance *= mpmath.mpf(times - k) / (k + 1) * p / (1 - p)
                k += 1
        assert sign * (true - delta) >= -1e-8 * delta  # what is left out of the sum
    assert high - low < 1e-4 * high


def test_bounds_meet_for_a_thousand_real_laplaces():
    """Chords err by the square of a step; rounding losses up would err by a thousand half steps."""
    low, high = epsilon_bracket([Laplace(0.01, INF)] * 1000, 1e-6)
    assert high - low < 1e-5 * high


@pytest.mark.parametrize(
    "events",
    [
        [Laplace(0.1, INF)] * 1000,
        [Laplace(0.1, INF)] * 20 + [Gaussian(0.2)],
        [Laplace(0.3, INF)] * 5 + [Laplace(math.e / 30)] * 7 + [Gaussian(0.1)] * 100,
    ],
)
def test_speed(events):
    """Below a second, on a machine three times slower than the one that took 0.01 to 0.3 s."""
    start = time.perf_counter()
    epsilon_of(events, 1e-6)
    assert time.perf_counter() - start < 1
