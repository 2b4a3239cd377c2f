"""A site's own columns: from a run's folder, its declarations, its files, and its predictions."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import secagg
from secagg.cli.main import app
from secagg.contracts import Result
from secagg.core.randomness import replayable_random
from secagg.errors import DataError, EvidenceError, JobError, UsageError
from secagg.evidence.run_folder import RunFolder
from secagg.jobs.job import parse_job
from secagg.models.neural.ngm.fitted.sampling import Effort
from secagg.runs.adapt import adapt
from secagg.runs.adapt.finished_networks import FinishedNetworks
from secagg.runs.adapt.own_columns import read_own_columns
from secagg.runs.adapt.personalised import personalise
from secagg.runs.adapt.site_networks import SiteNetworks, read_site_networks
from secagg.runs.adapt.stitched import stitch
from secagg.runs.networks.finished_ngm import FinishedNgmRun
from secagg.runs.simulate import simulate

pytestmark = pytest.mark.neural
FEW = Effort(chains=4, warm_up=2, sweeps=4)


def table(n: int, seed: int) -> pd.DataFrame:
    """Return age -> weight and smoker; and income, group, which only one site has."""
    rng = np.random.default_rng(seed)
    age = rng.normal(50, 10, n)
    weight = 80 + 0.5 * (age - 50) + rng.normal(0, 5, n)
    smoker = np.where(rng.random(n) < 1 / (1 + np.exp(-(age - 50) / 5)), "yes", "no")
    income = 30 + 2 * (weight - 80) + rng.normal(0, 5, n)
    group = np.where(rng.random(n) < 0.3, "c", np.where(smoker == "yes", "b", "a"))
    return pd.DataFrame(
        {"age": age, "weight": weight, "smoker": smoker, "income": income, "group": group}
    )


SHARED = ["age", "weight", "smoker"]
OWN: dict[str, Any] = {
    "columns": {
        "income": {"type": "continuous", "low": -50, "high": 150},
        "group": {"type": "categorical", "levels": ["a", "b", "c"]},
    },
    "edges": [["income", "weight"], ["group", "smoker"]],
}
OWN_TOML = """
edges = [["income", "weight"], ["group", "smoker"]]

[columns.income]
type = "continuous"
low = -50
high = 150

[columns.group]
type = "categorical"
levels = ["a", "b", "c"]
"""


def job(**method: Any) -> dict[str, Any]:
    return {
        "title": "A registry",
        "sites": {"max_rows": 200},
        "columns": {
            "age": {"type": "continuous", "low": 0, "high": 100},
            "sites_own": {"type": "binary"},
            "weight": {"type": "continuous", "low": 30, "high": 150},
            "smoker": {"type": "binary", "levels": ["no", "yes"]},
        },
        "method": {
            "name": "fedngm", "edges": [["age", "weight"], ["age", "smoker"]], "hidden": [3],
            "rounds": 15, "variables": ["smoker", "age", "weight"], **method,
        },
        "protocol": {"name": "plain"},
        "release": {"min_sites": 2, "min_records": 2},
    }  # fmt: skip


TABLES = {name: table(80, i)[SHARED].assign(sites_own=0) for i, name in enumerate("ab")}


def fitted(**method: Any) -> Result:
    return simulate(job(**method), TABLES, random=replayable_random(1))


@pytest.fixture(scope="module")
def run() -> FinishedNetworks:
    return FinishedNetworks.of(parse_job(job()), fitted())


def stitched(run: FinishedNetworks, n: int = 120, **declared: Any) -> SiteNetworks:
    own = read_own_columns(OWN | declared)
    return stitch(run, table(n, 5), own, random=replayable_random(2))


def outputs(model: FinishedNgmRun, records: pd.DataFrame) -> np.ndarray:
    """Return the networks' outputs for shared columns: smoker, age, weight."""
    states = model.model.states_of(model.cells.read(records, "records"))
    return model.model.outputs(states.z)[:3]


def test_new_columns_are_predicted_from_shared_ones(run: FinishedNetworks) -> None:
    site = stitched(run, 200)
    records = table(400, 8)[SHARED]
    found = site.predictions(records, replayable_random(3))
    truth = 30 + 2 * (records["weight"].to_numpy() - 80)
    assert np.sqrt(np.mean((found["income_mean"] - truth) ** 2)) < 2  # noise has sd 5
    assert found["income_sd"] == pytest.approx(5, rel=0.2)
    smokers = records["smoker"].to_numpy() == "yes"
    for level, share in {"a": 0.0, "b": 0.7, "c": 0.3}.items():
        assert np.mean(found[f"group={level}"][smokers]) == pytest.approx(share, abs=0.1)


def test_inputs_that_are_linear_in_the_run_are_linear_at_the_site() -> None:
    settings = {"inputs": "all", "edges": [["age", "weight"]], "rounds": 5}
    run = FinishedNetworks.of(parse_job(job(**settings)), fitted(**settings))
    linear = (run.arrays["graph"] > run.arrays["curved"]).astype(bool)
    site = personalise(run, table(60, 5)[SHARED].assign(weight=60.0 + np.arange(60)))
    changed = site.result.arrays["linear.weight"] != run.arrays["linear.weight"]
    assert linear.any() and np.all(changed[linear])
    for network in (run.arrays, site.result.arrays):
        assert not np.any(network["hidden_1.weight"].transpose(0, 2, 1)[linear])


def test_the_summary_says_what_was_added(run: FinishedNetworks) -> None:
    summary = stitched(run).summary()
    assert json.loads(json.dumps(summary)) == summary
    assert summary["records_here"] == 120
    first, second = summary["new_columns"]
    assert first["column"] == "income" and first["reads"] == ["weight"]
    assert first["explained"] > 0.6 and 0.3 < second["explained"] < 0.5
    new = [edge["between"] for edge in summary["edges"]][2:]
    assert sorted(map(sorted, new)) == [["group", "smoker"], ["income", "weight"]]


def test_all_edges_may_be_allowed(run: FinishedNetworks) -> None:
    summary = stitched(run, edges="all").summary()
    assert summary["new_columns"][0]["reads"] == ["smoker", "age", "weight", "group"]
    assert len(summary["edges"]) == 2 + 2 * 3 + 1


def test_by_default_edges_are_those_of_the_sites_own_graph(run: FinishedNetworks) -> None:
    """income - weight and group - smoker; the run's edges stay, whatever the site's records say."""
    own = read_own_columns({"columns": OWN["columns"]})
    first, second = stitch(run, table(300, 5), own).summary()["new_columns"]
    assert "weight" in first["reads"] and "group" not in first["reads"]
    assert second["reads"] == ["smoker"]
    rng = np.random.default_rng(0)
    unrelated = {"income": rng.normal(size=40), "group": rng.choice(["a", "b", "c"], 40)}
    scrambled = table(40, 5).assign(**unrelated)
    summary = stitch(run, scrambled, own).summary()
    assert summary["edges"] == list(run.edges)


def test_counts_of_residuals_are_the_runs_where_outputs_are(run: FinishedNetworks) -> None:
    """age, weight, income; with into_shared, weight's outputs change and so its residuals."""
    old = run.arrays["residuals"]
    for into_shared in (False, True):
        found = stitched(run, into_shared=into_shared).result.arrays["residuals"]
        np.testing.assert_array_equal(found[0], old[0])
        assert np.array_equal(found[1], old[1]) != into_shared
        assert found[2].sum() == 120


def test_a_constant_column_and_a_missing_cell(run: FinishedNetworks) -> None:
    records = table(30, 5).assign(income=7.0, group="b")
    records.loc[3, "age"] = np.nan
    site = stitch(run, records, read_own_columns(OWN))
    assert site.records == 29
    assert [row["explained"] for row in site.summary()["new_columns"]] == [None, None]
    found = site.predictions(table(4, 1)[SHARED])
    assert found["income_mean"] == pytest.approx(7, abs=1e-6)
    assert np.all(found["group=b"] > 0.9)


@pytest.mark.parametrize(
    ("edges", "of_job", "given", "used"),
    [
        ("all", None, None, 20.0),  # many weights
        ("site", None, None, 1.0),
        (OWN["edges"], None, None, 1.0),
        ("all", 3.0, None, 3.0),
        (OWN["edges"], 3.0, 7.0, 7.0),
    ],
)
def test_the_penalty_is_the_given_one_or_that_of_the_job_or_follows_the_edges(
    edges: Any, of_job: float | None, given: float | None, used: float
) -> None:
    own = read_own_columns(OWN | {"edges": edges})
    settings = {"rounds": 2} | ({} if of_job is None else {"penalty": of_job})
    short = FinishedNetworks.of(parse_job(job(**settings)), fitted(**settings))
    found, expected = (
        stitch(short, table(30, 5), own, penalty=penalty, random=replayable_random(2))
        for penalty in (given, used)
    )
    assert found.summary()["penalty"] == used
    for name, array in expected.result.arrays.items():
        np.testing.assert_array_equal(found.result.arrays[name], array)


def test_the_linear_penalty_of_the_job_is_a_ridge_in_the_sites_records() -> None:
    settings = {"hidden": [], "linear_penalty": 40.0, "rounds": 30}
    run = FinishedNetworks.of(parse_job(job(**settings)), fitted(**settings))
    site, n = stitched(run, 60), 60
    arrays, here = site.result.arrays, table(60, 5)
    income = (here["income"] - here["income"].mean()) / here["income"].std(ddof=0)
    row, weight = 3, 2  # of smoker, age, weight, income, two levels of group
    z = ((here["weight"] - 90) / 60 - arrays["centre"][weight]) * arrays["scale"][weight]
    z, variance = z - z.mean(), np.exp(2 * arrays["log_sd"][2]) + 1e-6  # the bias is free
    ridge = (z @ income) / (z @ z + 40.0 * variance)
    # The search ends at slopes of 1e-5, and the curvature is (z @ z / variance + 40) / n > 1.
    assert z @ z / variance + 40 > n
    assert arrays["linear.weight"][row, weight] == pytest.approx(ridge, abs=2e-5)


@pytest.mark.parametrize("converged", [False, True])
def test_a_site_says_whether_the_run_had_converged(
    run: FinishedNetworks, converged: bool, tmp_path: Path
) -> None:
    if converged:
        settings: dict[str, Any] = {"hidden": [], "rounds": 100}
        run = FinishedNetworks.of(parse_job(job(**settings)), fitted(**settings))
    for site in (stitched(run, 30), personalise(run, table(30, 5)[SHARED])):
        assert site.summary()["run"] == {"converged": converged, "notes": list(run.notes)}
        (tmp_path / "site.json").write_text(json.dumps(site.summary()))
        (tmp_path / "site.npz").write_bytes(site.arrays_file())
        for model in (site.model, read_site_networks(tmp_path / "site.json")):
            assert model.query({"age": 50.0}, ["smoker"], effort=FEW)["run"] == {
                "converged": converged, "notes": list(run.notes),
            }  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({"columns": {"age": OWN["columns"]["income"]}, "edges": "all"}, "columns.age"),
        ({"edges": [["age", "weight"]]}, "edges"),
        ({"edges": [["income", "height"]]}, "edges"),
        ({"edges": [["income", "income"]]}, "edges"),
        ({"edges": "none"}, "columns"),
        ({"columns": {}}, "columns"),
        ({"into_shard": True}, "columns"),
    ],
)
def test_wrong_declarations_are_refused(
    run: FinishedNetworks, changed: dict[str, Any], where: str
) -> None:
    with pytest.raises(JobError) as caught:
        stitched(run, **changed)
    assert caught.value.where == where


def test_too_few_records_and_missing_columns_are_refused(run: FinishedNetworks) -> None:
    for records in (table(1, 5), table(20, 5)[SHARED]):
        with pytest.raises(DataError) as caught:
            stitch(run, records, read_own_columns(OWN))
        assert caught.value.where == "the new site"


@pytest.mark.parametrize("into_shared", [False, True])
def test_the_refit_of_a_revealer_is_stitched(into_shared: bool) -> None:
    """Predictions of the run's columns are bit for bit those of the run, or begin so."""
    settings = {"name": "fedngr", "hidden": [10], "rounds": 60, "learning_rate": 0.05}
    raw = job()
    raw["method"] = {**settings, "refit_rounds": 15, "variables": ["smoker", "age", "weight"]}
    result = simulate(raw, TABLES, random=replayable_random(1))
    networks = FinishedNetworks.of(parse_job(raw), result)
    site, records = stitched(networks, into_shared=into_shared), table(30, 8)
    before = outputs(FinishedNgmRun.of(parse_job(raw), result), records)
    unchanged = np.array_equal(outputs(site.model, records), before)
    assert unchanged != into_shared
    assert site.summary()["edges"][0].keys() == {"between", "path_norm"}
    found = site.predictions(records[SHARED], replayable_random(3))
    truth = 30 + 2 * (records["weight"].to_numpy() - 80)
    assert np.sqrt(np.mean((found["income_mean"] - truth) ** 2)) < 5  # the noise of a record


def test_columns_that_a_site_lacks_are_left_out_of_the_run_and_added_where_they_are(
    tmp_path: Path,
) -> None:
    """Site b lacks income; the run is bit for bit the one of a job without income."""
    raw = job()
    raw["partial"] = {"income": {"column": OWN["columns"]["income"], "sites": ["a"]}}
    income = pd.Series(np.random.default_rng(0).normal(30, 5, 80))
    tables = TABLES | {"a": TABLES["a"].assign(income=income)}
    secagg.run(parse_job(raw), tables, out=tmp_path / "run", random=replayable_random(1))
    networks = FinishedNetworks.read(RunFolder.open_finished(tmp_path / "run"))
    for name, array in fitted().arrays.items():
        np.testing.assert_array_equal(networks.arrays[name], array)
    site = adapt(tmp_path / "run", table(60, 5), columns="job")
    assert isinstance(site, SiteNetworks) and site.targets == ("income",)
    with pytest.raises(JobError) as caught:
        adapt(tmp_path / "run", table(60, 5)[SHARED], columns="job")
    assert caught.value.where == "partial"


def test_the_papers_network_cannot_be_stitched() -> None:
    with pytest.raises(UsageError):
        FinishedNetworks.of(parse_job(job(network="paper")), fitted(network="paper"))


def test_the_command_writes_files_from_which_the_model_is_restored(
    run: FinishedNetworks, tmp_path: Path
) -> None:
    secagg.run(parse_job(job()), TABLES, out=tmp_path / "run", random=replayable_random(1))
    (tmp_path / "own.toml").write_text(OWN_TOML)
    table(60, 5).to_csv(tmp_path / "here.csv", index=False)
    table(7, 6)[SHARED].to_csv(tmp_path / "others.csv", index=False)
    command = ["adapt", str(tmp_path / "run"), str(tmp_path / "here.csv")]
    columns = ["--columns", str(tmp_path / "own.toml")]
    out = ["--out", str(tmp_path / "site.json")]
    shown = CliRunner().invoke(app, [*command, *columns, *out])
    assert shown.exit_code == 0, shown.output
    assert "income" in shown.output and "site.npz" in shown.output
    model = read_site_networks(tmp_path / "site.json")
    assert model.cells.names == ["smoker", "age", "weight", "income", "group"]
    answer = model.query({"weight": 90.0}, ["income"])["columns"][0]
    assert answer["exact"] and answer["mean"] == pytest.approx(50, abs=6)
    asked = ["query", str(tmp_path / "site.json"), "--given", "weight=90", "--of", "income"]
    shown = CliRunner().invoke(app, [*asked, "--json"])
    assert json.loads(shown.stdout)["columns"][0]["mean"] == answer["mean"]
    assert CliRunner().invoke(app, [*command, *columns, *out]).exit_code != 0  # they exist

    given = ["--predict", str(tmp_path / "others.csv"), "--out", str(tmp_path / "predicted.csv")]
    shown = CliRunner().invoke(app, [*command, *columns, *given])
    assert shown.exit_code == 0, shown.output
    predicted = pd.read_csv(tmp_path / "predicted.csv")
    assert {"predicted_income_mean", "predicted_group=b"} < set(predicted.columns)
    assert len(predicted) == 7 and not (tmp_path / "predicted.npz").exists()

    (tmp_path / "site.npz").write_bytes(stitched(run, 90).arrays_file())  # of other records
    with pytest.raises(EvidenceError) as caught:
        read_site_networks(tmp_path / "site.json")
    assert caught.value.where.endswith("site.npz")
    damaged = (tmp_path / "site.npz").read_bytes()[:-40]  # with a digest that fits
    (tmp_path / "site.npz").write_bytes(damaged)
    summary = json.loads((tmp_path / "site.json").read_text())
    summary["arrays"] = hashlib.sha256(damaged).hexdigest()
    (tmp_path / "site.json").write_text(json.dumps(summary))
    with pytest.raises(EvidenceError) as caught:
        read_site_networks(tmp_path / "site.json")
    assert caught.value.where.endswith("site.npz")
    (tmp_path / "site.npz").unlink()
    with pytest.raises(EvidenceError):
        read_site_networks(tmp_path / "site.json")


def test_a_file_of_declarations_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text("edges = [")
    for path in (bad, tmp_path / "missing.toml"):
        with pytest.raises(JobError) as caught:
            read_own_columns(path)
        assert caught.value.where == str(path)
