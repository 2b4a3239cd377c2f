"""Caps: each row of the table, against the formula of Balle and Wang written out anew."""

import functools
import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from secagg.contracts.noise import Adjacency
from secagg.errors import PolicyRefusal, UsageError
from secagg.privacy.accounting import composition
from secagg.privacy.accounting.composition import Cap, Cost, affordable, check_caps, spent_epsilon
from secagg.privacy.accounting.events import Gaussian, compose
from secagg.privacy.accounting.gaussian_dp import gaussian_mu

ADD, REPLACE = Adjacency.ADD_REMOVE, Adjacency.REPLACE
CAP = Cap(1.0, 1e-6)


def delta_of_gaussian(mu: float, epsilon: float) -> float:
    """Balle & Wang 2018, theorem 8, as printed there."""
    first = norm.cdf(mu / 2 - epsilon / mu)
    return float(first - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))


def mu_of(cap: Cap) -> float:
    return float(brentq(lambda mu: delta_of_gaussian(mu, cap.epsilon) - cap.delta, 1e-3, 50))


def check(caps: list[Cap], spent: list[Cost], expected: list[Cost], delta: float = 1e-6) -> None:
    adjacency = Adjacency.REPLACE if delta else None
    spent_under = lambda _: Counter(spent)  # noqa: E731
    check_caps("data set 'heart'", caps, spent_under, Counter(expected), delta, adjacency)


def cost(mu: float, distance: float = 0.0) -> Cost:
    return Cost(Gaussian(mu), Gaussian(mu), distance)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("parts", [1, 2, 10, 97])
def test_a_cap_allows_exactly_its_composed_mu(epsilon: float, parts: int) -> None:
    cap = Cap(epsilon, 1e-6)
    mu = mu_of(cap) / math.sqrt(parts)
    # The oracle's delta is a difference of two numbers below 1: good to 1e-15 of 1e-6, 1e-9 of it,
    # and mu moves less than delta does.
    assert cap.holds(Counter([cost(mu * (1 - 1e-8))] * parts))
    assert not cap.holds(Counter([cost(mu * (1 + 1e-8))] * parts))


def test_a_job_may_use_up_its_cap_exactly() -> None:
    for parts in range(1, 60):
        mu = gaussian_mu(1.0, 1e-6) / math.sqrt(parts)
        up = cost(math.nextafter(math.nextafter(mu, 9), 9))  # as a careful accountant rounds it
        assert CAP.holds(Counter({up: parts})) and not CAP.holds(Counter({up: parts + 1}))


@given(st.floats(1e-4, 10.0), st.integers(1, 10**6))
def test_equal_releases_compose_to_at_least_their_sum_of_squares(mu: float, often: int) -> None:
    """Counted in exact fractions; and hardly more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(composition, "epsilon_of", lambda events, _: compose(events))
        together = spent_epsilon(Counter({cost(mu): often}), ADD, 1e-6)
    least = often * Fraction(mu) ** 2
    assert least <= Fraction(together) ** 2 <= least * (1 + Fraction(1, 2**48))


def test_an_exact_release_and_all_later_ones_exceed_every_cap() -> None:
    generous = Cap(100.0, 0.5)
    assert not generous.holds(Counter([cost(math.inf)]))
    assert not generous.holds(Counter([cost(math.inf), cost(1e-9)]))
    with pytest.raises(PolicyRefusal):
        check([generous], [cost(math.inf)], [cost(1e-9)])


def test_distances_add_up_and_cost_one_plus_exp_epsilon_times_delta() -> None:
    small = cost(1e-6)  # of no delta to speak of
    limit = 1e-6 / (1 + math.e)
    for factor, holds in ((0.999, True), (1.001, False)):
        assert CAP.holds(Counter([replace(small, distance=limit / 4 * factor)] * 4)) is holds


def test_a_cap_allows_costs_that_fit_at_a_smaller_epsilon() -> None:
    """At epsilon 50 itself, discreteness would take (1 + e^50) 1e-20 = 52 of delta."""
    generous, job = Cap(50.0, 1e-6), Counter([cost(1.0, 1e-20)])
    at = {e: delta_of_gaussian(1.0, e) + (1 + math.exp(e)) * 1e-20 for e in (20.0, 50.0)}
    assert at[20.0] < 1e-6 < at[50.0]  # and what is private at 20 is at 50
    assert generous.holds(job)
    assert not generous.holds(Counter([cost(9.0, 1e-20)]))  # which would take more than all of it


def test_nothing_is_affordable_if_distances_use_up_delta() -> None:
    assert affordable(CAP, Counter([cost(0.0, 1e-6)]), 0.0, 1e-6) == 0.0
    assert affordable(CAP, Counter(), 1e-6, 1e-6) == 0.0


def test_costs_under_two_adjacencies_are_not_mixed() -> None:
    root = math.sqrt(2)
    half = Cost(Gaussian(mu_of(CAP) * 0.99 / root), Gaussian(mu_of(CAP) * 0.99))
    for adjacency, most in ((ADD, 2), (REPLACE, 1)):
        cap = Cap(CAP.epsilon, CAP.delta, None, adjacency)
        assert cap.holds(Counter([half] * most)) and not cap.holds(Counter([half] * (most + 1)))


# --- refusals -------------------------------------------------------------------------------------


def refuse(caps: list[Cap], spent: list[Cost], expected: list[Cost], delta: float = 1e-6) -> str:
    with pytest.raises(PolicyRefusal) as caught:
        check(caps, spent, expected, delta)
    return caught.value.advice


def affordable_in(advice: str) -> str:
    return advice.partition("privacy.epsilon ")[2].split()[0]


def test_the_printed_affordable_epsilon_fits_and_slightly_more_does_not() -> None:
    spent = [cost(0.6 * mu_of(CAP))]
    printed = affordable_in(refuse([CAP], spent, [cost(mu_of(CAP))]))
    left = mu_of(CAP) * 0.8  # 0.6^2 + 0.8^2 = 1
    best = brentq(lambda e: delta_of_gaussian(left, e) - 1e-6, 1e-3, 9)
    assert best * 0.99 < float(printed) <= best  # three digits, downwards
    fits = mu_of(Cap(float(printed), 1e-6))
    check([CAP], spent, [cost(fits)])
    more = mu_of(Cap(float(printed) * 1.02, 1e-6))
    refuse([CAP], spent, [cost(more)])


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_the_affordable_epsilon_of_a_job_holds_under_every_cap(adjacency: Adjacency) -> None:
    """A policy's period has a cap for each adjacency, and the job has its epsilon under one."""

    def job(epsilon: float) -> list[Cost]:
        mu = gaussian_mu(epsilon, 1e-6)  # under the job's own
        ratio = math.sqrt(2) if adjacency is ADD else 1 / math.sqrt(2)
        other = mu * ratio
        pair = (mu, other) if adjacency is ADD else (other, mu)
        return [
            Cost(Gaussian(pair[0] * part), Gaussian(pair[1] * part), 2e-8) for part in (0.6, 0.8)
        ]

    caps = [Cap(1.0, 1e-6, None, ADD), Cap(1.0, 1e-6, None, REPLACE)]
    with pytest.raises(PolicyRefusal) as caught:
        check_caps("x", caps, lambda _: Counter(job(0.3)), Counter(job(2.0)), 1e-6, adjacency)
    said = float(affordable_in(caught.value.advice))
    fits = functools.partial(check_caps, "x", caps, lambda _: Counter(job(0.3)))
    fits(Counter(job(said)), 1e-6, adjacency)
    with pytest.raises(PolicyRefusal):
        fits(Counter(job(said * 1.02)), 1e-6, adjacency)


def test_the_affordable_epsilon_is_stated_at_the_jobs_delta() -> None:
    at = {d: affordable(CAP, Counter([cost(0.1)]), 0.0, d) for d in (1e-9, 1e-6, 1e-5)}
    assert at[1e-9] > at[1e-6] > at[1e-5] > 0
    left = math.sqrt(mu_of(CAP) ** 2 - 0.01)
    for delta, epsilon in at.items():
        assert delta_of_gaussian(left, epsilon) == pytest.approx(delta, rel=1e-5)


def test_every_cap_must_hold_and_the_tightest_is_named() -> None:
    caps = [Cap(4.0, 1e-6), Cap(0.1, 1e-6, 30, ADD), Cap(0.5, 1e-6)]
    with pytest.raises(PolicyRefusal) as caught:
        check(caps, [], [cost(mu_of(Cap(1.0, 1e-6)))])
    assert caps[1].words() in caught.value.what
    assert affordable_in(caught.value.advice) in ("0.0999", "0.1")
    check([], [cost(math.inf)], [cost(math.inf)])  # no cap, no limit


@pytest.mark.parametrize(
    ("epsilon", "delta", "days"),
    [
        (0.0, 1e-6, None), (-1.0, 1e-6, None), (math.inf, 1e-6, None), (math.nan, 1e-6, None),
        (1.0, 0.0, None), (1.0, 1.0, None), (1.0, math.nan, None), (101.0, 1e-6, None),
        (1.0, 1e-6, 36526.0), (1.0, 1e-6, 0.0), (1.0, 1e-6, -1.0), (1.0, 1e-6, math.nan),
        (1.0, 1e-6, math.inf),
    ],
)  # fmt: skip
def test_impossible_caps_are_refused(epsilon: float, delta: float, days: float | None) -> None:
    with pytest.raises(UsageError):
        Cap(epsilon, delta, days)


@pytest.mark.parametrize("distance", [-1e-9, 1.1, math.nan])
def test_impossible_costs_are_refused(distance: float) -> None:
    with pytest.raises(UsageError):
        cost(0.1, distance)


@pytest.mark.parametrize("value", [0.1, 1 / 3, 5e-324, 1e300, math.inf])
def test_costs_survive_plain_data_to_the_last_bit(value: float) -> None:
    kept = Cost(Gaussian(value), Gaussian(value), 1 / 3e9)
    assert Cost.of(kept.plain()) == kept
    cap = Cap(1 / 3, 1e-7, 1 / 7, ADD)
    assert Cap.of(cap.plain()) == cap
