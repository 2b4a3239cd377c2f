"""A run's networks fitted to a site's records: from its folder, with its files and refusals."""

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
from secagg.errors import DataError, UsageError
from secagg.jobs.job import Job, parse_job
from secagg.models.neural.held_out import FOLDS
from secagg.runs.adapt import adapt
from secagg.runs.adapt.finished_networks import FinishedNetworks
from secagg.runs.adapt.personalised import MIN_RECORDS, personalise
from secagg.runs.adapt.site_networks import SiteNetworks, read_site_networks
from secagg.runs.networks.finished_ngm import FinishedNgmRun
from secagg.runs.simulate import simulate

pytestmark = pytest.mark.neural
METHODS: dict[str, dict[str, Any]] = {
    "fedngm": {"name": "fedngm", "edges": "all", "hidden": [3], "rounds": 30},
    "fedngr": {
        "name": "fedngr", "hidden": [10], "rounds": 60, "learning_rate": 0.05, "refit_rounds": 30,
    },
}  # fmt: skip


def table(n: int, seed: int, slope: float = 0.5) -> pd.DataFrame:
    """Return age -> weight, with this slope at the site, and smoker."""
    rng = np.random.default_rng(seed)
    age = rng.normal(50, 10, n)
    weight = 80 + slope * (age - 50) + rng.normal(0, 5, n)
    smoker = np.where(rng.random(n) < 1 / (1 + np.exp(-(age - 50) / 5)), "yes", "no")
    return pd.DataFrame({"age": age, "weight": weight, "smoker": smoker})


TABLES = {name: table(120, i) for i, name in enumerate("ab")}


def job(name: str) -> dict[str, Any]:
    return {
        "title": "A registry",
        "sites": {"max_rows": 200},
        "columns": {
            "age": {"type": "continuous", "low": 0, "high": 100},
            "weight": {"type": "continuous", "low": 30, "high": 150},
            "smoker": {"type": "binary", "levels": ["no", "yes"]},
        },
        "method": {**METHODS[name], "variables": ["smoker", "age", "weight"]},
        "protocol": {"name": "plain"},
        "release": {"min_sites": 2, "min_records": 2},
    }


@pytest.fixture(scope="module", params=METHODS)
def fitted(request: pytest.FixtureRequest) -> tuple[Job, Result]:
    raw = job(request.param)
    return parse_job(raw), simulate(raw, TABLES, random=replayable_random(1))


@pytest.fixture(scope="module")
def run(fitted: tuple[Job, Result]) -> FinishedNetworks:
    return FinishedNetworks.of(*fitted)


def test_the_run_is_read_as_its_own_queries_read_it(
    fitted: tuple[Job, Result], run: FinishedNetworks
) -> None:
    finished = FinishedNgmRun.of(*fitted)
    model = FinishedNgmRun.of(run.job, Result(fitted[1].summary, dict(run.arrays)))
    states = model.model.states_of(model.cells.read(table(20, 7), "records"))
    expected = finished.model.outputs(states.z)
    np.testing.assert_array_equal(model.model.outputs(states.z), expected)
    assert run.shared.hidden == finished.networks.hidden


def test_at_a_site_with_another_slope_the_networks_follow_its_records(
    run: FinishedNetworks,
) -> None:
    """The share of the slope that 80 records win is large; predictions are for new records."""
    site = personalise(run, table(80, 5, -0.5), random=replayable_random(2))
    fit = site.summary()["personalised"]
    assert fit["strength"] is not None and fit["gain"] > 3 * fit["gain_error"] > 0
    assert fit["loss_of_run"] - fit["loss"] == pytest.approx(fit["gain"])
    new = table(300, 9, -0.5)
    truth = 80 - 0.5 * (new["age"].to_numpy() - 50)
    found = site.predictions(new[["age", "smoker"]], replayable_random(3))
    assert set(found) == {"weight_mean", "weight_sd"}
    assert np.sqrt(np.mean((found["weight_mean"] - truth) ** 2)) < 3  # of the run: about 10
    assert site.result.arrays["residuals"].sum() == 2 * 80  # its own, of two columns
    assert site.summary()["edges"] == [dict(edge) for edge in run.edges]


def test_a_kept_run_is_the_run_bit_for_bit(
    run: FinishedNetworks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "secagg.models.neural.ngm.site_fits.personalisation.STRENGTHS", (float("inf"),)
    )
    site = personalise(run, table(40, 5, -0.5))
    assert site.summary()["personalised"]["strength"] is None
    assert set(site.result.arrays) == set(run.arrays)
    for name, array in run.arrays.items():
        np.testing.assert_array_equal(site.result.arrays[name], array)


def test_too_few_records_and_missing_columns_are_refused(run: FinishedNetworks) -> None:
    assert MIN_RECORDS == 2 * FOLDS
    for records in (table(MIN_RECORDS - 1, 5), table(20, 5)[["age", "weight"]]):
        with pytest.raises(DataError) as caught:
            personalise(run, records)
        assert caught.value.where == "the new site"


def test_records_with_all_columns_have_none_to_predict(run: FinishedNetworks) -> None:
    site = personalise(run, table(20, 5))
    with pytest.raises(UsageError):
        site.predictions(table(3, 1))


@pytest.mark.parametrize("name", METHODS)
def test_the_command_writes_files_that_answer_queries(name: str, tmp_path: Path) -> None:
    secagg.run(parse_job(job(name)), TABLES, out=tmp_path / "run", random=replayable_random(1))
    table(80, 5, -0.5).to_csv(tmp_path / "here.csv", index=False)
    command = ["adapt", str(tmp_path / "run"), str(tmp_path / "here.csv")]
    shown = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "site.json")])
    assert shown.exit_code == 0, shown.output
    assert "personalised" in shown.output and "site.npz" in shown.output
    model = read_site_networks(tmp_path / "site.json")
    answer = model.query({"age": 70.0, "smoker": "yes"}, ["weight"])["columns"][0]
    assert answer["exact"] and answer["mean"] == pytest.approx(70, abs=5)
    asked = ["query", str(tmp_path / "site.json"), "--given", "age=70", "--given", "smoker=yes"]
    shown = CliRunner().invoke(app, [*asked, "--json"])
    assert json.loads(shown.stdout)["columns"][0]["mean"] == answer["mean"]
    assert CliRunner().invoke(app, [*command, "--out", str(tmp_path / "site.json")]).exit_code
    again = adapt(tmp_path / "run", table(80, 5, -0.5))
    assert isinstance(again, SiteNetworks) and again.session
