"""Graphs of single sites, and votes and averages over them, counted by hand."""

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest

from secagg.errors import JobError, UsageError
from secagg.models.common.pooled_moments import Moments
from secagg.models.graphs.acyclicity import is_acyclic
from secagg.models.graphs.metrics import compare_graphs
from secagg.models.graphs.notears import notears
from secagg.models.graphs.pc_ges import ges, pc
from secagg.models.graphs.result import GraphFit
from secagg.models.local_graphs import learners
from secagg.models.local_graphs.learners import (
    Algorithm,
    Learner,
    average,
    best_graph,
    fit_sites,
    local_adjacency,
    vote,
)

pytestmark = pytest.mark.usefixtures("causal_learn")
ALGORITHMS: tuple[Algorithm, ...] = ("notears", "pc", "ges")
NAMES = ("a", "b", "c", "d")


def graph(*edges: str, weights: np.ndarray | None = None, converged: bool = True) -> GraphFit:
    """A fit over a, b, c, d from edges such as "a>b" and "b-c"."""
    directed, undirected = np.zeros((2, 4, 4), dtype=bool)
    for edge in edges:
        i, j = NAMES.index(edge[0]), NAMES.index(edge[2])
        if edge[1] == ">":
            directed[i, j] = True
        else:
            undirected[i, j] = undirected[j, i] = True
    return GraphFit("test", NAMES, directed, undirected, weights, converged, {})


def edges_of(fit: GraphFit) -> set[str]:
    return {e["from"] + (">" if e["kind"] == "directed" else "-") + e["to"] for e in fit.edges()}


def records(n: int, seed: int = 0, p: int = 4) -> np.ndarray:
    """A chain of strong effects, with nonzero means."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, p))
    for j in range(1, p):
        rows[:, j] += 1.5 * rows[:, j - 1]
    return rows + np.arange(p)


# --- one site -----------------------------------------------------------------------------------


def test_a_fit_agrees_with_the_sites_records(of_rows: Callable[[np.ndarray], Moments]) -> None:
    rows = records(60)
    names, moments = [f"x{j}" for j in range(4)], of_rows(rows)
    for learner, expected in (
        (Learner(), notears(moments, standardise=False, penalty=0.1, threshold=0.3)),
        (
            Learner(standardise=True, penalty=0.4, threshold=0.5),
            notears(moments, penalty=0.4, threshold=0.5),
        ),
        (Learner(algorithm="pc"), pc(moments)),
        (Learner(algorithm="pc", alpha=1e-40), pc(moments, alpha=1e-40)),  # which finds nothing
        (Learner(algorithm="ges"), ges(moments)),
        (Learner(algorithm="ges", penalty=3.0), ges(moments, penalty=3.0)),
    ):
        fit = learner.fit(rows, names)
        assert fit.names == tuple(names) and fit.converged
        assert np.array_equal(fit.directed, expected.directed)
        assert np.array_equal(fit.undirected, expected.undirected)
        assert (fit.weights is None) == (expected.weights is None)
        if fit.weights is not None:
            assert np.array_equal(fit.weights, expected.weights)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("n", range(7))
def test_few_records_never_stop_a_site(algorithm: Algorithm, n: int) -> None:
    """4 variables: below 6 records the covariance is singular, or 3 records are too few for PC."""
    fit = Learner(algorithm=algorithm).fit(records(n), NAMES)
    least = {"notears": 2, "pc": 4, "ges": 2}[algorithm]
    assert fit.converged == (n >= least)
    if n < least:
        assert not fit.directed.any() and not fit.undirected.any()
        assert len(fit.notes) == 1 and str(n) in fit.notes[0]
    assert fit.directed.shape == fit.undirected.shape == (4, 4)
    assert (fit.weights is not None) == (algorithm == "notears")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("level", [0.0, 0.1, 1e9])
def test_a_constant_column_is_an_isolated_variable(algorithm: Algorithm, level: float) -> None:
    """0.1 is no binary fraction: the mean of its copies need not be equal to it."""
    rows = records(50)
    rows[:, 1] = level
    fit = Learner(algorithm=algorithm).fit(rows, NAMES)
    assert fit.converged
    both = fit.directed | fit.undirected
    assert not both[1].any() and not both[:, 1].any()
    others = Learner(algorithm=algorithm).fit(rows[:, [0, 2, 3]], ("a", "c", "d"))
    assert edges_of(fit) == edges_of(others)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("varying", [0, 1])
def test_a_fit_of_a_single_varying_column_does_not_converge(
    algorithm: Algorithm, varying: int
) -> None:
    rows = np.where(np.arange(4) < varying, records(20), 1.0)
    fit = Learner(algorithm=algorithm).fit(rows, NAMES)
    assert not fit.converged and len(fit.notes) == 1


def test_only_ges_learns_with_a_copied_column() -> None:
    rows = records(40)
    rows[:, 3] = 2 * rows[:, 0]
    assert not Learner(algorithm="pc").fit(rows, NAMES).converged  # cannot choose between them
    assert Learner(algorithm="ges").fit(rows, NAMES).converged
    assert not Learner().fit(rows, NAMES).converged


def test_ges_with_singular_moments_adds_one_record(
    of_rows: Callable[[np.ndarray], Moments],
) -> None:
    """As records: p unit vectors added to the standardised rows add I to n R."""
    names = tuple(f"x{j}" for j in range(6))
    edges = 0
    for seed in range(12):
        rows = records(5, seed, p=6)
        standardised = (rows - rows.mean(axis=0)) / rows.std(axis=0)
        augmented = np.vstack([standardised, np.eye(6)])  # second moments n R + I
        expected = ges(Moments(names, 5, np.zeros(6), 5 * (augmented.T @ augmented) / 6))
        fit = Learner(algorithm="ges").fit(rows, names)
        assert fit.converged and edges_of(fit) == edges_of(expected)
        edges += len(fit.edges())
        with pytest.raises(UsageError):
            ges(of_rows(rows))  # the score itself has no bound
        more = records(8, seed)[:, :4]  # which are not ridged
        assert edges_of(Learner(algorithm="ges").fit(more, names[:4])) == edges_of(
            ges(of_rows(more))
        )
    assert edges > 12


def test_a_fit_that_did_not_converge_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def diverged(moments: Moments, **settings: object) -> GraphFit:
        wrong = np.ones((4, 4), dtype=bool)
        return GraphFit("notears", moments.names, wrong, ~wrong, 9.0 * wrong, False, {}, {}, ("h",))

    monkeypatch.setattr(learners, "notears", diverged)
    fit = Learner().fit(records(30), NAMES)
    assert not fit.directed.any() and fit.weights is not None and not fit.weights.any()
    assert fit.notes == ("abstains: h",)


def test_invalid_records_are_refused() -> None:
    for rows in (np.full((5, 4), np.nan), np.full((5, 4), np.inf), np.zeros((5, 3)), np.zeros(4)):
        with pytest.raises(UsageError):
            Learner().fit(rows, NAMES)


@pytest.mark.parametrize("algorithm", ["pc", "ges"])
def test_a_missing_package_is_an_error_and_no_abstention(
    monkeypatch: pytest.MonkeyPatch, algorithm: Algorithm
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(JobError):
        Learner(algorithm=algorithm).fit(records(30), NAMES)


# --- over sites -----------------------------------------------------------------------------------


def random_fit(rng: np.random.Generator) -> GraphFit:
    """Over each pair nothing, an edge either way, or an undirected one; sometimes no graph."""
    kinds = ("", "{0}>{1}", "{1}>{0}", "{0}-{1}")
    edges = [kinds[rng.integers(4)].format(*pair) for pair in combinations(NAMES, 2)]
    weights = rng.normal(size=(4, 4))
    return graph(*filter(None, edges), weights=weights, converged=rng.random() < 0.8)


@pytest.mark.parametrize("seed", range(20))
def test_votes_agree_with_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fits = [random_fit(rng) for _ in range(rng.integers(1, 8))]
    got = vote(fits)
    for i, j in np.ndindex(4, 4):
        ahead = sum(f.converged and bool(f.directed[i, j] or f.undirected[i, j]) for f in fits)
        back = sum(f.converged and bool(f.directed[j, i] or f.undirected[j, i]) for f in fits)
        assert got.directed[i, j] == (ahead > len(fits) / 2 and not back > len(fits) / 2)
        assert got.undirected[i, j] == (ahead > len(fits) / 2 and back > len(fits) / 2)
    silent = sum(not f.converged for f in fits)
    assert got.diagnostics == {"sites": len(fits), "abstained": silent}
    assert len(got.notes) == (silent > 0) + (not is_acyclic(got.directed))
    assert got.converged == (silent < len(fits))
    assert got.weights is None


@pytest.mark.parametrize("seed", range(10))
def test_averages_agree_with_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fits = [random_fit(rng) for _ in range(rng.integers(1, 8))]
    got = average(fits, 0.25)
    assert got.weights is not None
    for i, j in np.ndindex(4, 4):
        mean = sum(f.weights[i, j] for f in fits if f.converged) / len(fits)
        # at most 7 terms in another order
        assert got.weights[i, j] == pytest.approx(mean, abs=7 * 4 * np.finfo(float).eps)
        assert got.directed[i, j] == (abs(mean) > 0.25)
    assert not got.undirected.any()
    assert got.settings == {"threshold": 0.25}


def test_a_cycle_is_kept_with_a_note() -> None:
    result = vote([graph("a>b", "b>c"), graph("b>c", "c>a"), graph("c>a", "a>b")])
    assert edges_of(result) == {"a>b", "b>c", "c>a"} and len(result.notes) == 1


def test_if_all_sites_abstain_there_is_no_result() -> None:
    silent = graph("a>b", weights=np.ones((4, 4)), converged=False)
    for got in (vote([silent, silent]), average([silent, silent])):
        assert not got.converged and not got.directed.any()


def test_graphs_without_weights_have_no_average() -> None:
    with pytest.raises(UsageError):
        local_adjacency(graph("a>b"), "average")


def test_the_best_graph_is_the_closest_among_sites_that_learned() -> None:
    truth = graph("a>b", "c>d").directed
    fits = [graph(converged=False), graph("b>a", "a>c", "b-d"), graph("a>b"), graph("c-d", "a>b")]
    distances = [compare_graphs(f.directed, truth, f.undirected).shd for f in fits]
    assert distances == [2, 4, 1, 0]  # the second: a>b reversed, c>d missing, two edges too many
    assert best_graph(fits, truth) is fits[3]
    assert best_graph(fits[:3], truth) is fits[2]
    assert best_graph(fits[:2], truth) is fits[1]  # although an empty graph is closer
    assert best_graph(fits[:1], truth) is fits[0]


def test_sites_with_many_records_learn_the_same_graph(simulate) -> None:
    network = simulate(7, 8, 9, 6000)
    fits = fit_sites(np.split(network.rows, 3))
    for result in (vote(fits), average(fits), best_graph(fits, network.truth)):
        assert compare_graphs(result.directed, network.truth).shd == 0


def test_neural_networks_are_learned_at_sites() -> None:
    rng = np.random.default_rng(4)
    cause = rng.uniform(-2, 2, (400, 1))
    rows = np.hstack([cause, np.sin(2 * cause) + 0.2 * rng.standard_normal((400, 1))])
    rows = np.hstack([rows, np.full((400, 1), 7.0)])  # a constant column has no edge
    fits = fit_sites(np.split(rows, 2), Learner(algorithm="notears_mlp", standardise=True))
    assert all(fit.method == "notears-mlp" and fit.converged for fit in fits)
    for together in (vote(fits), average(fits)):
        assert (together.directed | together.directed.T)[0, 1]
        assert not together.directed[2].any() and not together.directed[:, 2].any()
