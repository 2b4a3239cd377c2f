import numpy as np
import pytest
from scipy import stats

from secagg.models.neural.association_tests import (
    MIN_EXPECTED,
    associated,
    association_p_value,
    rarity_of,
)


def residuals(y: np.ndarray, given: np.ndarray) -> np.ndarray:
    design = np.column_stack([np.ones(len(y)), given])
    return y - design @ np.linalg.lstsq(design, y, rcond=None)[0]


def precision(values: np.ndarray) -> np.ndarray:
    return np.linalg.inv(np.corrcoef(values, rowvar=False))


@pytest.mark.parametrize("n", [8, 30, 400])
def test_one_variable_and_a_block_is_the_f_test_of_nested_linear_models(n: int) -> None:
    """Exact: both are functions of the same residual sums of squares."""
    values = np.random.default_rng(n).normal(size=(n, 6)) + 0.3
    values[:, 0] += 0.5 * values[:, 3]
    for block in ([3], [3, 4], [3, 4, 5]):
        others = [i for i in range(1, 6) if i not in block]
        small = np.sum(residuals(values[:, 0], values[:, others]) ** 2)
        large = np.sum(residuals(values[:, 0], values[:, 1:]) ** 2)
        q, freedom = len(block), n - 6
        expected = stats.f.sf((small - large) / q / (large / freedom), q, freedom)
        K, a, b = precision(values), np.array([0]), np.array(block)
        # K has relative errors of its condition number times 1e-16
        assert association_p_value(K, a, b, n) == pytest.approx(expected, rel=1e-9)
        assert association_p_value(K, b, a, n) == pytest.approx(expected, rel=1e-9)


def test_two_blocks_have_the_lambda_of_their_residuals() -> None:
    """Wilks' Lambda from residual scatters; for two by q variables, F is exact (Rao 1951)."""
    n = 60
    values = np.random.default_rng(2).normal(size=(n, 7))
    values[:, 0] += 0.4 * values[:, 3]
    a, b, others = [0, 1], [2, 3, 4], [5, 6]
    scatter = [
        np.linalg.slogdet((e := residuals(values[:, a], values[:, given])).T @ e)[1]
        for given in (b + others, others)
    ]
    root = np.exp((scatter[0] - scatter[1]) / 2)  # of Lambda
    freedom = n - 1 - len(b) - len(others)
    F = (1 - root) / root * (freedom - 1) / len(b)
    expected = stats.f.sf(F, 2 * len(b), 2 * (freedom - 1))
    found = association_p_value(precision(values), np.array(a), np.array(b), n)
    assert found == pytest.approx(expected, rel=1e-9)


def test_without_a_degree_of_freedom_there_is_no_evidence() -> None:
    values = np.random.default_rng(0).normal(size=(20, 4))
    K = precision(values)
    assert association_p_value(K, np.array([0]), np.array([1]), 4) == 1.0
    assert not associated(np.linalg.inv(K), 5, np.arange(4), np.full(4, np.inf), 0.99).any()
    assert associated(np.linalg.inv(K), 20, np.arange(4), np.full(4, np.inf), 0.99).any()


def test_a_perfect_association_has_a_p_value() -> None:
    K = np.linalg.inv(np.array([[1, 1 - 1e-13], [1 - 1e-13, 1]]))
    assert association_p_value(K, np.array([0]), np.array([1]), 50) < 1e-100


def test_rarity_is_the_share_of_the_rarer_of_two_values() -> None:
    values = np.array([[0.0, -1, 1], [0, 1, 2], [0.5, 1, 3], [0, 1, 3]])
    assert rarity_of(values).tolist() == [0.25, 0.25, np.inf]


@pytest.mark.parametrize("both", [0, 1])
def test_rare_levels_are_not_tested_with_each_other(both: int) -> None:
    """Two records of 200 have each level: one with both would have p = 1e-14."""
    values = np.zeros((200, 3))
    values[:2, 0] = values[2 - both : 4 - both, 1] = 1
    values[:, 2] = np.random.default_rng(0).normal(size=200)
    values[:2, 2] += 5
    R, rarity = np.corrcoef(values, rowvar=False), rarity_of(values)
    joined = associated(R, 200, np.arange(3), rarity, 1e-3)
    assert not joined[0, 1]
    assert joined[0, 2]  # a number is tested with any column
    enough = np.sqrt(MIN_EXPECTED / 200)
    assert associated(R, 200, np.arange(3), np.full(3, enough), 1e-3)[0, 1] == (both == 1)


@pytest.mark.statistical
def test_the_level_is_kept() -> None:
    """The p values of true null hypotheses are uniform: factors, and normals whose F is exact."""
    rng = np.random.default_rng(8)
    exact, factors = [], []
    for _ in range(4000):
        n = 40
        values = rng.normal(size=(n, 6)) @ np.diag([1, 2, 3, 4, 5, 6.0])
        values[:, :2] += values[:, [4]]  # associated with the rest, not with the block
        a, b = np.array([0, 1]), np.array([2, 3])
        exact.append(association_p_value(precision(values), a, b, n))
        group, other = rng.integers(3, size=(2, 200))
        coded = np.column_stack([group == 1, group == 2, other == 1, other == 2])
        factors.append(association_p_value(precision(coded), a, b, 200))
    assert stats.kstest(exact, "uniform").pvalue > 1e-3
    for p_values in (exact, factors):
        for level in (0.05, 0.01):
            error = np.sqrt(level * (1 - level) / len(p_values))
            assert abs(np.mean(np.array(p_values) <= level) - level) <= 4 * error
