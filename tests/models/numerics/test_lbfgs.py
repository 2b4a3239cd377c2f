import numpy as np
import pytest

from secagg.models.numerics.lbfgs import MIN_FIRST_STEP, RESTARTS, minimise_finite

Vector = np.ndarray


def quadratic(centre: Vector, curvature: Vector):
    return lambda x: (0.5 * float(curvature @ (x - centre) ** 2), curvature * (x - centre))


class Walled:
    """An objective that is not finite beyond a wall, and the number of calls there."""

    def __init__(self, objective, inside, *, value: float = np.inf, slope: float = 1.0) -> None:
        self.objective, self.inside = objective, inside
        self.value, self.slope = value, slope
        self.calls = self.failures = 0

    def __call__(self, x: Vector) -> tuple[float, Vector]:
        self.calls += 1
        if self.inside(x):
            return self.objective(x)
        self.failures += 1
        return self.value, np.full(len(x), self.slope)


CENTRE, CURVATURE = np.array([3.0, -2.0, 0.5]), np.array([1.0, 30.0, 900.0])


def test_the_minimum_of_a_quadratic_is_found() -> None:
    found = minimise_finite(quadratic(CENTRE, CURVATURE), np.zeros(3), decrease=0, slope=1e-9)
    # The largest slope is 1e-9 or, where rounding stops it before that, of the order of the
    # rounding of values up to 300, eps 300 = 7e-14: slopes sqrt(2 * 900 * 7e-14) = 1.1e-5, which
    # at curvatures of 1 would be as far off.
    np.testing.assert_allclose(found.x, CENTRE, rtol=0, atol=1.1e-5)
    assert found.finite
    assert found.value == pytest.approx(quadratic(CENTRE, CURVATURE)(found.x)[0], rel=1e-15)


def test_bounds_at_zero_are_kept() -> None:
    found = minimise_finite(quadratic(CENTRE, CURVATURE), np.ones(3), nonnegative=True, slope=1e-9)
    assert found.x[1] == 0  # at its bound, with a slope of 60 that would lead below
    np.testing.assert_allclose(found.x[[0, 2]], CENTRE[[0, 2]], rtol=0, atol=1.1e-5)  # as above


def test_tolerances_are_passed_to_the_minimiser() -> None:
    objective = quadratic(CENTRE, CURVATURE)
    at_once = minimise_finite(objective, np.zeros(3), slope=1e9)
    np.testing.assert_array_equal(at_once.x, np.zeros(3))
    assert at_once.finite
    early = minimise_finite(objective, np.zeros(3), decrease=0.5)
    assert early.value > minimise_finite(objective, np.zeros(3)).value


@pytest.mark.parametrize(("value", "slope"), [(np.inf, 1.0), (np.nan, 1.0), (0.0, np.inf)])
def test_overflow_in_the_line_search_is_survived(value: float, slope: float) -> None:
    """Beyond the wall a value or a slope is not finite; the minimum lies just before it."""
    inner = quadratic(CENTRE, CURVATURE)
    walled = Walled(inner, lambda x: x[0] <= 3.01 and abs(x[1]) <= 2.01, value=value, slope=slope)
    found = minimise_finite(walled, np.zeros(3), decrease=1e-15, slope=1e-9)
    assert walled.failures > 0
    assert found.finite
    np.testing.assert_allclose(found.x, CENTRE, rtol=0, atol=1.1e-5)  # as above
    assert found.evaluations == walled.calls


def test_a_restart_begins_at_the_last_accepted_point() -> None:
    """After a failed step the next run begins at the last accepted point, never above it."""
    inner = quadratic(CENTRE, CURVATURE)
    walled = Walled(inner, lambda x: x[0] <= 2.0)  # the minimum is out of reach
    found = minimise_finite(walled, np.zeros(3))
    assert walled.failures > 0
    assert np.all(np.isfinite(found.x))
    assert found.x[0] <= 2.0
    assert found.value < inner(np.zeros(3))[0]


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_if_only_the_start_is_finite_it_is_returned(value: float) -> None:
    """And not even that."""
    start = np.array([0.3, -0.2])
    found = minimise_finite(lambda x: (value, x), start)
    assert (found.finite, found.value) == (False, np.inf)
    np.testing.assert_array_equal(found.x, start)
    assert found.evaluations <= RESTARTS
    walled = Walled(lambda x: (1.0, np.ones(2)), lambda x: np.array_equal(x, start), value=value)
    found = minimise_finite(walled, start)
    assert not found.finite
    np.testing.assert_array_equal(found.x, start)
    # Two evaluations for each first length, 1, 0.1, ... down to SHORTEST.
    assert found.evaluations == walled.calls <= 2 * (1 - round(np.log10(MIN_FIRST_STEP)))
