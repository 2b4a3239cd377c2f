"""Background knowledge: Meek's graph by enumeration, PC and GES with it, reading of keys."""

import importlib
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from secagg.contracts import PublicFacts, Variable
from secagg.errors import JobError
from secagg.models.common.pooled_moments import Moments
from secagg.models.graphs.acyclicity import is_acyclic
from secagg.models.graphs.constrained_ges import TotalScore, bic_score, constrained_ges, total_score
from secagg.models.graphs.knowledge import Knowledge, RequiredSettings, adjacency
from secagg.models.graphs.pc_ges import ges, pc
from secagg.models.graphs.pdag import equivalence_class, member

pytestmark = pytest.mark.usefixtures("causal_learn")


def random_dag(p: int, edges: int, rng: np.random.Generator) -> np.ndarray:
    order, pairs = rng.permutation(p), list(combinations(range(p), 2))
    dag = np.zeros((p, p), dtype=bool)
    for k in rng.choice(len(pairs), min(edges, len(pairs)), replace=False):
        i, j = pairs[k]
        dag[order[i], order[j]] = True
    return dag


def random_knowledge(dag: np.ndarray, rng: np.random.Generator, kind: str) -> np.ndarray:
    """Return forbidden edges that a DAG does not have: by tiers, or any of them."""
    p = len(dag)
    if kind == "any":
        return ~dag & (rng.random((p, p)) < 0.3)
    depth = np.zeros(p, dtype=int)
    for _ in range(p):
        depth = np.array([max([depth[i] + 1 for i in np.flatnonzero(dag[:, j])] or [0])
                          for j in range(p)])  # fmt: skip
    tier = depth // 2
    if kind == "some tiers":
        tier = np.where(rng.random(p) < 0.8, tier, -1)
    return (tier[:, None] > tier) & (tier >= 0) & (tier[:, None] >= 0)


def v_structures(dag: np.ndarray) -> set[tuple[int, int, int]]:
    return {
        (i, j, k)
        for j in range(len(dag))
        for i, k in combinations(np.flatnonzero(dag[:, j]).tolist(), 2)
        if not (dag[i, k] or dag[k, i])
    }


def enumerated_class(dag: np.ndarray, forbidden: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what all DAGs share that have this skeleton and these colliders, none forbidden."""
    pairs = np.argwhere(np.triu(dag | dag.T)).tolist()
    members = []
    for flips in product((False, True), repeat=len(pairs)):
        other = np.zeros_like(dag)
        for (i, j), flip in zip(pairs, flips, strict=True):
            other[(j, i) if flip else (i, j)] = True
        same = v_structures(other) == v_structures(dag)
        if same and is_acyclic(other) and not (other & forbidden).any():
            members.append(other)
    always, ever = np.all(members, axis=0), np.any(members, axis=0)
    return always, ever & ever.T


def exact_moments(dag: np.ndarray, rng: np.random.Generator, n: int = 10**6) -> Moments:
    """Return moments without sampling error, so tests and scores see the graph itself."""
    p = len(dag)
    weights = dag * rng.uniform(0.5, 1.5, (p, p)) * rng.choice([-1, 1], (p, p))
    mixing = np.linalg.inv(np.eye(p) - weights)
    return Moments(tuple(f"x{j}" for j in range(p)), n, np.zeros(p), n * (mixing.T @ mixing))


@pytest.mark.parametrize("kind", ["some tiers", "any"])
def test_meeks_graph_is_what_all_members_share(kind: str) -> None:
    """Every edge on which all members agree is directed, and no other; a member has all arrows."""
    determined = 0
    for seed in range(60):
        rng = np.random.default_rng([seed, len(kind)])
        dag = random_dag(5, int(rng.integers(4, 9)), rng)
        forbidden = random_knowledge(dag, rng, kind)
        directed, undirected = equivalence_class(dag, forbidden)
        always, open_ = enumerated_class(dag, forbidden)
        np.testing.assert_array_equal(directed, always)
        np.testing.assert_array_equal(undirected, open_)
        without, _ = equivalence_class(dag, np.zeros_like(dag))
        determined += int(directed.sum() - without.sum())
        found = member(directed, undirected, forbidden)
        assert found is not None and v_structures(found) == v_structures(dag)
        assert not (found & forbidden).any() and not (directed & ~found).any()
    assert determined > 20  # the knowledge orients edges that the class leaves open


@pytest.mark.parametrize("kind", ["tiers", "some tiers", "any"])
def test_from_exact_moments_the_class_is_found_that_the_knowledge_leaves(kind: str) -> None:
    """Both must return Meek's graph of the truth (enumerated): PC with any knowledge, GES with
    tiers, for which alone it is proved.
    """
    for seed in range(12):
        rng = np.random.default_rng([seed, 5])
        dag = random_dag(5, int(rng.integers(4, 8)), rng)
        forbidden = random_knowledge(dag, rng, kind)
        moments = exact_moments(dag, rng)
        known = Knowledge(moments.names, forbidden, np.zeros_like(dag), {})
        always, open_ = enumerated_class(dag, forbidden)
        fits = [pc(moments, alpha=1e-6, knowledge=known)]
        if kind == "tiers":
            fits.append(ges(moments, knowledge=known))
        for fit in fits:
            np.testing.assert_array_equal(fit.directed, always, err_msg=f"{fit.method} {seed}")
            np.testing.assert_array_equal(fit.undirected, open_, err_msg=f"{fit.method} {seed}")


def test_without_knowledge_they_agree_with_causal_learn(simulate) -> None:
    """Records of which some contradict one another; causal-learn's programs run without any."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        p = int(rng.integers(3, 8))
        edges = min(p * (p - 1) // 2, int(rng.integers(p // 2, 2 * p)))
        moments = simulate(seed, p, edges, int(rng.choice([30, 60, 400]))).moments
        nothing = np.zeros((p, p), dtype=bool)
        known = Knowledge(moments.names, nothing, nothing, {})
        for learn in (pc, ges):
            ours, theirs = learn(moments, knowledge=known), learn(moments)
            np.testing.assert_array_equal(ours.directed, theirs.directed)
            np.testing.assert_array_equal(ours.undirected, theirs.undirected)


def test_pc_orients_as_causal_learn_does_with_its_own_knowledge(simulate) -> None:
    """Tiers need no rule 4, so causal-learn's `BackgroundKnowledge` is an oracle for them."""
    module = "causallearn.utils.PCUtils.BackgroundKnowledge"
    background = importlib.import_module(module).BackgroundKnowledge
    search = importlib.import_module("causallearn.search.ConstraintBased.PC").pc
    graph_node = importlib.import_module("causallearn.graph.GraphNode").GraphNode
    for seed in range(4):
        network = simulate(seed, 5, 6, 4000)
        dag = network.truth.astype(bool)
        forbidden = random_knowledge(dag, np.random.default_rng(seed), "tiers")
        theirs = background()
        for i, j in np.argwhere(forbidden).tolist():
            theirs.add_forbidden_by_node(graph_node(f"X{i + 1}"), graph_node(f"X{j + 1}"))
        graph = search(
            network.rows, 0.01, "fisherz", uc_priority=1, background_knowledge=theirs,
            show_progress=False,
        ).G.graph  # fmt: skip
        known = Knowledge(network.moments.names, forbidden, np.zeros_like(dag), {})
        ours = pc(network.moments, alpha=0.01, knowledge=known)
        np.testing.assert_array_equal(ours.directed, (graph == -1) & (graph.T == 1))
        np.testing.assert_array_equal(ours.undirected, (graph == -1) & (graph.T == -1))


def test_ges_ends_at_the_best_graph_that_the_tiers_allow(simulate) -> None:
    """With many records, its score is that of the best of all DAGs that agree with the tiers."""
    for seed in range(5):
        network = simulate(seed, 4, 4, 5000)
        truth = network.truth.astype(bool)
        forbidden = random_knowledge(truth, np.random.default_rng(seed), "tiers")
        score = bic_score(network.moments.correlation, 5000, 1.0)
        nothing = np.zeros((4, 4), dtype=bool)
        found = member(*constrained_ges(TotalScore(score), forbidden, nothing), forbidden)
        assert found is not None

        pairs = list(combinations(range(4), 2))
        best = -np.inf
        for kinds in product((0, 1, 2), repeat=len(pairs)):
            dag = np.zeros((4, 4), dtype=bool)
            for (i, j), kind in zip(pairs, kinds, strict=True):
                if kind:
                    dag[(i, j) if kind == 1 else (j, i)] = True
            if not (dag & forbidden).any() and is_acyclic(dag):
                best = max(best, total_score(score, dag))
        assert total_score(score, found) == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("learn", [pc, ges])
def test_a_required_edge_is_there_in_its_direction(simulate, learn) -> None:
    network = simulate(3, 5, 4, 300)
    absent = np.argwhere(~(network.truth | network.truth.T).astype(bool) & ~np.eye(5, dtype=bool))
    for i, j in absent[:4]:
        required = np.zeros((5, 5), dtype=bool)
        required[i, j] = True
        nothing = np.zeros((5, 5), dtype=bool)
        names = network.exact.names
        fit = learn(network.moments, knowledge=Knowledge(names, nothing, required, {}))
        assert fit.directed[i, j] and not fit.directed[j, i]
        assert not learn(network.exact).directed[i, j]


def public() -> PublicFacts:
    columns = ("age", "sex", "bmi", "ward", "dead")
    numbers = [Variable(name, name, 0.0, 1.0) for name in ("age", "sex", "bmi", "dead")]
    wards = [Variable(f"ward={level}", "ward", 0.0, 1.0) for level in ("a", "b")]
    return PublicFacts((*numbers[:3], *wards, numbers[3]), columns, 100, ("north", "south"))


def read(**keys: Any) -> Knowledge | None:
    names = ("age", "sex", "bmi", "ward=a", "ward=b")  # `dead` is declared, and not in the graph
    return RequiredSettings(**keys).knowledge(names, public())


def test_keys_name_columns_or_single_variables() -> None:
    known = read(tiers=(("age", "sex"), ("ward",)), forbidden=(("bmi", "ward=a"), ("dead", "age")))
    assert known is not None
    expected = {(i, j) for i in (3, 4) for j in (0, 1)} | {(2, 3)}
    assert set(map(tuple, np.argwhere(known.forbidden).tolist())) == expected
    by_column = read(forbidden=(("ward", "bmi"), ("sex", "ward")))
    assert by_column is not None  # all indicators of a column, as causes and as effects
    pairs = set(map(tuple, np.argwhere(by_column.forbidden).tolist()))
    assert pairs == {(3, 2), (4, 2), (1, 3), (1, 4)}
    assert read() is None
    some = known.select(["ward=a", "bmi"])
    np.testing.assert_array_equal(some.forbidden, [[False, False], [True, False]])


def test_the_result_repeats_no_knowledge_about_columns_outside_the_graph() -> None:
    """A required edge to such a column is not there, and the result must not say so."""
    known = read(tiers=(("age", "dead"), ("ward",)), required=(("age", "dead"),))
    assert known is not None
    assert known.summary == {"tiers": [["age"], ["ward"]]} and "dead" not in known.note()
    assert read(required=(("age", "dead"),)) is None


@pytest.mark.parametrize(
    ("keys", "where", "what"),
    [
        ({"tiers": (("age",), ("weight",))}, "tiers", "no column 'weight'"),
        ({"tiers": (("age",), ())}, "tiers", "a list is empty"),
        ({"tiers": (("ward=a",), ("ward",))}, "tiers", "'ward' is named twice"),
        ({"forbidden": (("age", "heigth"),)}, "forbidden", "no column 'heigth'"),
        ({"forbidden": (("age", "age"),)}, "forbidden", "'age' and 'age' are one column"),
        ({"required": (("ward", "ward=a"),)}, "required", "'ward' and 'ward=a' are one column"),
        ({"tiers": (("age",), ("bmi",)), "required": (("bmi", "age"),)}, "required",
         "bmi -> age is ruled out by method.tiers"),
        ({"forbidden": (("bmi", "age"),), "required": (("bmi", "age"),)}, "required",
         "bmi -> age is ruled out by method.forbidden"),
        ({"required": (("age", "bmi"), ("bmi", "sex"), ("sex", "age"))}, "required",
         "the required edges form a cycle"),
    ],
)  # fmt: skip
def test_contradictions_and_unknown_columns_are_refused(keys, where: str, what: str) -> None:
    with pytest.raises(JobError) as refused:
        read(**keys)
    assert (refused.value.where, refused.value.what) == (f"method.{where}", what)
    assert refused.value.advice


def test_a_truth_that_the_knowledge_contradicts_is_told() -> None:
    known = read(tiers=(("age",), ("bmi",)), required=(("sex", "bmi"),))
    assert known is not None
    names = ("age", "sex", "bmi", "ward=a", "ward=b")

    def told(*edges: tuple[str, str]) -> str:
        return known.against(adjacency(edges, names))

    assert told(("age", "bmi"), ("sex", "bmi")) == ""
    assert "ruled out (bmi -> age)" in told(("bmi", "age"), ("sex", "bmi"))
    assert "not in method.truth (sex -> bmi)" in told(("age", "bmi"))
