import importlib.util

import numpy as np
import pytest

from secagg.errors import UsageError
from secagg.models.graphs.pdag import moral_graph
from secagg.models.neural import graph_votes
from secagg.models.neural.site_graphs import Recovery, site_graph

Records = tuple[np.ndarray, list[list[int]]]

HAS_PC = importlib.util.find_spec("causallearn") is not None
RECOVERIES = [
    "partial_correlation",
    "graphical_lasso",
    pytest.param("pc", marks=pytest.mark.skipif(not HAS_PC, reason="needs secagg[graphs]")),
]
pytestmark = [pytest.mark.usefixtures("causal_learn")] if HAS_PC else []
each = pytest.mark.parametrize("recovery", RECOVERIES)


def edges(graph: np.ndarray) -> set[tuple[int, int]]:
    assert np.array_equal(graph, graph.T)
    assert not np.any(np.diagonal(graph))
    return {(int(i), int(j)) for i, j in zip(*np.nonzero(np.triu(graph)), strict=True)}


def mixed_chain(n: int, seed: int = 0) -> Records:
    """Return x - group - y - flag and a column of its own, as records: group has three levels."""
    rng = np.random.default_rng(seed)
    group = rng.integers(3, size=n)
    x = 1.2 * (group == 1) - 1.2 * (group == 2) + rng.normal(size=n)
    y = 1.2 * (group == 2) + rng.normal(size=n)
    flag = (y + 0.7 * rng.normal(size=n) > 0.5).astype(float)
    alone = rng.normal(size=n)
    values = np.column_stack([x, group == 1, group == 2, y, flag, alone]).astype(float)
    return values, [[0], [1, 2], [3], [4], [5]]


@each
def test_a_mixed_chain_is_found(recovery: Recovery) -> None:
    values, columns = mixed_chain(1500)
    graph = site_graph(values, columns, recovery, alpha=1e-3)
    assert graph.shape == (5, 5)
    assert graph.dtype == np.bool_
    assert edges(graph) == {(0, 1), (1, 2), (2, 3)}


@each
def test_units_and_coding_do_not_matter(recovery: Recovery) -> None:
    values, columns = mixed_chain(200, seed=3)
    graph = site_graph(values, columns, recovery)
    units = np.array([1e-200, -3.0, 0.5, 1e4, -1.0, 1.0])
    assert np.array_equal(graph, site_graph(values * units + 7 * units, columns, recovery))
    reference = values.copy()  # another level of the factor has no indicator
    reference[:, 1] = 1 - values[:, 1] - values[:, 2]
    if recovery == "partial_correlation":  # the others look at single indicators
        assert np.array_equal(graph, site_graph(reference, columns, recovery))


@each
def test_the_order_of_columns_does_not_matter(recovery: Recovery) -> None:
    values, columns = mixed_chain(200, seed=4)
    order = [3, 0, 4, 2, 1]
    moved = site_graph(values, [columns[i] for i in order], recovery)
    assert np.array_equal(moved, site_graph(values, columns, recovery)[np.ix_(order, order)])


@each
@pytest.mark.parametrize("records", [0, 1, 2])
def test_too_few_records_have_no_edge(recovery: Recovery, records: int) -> None:
    values, columns = mixed_chain(10)
    assert edges(site_graph(values[:records], columns, recovery)) == set()


@each
@pytest.mark.parametrize("records", [3, 4, 5, 6, 7, 8, 12])
def test_few_records_neither_fail_nor_warn(recovery: Recovery, records: int) -> None:
    for seed in range(3):
        values, columns = mixed_chain(records, seed)
        site_graph(values, columns, recovery)


def test_more_variables_than_records() -> None:
    values = np.random.default_rng(0).normal(size=(12, 16))
    columns = [[i] for i in range(16)]
    assert edges(site_graph(values, columns, "partial_correlation")) == set()
    assert len(edges(site_graph(values, columns, "graphical_lasso"))) <= 3  # of 120
    values[:, 1] = values[:, 0]
    assert edges(site_graph(values, columns, "partial_correlation")) == set()
    assert (0, 1) in edges(site_graph(values, columns, "graphical_lasso"))


@each
def test_constant_columns_and_levels_that_no_record_has(recovery: Recovery) -> None:
    values, columns = mixed_chain(600, seed=1)
    graph = site_graph(values, columns, recovery, alpha=1e-3)
    unseen = np.column_stack([values, np.full(600, 0.1), np.zeros(600)])  # 0.1 is not exact
    wider = [[0], [1, 2, 7], [3], [4], [5], [6]]
    found = site_graph(unseen, wider, recovery, alpha=1e-3)
    assert np.array_equal(found[:5, :5], graph)
    assert not found[5].any()
    rounding = values.copy()
    rounding[:, 5] = np.where(values[:, 0] > 0, 0.1, np.nextafter(0.1, 1))
    assert not site_graph(rounding, columns, recovery)[4].any()
    assert edges(site_graph(np.ones((50, 3)), [[0], [1], [2]], recovery)) == set()
    one = np.column_stack([values[:, 0], np.zeros(600)])
    assert edges(site_graph(one, [[0], [1]], recovery)) == set()


@each
def test_correlations_of_zero_have_no_edge(recovery: Recovery) -> None:
    values = np.tile([[1.0, 1], [1, -1], [-1, 1], [-1, -1]], (5, 1))
    assert edges(site_graph(values, [[0], [1]], recovery)) == set()
    assert edges(site_graph(values, [[0, 1], []], recovery)) == set()


@each
def test_a_reference_level_that_no_record_has(recovery: Recovery) -> None:
    """The indicators then add up to 1."""
    values, columns = mixed_chain(1500, seed=2)
    some = values[(values[:, 1] + values[:, 2]) > 0]
    assert edges(site_graph(some, columns, recovery, alpha=1e-4)) == {(0, 1), (1, 2), (2, 3)}


@each
def test_a_variable_that_others_determine_is_joined_to_them(recovery: Recovery) -> None:
    rng = np.random.default_rng(5)
    a, b, c = rng.normal(size=(3, 500))
    values = np.column_stack([a, b, c, 2 * a - b, c])
    found = edges(site_graph(values, [[0], [1], [2], [3], [4]], recovery, alpha=1e-3))
    assert {(0, 3), (1, 3), (2, 4)} <= found
    assert found <= {(0, 1), (0, 3), (1, 3), (2, 4)}


def test_dependent_variables_among_few_records_stop_pc() -> None:
    pytest.importorskip("causallearn", reason="needs secagg[graphs]")
    values = np.random.default_rng(0).normal(size=(8, 9))
    values[:, 1] = values[:, 0]
    assert edges(site_graph(values, [[i] for i in range(9)], "pc")) == set()


def test_columns_may_leave_out_variables() -> None:
    values, columns = mixed_chain(1500)
    found = site_graph(values, [columns[0], columns[1]], "partial_correlation", alpha=1e-3)
    assert edges(found) == {(0, 1)}


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_must_be_finite(bad: float) -> None:
    values, columns = mixed_chain(20)
    values[3, 2] = bad
    with pytest.raises(UsageError) as error:
        site_graph(values, columns, "partial_correlation")
    assert error.value.where == "graph"


@pytest.mark.parametrize("alpha", [0.0, 1.0, -1.0, np.nan])
def test_alpha_has_a_range(alpha: float) -> None:
    values, columns = mixed_chain(20)
    with pytest.raises(UsageError):
        site_graph(values, columns, "partial_correlation", alpha=alpha)


def test_parents_of_a_common_child_are_joined() -> None:
    directed, undirected = np.zeros((2, 4, 4), dtype=bool)
    directed[0, 2] = directed[1, 2] = True
    undirected[2, 3] = undirected[3, 2] = True
    assert edges(moral_graph(directed, undirected)) == {(0, 1), (0, 2), (1, 2), (2, 3)}


def test_one_record_can_change_every_edge() -> None:
    """As the module says: no noise on votes that is small against the votes hides one record."""
    values = np.random.default_rng(1).normal(size=(100, 6))
    columns = [[i] for i in range(6)]
    assert edges(site_graph(values, columns, "partial_correlation", alpha=1e-3)) == set()
    far = np.vstack([values, 1e3 * np.array([1, -1, 1, 1, -1, 1])])
    assert len(edges(site_graph(far, columns, "graphical_lasso"))) >= 5


@pytest.mark.statistical
@pytest.mark.parametrize(("sites", "votes"), [(3, 1), (3, 2), (10, 2)])
def test_the_merged_graph_has_the_expected_false_edges(sites: int, votes: int) -> None:
    """No pair is associated: normals, factors, and levels as rare as 2 %."""
    rng = np.random.default_rng([sites, votes])
    columns = [[0], [1], [2], [3], [4, 5], [6, 7]]
    wanted, counts = 0.1, []
    alpha = graph_votes.vote_level(15, sites, votes, wanted)
    for _ in range(200):
        merged = np.zeros(15)
        for n in rng.integers(50, 400, sites):
            group = rng.random((n, 2))
            cuts = [group < 0.3, (group > 0.3) & (group < [0.32, 0.6])]
            flags = rng.random((n, 2)) < 0.02
            values = np.column_stack(
                [rng.normal(size=(n, 2)), flags, cuts[0][:, 0], cuts[1][:, 0], cuts[0][:, 1],
                 cuts[1][:, 1]]
            ).astype(float)  # fmt: skip
            graph = site_graph(values, columns, "partial_correlation", alpha=alpha)
            merged += graph_votes.pack(graph)
        counts.append(np.sum(graph_votes.merge(merged, votes)))
    assert np.mean(counts) <= wanted + 4 * np.std(counts) / np.sqrt(len(counts))
    assert np.mean(counts) > 0  # less than `wanted`: rare levels are not tested
