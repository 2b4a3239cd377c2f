import numpy as np
import pytest
from scipy import stats

from secagg.errors import UsageError
from secagg.models.neural.graph_votes import merge, pack, shown, vote_level
from secagg.models.neural.ngm.layout import ModelColumn, NgmLayout


@pytest.mark.parametrize("d", [2, 3, 7, 40])
def test_packing_keeps_the_graph(d: int) -> None:
    half = np.triu(np.random.default_rng(d).random((d, d)) < 0.4, k=1)
    graph = half | half.T
    votes = pack(graph)
    assert votes.shape == (d * (d - 1) // 2,)
    assert votes.dtype == np.float64
    layout = NgmLayout(tuple(ModelColumn(str(i), (i,), False) for i in range(d)), tuple(range(d)))
    assert np.array_equal(layout.graph(votes == 1), graph)


def test_the_union_needs_one_vote() -> None:
    votes = np.array([0.0, 1, 2, 3])
    assert merge(votes, 1).tolist() == [False, True, True, True]
    assert merge(votes, 3).tolist() == [False, False, False, True]
    with pytest.raises(UsageError):
        merge(votes, 0)


def test_small_counts_are_not_shown() -> None:
    assert shown(np.array([0.0, 1, 2, 3, 5]), 3) == [None, None, None, 3, 5]
    assert shown(np.array([0.0, 1]), 0) == [0, 1]


@pytest.mark.parametrize(("sites", "votes"), [(1, 1), (3, 1), (3, 2), (10, 1), (10, 2), (10, 6)])
@pytest.mark.parametrize("false_edges", [0.05, 0.5, 2])
def test_the_expected_number_of_false_edges(sites: int, votes: int, false_edges: float) -> None:
    alpha = vote_level(45, sites, votes, false_edges)
    assert 45 * stats.binom.sf(votes - 1, sites, alpha) == pytest.approx(false_edges, rel=1e-9)


def test_levels_have_a_range() -> None:
    assert vote_level(3, 3, 1, 1000.0) == 0.5
    for votes, false_edges in ((0, 1.0), (4, 1.0), (1, 0.0), (1, float("nan"))):
        with pytest.raises(UsageError):
            vote_level(3, 3, votes, false_edges)
