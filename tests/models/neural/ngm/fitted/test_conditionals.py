"""One column given all others: moments against quadrature, draws, densities."""

import numpy as np
import pytest
from scipy.stats import norm
from support.methods.fitted_ngms import BOUND, conditionals, linear_arrays, mixed, model_of

from secagg.core.arrays import Array
from secagg.models.neural.ngm.fitted.conditionals import Conditional
from secagg.models.neural.ngm.fitted.residuals import ENDS, SHAPE

SD = 0.8
OUTPUTS = np.array([[-9.7, -1.0, 0.0, 2.0, 9.9, 13.0]])


def one(logarithm: bool, counted: bool) -> Conditional:
    columns = {"x": 0, "y": 0}
    arrays = linear_arrays(columns, "x-y", np.zeros((2, 2)), np.zeros(2), [SD, 1.0])
    if counted:
        rng = np.random.default_rng(0)
        arrays["residuals"] = rng.poisson(5 * rng.random((2, *SHAPE)))
    return conditionals(model_of(columns, arrays), (0,) if logarithm else ())[0]


def by_quadrature(conditional: Conditional, o: float, power: int) -> float:
    """E of the clipped value's power, on a fine grid of e."""
    e = (np.arange(-80_000, 80_000) + 0.5) * 1e-4  # ends of bins lie between points
    x = np.clip(o + conditional.sd * e, -BOUND, BOUND)
    own = (np.exp(x) if conditional.logarithm else x) ** power
    residuals = conditional.model.residuals
    if residuals is None:
        weights = norm.pdf(e)
    else:
        share = residuals.shares[0][np.searchsorted(np.linspace(-2.5, 2.5, SHAPE[0] - 1), o)]
        ratio = share / np.diff(norm.cdf(ENDS))
        weights = norm.pdf(e) * ratio[np.searchsorted(ENDS, e) - 1]
    return float(np.sum(weights * own) * 1e-4)


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("logarithm", [False, True])
def test_moments_agree_with_quadrature(logarithm: bool, counted: bool) -> None:
    conditional = one(logarithm, counted)
    outputs = OUTPUTS[:, :: 2 if counted else 1]
    first, second = conditional.moments(outputs)
    for i, o in enumerate(outputs[0]):
        assert first[i] == pytest.approx(by_quadrature(conditional, o, 1), rel=1e-4, abs=1e-6)
        assert second[i] == pytest.approx(by_quadrature(conditional, o, 2), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("counted", [False, True])
def test_draws_have_these_moments_and_stay_within_the_bounds(counted: bool) -> None:
    conditional, n = one(logarithm=False, counted=counted), 20_000
    for o in (0.3, 9.5):
        conditional = shifted(conditional, o)
        states = conditional.model.states_of(np.zeros((n, 2)))
        outputs = conditional.draw(states, np.random.default_rng(1))
        drawn = states.z[0]
        first, second = (m[0] for m in conditional.moments(outputs))
        sd = np.sqrt(second - first**2)
        assert np.all(np.abs(drawn) <= BOUND) and np.all(outputs == o)
        assert abs(drawn.mean() - first) < 4.5 * sd / np.sqrt(n)
        fourth = np.mean((drawn - first) ** 4) - sd**4
        assert abs(drawn.var() - sd**2) < 4.5 * np.sqrt(fourth / n)


def shifted(conditional: Conditional, output: float) -> Conditional:
    conditional.model.networks[0].bias[0] = output
    return conditional


def test_levels_are_drawn_with_their_probabilities() -> None:
    conditional, n = mixed()[1], 20_000
    states = conditional.model.states_of(np.tile([0.5, 0, 1.0], (n, 1)))
    outputs = conditional.draw(states, np.random.default_rng(0))
    shares = np.exp(conditional.log_probabilities(outputs[:, :1]))[:, 0]
    found = np.bincount(states.level[1], minlength=3) / n
    assert np.all(np.abs(found - shares) < 4.5 * np.sqrt(shares * (1 - shares) / n))
    np.testing.assert_array_equal(states.z[1:3] > 0, np.eye(3)[1:][:, states.level[1]])


def test_a_draw_changes_only_the_free_states() -> None:
    for conditional in mixed():
        states = conditional.model.states_of(np.zeros((40, 3)))
        before_z, before = states.z.copy(), states.level.copy()
        free = np.arange(40) % 2 == 0
        conditional.draw(states, np.random.default_rng(0), free)
        changed = np.any((states.z != before_z), axis=0) | np.any(states.level != before, axis=0)
        assert not np.any(changed & ~free) and np.any(changed)


def integral(density: Array, step: float) -> float:
    return float(np.sum(np.exp(density)) * step)


@pytest.mark.parametrize("counted", [False, True])
def test_densities_integrate_to_1(counted: bool) -> None:
    conditional = one(logarithm=False, counted=counted)
    z = (np.arange(-6000, 6000) + 0.5) * 1e-3
    states = conditional.model.states_of(np.column_stack([z, z]))
    density = conditional.log_density(states, np.zeros((1, len(z))))
    assert integral(density, 1e-3) == pytest.approx(1, abs=2e-3)


def test_a_constant_column_has_no_spread() -> None:
    conditional = one(logarithm=False, counted=False)
    conditional.model.scale[0], conditional.model.centre[0] = 0.0, 0.25
    first, second = conditional.moments(np.array([[3.0]]))
    assert first == [0.25 * BOUND] and second == first**2
