"""The figures of Ng and Zhang: which cells they are made of, and what the cells compute."""

import inspect
from collections.abc import Mapping
from dataclasses import asdict
from importlib import metadata
from types import ModuleType
from typing import Any

import networkx as nx
import numpy as np
import pytest
from support.fedlin.record_files import needs

from reproductions.data import sachs
from reproductions.harness.figures import Figure, Place, read_entries
from reproductions.harness.findings import stated_rows
from reproductions.harness.graph_scores import scores
from reproductions.harness.pages import as_markdown
from reproductions.notears_admm.figures import figure
from reproductions.notears_admm.tasks import admm, mlp, paper_settings
from reproductions.notears_admm.tasks import local_graphs as local
from reproductions.notears_admm.tasks import pooled_moments as pooled
from reproductions.notears_admm.tasks.data import data_of, moments_of
from secagg.errors import UsageError
from secagg.experiments.runner.cell_store import batch_of, in_order
from secagg.experiments.runner.cells import Outcome, cell, code_version, compute
from secagg.experiments.simulated_graphs import split_rows
from secagg.models.graphs.metrics import compare_graphs
from secagg.models.graphs.result import GraphFit
from secagg.models.notears_admm.coordinator import Schedule, Solver
from secagg.models.notears_admm.linear_simulation import learn


def settings_at(figure: Figure, panel: str, column: int, method: str, seed: int) -> dict[str, Any]:
    return dict(figure.points[Place(panel, column, method)][seed].settings)


def numbers(task: str, **settings: Any) -> Mapping[str, Mapping[str, float]]:
    name = f"reproductions.notears_admm.tasks.{task}"
    outcome: Outcome = compute(cell(name, 1.0, **settings), code_version(name))
    assert outcome.failed is None and outcome.numbers is not None
    return outcome.numbers


# --- which cells ----------------------------------------------------------------------------------


def test_columns_agree_with_the_paper() -> None:
    """Section 6: d and n of figure 1; K and n of figure 2, whose d = 10 and 20 are in figure 6."""
    one, two = figure(1, 30), figure(2, 30)
    [panel] = one.panels
    assert panel.columns == (10, 20, 50, 100)
    for d in panel.columns:
        found = settings_at(one, panel.name, d, "admm-paper", 29)
        assert (found["d"], found["n"], found["sites"], found["seed"]) == (d, 3 * d, 10, 29)
        assert found["penalty"] == 0.01
    assert [panel.name for panel in two.panels] == ["d = 10", "d = 20", "d = 50"]
    assert {panel.columns for panel in two.panels} == {(2, 4, 8, 16, 32, 64)}
    found = settings_at(two, "d = 20", 64, "voting", 0)
    assert (found["d"], found["n"], found["sites"], found["penalty"]) == (20, 256, 64, 0.1)
    assert len(one.points[Place(panel.name, 10, "voting")]) == 30


def test_equal_computations_share_a_cell() -> None:
    """NOTEARS on all data does not depend on K; three baselines are made of the same local fits."""
    two = figure(2, 1)
    pooled = {two.points[Place("d = 10", K, "notears-alldata")][0] for K in (2, 64)}
    assert len(pooled) == 1
    local = {two.points[Place("d = 10", 8, m)][0] for m in ("voting", "average", "best")}
    assert len(local) == 1
    # A panel: 4 one-shot methods; at each of 6 K, ADMM three times, local fits of three learners.
    assert len(two.cells()) == 3 * (4 + 6 * 6)


def test_the_quick_figure_uses_cells_of_the_whole_figure() -> None:
    for number in (1, 2):
        assert set(figure(number, 2, quick=True).cells()) < set(figure(number, 2).cells())
    assert set(figure(2, 2).cells()) < set(figure(2, 3).cells())


def test_figure_4_is_nonlinear() -> None:
    four = figure(4, 1)
    assert [panel.name for panel in four.panels] == ["d = 20"]
    found = settings_at(four, "d = 20", 16, "mlp-admm", 0)
    assert (found["data"], found["d"], found["n"], found["penalty"]) == ("mlp", 20, 512, 0.001)
    assert [panel.name for panel in figure(4, 1, full=True).panels] == ["d = 20", "d = 50"]
    assert {len(m.name.split("mlp-")) for m in four.methods} == {2}


def test_methods_left_out_are_named_and_not_judged() -> None:
    """Figure 2's stated numbers and its statements are of methods that may be left out."""
    with pytest.raises(UsageError, match="--skip"):
        figure(2, 1, skip=["voting-machine"])
    left = figure(2, 1, skip=["voting", "best"])
    assert set(left.cells()) <= set(figure(2, 1).cells())
    assert [method.name for method in left.methods_not_run()] == ["voting", "best"]
    outcome = Outcome({m.name: {"converged": 1.0, "tpr": 0.5} for m in left.methods}, None, 1.0, "")
    entries = read_entries(left, dict.fromkeys(left.cells(), outcome))
    verdicts = [row[-1] for row in stated_rows(left, entries)]
    assert verdicts == ["undecided", "not run", "undecided", "not run"]
    page = as_markdown(left, entries)
    assert "Not run: NOTEARS-Voting; NOTEARS-Best." in page.splitlines()
    assert "Of 9 comparisons: 3 undecided, 6 not run." in page


def test_methods_independent_of_scale_are_computed_once() -> None:
    needs("cdt")
    points = figure(3, 1).points
    for method, same in (("pc-voting", True), ("ges", True), ("voting", False)):
        raw, standardised, log = (
            points[Place(name, 8, method)][0]
            for name in ("raw values", "standardised", "logarithms")
        )
        assert (raw == standardised) == same and raw != log


def test_the_slowest_methods_are_computed_last() -> None:
    """So that 30 seeds of the paper's own comparison do not wait for GES at 100 variables."""
    order = [batch_of(cell) for cell in in_order(figure(1, 3).cells())]
    assert order == sorted(order) and order[0] == (False, 0) and order[-1] == (True, 2)
    points = figure(1, 1).points
    late = {place.method for place, runs in points.items() if any(c.late for c in runs.values())}
    assert late == {"ges", "ges-voting"}


# --- data -----------------------------------------------------------------------------------------

LINEAR = {"data": "linear", "figure": 2, "d": 10, "n": 64, "seed": 5}


def test_data_depend_only_on_figure_size_and_seed() -> None:
    data = data_of(LINEAR)
    assert data.rows.shape == (64, 10) and data.truth.sum() == 10
    same = data_of({**LINEAR, "sites": 8, "method": "pc", "penalty": 3.0})
    assert np.array_equal(same.rows, data.rows) and np.array_equal(same.truth, data.truth)
    for change in ({"seed": 6}, {"figure": 1}):
        assert not np.array_equal(data_of({**LINEAR, **change}).rows, data.rows)
    nonlinear = data_of({**LINEAR, "data": "mlp"})
    assert np.array_equal(nonlinear.truth, data.truth)
    assert not np.array_equal(nonlinear.rows, data.rows)


def test_moments_agree_with_the_rows() -> None:
    rows = data_of(LINEAR).rows
    moments = moments_of(rows)
    # Sums of 64 products: rounding of a few units in the last place of the largest.
    np.testing.assert_allclose(
        moments.covariance, np.cov(rows.T, bias=True), rtol=1e-12, atol=1e-13
    )
    assert moments.n == 64


@pytest.mark.data
def test_sachs_cells_are_drawn_without_replacement_and_scaled() -> None:
    needs("cdt")
    base = {"figure": 3, "n": 512, "seed": 0}
    raw, standardised, log = (
        data_of({**base, "data": kind}).rows for kind in ("raw", "standardised", "log")
    )
    intensities = sachs.intensities()
    assert intensities.shape == (853, 11) and raw.shape == (512, 11)
    available = {row.tobytes(): 0 for row in intensities}
    for row in intensities:
        available[row.tobytes()] += 1
    for row in raw:
        available[row.tobytes()] -= 1
    assert min(available.values()) >= 0
    # Means and deviations of 512 numbers: exact to about root(512) roundings.
    np.testing.assert_allclose(standardised.mean(axis=0), 0, atol=1e-13)
    np.testing.assert_allclose(standardised.std(axis=0), 1, rtol=1e-13)
    assert np.array_equal(log, np.log(raw))
    assert not np.array_equal(raw, data_of({**base, "data": "raw", "seed": 1}).rows)


def test_the_consensus_graph_is_read() -> None:
    graph = sachs.consensus()
    names = list(sachs.PROTEINS.values())
    assert graph.sum() == 17 and graph[names.index("Raf"), names.index("Mek")]
    assert nx.is_directed_acyclic_graph(nx.from_numpy_array(graph, create_using=nx.DiGraph))


def test_without_its_data_figure_3_explains_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> Any:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "files", missing)
    with pytest.raises(UsageError, match=r"cdt: not installed\. Run: pip install --no-deps cdt"):
        figure(3, 1)


@pytest.mark.data
@pytest.mark.parametrize("learner", ["pc", "ges"])
def test_pc_and_ges_do_not_depend_on_standardising(learner: str) -> None:
    """They read correlations: figure 3 has them computed once for both (see above)."""
    needs("cdt")
    pytest.importorskip("causallearn")
    base = {"figure": 3, "n": 512, "seed": 0, "sites": 16, "learner": learner}
    raw, standardised = (
        numbers("local_graphs", **base, data=data) for data in ("raw", "standardised")
    )
    assert raw == standardised


# --- what cells compute ---------------------------------------------------------------------------


def test_an_admm_cell_equals_a_run_of_the_method() -> None:
    found = numbers("admm", **LINEAR, sites=4, method="admm-fast", penalty=0.01)["admm-fast"]
    data = data_of(LINEAR)
    fit = learn(split_rows(data.rows, 4), schedule=Schedule("proximal"), penalty=0.01)
    score = compare_graphs(fit.directed, data.truth)
    assert (found["shd"], found["tpr"], found["fdr"]) == (score.shd, score.tpr, score.fdr)
    assert found["converged"] == fit.converged and found["edges"] == fit.directed.sum()
    assert found["kilobytes"] == fit.diagnostics["rounds"] * 100 * 8 / 1000


@pytest.mark.parametrize("method", ["notears-alldata", "golem-ev", "pc", "ges"])
def test_one_shot_methods_recover_a_sparse_graph(method: str) -> None:
    """At n = 2000 every method finds most of a sparse graph; a site sends 1 + 10 + 55 numbers."""
    if method in ("pc", "ges"):
        pytest.importorskip("causallearn")
    found = numbers("pooled_moments", **(LINEAR | {"n": 2000}), method=method, penalty=0.1)[method]
    assert found["tpr"] >= 0.6 and found["kilobytes"] == 8 * 66 / 1000 and found["converged"] == 1


@pytest.mark.system
def test_best_and_single_site_votes_agree_with_local_graphs() -> None:
    """Best cannot be worse than a site's own graph; one site's vote is its own graph."""
    found = numbers("local_graphs", **LINEAR, sites=2, learner="notears", penalty=0.1)
    assert found.keys() == {"voting", "average", "best"}
    alone = numbers("local_graphs", **LINEAR, sites=1, learner="notears", penalty=0.1)
    pooled = numbers("pooled_moments", **LINEAR, method="notears-alldata", penalty=0.1)[
        "notears-alldata"
    ]
    for each in alone.values():
        assert (each["shd"], each["tpr"], each["edges"]) == (
            pooled["shd"], pooled["tpr"], pooled["edges"],
        )  # fmt: skip
    assert all(each["abstained"] == 0 for each in found.values())
    few = numbers("local_graphs", **(LINEAR | {"n": 30}), sites=10, learner="notears", penalty=0.1)
    assert all(each["abstained"] == 0 and each["shd"] >= 0 for each in few.values())


def test_sites_of_three_records_abstain_from_a_vote_by_pc() -> None:
    pytest.importorskip("causallearn")
    found = numbers("local_graphs", **(LINEAR | {"n": 30}), sites=10, learner="pc")["pc-voting"]
    assert found["abstained"] == 10 and found["converged"] == 0 and found["edges"] == 0


def test_a_graph_without_edges_has_no_fdr() -> None:
    """0/0. Of 3 true edges, one found, one turned and one beside them: 2 of 3 are wrong."""
    truth = np.zeros((4, 4), dtype=np.bool_)
    truth[0, 1] = truth[1, 2] = truth[0, 3] = True
    none = scores(truth, np.zeros_like(truth), converged=True, sent=1)
    assert "fdr" not in none and (none["shd"], none["tpr"], none["edges"]) == (3, 0, 0)
    found = np.zeros_like(truth)
    found[0, 1] = found[2, 1] = found[2, 3] = True
    assert scores(truth, found, converged=True, sent=1)["fdr"] == 2 / 3


@pytest.mark.parametrize("converged", [True, False])
def test_edges_of_a_variable_to_itself_are_scored_as_documented(
    converged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linear ADMM's are left out, and the run is not one that converged; MLP-ADMM's count as one
    extra edge (docs/reproductions/index.md).
    """
    truth = data_of(LINEAR).truth
    found = truth | np.diag(np.arange(10) == 3)  # all that is true, and x3 -> x3
    names = tuple(f"x{j}" for j in range(10))
    fit = GraphFit(
        "any", names, found, np.zeros_like(found), None, converged, {}, {"rounds": 1, "h": 0.1}
    )
    of = {"sites": 2, "penalty": 0.01}
    for module in (admm, mlp):
        monkeypatch.setattr(module, "learn", lambda *_, **__: fit)
    linear = admm.compute({**LINEAR, **of, "method": "admm-paper"})["admm-paper"]
    nonlinear = mlp.compute({**LINEAR, **of, "method": "mlp-admm"})["mlp-admm"]
    scored = ("shd", "tpr", "fdr", "edges", "converged")
    assert [linear[name] for name in scored] == [0, 1, 0, 10, 0]
    assert [nonlinear[name] for name in scored] == [1, 1, 1 / 11, 11, converged]


class Called(Exception):
    """What a learner was called with, instead of its call."""


def schedule_of(solver: Solver, rho: float, *, slower: bool = False) -> Schedule:
    """Return appendix B's, or with the growth of "slower growth", written out."""
    if slower:
        return Schedule(solver, rho1=rho, rho2=rho, gamma1=1.3, gamma2=1.1, rounds=500)
    return Schedule(solver, rho1=rho, rho2=rho, gamma1=1.75, gamma2=1.25, rounds=200)


ADMM = {"penalty": 0.01, "lags": 0, "zero_diagonal": False, "threshold": 0.3}
MLP_ADMM = {
    "penalty": 0.001, "ridge": 0.0, "hidden": 10, "zero_diagonal": False, "threshold": 0.3,
    "seed": 0,
}  # fmt: skip
MLP = {
    "hidden": 10, "standardise": False, "penalty": 0.01, "ridge": 0.01, "threshold": 0.3,
    "tolerance": 1e-8, "seed": 0,
}  # fmt: skip
SITE = {"standardise": False, "threshold": 0.3, "alpha": 0.05}
GIVEN: list[tuple[str, ModuleType, str, dict[str, Any]]] = [
    ("admm-paper", admm, "learn", ADMM | {"schedule": schedule_of("subgradient", 0.001)}),
    ("admm-fast", admm, "learn", ADMM | {"schedule": schedule_of("proximal", 0.001)}),
    ("admm-slower", admm, "learn",
     ADMM | {"schedule": schedule_of("proximal", 0.001, slower=True)}),
    ("admm-fast", paper_settings, "Schedule", asdict(schedule_of("proximal", 0.001))),
    ("notears-alldata", pooled, "notears",
     {"standardise": False, "penalty": 0.1, "threshold": 0.3, "tolerance": 1e-8}),
    ("golem-ev", pooled, "golem",
     {"equal_variances": True, "standardise": False, "penalty": 0.02, "dag_penalty": 5.0,
      "threshold": 0.3}),
    ("pc", pooled, "pc", {"alpha": 0.05}),
    ("ges", pooled, "ges", {"penalty": 1.0}),
    ("voting", local, "Learner", SITE | {"algorithm": "notears", "penalty": 0.1}),
    ("average", local, "average", {"threshold": 0.3}),
    # PC has no penalty: it is given GES's, and reads none.
    ("pc-voting", local, "Learner", SITE | {"algorithm": "pc", "penalty": 1.0}),
    ("ges-voting", local, "Learner", SITE | {"algorithm": "ges", "penalty": 1.0}),
    ("mlp-admm", mlp, "learn",
     MLP_ADMM | {"schedule": schedule_of("subgradient", 0.1), "random_inputs": True}),
    ("mlp-admm-former", mlp, "learn",
     MLP_ADMM | {"schedule": schedule_of("proximal", 0.1), "random_inputs": False}),
    ("mlp-alldata", mlp, "notears_mlp", MLP),
    ("mlp-best", mlp, "notears_mlp", MLP),
    ("mlp-average", mlp, "average", {"threshold": 0.3}),
]  # fmt: skip


@pytest.mark.parametrize(("method", "module", "learner", "given"), GIVEN)
def test_every_learner_setting_is_set_explicitly(
    method: str,
    module: ModuleType,
    learner: str,
    given: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No cell rests on a default, but for names, the penalty of lags, and what noise needs.

    There are neither lags nor noise, no knowledge, and more records than variables.

    A parameter that a learner gets in future has to be decided here.
    """
    signature = inspect.signature(getattr(module, learner))

    def called(*args: Any, **kwargs: Any) -> None:
        raise Called(signature.bind(*args, **kwargs).arguments)

    monkeypatch.setattr(module, learner, called)
    if learner == "average" and module is mlp:
        monkeypatch.setattr(mlp, "notears_mlp", lambda *_, **__: None)  # sites' fits: slow
        monkeypatch.setattr(mlp, "vote", lambda _: None)
    number, panel = (4, "d = 20") if method.startswith("mlp-") else (2, "d = 10")
    chosen = settings_at(figure(number, 1), panel, 2, method, 0)
    task = admm if module is paper_settings else module
    with pytest.raises(Called) as raised:
        task.compute(chosen)
    found = dict(raised.value.args[0])
    unused = {"names", "variables", "lag_penalty", "at_least", "knowledge", "few_records", "level"}
    assert found.keys() == signature.parameters.keys() - unused
    records = {"sites", "rows", "moments", "fits"}
    assert {name: value for name, value in found.items() if name not in records} == given


@pytest.mark.system
def test_nonlinear_cells_are_computed() -> None:
    base = {**LINEAR, "data": "mlp", "d": 5, "n": 60}
    assert numbers("mlp", **base, method="mlp-alldata", penalty=0.01).keys() == {"mlp-alldata"}
    local = numbers("mlp", **base, method="mlp-local", penalty=0.01, sites=2)
    assert local.keys() == {"mlp-voting", "mlp-average", "mlp-best"}
    for method in ("mlp-admm", "mlp-admm-former"):
        found = numbers("mlp", **base, method=method, penalty=0.001, sites=2)[method]
        # d networks of hidden 10: a round sends as many numbers as they have parameters.
        assert found["kilobytes"] * 1000 / 8 % found["rounds"] == 0
        assert 0 <= found["tpr"] <= 1 and found["converged"] in (0, 1)
