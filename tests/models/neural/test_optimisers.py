"""The optimisers reach the minimum, against SciPy's and formulas, and end when nothing helps."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import minimize, rosen, rosen_der

from secagg.contracts import State
from secagg.core import canonical_encoding
from secagg.models.neural.optimisers import Optimiser, advance, begin

Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]


def search(
    optimiser: Optimiser, objective: Objective, start: np.ndarray, rounds: int, **settings: float
) -> State:
    state = begin(optimiser, start)
    for _ in range(rounds):
        value, gradient = objective(state["point"])
        given = {"rate": 0.1, "momentum": 0.0} | settings
        state = advance(optimiser, state, value, gradient, **given)
        if state["ended"] or np.max(np.abs(gradient)) < 1e-9:
            break
    return state


def quadratic(seed: int, p: int, condition: float) -> tuple[Objective, np.ndarray]:
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.normal(size=(p, p)))
    curvature = (basis * np.geomspace(1, condition, p)) @ basis.T
    minimum = rng.normal(size=p)

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        slope = curvature @ (x - minimum)
        return float(slope @ (x - minimum)) / 2, slope

    return objective, minimum


def test_lbfgs_needs_about_as_many_values_as_scipy() -> None:
    """SciPy's search is of another kind (More and Thuente's), so the numbers differ somewhat."""
    start, calls = np.array([-1.2, 1.0, 0.7, -0.5, 1.5]), 0

    def counted(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal calls
        calls += 1
        return float(rosen(x)), rosen_der(x)

    state = search("lbfgs", counted, start, 500)
    reference = minimize(rosen, start, jac=rosen_der, method="L-BFGS-B", options={"gtol": 1e-9})
    np.testing.assert_allclose(state["best"], 1, atol=1e-7)
    assert calls <= 2 * reference.nfev


def test_lbfgs_solves_a_badly_scaled_quadratic() -> None:
    objective, minimum = quadratic(1, 15, 1e4)
    state = search("lbfgs", objective, np.zeros(15), 200)
    np.testing.assert_allclose(state["best"], minimum, atol=1e-6)


def test_lbfgs_never_keeps_a_point_that_is_not_finite() -> None:
    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        if x[0] >= 2:
            return np.nan, np.full(1, np.nan)
        return float(x[0] ** 2 - np.log(2 - x[0])), np.array([2 * x[0] + 1 / (2 - x[0])])

    state = begin("lbfgs", np.array([-9.0]))
    for _ in range(60):
        state = advance("lbfgs", state, *objective(state["point"]), rate=0.0, momentum=0.0)
        assert np.isfinite(state["best"]).all()
    assert state["best"] == pytest.approx(1 - np.sqrt(1.5), abs=1e-6)  # 2x (2 - x) = -1


def test_lbfgs_ends_where_no_step_lowers_the_value() -> None:
    """A slope that promises a fall which never comes: as rounding of values would."""
    state = search("lbfgs", lambda x: (0.0, np.ones_like(x)), np.zeros(2), 500)
    assert state["ended"]
    np.testing.assert_array_equal(state["best"], state["point"])


def test_lbfgs_keeps_less_history_of_a_large_network() -> None:
    state = begin("lbfgs", np.zeros(2**21))
    for step in range(5):
        gradient = np.full(2**21, 0.5**step)
        state = advance("lbfgs", state, -float(step) * 1e9, gradient, rate=0.0, momentum=0.0)
    assert len(state["moves"]) == 2


def test_sgd_with_rate_one_over_curvature_solves_in_one_step() -> None:
    state = search("sgd", lambda x: (0.0, 4 * (x - 3)), np.zeros(2), 1, rate=0.25)
    np.testing.assert_allclose(state["best"], 3)


def test_sgd_with_momentum_is_heavy_ball() -> None:
    state = begin("sgd", np.zeros(1))
    for _ in range(3):
        state = advance("sgd", state, 0.0, np.ones(1), rate=0.1, momentum=0.5)
    np.testing.assert_allclose(state["point"], -0.1 * (1 + 1.5 + 1.75))


def test_adam_moves_by_the_rate_whatever_the_scale() -> None:
    """With equal gradients, Kingma and Ba's step is the rate, in every entry."""
    state = begin("adam", np.zeros(3))
    for _ in range(4):
        state = advance("adam", state, 0.0, np.array([1e-3, 1.0, -1e3]), rate=0.1, momentum=0.0)
    np.testing.assert_allclose(state["point"], [-0.4, -0.4, 0.4], rtol=1e-4)


@pytest.mark.parametrize("optimiser", ["lbfgs", "adam", "sgd"])
def test_a_stored_state_continues_identically(optimiser: Optimiser) -> None:
    objective, _ = quadratic(2, 4, 10)
    state = search(optimiser, objective, np.ones(4), 5)
    again = canonical_encoding.loads(canonical_encoding.dumps(state))
    value, gradient = objective(state["point"])
    one, two = (
        advance(optimiser, each, value, gradient, rate=0.1, momentum=0.0) for each in (state, again)
    )
    assert canonical_encoding.dumps(one) == canonical_encoding.dumps(two)
