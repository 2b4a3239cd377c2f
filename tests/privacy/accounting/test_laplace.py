"""The Laplace losses against the mechanism itself: sums over outcomes, quadrature, closed forms."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.errors import UsageError
from secagg.privacy.accounting.laplace import Laplace

INF = math.inf
LAWS = [
    Laplace(1.0),
    Laplace(0.01),
    Laplace(2.0, 2),
    Laplace(0.7, 7),
    Laplace(3.0, 1000),
    Laplace(1.0, 2**30),
    Laplace(1.0, INF),
    Laplace(20.0, INF),
]


def outcomes(law: Laplace) -> tuple[np.ndarray, np.ndarray]:
    """Return P and Q of each outcome of discrete Laplace noise on 0 and on `steps`."""
    a, steps = law.epsilon / law.steps, int(law.steps)
    x = np.arange(-math.ceil(60 / a), steps + math.ceil(60 / a) + 1)
    scale = math.tanh(a / 2)  # (1 - e^-a) / (1 + e^-a)
    return scale * np.exp(-a * np.abs(x)), scale * np.exp(-a * np.abs(x - steps))


@pytest.mark.parametrize("law", [law for law in LAWS if law.steps <= 1000])
def test_masses_are_those_of_the_mechanism(law):
    p, q = outcomes(law)
    losses = np.log(p / q)
    # no edge near a loss (they are a (steps - 2k)), so that no outcome is in doubt
    a = law.epsilon / law.steps
    edges = a * (2 * np.arange(-math.ceil(law.steps / 2) - 2, math.ceil(law.steps / 2) + 3) - 0.9)
    ours_p, ours_q = law.masses(edges)
    true_p, _ = np.histogram(losses, edges, weights=p)
    true_q, _ = np.histogram(losses, edges, weights=q)
    # sums of 1e5 terms at most, each to a unit or two of at most 1
    assert ours_p == pytest.approx(true_p, abs=1e-12)
    assert ours_q == pytest.approx(true_q, abs=1e-12)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("buckets", [1, 2, 7, 60, 999])
def test_masses_add_up_and_each_loss_is_in_its_bucket(law, buckets):
    edges = np.linspace(-1.1 * law.epsilon, 1.2 * law.epsilon, buckets + 1)
    p, q = law.masses(edges)
    assert p.sum() == pytest.approx(1, abs=1e-13)
    assert q.sum() == pytest.approx(1, abs=1e-13)
    some = p > 0
    ratio = np.log(p[some] / q[some])
    assert np.all(ratio >= edges[:-1][some] - 1e-7)  # an outcome in 2^30 may be on the other side
    assert np.all(ratio <= edges[1:][some] + 1e-7)


@pytest.mark.parametrize("law", [law for law in LAWS if law.steps <= 1000])
@pytest.mark.parametrize("order", [0.01, 0.5, 1.0, 10.0])
def test_moments_are_those_of_the_mechanism(law, order):
    p, q = outcomes(law)
    assert law.log_moment(order) == pytest.approx(
        math.log(np.sum(p * (p / q) ** order)), rel=1e-9, abs=1e-13
    )


@pytest.mark.parametrize("epsilon", [0.001, 0.5, 20.0])
@pytest.mark.parametrize("order", [0.1, 1.0, 7.0])
def test_moments_of_real_noise(epsilon, order):
    """Mironov 2017, table II, at alpha = 1 + order; and the limit of ever finer grids."""
    with mpmath.workdps(50):
        alpha, t = mpmath.mpf(1) + order, mpmath.mpf(epsilon)
        known = mpmath.log(
            alpha / (2 * alpha - 1) * mpmath.exp(t * (alpha - 1))
            + (alpha - 1) / (2 * alpha - 1) * mpmath.exp(-t * alpha)
        )
    assert Laplace(epsilon, INF).log_moment(order) == pytest.approx(float(known), rel=1e-9)
    assert Laplace(epsilon, 2**40).log_moment(order) == pytest.approx(float(known), rel=1e-9)


@given(st.floats(1e-3, 10), st.integers(1, 50), st.floats(0.01, 20))
def test_finer_grids_and_smaller_epsilons_lose_less(epsilon, steps, order):
    law = Laplace(epsilon, steps)
    for less in (Laplace(epsilon, 2 * steps), Laplace(epsilon, INF), Laplace(epsilon / 2, steps)):
        assert less.log_moment(order) <= law.log_moment(order) + 1e-13


def test_discrete_noise_is_the_chord_discretisation_of_real_noise():
    """delta(epsilon - 2 a j) = 1 - e^(-a j) for both, which is what makes steps = 1 the worst."""
    law = Laplace(1.2, 6)
    p, q = outcomes(law)
    for j in range(7):
        x = law.epsilon - 2 * law.decay * j
        assert np.maximum(p - math.exp(x) * q, 0).sum() == pytest.approx(
            1 - math.exp(-law.decay * j)
        )


@pytest.mark.parametrize(
    "arguments", [(-1.0,), (math.nan,), (1.0, 0), (1.0, 1.5), (1.0, math.nan), (1.0, -3)]
)
def test_what_is_no_such_noise_is_refused(arguments):
    with pytest.raises(UsageError):
        Laplace(*arguments)
