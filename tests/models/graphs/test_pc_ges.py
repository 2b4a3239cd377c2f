import sys
import warnings
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from scipy import stats

from secagg.errors import UsageError
from secagg.models.common.noisy_partials import NoisyPartials
from secagg.models.common.pooled_moments import Moments
from secagg.models.graphs.acyclicity import is_acyclic
from secagg.models.graphs.constrained_ges import (
    NoisyBic,
    TotalScore,
    bic_score,
    constrained_ges,
)
from secagg.models.graphs.noise_size import NoiseSize, PooledNoise, quantile, single_level
from secagg.models.graphs.pc_ges import BIDIRECTED_ON_CONFLICT, PartialCorrelationTest, ges, pc
from secagg.models.graphs.result import GraphFit

pytest.importorskip("causallearn", reason="needs secagg[graphs]")
LEARNERS = pytest.mark.parametrize("learner", [pc, ges])


def moments(S: np.ndarray, n: int = 1000) -> Moments:
    names = tuple(f"x{j}" for j in range(len(S)))
    return Moments(names, n, np.zeros(len(S)), n * S)


def colliders(dag: np.ndarray) -> set[tuple[int, int, int]]:
    p = len(dag)
    return {
        (a, b, child)
        for child in range(p)
        for a, b in combinations(np.flatnonzero(dag[:, child]).tolist(), 2)
        if not (dag[a, b] or dag[b, a])
    }


def equivalence_class(dag: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Directed and undirected edges of the CPDAG, by listing all DAGs of the class (Verma and
    Pearl 1990: same skeleton and same unshielded colliders).
    """
    pairs = np.argwhere(np.triu(dag | dag.T)).tolist()
    members = []
    for turns in product([False, True], repeat=len(pairs)):
        other = np.zeros_like(dag)
        for (i, j), turn in zip(pairs, turns, strict=True):
            other[(j, i) if turn else (i, j)] = 1
        if is_acyclic(other.astype(bool)) and colliders(other) == colliders(dag):
            members.append(other)
    always, ever = np.all(members, axis=0), np.any(members, axis=0)
    return always, ever & ~always & ~always.T


def assert_same(fit: GraphFit, directed: np.ndarray, undirected: np.ndarray) -> None:
    np.testing.assert_array_equal(fit.directed, directed)
    np.testing.assert_array_equal(fit.undirected, undirected)


def test_p_values_agree_with_regression_residuals(simulate) -> None:
    network = simulate(3, 5, 6, 60)
    test = PartialCorrelationTest(network.moments.correlation, 60)
    for given in ([], [2], [2, 4]):
        design = np.column_stack([np.ones(60), network.rows[:, given]])
        residual = [
            y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
            for y in (network.rows[:, 0], network.rows[:, 1])
        ]
        r = np.corrcoef(*residual)[0, 1]
        z = np.sqrt(60 - len(given) - 3) * np.arctanh(r)
        # p is a smooth function of sums of 60 products; 1e-9 leaves room for its slope in z.
        assert test(0, 1, given) == pytest.approx(2 * stats.norm.sf(abs(z)), rel=1e-9)


def test_without_degrees_of_freedom_p_is_one() -> None:
    correlation = np.full((4, 4), 0.99) + 0.01 * np.eye(4)
    test = PartialCorrelationTest(correlation, 5)
    assert test(0, 1, []) < 0.05
    assert test(0, 1, [2]) < 1
    assert test(0, 1, [2, 3]) == 1


@LEARNERS
@pytest.mark.parametrize("seed", range(3))
def test_a_known_network_is_recovered_from_exact_moments(simulate, learner, seed: int) -> None:
    network = simulate(seed, 6, 6, 100_000)
    assert_same(learner(network.exact), *equivalence_class(network.truth))


@pytest.mark.parametrize("seed", range(3))
def test_moments_and_rows_give_the_same_graph(simulate, seed: int) -> None:
    from causallearn.search.ConstraintBased.PC import pc as pc_on_rows
    from causallearn.search.ScoreBased.GES import ges as ges_on_rows

    network = simulate(seed, 8, 10, 150)
    by_rows = pc_on_rows(
        network.rows, 0.05, uc_priority=BIDIRECTED_ON_CONFLICT, show_progress=False
    ).G.graph
    for fit, marks in (
        (pc(network.moments), by_rows),
        (ges(network.moments), ges_on_rows(network.rows)["G"].graph),
    ):
        np.testing.assert_array_equal(fit.directed, (marks == -1) & (marks.T == 1))
        np.testing.assert_array_equal(fit.undirected, (marks == marks.T) & (marks != 0))


@LEARNERS
def test_the_order_of_the_variables_does_not_matter(simulate, learner) -> None:
    data = simulate(0, 8, 8, 400).moments
    order = np.random.default_rng(0).permutation(8)
    first, second = learner(data), learner(data, variables=[data.names[j] for j in order])
    assert_same(
        second, first.directed[np.ix_(order, order)], first.undirected[np.ix_(order, order)]
    )


def test_conflicting_colliders_leave_the_edge_undirected() -> None:
    # a - b - c - d, with a and c, b and d, a and d uncorrelated: a -> b <- c and b -> c <- d.
    S = np.eye(4)
    for i in range(3):
        S[i, i + 1] = S[i + 1, i] = 0.4
    fit = pc(moments(S), alpha=0.01)
    assert fit.undirected[1, 2]
    assert fit.directed[0, 1]
    assert fit.directed[3, 2]
    assert fit.diagnostics["conflicts"] == 1
    assert "colliders" in fit.notes[0]


def test_contradicting_tests_are_noted(monkeypatch, simulate) -> None:
    from secagg.models.graphs import pc_ges

    cycle = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]], dtype=bool)
    empty = np.zeros((3, 3), dtype=bool)
    monkeypatch.setattr(pc_ges, "_edges", lambda _: (cycle, empty, empty))
    assert "cycle" in pc(simulate(1, 3, 2, 50).moments).notes[0]


@LEARNERS
def test_learning_prints_nothing_and_restores_warning_filters(simulate, learner, capsys) -> None:
    filters = list(warnings.filters)
    learner(simulate(4, 5, 5, 100).moments)
    assert capsys.readouterr() == ("", "")
    assert warnings.filters == filters


@LEARNERS
def test_a_missing_package_error_says_what_to_install(monkeypatch, simulate, learner) -> None:
    for name in list(sys.modules):
        if name.startswith("causallearn"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "causallearn", None)
    with pytest.raises(UsageError) as caught:
        learner(simulate(1, 3, 2, 50).moments)
    assert caught.value.advice == "pip install 'secagg[graphs]'"


@LEARNERS
def test_unusable_moments_are_refused(learner) -> None:
    rows = np.random.default_rng(0).normal(size=(50, 3))
    dependent = np.cov(np.column_stack([rows, rows.sum(axis=1)]).T)
    for S in (dependent, np.diag([1.0, 0.0]), np.full((2, 2), np.nan), np.eye(1)):
        with pytest.raises(UsageError):
            learner(moments(S))


def within_sites(r: float, n: int, sites: int) -> Moments:
    """Two variables with correlation r within sites, after centring within sites."""
    return replace(moments(np.array([[1, r], [r, 1]]), n), within=sites)


@pytest.mark.parametrize("off", [-1e-9, 1e-9])
@pytest.mark.parametrize("learner", ["pc", "ges"])
def test_each_further_site_lowers_the_effective_records_by_one(learner: str, off: float) -> None:
    """20 records at 10 sites tell as much as 11 of one population, to nine digits of p or BIC."""
    alpha = 2 * stats.norm.sf(np.sqrt(11 - 3) * np.arctanh(0.5)) * (1 + off)
    # An edge adds -n/2 log(1 - r^2) to the log-likelihood, and costs penalty/2 log n.
    penalty = -11 * np.log(1 - 0.5**2) / np.log(11) * (1 - off)

    def edges(n: int, sites: int) -> int:
        data = within_sites(0.5, n, sites)
        fit = pc(data, alpha=alpha) if learner == "pc" else ges(data, penalty=penalty)
        return len(fit.edges())

    assert edges(20, 10) == edges(11, 1) == (off > 0)
    assert edges(20, 1) == 1
    assert edges(19, 10) == 0


def test_too_few_records_are_refused() -> None:
    for data in (moments(np.eye(2), n=3), within_sites(0.5, 12, 10)):
        with pytest.raises(UsageError):
            pc(data)
    assert pc(within_sites(0.5, 13, 10)).edges() == []
    with pytest.raises(UsageError):
        ges(moments(np.ones((2, 2)), n=2))


@pytest.mark.parametrize("seed", range(3))
def test_ges_for_noise_without_noise_is_bic(simulate, seed: int) -> None:
    """Edges far beyond (1) of `constrained_ges`: its search then ends at causal-learn's class."""
    network = simulate(seed, 6, 6, 100_000)
    S, nothing = network.exact.correlation, np.zeros((6, 6), dtype=bool)
    partials = NoisyPartials(S, np.zeros(6), np.full((7, 7), 1e-30), 100_000)
    plain = TotalScore(bic_score(S, 100_000, 1.0))
    score = NoisyBic(partials, 1.0, 3.0)
    for x, y, given in [(0, 1, []), (2, 3, [4]), (5, 0, [1, 2])]:
        bic = plain.gain(x, y, given)
        assert score.gain(x, y, given) == pytest.approx(bic, rel=1e-6) or bic < 0
    directed, undirected = constrained_ges(score, nothing, nothing)
    assert_same(ges(network.exact), directed, undirected)


@pytest.mark.parametrize("records", [10_000, 100])
def test_an_edge_within_the_noise_is_no_edge_however_strong_its_correlation(
    records: int,
) -> None:
    """r = .8 with noise of .3 in it: 2.7 standard deviations, below z of 28 pairs.

    Of 100 records it is beyond BIC's root(log n) = 2.1, so that only z decides.
    """
    S, noise = np.eye(8), np.full((9, 9), 0.09)
    S[0, 1] = S[1, 0] = 0.8
    nothing = np.zeros((8, 8), dtype=bool)
    for scale, found in ((1.0, False), (0.3, True)):
        partials = NoisyPartials(S, np.zeros(8), scale * noise, records)
        score = NoisyBic(partials, 1.0, quantile(single_level(8)))
        assert (score.gain(0, 1, []) > 0) == found
        directed, undirected = constrained_ges(score, nothing, nothing)
        assert (directed | undirected).any() == found
        test = PartialCorrelationTest(S, records, partials)
        assert (test(0, 1, []) < single_level(8)) == found
        kept = PooledNoise(NoiseSize(np.full((8, 8), 0.3), np.ones(8), 10_000), partials).beyond(
            np.triu(S > 0.5, 1)
        )
        assert kept.any() == found
