import numpy as np
import pytest
from scipy.optimize import Bounds, minimize

from secagg.models.numerics.owlqn import Stopping, minimise_orthantwise


def quadratic(p: int, seed: int):
    """1/2 x'Hx - g'x with eigenvalues from 0.1 to 10."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.normal(size=(p, p)))[0]
    H = Q * np.geomspace(0.1, 10, p) @ Q.T
    g = rng.normal(size=p)
    return H, g, lambda x: (0.5 * float(x @ H @ x) - float(g @ x), H @ x - g)


@pytest.mark.parametrize("seed", range(3))
def test_lasso_solutions_meet_their_optimality_conditions(seed: int) -> None:
    H, g, objective = quadratic(12, seed)
    penalty = np.full(12, 0.4)
    penalty[:3] = 0  # as a network's biases
    found = minimise_orthantwise(
        objective, np.ones(12), penalty, Stopping(decrease=0.0, slope=1e-6, max_iterations=10_000)
    )
    assert found.finite
    slope = H @ found.x - g
    active = found.x != 0
    assert active[:3].all()
    assert 0 < active[3:].sum() < 9  # some at zero exactly, some not
    # The largest slope asked for; at zero, anything up to the penalty.
    assert np.max(np.abs(slope + penalty * np.sign(found.x))[active]) <= 1e-6
    assert np.all(np.abs(slope[~active]) <= penalty[~active] + 1e-6)


def test_results_agree_with_the_split_formulation() -> None:
    rng = np.random.default_rng(7)
    X, y = rng.normal(size=(60, 8)), rng.integers(0, 2, 60)
    penalty = 3.0

    def logistic(x):
        z = X @ x
        return float(np.sum(np.logaddexp(0, z) - y * z)), X.T @ (1 / (1 + np.exp(-z)) - y)

    def split(x):
        value, gradient = logistic(x[:8] - x[8:])
        return value + penalty * x.sum(), np.concatenate([gradient, -gradient]) + penalty

    found = minimise_orthantwise(
        logistic,
        np.zeros(8),
        np.full(8, penalty),
        Stopping(decrease=0.0, slope=1e-6, max_iterations=10_000),
    )
    other = minimize(
        split, np.zeros(16), jac=True, method="L-BFGS-B", bounds=Bounds(0, np.inf),
        options={"ftol": 1e-15, "gtol": 1e-7},
    )  # fmt: skip
    # Slopes below 1e-6 and a curvature of 1 at least: weights within 8 * 1e-6, and values within
    # the square of that, less than the rounding of a value near 40.
    assert found.value == pytest.approx(other.fun, rel=1e-13)
    np.testing.assert_allclose(found.x, other.x[:8] - other.x[8:], rtol=0, atol=8e-6)


def test_without_penalty_results_equal_l_bfgs() -> None:
    H, g, objective = quadratic(10, 4)
    found = minimise_orthantwise(
        objective, np.zeros(10), np.zeros(10), Stopping(decrease=0.0, slope=1e-6, curvature=10.0)
    )
    # |slope| / least eigenvalue
    np.testing.assert_allclose(found.x, np.linalg.solve(H, g), rtol=0, atol=np.sqrt(10) * 1e-5)
    assert found.evaluations < 100
    early = minimise_orthantwise(
        objective, np.zeros(10), np.zeros(10), Stopping(decrease=0.0, slope=0.0, max_iterations=3)
    )
    assert early.finite
    coarse = minimise_orthantwise(
        objective, np.zeros(10), np.zeros(10), Stopping(decrease=0.5, slope=1e-6, curvature=10.0)
    )
    assert coarse.evaluations < found.evaluations
    assert found.value < early.value < 0


def test_steps_beyond_the_domain_are_halved() -> None:
    calls = []

    def barrier(x):
        calls.append(float(x[0]))
        if x[0] <= 0:
            return np.nan, np.full(1, np.nan)
        return float(x[0] - np.log(x[0])), 1 - 1 / x

    found = minimise_orthantwise(
        barrier, np.full(1, 5.0), np.zeros(1), Stopping(decrease=0.0, slope=1e-6, curvature=0.1)
    )
    assert min(calls) <= 0  # the first trial was beyond
    assert found.finite
    assert found.x[0] == pytest.approx(1, abs=2e-6)  # slope, over a curvature of 1


@pytest.mark.parametrize(("at_start", "evaluations"), [(np.inf, 1), (1.0, None)])
def test_without_a_finite_step_the_start_is_reported(
    at_start: float, evaluations: int | None
) -> None:
    start = np.full(2, 3.0)

    def island(x):
        return at_start if np.array_equal(x, start) else np.inf, np.ones(2)

    found = minimise_orthantwise(island, start, np.zeros(2), Stopping(decrease=0.0, slope=0.0))
    assert not found.finite
    np.testing.assert_array_equal(found.x, start)
    assert evaluations in (None, found.evaluations)
