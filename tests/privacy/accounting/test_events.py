"""Events as data, and what any number of them cost together: edges, composition, known figures."""

import json
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.errors import UsageError
from secagg.privacy.accounting.events import (
    Gaussian,
    compose,
    curve,
    delta_of,
    epsilon_of,
    from_data,
    rdp_epsilon,
    to_data,
    zcdp_epsilon,
)  # fmt: skip
from secagg.privacy.accounting.gaussian_dp import gaussian_delta, gaussian_epsilon

INF = math.inf


@pytest.mark.parametrize(
    ("events", "delta", "epsilon"),
    [
        ([], 0.0, 0.0), ([], 1e-6, 0.0), ([Gaussian(0.0)], 0.0, 0.0),
        ([Gaussian(0.0), Gaussian(0.1)], 0.0, INF), ([Gaussian(0.1)], 1.0, 0.0),
        ([Gaussian(INF)], 1e-6, INF), ([Gaussian(INF), Gaussian(0.1)], 1.0, 0.0),
    ],
)  # fmt: skip
def test_epsilon_is_correct_at_its_limits(events, delta, epsilon):
    assert epsilon_of(events, delta) == epsilon


def test_gaussians_compose_exactly():
    events = [Gaussian(3 * 0.1), Gaussian(4 * 0.1)]
    for delta in (1e-3, 1e-6, 1e-12):
        epsilon = epsilon_of(events, delta)
        assert epsilon == pytest.approx(gaussian_epsilon(0.5, delta), rel=1e-14)
        assert epsilon >= gaussian_epsilon(0.5, delta) * (1 - 1e-15)
    assert delta_of(events, 1.0) == pytest.approx(gaussian_delta(0.5, 1.0), rel=1e-12)


@pytest.mark.parametrize(
    ("sigma", "times", "rdp", "zcdp"),
    [(5, 1, 0.900, 1.071), (5, 100, 11.69, 12.51), (50, 1000, 3.131, 3.525)],
)
def test_looser_accountants_give_known_numbers(sigma, times, rdp, zcdp):
    """Research, section 1: what Opacus' RDP accountant and the formula for zCDP say."""
    events = [Gaussian(1 / sigma)] * times
    assert zcdp_epsilon(events, 1e-6) == pytest.approx(zcdp, rel=1e-3)
    # Opacus tries fewer orders than we do
    assert rdp * 0.995 <= rdp_epsilon(events, 1e-6) <= rdp * 1.0005
    assert epsilon_of(events, 1e-6) < rdp_epsilon(events, 1e-6) < zcdp_epsilon(events, 1e-6)


@pytest.mark.parametrize("function", [rdp_epsilon, zcdp_epsilon])
def test_looser_accountants_are_correct_at_their_limits(function):
    assert function([], 1e-6) == 0
    assert function([Gaussian(INF)], 1e-6) == INF


@given(st.lists(st.floats(1e-6, 10), min_size=2, max_size=5))
def test_events_together_never_cost_less_than_the_exact_sum_of_their_squares(mus):
    exact = sum(Fraction(mu) ** 2 for mu in mus)
    assert exact <= Fraction(compose(map(Gaussian, mus))) ** 2 <= exact * (1 + Fraction(1, 2**50))


def test_the_privacy_curve_decreases_in_delta():
    deltas = [1e-12, 1e-9, 1e-6, 1e-3]
    events = [Gaussian(0.3)] * 3
    points = curve(iter(events), deltas)
    assert [delta for delta, _ in points] == deltas
    epsilons = [epsilon for _, epsilon in points]
    assert epsilons == sorted(epsilons, reverse=True)
    assert epsilons[2] == epsilon_of(events, 1e-6)


@pytest.mark.parametrize("event", [Gaussian(0.25), Gaussian(0.0), Gaussian(INF)])
def test_events_survive_json(event):
    text = json.dumps(to_data(event), allow_nan=False)
    assert from_data(json.loads(text)) == event


@pytest.mark.parametrize(
    "data",
    [
        {}, {"law": 1, "mu": 1}, {"law": "laplace", "epsilon": 1.0},
        *({"law": "gaussian"} | rest for rest in (
            {}, {"mu": "1"}, {"mu": True}, {"mu": -1}, {"mu": math.nan}, {"mu": None},
            {"mu": 1, "times": 3},
        )),
    ],
)  # fmt: skip
def test_values_that_are_not_events_are_refused(data):
    with pytest.raises(UsageError):
        from_data(data)


@pytest.mark.parametrize("number", [-1e-6, math.nan])
@pytest.mark.parametrize("events", [[], [Gaussian(1.0)]])
def test_invalid_delta_and_epsilon_are_refused(events, number):
    for function in (epsilon_of, delta_of):
        with pytest.raises(UsageError):
            function(events, number)
