"""Pooled units: means and deviations of all records, and columns that do not vary."""

from typing import Any

import numpy as np
import pytest

from secagg.contracts import PublicFacts, Update, Variable
from secagg.errors import UsageError
from secagg.models.fedlin.design import Layout
from secagg.models.fedlin.units import pooled_units, unit_sums

STEP = 2.0**-80  # of a sum of squares


def layout(intercept: Any, degree: int = 1) -> Layout:
    names = ("y", "x") if degree > 1 else ("y", "x", "w")
    variables = tuple(Variable(n, n, 0.0, 1.0) for n in names)
    return Layout.of(PublicFacts(variables, names, 5000, ("a", "b")), "y", None, intercept, degree)


def total(regression: Layout, sites: list[np.ndarray]) -> Update:
    parts = [unit_sums(regression, values) for values in sites]
    return {name: np.sum([part[name] for part in parts], axis=0) for name in parts[0]}


@pytest.mark.parametrize("degree", [1, 2])
def test_units_are_deviations_of_the_pooled_records(degree: int) -> None:
    """About the pooled mean where the intercept is modelled, else within sites; numpy's."""
    rng = np.random.default_rng(0)
    sites = [rng.uniform(-1, 0.2 * k, (n, 3 if degree == 1 else 2)) for k, n in ((1, 8), (4, 30))]
    sites.append(sites[0][:0])
    many = 3 if degree == 1 else 1  # a polynomial's column has no unit
    every = np.concatenate(sites)[:, :many]
    centre, scale = pooled_units(total(layout("modelled", degree), sites), 38, ("y", "x", "w"))
    np.testing.assert_allclose(centre, every.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(scale, 1 / every.std(axis=0), rtol=1e-12)
    within = np.concatenate([s - s.mean(axis=0) for s in sites if len(s)])[:, :many]
    centre, scale = pooled_units(total(layout("site", degree), sites), 38, ("y", "x", "w"))
    np.testing.assert_array_equal(centre, np.zeros(many))
    np.testing.assert_allclose(scale, 1 / np.sqrt(np.mean(within**2, axis=0)), rtol=1e-12)


def test_a_constant_column_that_varies_by_rounding_is_named() -> None:
    """The mean of squares less the square of the mean is not 0, and far above a step of the sum."""
    rng = np.random.default_rng(1)
    regression, left = layout("modelled"), []
    for constant in (0.7, 1 / 3, -0.9, 0.123, 1e-3):
        sites = [rng.uniform(-1, 1, (n, 3)) for n in (1237, 3001)]
        for values in sites:
            values[:, 2] = constant
        found = total(regression, sites)
        left.append(found["squares"][2] / 4238 - (found["sums"][2] / 4238) ** 2)
        with pytest.raises(UsageError, match="'w'"):
            pooled_units(found, 4238, ("y", "x", "w"))
    assert max(left) > 2.0**-70  # else this would have tested nothing


def test_a_small_deviation_around_a_large_mean_is_not_constant() -> None:
    """Deviations of 1e-6 of the mean leave four digits of the variance."""
    rng = np.random.default_rng(2)
    sites = [rng.uniform(-1, 1, (n, 3)) for n in (1237, 3001)]
    for values in sites:
        values[:, 2] = 0.7 + 1e-6 * rng.standard_normal(len(values))
    _, scale = pooled_units(total(layout("modelled"), sites), 4238, ("y", "x", "w"))
    every = np.concatenate(sites)
    np.testing.assert_allclose(scale, 1 / every.std(axis=0), rtol=1e-3)


def test_rounding_steps_of_the_sum_are_not_taken_for_variance() -> None:
    """A variance of 16 steps may be their rounding at the sites; one of 32 is a variance."""
    names, records = ("y", "x"), 4
    squares = records * np.array([1.0, 16 * STEP])
    with pytest.raises(UsageError, match="'x'"):
        pooled_units({"squares": squares}, records, names)
    squares[1] *= 2
    _, scale = pooled_units({"squares": squares}, records, names)
    np.testing.assert_allclose(scale, [1.0, 2.0**37.5], rtol=1e-12)
