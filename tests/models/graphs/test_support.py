"""Edges that the records support, against least squares on the records by statsmodels."""

import math
from itertools import product

import networkx as nx
import numpy as np
import pytest
import statsmodels.api as sm

from secagg.errors import UsageError
from secagg.models.common.noisy_partials import NoisyPartials
from secagg.models.common.pooled_moments import Moments
from secagg.models.graphs.golem import golem
from secagg.models.graphs.notears import notears
from secagg.models.graphs.support import CLEAR, Support, heaviest_dag

NAMES = tuple("abcde")
N = 400


def rows() -> np.ndarray:
    """a -> b -> c strongly, a -> d weakly but clearly, e alone; in different units."""
    rng = np.random.default_rng(3)
    a, b, c, d, e = rng.normal(size=(5, N))
    b += 0.9 * a
    c += 0.8 * b
    d += 0.28 * a
    return np.column_stack([a, 5 * b, c, d, 0.2 * e]) + 7


def moments(table: np.ndarray) -> Moments:
    centred = table - table.mean(axis=0)
    return Moments(NAMES, len(table), table.mean(axis=0), centred.T @ centred)


def graph(*edges: str) -> np.ndarray:
    found = np.zeros((5, 5), dtype=np.bool_)
    for cause, effect in edges:
        found[NAMES.index(cause), NAMES.index(effect)] = True
    return found


def fitted(table: np.ndarray, y: int, causes: list[int]):
    return sm.OLS(table[:, y], sm.add_constant(table[:, causes])).fit()


def test_slopes_and_their_errors_are_those_of_least_squares() -> None:
    table = rows()
    causes, y = [0, 1, 3], 2
    fit = fitted(table, y, causes)
    slopes, variances = Support(moments(table).covariance, N).slopes(y, causes)
    # Sums of 400 products, and an inverse with a condition number below 10.
    assert slopes == pytest.approx(fit.params[1:], rel=1e-10)
    assert np.sqrt(variances) == pytest.approx(fit.bse[1:], rel=1e-10)


def test_supported_edges_are_those_of_an_elimination_by_likelihoods() -> None:
    """From the full order; every variable's extended BIC by statsmodels' log-likelihoods."""
    table = rows()
    full = np.triu(np.ones((5, 5), dtype=np.bool_), 1)
    expected = np.zeros_like(full)
    for y in range(1, 5):
        causes = list(range(y))
        while causes:
            whole = fitted(table, y, causes).llf
            lost = [
                2 * (whole - fitted(table, y, [k for k in causes if k != left]).llf)
                if len(causes) > 1
                else 2 * (whole - sm.OLS(table[:, y], np.ones(N)).fit().llf)
                for left in causes
            ]
            if min(lost) > math.log(N) + 2 * math.log(5):
                break
            causes.pop(int(np.argmin(lost)))
        expected[causes, y] = True
    support = Support(moments(table).covariance, N)
    assert support.supported(full).tolist() == expected.tolist()
    assert expected.tolist() == graph("ab", "bc", "ad").tolist()


@pytest.mark.parametrize(("gain", "kept"), [(8.9, False), (9.5, True)])
def test_an_edge_costs_log_n_and_twice_log_p(gain: float, kept: bool) -> None:
    """log 400 + 2 log 5 = 9.21; `gain` is n log(1 / (1 - r^2)), of a single cause."""
    R = np.eye(5)
    R[0, 1] = R[1, 0] = math.sqrt(1 - math.exp(-gain / N))
    assert Support(R, N).evidence(1, [0]) == pytest.approx([gain], rel=1e-9)
    assert Support(R, N).supported(graph("ab"))[0, 1] == kept


def test_what_was_dropped_is_tested_beside_the_kept_causes() -> None:
    table = rows()
    W = np.zeros((5, 5))
    for edge, weight in {"ab": 4.0, "ac": 0.02, "bc": 0.1, "ad": 0.25, "ea": -0.3, "ca": 9}.items():
        W[NAMES.index(edge[0]), NAMES.index(edge[1])] = weight
    kept = graph("ab", "bc")  # so c -> a would close a cycle
    found = Support(moments(table).covariance, N).dropped(W, kept, NAMES)
    t = {
        "ac": fitted(table, 2, [0, 1]).tvalues[1],
        "ad": fitted(table, 3, [0]).tvalues[1],
        "ea": fitted(table, 0, [4]).tvalues[1],
    }
    assert abs(t["ad"]) > CLEAR > abs(t["ac"])
    assert (found["edges"], found["clear"]) == (3, sum(abs(each) > CLEAR for each in t.values()))
    largest = found["largest"]
    assert (largest["from"], largest["to"], largest["weight"]) == ("e", "a", -0.3)
    assert largest["t"] == pytest.approx(t["ea"], rel=1e-9)


def test_the_heaviest_dag_leaves_out_what_closes_a_cycle_only() -> None:
    W = np.random.default_rng(5).normal(size=(6, 6))
    np.fill_diagonal(W, 0)
    kept = heaviest_dag(W)
    assert nx.is_directed_acyclic_graph(nx.from_numpy_array(kept, create_using=nx.DiGraph))
    for i, j in product(range(6), range(6)):
        heavier = kept & (np.abs(W) > np.abs(W[i, j]))
        if i != j and not kept[i, j]:
            paths = nx.from_numpy_array(heavier, create_using=nx.DiGraph)
            assert nx.has_path(paths, j, i)


def skeleton(directed: np.ndarray) -> list[list[bool]]:
    return (directed | directed.T).tolist()


@pytest.mark.parametrize("learn", [notears, golem])
def test_the_default_drops_by_size_if_columns_are_standardised_and_says_so(learn) -> None:
    """The true graph has the edge a, d, whose standardised weight is below 0.3."""
    data = moments(rows())
    fit = learn(data)
    assert skeleton(fit.directed) == skeleton(graph("ab", "bc"))
    assert fit.dropped["clear"]
    assert "d" in (fit.dropped["largest"]["from"], fit.dropped["largest"]["to"])
    assert sum("ebic" in note for note in fit.notes) == 1
    by_score = learn(data, threshold="ebic")
    assert skeleton(by_score.directed)[0][3]
    assert by_score.dropped["clear"] == 0 and not any("ebic" in note for note in by_score.notes)


@pytest.mark.parametrize("learn", [notears, golem])
def test_in_own_units_the_default_is_the_extended_bic(learn) -> None:
    data = moments(rows() / np.array([1, 5, 1, 1, 0.2]))
    fit = learn(data, standardise=False)
    assert skeleton(fit.directed) == skeleton(graph("ab", "bc", "ad"))
    assert fit.settings["threshold"] == "ebic"
    fit = learn(data, standardise=False, threshold=0.3)
    assert skeleton(fit.directed) == skeleton(graph("ab", "bc"))
    with pytest.raises(UsageError):
        learn(data, threshold=-0.1)


def test_evidence_allows_for_noise() -> None:
    data = moments(rows())
    R = data.correlation

    def evidence(variance: float) -> np.ndarray:
        noisy = NoisyPartials(R, np.zeros(5), np.full((6, 6), variance), N)
        return Support(R, N, noisy).evidence(2, [0, 1])

    exact = Support(R, N).evidence(2, [0, 1])
    # n log(1 + x / n) against x of b's slope, x about 0.6 n: 0.79 of it; a's x is below 10.
    assert evidence(0.0)[0] == pytest.approx(exact[0], rel=0.02)
    slopes, chance = Support(R, N).slopes(2, [0, 1])
    squares = slopes**2 / (chance * (N - 3) / N)  # variances of chance there divide by n
    assert evidence(0.0) == pytest.approx(squares, rel=1e-9)
    assert np.all(evidence(0.01) < 0.5 * evidence(0.0))
