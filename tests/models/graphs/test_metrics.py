import numpy as np
import pytest

from secagg.errors import UsageError
from secagg.models.graphs.metrics import compare_graphs

# 0 -> 1 -> 2, 3 alone
TRUTH = np.zeros((4, 4), dtype=int)
TRUTH[0, 1] = TRUTH[1, 2] = 1


def graph(*edges: tuple[int, int]) -> np.ndarray:
    matrix = np.zeros((4, 4), dtype=int)
    for i, j in edges:
        matrix[i, j] = 1
    return matrix


def lines(*edges: tuple[int, int]) -> np.ndarray:
    return graph(*edges) | graph(*edges).T


NONE = graph()


@pytest.mark.parametrize(
    ("directed", "undirected", "counts", "rates"),
    [  # counts: shd, missing, extra, reversed; rates: tpr, fdr
        (TRUTH, NONE, (0, 0, 0, 0), (1.0, 0.0)),
        # 0 -> 1 right, 2 -> 1 reversed, 3 -> 0 extra: one of two found, two of three false.
        (graph((0, 1), (2, 1), (3, 0)), NONE, (2, 0, 1, 1), (1 / 2, 2 / 3)),
        (NONE, NONE, (2, 2, 0, 0), (0.0, 0.0)),
        # An undirected edge over a true one is a hit, elsewhere one extra.
        (graph((1, 2)), lines((0, 1)), (0, 0, 0, 0), (1.0, 0.0)),
        (TRUTH, lines((2, 3)), (1, 0, 1, 0), (1.0, 1 / 3)),
        # Two-way edges over a true one: one hit, one reversed; over none: one pair, two false.
        (graph((0, 1), (1, 0), (0, 3), (3, 0)), NONE, (3, 1, 1, 1), (1 / 2, 3 / 4)),
        (graph((0, 1), (1, 2), (3, 3)), NONE, (1, 0, 1, 0), (1.0, 1 / 3)),  # a loop: one extra
    ],
)
def test_metrics_of_hand_counted_graphs_are_correct(directed, undirected, counts, rates) -> None:
    result = compare_graphs(directed, TRUTH, undirected)
    assert (result.shd, result.missing, result.extra, result.reversed) == counts
    assert (result.tpr, result.fdr) == rates


def published(estimate: np.ndarray, undirected: np.ndarray, truth: np.ndarray) -> tuple:
    """Zheng et al.'s definitions by sets of edges: an oracle for all numbers, entry by entry."""
    ordered = [(i, j) for i in range(len(truth)) for j in range(len(truth))]
    true = {e for e in ordered if truth[e]}
    skeleton = {frozenset(e) for e in true}
    arrows = {e for e in ordered if estimate[e]}
    pairs = {frozenset(e) for e in ordered if undirected[e]}
    found = len(arrows & true) + len(pairs & skeleton)
    reverse = {e for e in arrows - true if (e[1], e[0]) in true}
    wrong = {e for e in arrows if frozenset(e) not in skeleton}
    wrong_lines = pairs - skeleton
    guessed = {frozenset(e) for e in arrows} | pairs
    shd = len(guessed - skeleton) + len(skeleton - guessed) + len(reverse)
    false = len(reverse) + len(wrong) + len(wrong_lines)
    return shd, found / max(len(true), 1), false / max(len(arrows) + len(pairs), 1)


@pytest.mark.parametrize("seed", range(30))
def test_metrics_agree_with_sets_of_edges(seed: int, simulate) -> None:
    rng = np.random.default_rng(seed)
    truth = simulate(seed, 6, int(rng.integers(0, 9)), 5).truth
    estimate = rng.random((6, 6)) < 0.25  # loops and two-way edges among them
    undirected = np.triu(rng.random((6, 6)) < 0.2, 1) & ~estimate & ~estimate.T
    undirected |= undirected.T
    got = compare_graphs(estimate, truth, undirected)
    assert (got.shd, got.tpr, got.fdr) == published(estimate, undirected, truth)


@pytest.mark.parametrize(
    ("directed", "truth", "undirected"),
    [
        (graph((0, 1)), graph((0, 1), (1, 0)), None),
        (2 * TRUTH, TRUTH, None),
        (graph(), np.eye(4), None),
        (graph(), TRUTH, np.eye(4)),
        (np.zeros((3, 3)), TRUTH, None),
        (np.zeros((4, 3)), TRUTH, None),
        (graph(), TRUTH, graph((0, 1))),
        (graph((0, 1)), TRUTH, lines((0, 1))),
    ],
)
def test_invalid_graphs_are_refused(directed, truth, undirected) -> None:
    with pytest.raises(UsageError):
        compare_graphs(directed, truth, undirected)
