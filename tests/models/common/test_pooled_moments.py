import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.errors import UsageError
from secagg.models.common.pooled_moments import Moments


def moments_of(table, names):
    mean = np.ascontiguousarray(table.T).mean(axis=1)  # contiguous: summed pairwise
    centred = table - mean
    return Moments(tuple(names), len(table), mean, centred.T @ centred)


@given(n=st.integers(3, 60), p=st.integers(1, 6), seed=st.integers(0, 2**32 - 1))
def test_covariance_and_correlation_agree_with_numpy(n, p, seed):
    table = np.random.default_rng(seed).normal(size=(n, p)) * 10.0 ** np.arange(p)
    moments = moments_of(table, [f"x{j}" for j in range(p)])
    # both sum n products of rounded differences: n eps relative to the product of deviations
    scale = np.outer(table.std(axis=0), table.std(axis=0))
    close = 8 * n * np.finfo(float).eps
    expected = np.atleast_2d(np.cov(table.T, bias=True))
    assert np.all(np.abs(moments.covariance - expected) <= close * scale)
    assert np.all(np.abs(moments.correlation - np.atleast_2d(np.corrcoef(table.T))) <= close)
    assert np.allclose(moments.standard_deviation, table.std(axis=0), rtol=close, atol=0)


def test_select_reorders_and_drops_columns():
    table = np.random.default_rng(1).normal(size=(20, 3))
    chosen = moments_of(table, "abc").select(["c", "a"])
    assert chosen.names == ("c", "a")
    assert chosen.n == 20
    again = moments_of(table[:, [2, 0]], "ca")
    np.testing.assert_allclose(chosen.mean, again.mean, rtol=1e-14)  # sums of 20 terms
    np.testing.assert_allclose(chosen.scatter, again.scatter, rtol=1e-13)
    with pytest.raises(UsageError, match="'q'"):
        again.select(["a", "q"])


@pytest.mark.parametrize(("value", "n"), [(0.0, 3), (0.1, 100_003), (-1e9 / 3, 7)])
def test_a_constant_column_is_found_despite_rounding_of_its_mean(value, n):
    table = np.column_stack([np.arange(n, dtype=float), np.full(n, value)])
    moments = moments_of(table, ["x", "same"])
    assert moments.constant.tolist() == [False, True]
    with pytest.raises(UsageError, match="'same'"):
        _ = moments.correlation


def test_a_column_far_from_zero_is_not_constant():
    # a timestamp in milliseconds, varying by seconds: its sd is 10^-9 of its mean
    table = 1.7e12 + 1e3 * np.random.default_rng(2).normal(size=(50, 1))
    assert not moments_of(table, ["t"]).constant[0]


def test_correlation_survives_units_whose_product_underflows():
    table = np.random.default_rng(3).normal(size=(30, 2))
    small = Moments(("a", "b"), 30, np.zeros(2), 1e-300 * moments_of(table, "ab").scatter)
    # the same divisions on numbers scaled by 10^-300 (scatter) and 10^-150 (deviations)
    np.testing.assert_allclose(
        small.correlation, moments_of(table, "ab").correlation, rtol=0, atol=1e-14
    )
