"""The Gaussian accountant against 60-digit arithmetic, two other accountants and its own edges."""

import json
import math
import subprocess
import sys
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.errors import UsageError
from secagg.privacy.accounting.gaussian_dp import gaussian_delta, gaussian_epsilon, gaussian_mu

ORACLES = Path(__file__).parents[2] / "oracles"
INF = math.inf
mus = st.floats(1e-6, 100)
deltas = st.floats(1e-15, 0.5)


def exact_delta(mu: float, epsilon: float) -> mpmath.mpf:
    """Balle & Wang 2018, theorem 8, as it is printed, in enough digits for its cancellation."""
    with mpmath.workdps(80):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        near, far = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
        return mpmath.ncdf(near) - mpmath.exp(epsilon) * mpmath.ncdf(far)


def cases(count: int, seed: int) -> list[tuple[float, float]]:
    """Return (mu, epsilon) with mu from 1e-9 to 1e3 and delta from 1e-300 to 1."""
    rng = np.random.default_rng(seed)
    drawn = []
    for mu in 10 ** rng.uniform(-9, 3, count):
        a = rng.uniform(-mu / 2, 37)
        drawn.append((float(mu), max(0.0, float(mu * (a + mu / 2)))))
    return drawn


def test_delta_is_the_true_one_rounded_up():
    for mu, epsilon in cases(1500, 1):
        true, ours = exact_delta(mu, epsilon), gaussian_delta(mu, epsilon)
        # `_rounding` is at most 8e-16 * (40 * 1037 + 40^3 + 80^2) < 1e-10 in this range; twice it,
        # because the error it bounds may be on the same side.
        assert true <= ours <= true * (1 + 2e-10) + 1e-323, (mu, epsilon)


def test_a_subnormal_delta_is_never_below_the_true_one():
    for mu in (1e-3, 0.1, 1.0, 30.0):
        for a in (37.51, 37.6, 38.0, 38.5, 60.0):
            epsilon = mu * (a + mu / 2)
            assert exact_delta(mu, epsilon) <= gaussian_delta(mu, epsilon) <= 1e-300


def test_epsilon_is_the_true_one_rounded_up():
    rng = np.random.default_rng(2)
    for mu, delta in zip(
        10 ** rng.uniform(-6, 2, 400), 10 ** rng.uniform(-15, -0.3, 400), strict=True
    ):
        epsilon = gaussian_epsilon(mu, delta)
        assert exact_delta(mu, epsilon) <= delta
        if epsilon > 0:
            # delta is off by 1e-12 here (a <= 8), and d log delta / d log epsilon is above 1/10
            assert exact_delta(mu, epsilon * (1 - 1e-11)) > delta


def test_mu_is_the_true_one_rounded_down():
    rng = np.random.default_rng(3)
    for epsilon, delta in zip(
        10 ** rng.uniform(-3, 2, 300), 10 ** rng.uniform(-15, -0.3, 300), strict=True
    ):
        mu = gaussian_mu(epsilon, delta)
        assert gaussian_delta(mu, epsilon) <= delta
        assert exact_delta(mu, epsilon) <= delta < exact_delta(mu * (1 + 1e-11), epsilon)


def test_the_bounds_of_opacus_prv_contain_our_epsilon():
    """Its bounds are certified (Gopi et al. 2021, theorem 5), so the true epsilon is between."""
    stored = json.loads((ORACLES / "epsilons_opacus.json").read_text())
    assert len(stored["rows"]) > 80
    for sigma, compositions, delta, low, estimate, high in stored["rows"]:
        ours = gaussian_epsilon(math.sqrt(compositions) / sigma, delta)
        assert max(low, 0.0) <= ours <= high
        # the error it was asked for: 0.01 in epsilon
        assert ours == pytest.approx(estimate, abs=0.01)


@pytest.mark.parametrize(
    ("mu", "epsilon", "delta"),
    [
        (0.0, 0.0, 0.0), (0.0, 1.0, 0.0), (INF, 1.0, 1.0), (INF, INF, 0.0), (1.0, INF, 0.0),
        (1.0, 1000.0, math.ulp(0.0)), (1e-320, 1.0, math.ulp(0.0)), (1e200, 1.0, 1.0),
        (1e308, 1e300, 1.0),
    ],
)  # fmt: skip
def test_delta_is_correct_at_its_limits(mu, epsilon, delta):
    assert gaussian_delta(mu, epsilon) == delta


@pytest.mark.parametrize(
    ("mu", "delta", "epsilon"),
    [
        (0.0, 0.0, 0.0), (1.0, 1.0, 0.0), (INF, 1.5, 0.0), (1.0, 0.0, INF), (1.0, 1e-310, INF),
        (INF, 0.5, INF), (1e200, 0.5, INF), (0.01, 0.9, 0.0),
    ],
)  # fmt: skip
def test_epsilon_is_correct_at_its_limits(mu, delta, epsilon):
    assert gaussian_epsilon(mu, delta) == epsilon


@pytest.mark.parametrize(
    ("epsilon", "delta", "mu"),
    [(1.0, 1.0, INF), (INF, 0.5, INF), (INF, 0.0, INF), (1.0, 0.0, 0.0), (1.0, 1e-310, 0.0)],
)
def test_mu_is_correct_at_its_limits(epsilon, delta, mu):
    assert gaussian_mu(epsilon, delta) == mu


@pytest.mark.parametrize("function", [gaussian_delta, gaussian_epsilon, gaussian_mu])
@pytest.mark.parametrize("arguments", [(-1.0, 0.5), (0.5, -1e-9), (math.nan, 0.5), (0.5, math.nan)])
def test_negative_and_non_finite_arguments_are_refused(function, arguments):
    with pytest.raises(UsageError):
        function(*arguments)


@given(st.floats(1e-3, 100), deltas)
def test_mu_and_epsilon_are_inverse(epsilon, delta):
    mu = gaussian_mu(epsilon, delta)
    back = gaussian_epsilon(mu, delta)
    # epsilon moves by what delta is off by over d delta / d epsilon = -e^epsilon Phi(-b). Delta is
    # off by 1e-12 of itself (a <= 8); mu by 1e-13, where its Newton ends, and d delta/d mu = phi(a)
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    density = math.exp(-a * a / 2) / math.sqrt(2 * math.pi)
    slope = float(mpmath.exp(epsilon) * mpmath.ncdf(-b))
    off = (1e-12 * delta + 1e-13 * mu * density) / slope + 1e-12 * epsilon
    assert epsilon - off <= back <= epsilon + off


@given(mus, deltas)
def test_converting_between_epsilon_and_delta_never_exceeds_the_guarantee(mu, delta):
    assert gaussian_delta(mu, gaussian_epsilon(mu, delta)) <= delta


def test_neither_scipy_stats_nor_optimize_is_imported():
    """Half a second at every start of the command line."""
    code = "import sys, secagg.privacy.accounting.gaussian_dp; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"scipy.stats", "scipy.optimize"} & set(done.stdout.split())
