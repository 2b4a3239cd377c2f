"""Records that have given moments."""

import numpy as np
import pytest

from secagg.core.arrays import Array
from secagg.models.common.surrogate_records import surrogate_records


def moments(values: Array) -> Array:
    z = np.column_stack([np.ones(len(values)), values])
    return z.T @ z


def table(n: int, p: int, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, (n, p)) @ rng.uniform(-0.4, 0.4, (p, p)) + 0.1


@pytest.mark.parametrize(("n", "p"), [(2, 1), (7, 3), (50, 4), (4, 6), (1000, 12), (1, 3)])
def test_the_records_have_the_moments_of_a_table(n: int, p: int) -> None:
    values = table(n, p)
    found = surrogate_records(moments(values), n, np.ones(p))
    assert found.shape == (n, p)
    assert moments(found) == pytest.approx(moments(values), abs=1e-12 * n)


def test_a_smaller_table_keeps_means_and_covariances() -> None:
    values = table(400, 3)
    found = surrogate_records(moments(values), 100, np.ones(3))
    assert found.mean(axis=0) == pytest.approx(values.mean(axis=0), abs=1e-12)
    assert np.cov(found.T, bias=True) == pytest.approx(np.cov(values.T, bias=True), abs=1e-12)


def test_with_few_records_the_largest_directions_are_kept() -> None:
    values = table(400, 5)
    found = surrogate_records(moments(values), 3, np.ones(5))
    wanted = np.linalg.eigvalsh(np.cov(values.T, bias=True))[::-1][:2]
    left = np.linalg.eigvalsh(np.cov(found.T, bias=True))[::-1]
    assert left[:2] == pytest.approx(wanted) and left[2:] == pytest.approx(np.zeros(3), abs=1e-12)


def test_a_negative_eigenvalue_is_zero() -> None:
    broken = np.diag([10.0, 2.0, -1.0])
    found = surrogate_records(broken, 10, np.ones(2))
    assert moments(found) == pytest.approx(np.diag([10.0, 2.0, 0.0]), abs=1e-12)


def test_no_sum_exceeds_what_the_bounds_allow() -> None:
    """Such moments are noise; methods have proved their bounds from those of the columns."""
    noisy = np.array([[10.0, 3.0, 2.0], [3.0, 25.0, 4.0], [2.0, 4.0, 1.0]])
    largest = np.array([1.0, 0.5])
    found = surrogate_records(noisy, 10, largest)
    squares = np.sum(found**2, axis=0)
    assert np.all(squares <= 10 * largest**2 * (1 + 1e-12))
    assert squares == pytest.approx([10.0, 1.0])
    assert np.all(np.abs(found.mean(axis=0)) <= largest)
