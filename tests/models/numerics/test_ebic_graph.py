from itertools import combinations

import numpy as np
import pytest

from secagg.models.numerics.ebic_graph import EBIC_GAMMA, ebic_graph
from secagg.models.numerics.graphical_lasso import graphical_lasso

PAIRS = list(combinations(range(4), 2))


def graph_of(chosen: tuple[tuple[int, int], ...]) -> np.ndarray:
    graph = np.zeros((4, 4), dtype=bool)
    for i, j in chosen:
        graph[i, j] = graph[j, i] = True
    return graph


@pytest.mark.parametrize("seed", range(8))
def test_the_graph_is_the_best_of_all_graphs(seed: int) -> None:
    """Of four variables there are 64 graphs. On these data the path has the best of them."""
    rng = np.random.default_rng(seed)
    n = 150
    x = rng.normal(size=(n, 4))
    x[:, 1] += 0.22 * x[:, 0]
    x[:, 2] += 0.8 * x[:, 1]
    R = np.corrcoef(x, rowvar=False)
    S = (n * R + np.eye(4)) / (n + 1)
    S /= S[0, 0]  # its diagonal is constant
    scores = {}
    for size in range(len(PAIRS) + 1):
        for chosen in combinations(PAIRS, size):
            K = graphical_lasso(S, np.zeros((4, 4)), free=graph_of(chosen))
            log_likelihood = n / 2 * (np.linalg.slogdet(K)[1] - np.trace(S @ K))
            penalty = size * (np.log(n) + 4 * EBIC_GAMMA * np.log(4))
            scores[chosen] = -2 * log_likelihood + penalty
    best = min(scores, key=lambda chosen: scores[chosen])
    assert np.array_equal(ebic_graph(R, n, np.arange(4)), graph_of(best))


def test_indicators_of_one_column_are_not_penalised() -> None:
    """Their association is strong and is no edge; another column joins both or the right one."""
    rng = np.random.default_rng(0)
    group = rng.integers(3, size=800)
    y = 0.5 * (group == 2) + rng.normal(size=800)
    values = np.column_stack([group == 1, group == 2, y, rng.normal(size=800)])
    graph = ebic_graph(np.corrcoef(values, rowvar=False), 800, np.array([0, 0, 1, 2]))
    assert not graph[0, 1]
    assert not graph[0, 2]
    assert graph[1, 2]
    assert not graph[3].any()
