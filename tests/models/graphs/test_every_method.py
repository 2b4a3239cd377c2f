"""What every method that learns a graph must do, whichever it is."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

import secagg
from secagg.core.randomness import seeded_random
from secagg.errors import JobError, UsageError
from secagg.models.graphs.inputs import singular
from secagg.models.local_graphs.learners import Learner

ANALYSES = ("pc", "ges", "notears", "golem")
FAST = {"gamma1": 1.75, "gamma2": 1.4}  # about 70 rounds
pytestmark = pytest.mark.usefixtures("causal_learn")


def job(method: dict[str, Any], columns: tuple[str, ...]) -> dict[str, Any]:
    reals = {name: {"type": "continuous", "low": -8, "high": 8} for name in columns}
    return {
        "title": "Every method that learns a graph", "sites": {"max_rows": 1000}, "columns": reals,
        "method": method, "protocol": {"name": "plain"},
        "release": {"min_sites": 3, "min_records": 2},
    }  # fmt: skip


def run(method: dict[str, Any], sites: dict[str, pd.DataFrame]) -> dict[str, Any]:
    columns = tuple(next(iter(sites.values())).columns)
    random = seeded_random(bytes(31) + b"7")
    return secagg.run(job(method, columns), sites, random=random).result.summary


def test_dependent_columns_are_refused_by_all_with_the_same_error() -> None:
    """w = x / 2 and y = 4x / 5: no data can tell which of them acts on which."""
    x = np.random.default_rng(3).normal(size=(3, 40))
    sites = {
        s: pd.DataFrame({"x": v, "w": v / 2, "y": 0.8 * v}) for s, v in zip("abc", x, strict=True)
    }
    found = run({"name": "moments", "analyses": [{"kind": kind} for kind in ANALYSES]}, sites)
    pooled = np.corrcoef(np.hstack([s.to_numpy().T for s in sites.values()]))
    names = {"pc": "PC", "ges": "GES", "notears": "NOTEARS", "golem": "GOLEM"}
    for i, (kind, analysis) in enumerate(zip(ANALYSES, found["analyses"], strict=True), start=1):
        error = singular(names[kind], 120, pooled, ["x", "w", "y"]).line()
        assert analysis == {"method": kind, "failed": f"method.analyses[{i}], {error}".rstrip(".")}
        assert "'w' is, up to a constant, a linear combination of 'x'" in error
    with pytest.raises(UsageError) as refused:
        run({"name": "notears_admm", **FAST}, sites)
    assert refused.value.what == singular("NOTEARS-ADMM", 120, pooled, ["x", "w", "y"]).what
    for learner in ("pc", "notears"):  # a site whose own records do not tell does not vote
        assert not Learner(algorithm=learner).fit(sites["a"].to_numpy(), ["x", "w", "y"]).converged


def test_nearly_dependent_columns_are_not_refused() -> None:
    """A correlation of 0.999 leaves 0.2 % of a variance, which is enough."""
    rng = np.random.default_rng(4)
    sites = {}
    for site in "abc":
        x, y = rng.normal(size=(2, 40))
        sites[site] = pd.DataFrame({"x": x, "w": x + 0.045 * rng.normal(size=40), "y": y})
    found = run({"name": "moments", "analyses": [{"kind": kind} for kind in ANALYSES]}, sites)
    assert not any("failed" in analysis for analysis in found["analyses"])
    assert run({"name": "notears_admm", **FAST}, sites)["status"] == "converged"


LEARNERS = ("notears", "notears_mlp", "pc", "ges")
METHODS: dict[str, dict[str, Any]] = {
    **{kind: {"name": "moments", "analyses": [{"kind": kind}]} for kind in ANALYSES},
    "notears_admm": {"name": "notears_admm", **FAST},
    "notears_admm paper": {"name": "notears_admm", "variant": "paper", **FAST},
    "notears_mlp_admm": {"name": "notears_mlp_admm", "hidden": 2, "random_inputs": True, **FAST},
    **{f"vote {each}": {"name": "local_graphs", "learner": each} for each in LEARNERS},
    "average notears": {"name": "local_graphs", "combine": "average"},
}


@pytest.fixture(scope="module")
def chain() -> dict[str, pd.DataFrame]:
    """Return records of z -> y -> x with growing variances, so scores in own units find them."""
    rng = np.random.default_rng(8)
    sites = {}
    for site in "abc":
        z, y, x = rng.normal(size=(3, 60))
        y = y + z
        sites[site] = pd.DataFrame({"x": x + y, "y": y, "z": z, "other": rng.normal(size=60)})
    return sites


def graph_of(method: dict[str, Any], sites: dict[str, pd.DataFrame], **keys: Any) -> dict[str, Any]:
    found = run({**method, **keys}, sites)
    return found["analyses"][0] if method["name"] == "moments" else found


def ends(graph: dict[str, Any], *kinds: str) -> set[tuple[str, str]]:
    return {(edge["from"], edge["to"]) for edge in graph["edges"] if edge["kind"] in kinds}


@pytest.mark.parametrize("name", METHODS)
def test_no_edge_leads_from_a_later_tier_to_an_earlier_one(name: str, chain) -> None:
    """The records' own arrows are against these tiers, so each method must be held to them."""
    truth = [["y", "x"], ["z", "y"]]
    graph = graph_of(METHODS[name], chain, tiers=[["x"], ["y"], ["z"]], truth=truth)
    assert ends(graph, "undirected") == set()
    found = ends(graph, "directed")
    assert {("x", "y"), ("y", "z")} <= found
    assert not {("y", "x"), ("z", "y"), ("z", "x")} & found
    assert graph["knowledge"] == {"tiers": [["x"], ["y"], ["z"]]}
    assert any("tiers (x) < (y) < (z)" in note for note in graph["notes"])
    assert "(y -> x, z -> y)" in graph["notes"][0]  # the truth that the job contradicts


def test_without_tiers_the_arrows_are_the_other_way(chain) -> None:
    """The control of the test above."""
    pooled = {"name": "moments", "analyses": [{"kind": "notears", "standardise": False}]}
    for method in (pooled, METHODS["notears_admm paper"]):
        assert {("y", "x"), ("z", "y")} <= ends(graph_of(method, chain), "directed")


@pytest.mark.parametrize("name", METHODS)
def test_forbidden_in_both_directions_is_not_joined(name: str, chain) -> None:
    truth = [["y", "x"]]
    graph = graph_of(METHODS[name], chain, forbidden=[["y", "z"], ["z", "y"]], truth=truth)
    assert "y -> x" not in graph["notes"][0]
    pairs = {frozenset(edge) for edge in ends(graph, "directed", "undirected")}
    assert frozenset("yz") not in pairs and frozenset("xy") in pairs
    weights = graph["weights"]
    if weights is not None:
        y, z = graph["names"].index("y"), graph["names"].index("z")
        assert weights[y][z] == weights[z][y] == 0.0


@pytest.mark.parametrize("name", METHODS)
def test_an_edge_is_required_or_the_job_refused(name: str, chain) -> None:
    if name in ("pc", "ges", "vote pc", "vote ges"):
        graph = graph_of(METHODS[name], chain, required=[["other", "z"]])
        assert ("other", "z") in ends(graph, "directed")
    else:
        with pytest.raises(JobError) as refused:
            graph_of(METHODS[name], chain, required=[["other", "z"]])
        assert "required" in refused.value.line()


def test_knowledge_without_a_graph_is_refused(chain) -> None:
    ols = {"kind": "ols", "outcome": "x", "predictors": ["y"]}
    with pytest.raises(JobError) as refused:
        run({"name": "moments", "analyses": [ols], "tiers": [["x"], ["y"]]}, chain)
    assert refused.value.where == "method.analyses"


def test_effects_of_earlier_steps_can_be_forbidden() -> None:
    """Tiers hold within a step; `forbidden` may name a value of an earlier step as a cause."""
    rng, sites = np.random.default_rng(2), {}
    for site in "abc":
        u1, v1 = rng.normal(size=(2, 80))
        v = 0.9 * u1 + rng.normal(size=80)
        u = 0.9 * v1 + 0.9 * v + rng.normal(size=80)
        sites[site] = pd.DataFrame({"u": u, "v": v, "u1": u1, "v1": v1})
    method = {"name": "notears_admm", "lags": [["u1", "v1"]], "standardise": "common", **FAST}
    free = run(method, sites)
    assert {("u1", "v"), ("v1", "u")} <= {(e["from"], e["to"]) for e in free["lagged_edges"]}
    held = run({**method, "tiers": [["u"], ["v"]], "forbidden": [["u1", "v"]]}, sites)
    assert ("u1", "v") not in {(e["from"], e["to"]) for e in held["lagged_edges"]}
    assert ("v1", "u") in {(e["from"], e["to"]) for e in held["lagged_edges"]}
    assert ("v", "u") not in ends(held, "directed") and ("v", "u") in ends(free, "directed")
