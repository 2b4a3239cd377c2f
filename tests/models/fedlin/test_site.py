"""A FedLin site's records: parted, brought to its own least squares, kept between rounds."""

import numpy as np
import pytest

from secagg.contracts import PublicFacts, Variable
from secagg.core import canonical_encoding
from secagg.models.fedlin.design import Intercept, Layout
from secagg.models.fedlin.site import Site, least_squares, split_holdout

SEED = bytes(range(16))
CENTRE, SCALE = np.array([0.1, -0.2, 0.3, 0.0]), np.array([2.0, 1.5, 0.5, 3.0])


def layout(intercept: Intercept = "site", d: int = 3) -> Layout:
    variables = tuple(Variable(f"x{j}", f"x{j}", 1.0, 2.0) for j in range(d))
    variables = (Variable("y", "y", -3.0, 4.0), *variables)
    public = PublicFacts(variables, tuple(v.name for v in variables), 100, ("a", "b"))
    return Layout.of(public, "y", None, intercept, 1)


def rows(n: int, d: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (n, 1 + d))


@pytest.mark.parametrize("n", [0, 1, 2, 37])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.2, 0.99])
@pytest.mark.parametrize("which", ["random", "last"])
def test_records_are_split_into_fitting_and_held_out(n: int, share: float, which) -> None:
    values = np.arange(2.0 * n).reshape(n, 2)
    kept, held = split_holdout(values, share, which, SEED)
    assert len(held) == (max(int(share * n), 1) if share and n > 1 else 0)
    assert n == 0 or len(kept) > 0  # a site always learns from a record, if it has any
    assert sorted(np.concatenate([kept, held])[:, 0]) == list(values[:, 0])
    for part in (kept, held):  # in the order of the file
        assert list(part[:, 0]) == sorted(part[:, 0])
    if which == "last":
        np.testing.assert_array_equal(np.concatenate([kept, held]), values)
    elif 1 < len(held) < n - 1:  # the seed's
        again, other = (split_holdout(values, share, which, seed)[1] for seed in (SEED, bytes(16)))
        np.testing.assert_array_equal(again, held)
        assert not np.array_equal(other, held)


def test_least_squares_has_the_smallest_norm() -> None:
    """Collinear columns, a column of zeros, fewer records than columns, nothing at all."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 5)) * [1, 2, 3, 4, 5]
    X[:, 2] = X[:, 0] - 0.3 * X[:, 1]
    X[:, 3] = 0
    y = rng.standard_normal(20)
    for part in (X, X[:2], X[:0], 0 * X):
        theta, rank = least_squares(part, y[: len(part)], np.full(5, 1e-16))
        expected = np.linalg.lstsq(part, y[: len(part)], rcond=1e-12)[0]
        np.testing.assert_allclose(theta, expected, atol=1e-12)
        assert rank == (min(3, len(part)) if part.any() else 0)


@pytest.mark.parametrize("far", [1e-12, 1.0, 1e12])
def test_units_do_not_change_the_rank_of_a_design(far: float) -> None:
    rng = np.random.default_rng(1)
    X, theta = rng.standard_normal((30, 3)), np.array([1.0, -2.0, 0.5])
    units = np.array([far, 1.0, 1 / far])
    found, rank = least_squares(X * units, X @ theta, np.full(3, 0.0))
    np.testing.assert_allclose(found * units, theta, rtol=1e-12)
    assert rank == 3


@pytest.mark.parametrize("intercept", ["site", "modelled", "none"])
@pytest.mark.parametrize("n", [0, 1, 3, 4, 25])
def test_site_statistics_represent_the_records(intercept: Intercept, n: int) -> None:
    regression, values = layout(intercept), rows(n)
    site = Site.of(regression, values, CENTRE, SCALE)
    X, y = (values[:, 1:] - CENTRE[1:]) * SCALE[1:], (values[:, 0] - CENTRE[0]) * SCALE[0]
    if intercept == "modelled":
        X = np.column_stack([np.ones(n), X])
    if intercept == "site" and n:
        X, y = X - X.mean(axis=0), y - y.mean()
    np.testing.assert_allclose(site.gram, X.T @ X, atol=1e-12)
    np.testing.assert_allclose(site.cross, X.T @ y, atol=1e-12)
    assert site.square == pytest.approx(float(y @ y), abs=1e-12)
    taken = int(intercept == "site" and n > 0)
    rank = int(np.linalg.matrix_rank(X, tol=1e-9)) if n else 0
    assert (site.records, site.freedom, site.rank) == (n, n - taken, rank)
    assert site.left == max(n - taken - rank, 0)
    if n:
        expected = np.linalg.lstsq(X, y, rcond=1e-9)[0]
        np.testing.assert_allclose(site.separate, expected, atol=1e-11)
    rng = np.random.default_rng(3)
    theta = rng.standard_normal(regression.d)
    wrong = site.errors(theta, regression, values, CENTRE, SCALE)
    np.testing.assert_allclose(wrong, y - X @ theta, atol=1e-12)
    for weight in (1e-6, 0.3, 1e6) if n else ():  # near theta: least squares of more rows
        more = np.vstack([X, np.sqrt(weight) * np.eye(len(theta))])
        target = np.concatenate([y, np.sqrt(weight) * theta])
        expected = np.linalg.lstsq(more, target, rcond=None)[0]
        np.testing.assert_allclose(site.near(theta, weight), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("n", [0, 2, 25])
def test_a_sites_memory_survives_encoding_with_the_same_bits(n: int) -> None:
    """Over the wire's encoding, as between rounds: the same bits."""
    site = Site.of(layout(), rows(n), CENTRE, SCALE)
    again = Site.read(canonical_encoding.loads(canonical_encoding.dumps(site.state())))
    assert again.state().keys() == site.state().keys()
    for name, value in site.state().items():
        assert np.array_equal(again.state()[name], value), name
    for name in ("w", "U", "z"):
        assert np.array_equal(getattr(again.shape, name), getattr(site.shape, name))
    assert (again.left, again.rank) == (site.left, site.rank)
    np.testing.assert_array_equal(again.level.x, site.level.x)
    assert again.level.y == site.level.y


@pytest.mark.parametrize("value", [0.1, -1 / 3])
@pytest.mark.parametrize("n", [2, 7, 20])
def test_a_constant_column_has_no_slope(value: float, n: int) -> None:
    """Its mean is off by rounding: what is left of it must not be taken for records that vary."""
    values = rows(n)
    values[:, 2] = value
    site = Site.of(layout(), values, CENTRE, SCALE)
    assert site.separate[1] == 0
    assert not site.gram[1].any()
    assert site.rank == min(2, n - 1)
    values[:, 1:] = value
    site = Site.of(layout(), values, CENTRE, SCALE)
    assert (site.rank, site.shape.steepest) == (0, 0.0)
    np.testing.assert_array_equal(site.separate, np.zeros(3))


def test_a_column_that_varies_slightly_has_a_slope() -> None:
    """A spread of 1e-12 of the bounds, a thousand times their rounding, has a slope."""
    values = rows(20, d=1)
    values[:, 1] = 0.5 + 1e-12 * values[:, 1]
    site = Site.of(layout(d=1), values, CENTRE[:2], SCALE[:2])
    assert site.rank == 1
    assert site.separate[0] != 0


@pytest.mark.parametrize(
    ("apart", "rounding", "rank"),
    [(1e-3, 1e-16, 2), (1e-12, 1e-16, 1), (1e-8, 1e-16, 2), (1e-8, 1e-9, 1)],
)
def test_nearly_collinear_columns_count_as_one_direction(
    apart: float, rounding: float, rank: int
) -> None:
    """Apart by less than 1e-10 of them, or no more than their rounding: one direction."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 2))
    X[:, 1] = X[:, 0] + apart * X[:, 1]
    y = rng.standard_normal(40)
    theta, found = least_squares(X, y, np.full(2, rounding))
    assert found == rank
    expected = np.linalg.lstsq(X, y, rcond=None if rank == 2 else 1e-6)[0]
    error = 1e-6 if rank == 1 else 1e-12 / apart**2  # the slopes' own size is 1 / apart
    np.testing.assert_allclose(theta, expected, rtol=0, atol=error)
