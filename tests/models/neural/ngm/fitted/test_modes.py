"""Modes and pseudo-likelihoods against closed forms and enumeration."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm
from support.methods.fitted_ngms import (
    BOUND,
    MEANS,
    PRECISION,
    SDS,
    SHARES,
    conditionals,
    coupled,
    coupled_table,
    gaussian,
    mixed,
    mixed_arrays,
    model_of,
    shares_given,
)

from secagg.models.neural.ngm.fitted.modes import column_mode, joint_mode, log_pseudo_likelihood
from secagg.models.neural.ngm.fitted.queries import query
from secagg.models.neural.ngm.fitted.sampling import Effort

NAN = np.nan
RNG = np.random.default_rng


def test_the_joint_mode_of_a_gaussian_is_its_conditional_mean() -> None:
    mode = joint_mode(gaussian(), np.array([1.5, NAN, NAN]), 5, RNG(0))
    cov = np.linalg.inv(PRECISION)
    np.testing.assert_allclose(mode.values, cov[:, 0] / cov[0, 0] * 1.5, atol=1e-8)
    assert mode.reached == 1


@pytest.mark.parametrize("c", [NAN, 0.0, 1.0])
def test_the_joint_mode_of_levels_is_the_most_probable_of_all(c: float) -> None:
    possible = {s: p for s, p in coupled_table().items() if np.isnan(c) or s[2] == c}
    mode = joint_mode(coupled(), np.array([NAN, NAN, c]), 20, RNG(0))
    assert tuple(mode.values) == max(possible, key=lambda s: possible[s])


def test_restarts_find_the_best_of_several_modes() -> None:
    """One ascent from a random start may end at any level; densities decide between them."""
    best = int(np.argmax(SHARES))  # sds are equal, so the levels' shares decide
    for seed in range(6):  # the first restart is the best one by chance only
        mode = joint_mode(mixed(), np.full(3, NAN), 40, RNG(seed))
        np.testing.assert_allclose(mode.values, [MEANS[0, best], best, MEANS[1, best]], atol=1e-6)
        assert mode.reached < 1


def test_a_mode_beyond_the_bounds_is_at_the_bound() -> None:
    columns = gaussian()
    columns[2].model.networks[2].bias[0] = 3 * BOUND
    assert joint_mode(columns, np.array([0.0, 0.0, NAN]), 3, RNG(0)).values[2] == BOUND


def test_modes_of_single_columns() -> None:
    given = np.array([1.4, NAN, NAN])
    levels, y = query(mixed(), given, [1, 2], Effort(50, 20, 60), RNG(0))
    columns = mixed()
    assert column_mode(columns[1], levels) == np.argmax(shares_given(1.4))
    grid = np.linspace(-5, 8, 13001)
    density = shares_given(1.4) @ norm.pdf(grid, MEANS[1][:, None], SDS[1])
    assert column_mode(columns[2], y) == pytest.approx(grid[np.argmax(density)], abs=0.15)
    (exact,) = query(columns, np.array([1.4, 1.0, NAN]), [2], Effort(), RNG(0))
    assert column_mode(columns[2], exact) == pytest.approx(MEANS[1, 1])


def test_the_pseudo_likelihood_is_the_sum_of_log_conditional_densities() -> None:
    values = np.array([[0.5, 2, 1.0], [-1.0, 0, 4.0]])
    found = log_pseudo_likelihood(mixed(), values)
    for (x, g, y), total in zip(values, found, strict=True):
        of_x, of_y = (
            norm.logpdf(v, m[int(g)], s) for v, m, s in zip((x, y), MEANS, SDS, strict=True)
        )
        joint = SHARES * norm.pdf(x, MEANS[0], SDS[0]) * norm.pdf(y, MEANS[1], SDS[1])
        assert total == pytest.approx(of_x + of_y + np.log(joint[int(g)] / joint.sum()))


def test_the_density_is_per_own_unit() -> None:
    """Half as large for values in half the unit."""
    model = mixed()[0].model
    *others, y = model.variables
    halved = replace(model, variables=(*others, replace(y, half_range=2 * y.half_range)))
    values = np.array([[0.5, 2, 1.0], [-1.0, 0, 4.0]])
    found = log_pseudo_likelihood(conditionals(halved), values * [1, 1, 2])
    np.testing.assert_allclose(found, log_pseudo_likelihood(mixed(), values) - np.log(2))


def test_the_density_of_a_logarithm_is_that_of_the_value() -> None:
    """log-normal: divided by the value."""
    columns = conditionals(model_of({"x": 0, "g": 3, "y": 0}, mixed_arrays()), (0,))
    values = np.array([[0.5, 2, 1.0]])
    assert log_pseudo_likelihood(mixed(), values) - log_pseudo_likelihood(columns, values) == (
        pytest.approx(0.5)
    )
