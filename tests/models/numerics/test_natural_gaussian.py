"""Normal densities in natural parameters: Lemma 1, moments, and what counts as a density."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import multivariate_normal

from secagg.models.numerics.natural_gaussian import Natural, symmetric, triangle

Array = NDArray[np.float64]


def random_moments(rng: np.random.Generator, p: int) -> tuple[Array, Array]:
    root = rng.standard_normal((p, p + 2))
    return rng.standard_normal(p), root @ root.T


def log_ratio(density: Natural, x: Array) -> Array:
    """Return log of exp(r'x - x'Qx / 2), less its value at the first x."""
    log = x @ density.r - np.einsum("ni,ij,nj->n", x, density.Q, x) / 2
    return np.asarray(log - log[0])


@pytest.mark.parametrize("p", [1, 2, 5])
def test_products_and_quotients_agree_with_the_densities(p: int) -> None:
    """Lemma 1, against scipy's densities at points: equal up to a factor."""
    rng = np.random.default_rng(p)
    x = rng.standard_normal((20, p))
    (m, C), (n, D) = random_moments(rng, p), random_moments(rng, p)
    a, b = (np.asarray(multivariate_normal(*each).logpdf(x)) for each in ((m, C), (n, D)))
    one, other = Natural.of(m, C), Natural.of(n, D)
    for back, exact in zip(one.moments(), (m, C), strict=True):
        np.testing.assert_allclose(back, exact, rtol=1e-9)
    for found, log in ((one + other, a + b), (one - other, a - b), (one.times(0.3), 0.3 * a)):
        np.testing.assert_allclose(log_ratio(found, x), log - log[0], rtol=1e-9, atol=1e-9)


def test_results_are_exactly_symmetric() -> None:
    """An antisymmetric part would grow from round to round without effect on the density."""
    np.testing.assert_array_equal(symmetric(np.arange(3.0), 2), [[0, 1], [1, 2]])  # row by row
    rng = np.random.default_rng(1)
    one, other = (Natural.of(*random_moments(rng, 6)) for _ in range(2))
    each = (one, one + other.times(0.3), one - other, Natural.of(*one.moments()))
    for density in each:
        assert np.array_equal(density.Q, density.Q.T)
        assert np.array_equal(symmetric(triangle(density.Q), 6), density.Q)
    assert np.array_equal(one.moments()[1], one.moments()[1].T)


@pytest.mark.parametrize(
    ("Q", "proper"),
    [
        (np.eye(2), True),
        (np.diag([1e-12, 1e12]), True),  # units may be anything
        (np.array([[1.0, 0.999], [0.999, 1.0]]), True),
        (np.array([[1.0, 1.0], [1.0, 1.0]]), False),
        (np.array([[1.0, 1.0], [1.0, 1 + 1e-12]]), False),  # by rounding only
        (np.diag([1.0, 0.0]), False),
        (np.diag([1.0, -1.0]), False),
        (np.array([[1.0, 2.0], [2.0, 1.0]]), False),
        (np.diag([1.0, np.nan]), False),
        (np.diag([1.0, np.inf]), False),
    ],
)
def test_a_precision_that_is_not_positive_definite_is_refused(Q: Array, proper: bool) -> None:
    assert Natural(np.zeros(2), Q).proper is proper


def test_a_singular_covariance_is_refused() -> None:
    with pytest.raises(np.linalg.LinAlgError):
        Natural.of(np.zeros(2), np.ones((2, 2)) - np.diag([0.0, 0.5]))
