"""The matrix mechanism for tables against explicit matrices: sensitivity, variances, optimality."""

from functools import reduce
from itertools import combinations, product

import numpy as np
import pytest
from scipy.optimize import minimize

from secagg.core.arrays import Array
from secagg.models.tables.strategy import Columns, Strategy, residuals, subsets

DOMAINS: dict[str, tuple[tuple[int, ...], tuple[Columns, ...]]] = {
    "one table": ((3, 4), ((0, 1),)),
    "margins and a joint table": ((2, 3, 4), ((0, 1, 2), (1,), (0, 2))),
    "pairs": ((2, 3, 2, 4), tuple(combinations(range(4), 2))),
    "separate": ((5, 2, 3), ((0,), (1,), (2,))),
    "a total": ((3, 2), ((0,), (0, 1))),
    "binary": ((2, 2, 2, 2), ((0, 1, 2), (1, 2, 3))),
}


@pytest.fixture(
    params=[(name, by_table) for name in DOMAINS for by_table in (False, True)], ids=str
)
def strategy(request: pytest.FixtureRequest) -> Strategy:
    name, by_table = request.param
    return Strategy(*DOMAINS[name], by_table)


def kron(strategy: Strategy, columns: Columns, inside: bool = False) -> Array:
    """Return the matrix of a table on the counts of all combinations of levels.

    inside: each identity of a column of the table is n I - J
    """
    factors = []
    for i, n in enumerate(strategy.sizes):
        own = n * np.eye(n) - np.ones((n, n)) if inside else np.eye(n)
        factors.append(own if i in columns else np.ones((1, n)))
    return np.asarray(reduce(np.kron, factors))


def released(strategy: Strategy) -> Array:
    """Return the matrix of all released numbers."""
    return np.vstack([kron(strategy, A, inside=True) for A in strategy.parts])


def inverse(information: Array) -> Array:
    """Return the pseudoinverse: combinations that are in no table have no information."""
    return np.linalg.pinv(information, rcond=1e-11, hermitian=True)


def total_variance(queries: Array, released: Array, variances: Array) -> float:
    """Return the total variance of the queries by generalised least squares."""
    information = released.T @ (released / variances[:, None])
    return float(np.trace(queries @ inverse(information) @ queries.T))


def test_the_sites_function_is_the_released_matrix(strategy: Strategy) -> None:
    x = np.random.default_rng(0).integers(0, 50, strategy.sizes).astype(float)
    sums = []
    for A in strategy.parts:
        others = tuple(i for i in range(x.ndim) if i not in A)
        sums.append(residuals(x.sum(axis=others)).ravel())
    np.testing.assert_array_equal(np.concatenate(sums), released(strategy) @ x.ravel())


def test_the_sensitivity_is_that_of_the_worst_records(strategy: Strategy) -> None:
    """All records and all pairs of records are tried. The claim exceeds the largest change only by
    its rounding up."""
    claim, matrix = strategy.sensitivity, released(strategy)
    parts = (matrix / np.sqrt(claim.weights)[:, None]).T  # of a record in each cell
    add = np.linalg.norm(parts, axis=1)
    replace = max(np.linalg.norm(a - b) for a, b in combinations(parts, 2))
    assert add.max() <= claim.add <= add.max() * (1 + 1e-11)
    assert add.min() == pytest.approx(add.max(), rel=1e-12)
    assert replace <= claim.replace <= replace * (1 + 1e-11)


def test_estimates_and_variances_are_those_of_generalised_least_squares(strategy: Strategy) -> None:
    rng, matrix = np.random.default_rng(1), released(strategy)
    variances = np.array(strategy.sensitivity.weights, dtype=float)
    y = matrix @ rng.poisson(20, matrix.shape[1]) + rng.normal(size=len(matrix)) * variances**0.5
    information = matrix.T @ (matrix / variances[:, None])
    covariance = inverse(information)
    x = covariance @ matrix.T @ (y / variances)
    split = np.split(y, np.cumsum([strategy.cells(A) for A in strategy.parts])[:-1])
    found = strategy.tables(
        {A: part.reshape(strategy.shape(A)) for A, part in zip(strategy.parts, split, strict=True)}
    )
    for B, table in zip(strategy.asked, found, strict=True):
        M = kron(strategy, B)
        np.testing.assert_allclose(table.ravel(), M @ x, rtol=1e-7, atol=1e-7)
        own = np.full(strategy.cells(B), strategy.variance_of_cell(B))
        np.testing.assert_allclose(np.diagonal(M @ covariance @ M.T), own, rtol=1e-8)


def test_covariances_within_a_table_follow_from_its_parts(strategy: Strategy) -> None:
    """As docs/math/tables.md says for users who need errors of differences."""
    matrix, weights = released(strategy), np.array(strategy.sensitivity.weights, dtype=float)
    information = matrix.T @ (matrix / weights[:, None])
    for B in strategy.asked:
        M = kron(strategy, B)
        true = M @ inverse(information) @ M.T
        own = np.zeros_like(true)
        for A in subsets(B):
            P = np.ones((1, 1))
            for i in B:
                n = strategy.sizes[i]
                P = np.kron(P, np.eye(n) - 1 / n if i in A else np.ones((n, n)))
            own += strategy.variance_of_part(A) * (strategy.cells(A) / strategy.cells(B)) ** 2 * P
        np.testing.assert_allclose(own, true, atol=1e-8 * true.max())


def test_tables_agree_in_their_margins_whatever_the_noise() -> None:
    strategy, rng = Strategy((3, 2, 4), ((0, 1, 2), (0, 2), (2,))), np.random.default_rng(2)
    found = strategy.tables({A: rng.normal(size=strategy.shape(A)) for A in strategy.parts})
    np.testing.assert_allclose(found[0].sum(axis=1), found[1], atol=1e-12)
    np.testing.assert_allclose(found[1].sum(axis=0), found[2], atol=1e-12)


def test_no_other_mechanism_has_a_smaller_total_variance(strategy: Strategy) -> None:
    """Against the singular value bound (Li and Miklau 2013), from explicit matrices; whole weights
    cost at most 2^-10. And against the best set of noisy tables, which is HDMM's OPT_M."""
    cells = {B: strategy.cells(B) for B in strategy.asked}
    c = {B: 1 / n if strategy.by_table else 1.0 for B, n in cells.items()}
    W = np.vstack([c[B] ** 0.5 * kron(strategy, B) for B in strategy.asked])
    bound = np.linalg.svd(W, compute_uv=False).sum() ** 2 / W.shape[1]
    loss = sum(c[B] * n * strategy.variance_of_cell(B) for B, n in cells.items())
    error = loss * strategy.sensitivity.add**2
    assert bound * (1 - 1e-9) <= error <= bound * (1 + 2.0**-10)

    tables = [kron(strategy, A) for A in strategy.parts]
    stacked = np.vstack(tables)

    def of_marginals(logs: Array) -> float:
        shares = np.exp(logs) / np.exp(logs).sum()
        variances = np.repeat(1 / shares, [len(table) for table in tables])
        return total_variance(W, stacked, variances)

    best = minimize(
        of_marginals, np.zeros(len(tables)), method="L-BFGS-B", bounds=[(-8, 8)] * len(tables)
    ).fun
    assert error <= best * (1 + 2.0**-10)


@pytest.mark.parametrize("sizes", list(product((2, 3, 7), repeat=2)))
def test_without_the_larger_table_the_total_of_two_margins_is_not_measured_twice(
    sizes: tuple[int, int],
) -> None:
    """Two separate margins would each estimate the total; one part has it, so the error is less
    than half the squared sensitivity times all cells, that of two noisy tables."""
    strategy = Strategy(sizes, ((0,), (1,)))
    error = sum(n * strategy.variance_of_cell((i,)) for i, n in enumerate(sizes))
    assert error * strategy.sensitivity.add**2 < 2 * sum(sizes)


def test_the_weights_do_not_depend_on_the_order_of_tables() -> None:
    one = Strategy((2, 3, 4), ((0, 1), (1, 2)))
    other = Strategy((2, 3, 4), ((1, 2), (0, 1)))
    assert one.weights == other.weights
