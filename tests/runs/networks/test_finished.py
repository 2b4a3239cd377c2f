"""Queries, predictions and samples of a finished run, in own units; without torch."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.methods.fitted_ngms import (
    MEANS,
    SDS,
    SHARES,
    ngm_folder,
    ngm_job,
    ngm_result,
    shares_given,
)
from support.runs.run_folders import log_files

from secagg.contracts import Result
from secagg.core.randomness import replayable_random
from secagg.errors import DataError, EvidenceError, UsageError
from secagg.evidence.run_folder import RunFolder
from secagg.jobs.job import parse_job
from secagg.models.neural.ngm.fitted.sampling import Effort
from secagg.models.neural.ngm.revealer import REFITTED
from secagg.runs.networks.finished_ngm import FinishedNgmRun

LEVELS = ["none", "mild", "2"]
FEW = Effort(chains=50, warm_up=20, sweeps=40)


@pytest.fixture(scope="module")
def run() -> FinishedNgmRun:
    return FinishedNgmRun.of(parse_job(ngm_job()), ngm_result())


def test_an_exact_query_of_a_logarithm_is_in_its_own_unit(run: FinishedNgmRun) -> None:
    """Mean and sd of a log-normal value, cut far above."""
    answer = run.query({"g": "mild"}, ["y"])
    (row,) = answer["columns"]
    m, s = MEANS[1, 1], SDS[1]
    assert row["mean"] == pytest.approx(np.exp(m + s**2 / 2), rel=1e-6)
    assert row["sd"] == pytest.approx(row["mean"] * np.sqrt(np.exp(s**2) - 1), rel=1e-4)
    assert row["mode"] == pytest.approx(np.exp(m)) and row["exact"] and row["r_hat"] is None
    assert answer["given"] == {"g": "mild"} and answer["run"]["notes"] == ["Loss is high."]


def test_levels_have_their_names(run: FinishedNgmRun) -> None:
    answer = run.query({"x": 0.8}, ["g", "y"], effort=FEW, random=replayable_random(1))
    levels = answer["columns"][0]["levels"]
    assert [row["level"] for row in levels] == LEVELS
    for row, exact in zip(levels, shares_given(0.8), strict=True):
        assert abs(row["probability"] - exact) < 4.5 * row["error"]
    assert answer["columns"][0]["mode"] == LEVELS[int(np.argmax(shares_given(0.8)))]
    assert answer["columns"][0]["ess"] > 100 and not answer["columns"][0]["exact"]


def test_a_column_cannot_be_both_given_and_asked_for(run: FinishedNgmRun) -> None:
    with pytest.raises(UsageError) as caught:
        run.query({"x": 1}, ["y", "x"])
    assert caught.value.where == "of"


def test_the_most_probable_record_keeps_what_is_given(run: FinishedNgmRun) -> None:
    found = run.most_probable({"g": "2"}, random=replayable_random(0))
    expected = {"x": MEANS[0, 2], "g": "2", "y": np.exp(MEANS[1, 2])}
    assert found["values"] == {k: v if k == "g" else pytest.approx(v) for k, v in expected.items()}
    assert found["reached"] == 1
    each = run.most_probable({"g": "2"}, how="each", random=replayable_random(0))
    assert each["values"] == found["values"]


def test_predictions_keep_the_tables_rows(run: FinishedNgmRun) -> None:
    table = pd.DataFrame({"g": ["2", None], "y": [1.0, 2.0], "x": [0, 1]}, index=[7, 3])
    found = run.predict(table, ["x", "g"], effort=FEW, random=replayable_random(0))
    assert list(found["x"].estimates.index) == [7, 3]
    assert list(found["x"].estimates.columns) == ["mean", "sd"]
    assert list(found["g"].estimates.columns) == list(found["g"].errors.columns) == LEVELS
    np.testing.assert_allclose(found["g"].estimates.sum(axis=1), 1)
    (alone,) = run.predict(table, ["x"], effort=FEW, random=replayable_random(0)).values()
    assert alone.estimates.loc[7, "mean"] == pytest.approx(MEANS[0, 2])
    assert alone.errors.loc[7, "mean"] == 0 < alone.errors.loc[3, "mean"]


def test_samples_are_records_in_own_units(run: FinishedNgmRun, monkeypatch: Any) -> None:
    monkeypatch.setattr("secagg.runs.networks.finished_ngm._MAX_SAMPLES", 3000)
    n = 4000
    found = run.sample(n, sweeps=20, random=replayable_random(0), decimals={"x": 2})
    assert len(found) == n and list(found.columns) == ["x", "g", "y"]
    np.testing.assert_array_equal(found["x"], found["x"].round(2))
    for i, level in enumerate(LEVELS):
        here = found[found["g"] == level]
        assert abs(len(here) / n - SHARES[i]) < 4.5 * np.sqrt(SHARES[i] * (1 - SHARES[i]) / n)
        error = SDS[1] / np.sqrt(len(here))
        assert abs(np.log(here["y"]).mean() - MEANS[1, i]) < 4.5 * error
    again = run.sample(n, sweeps=20, random=replayable_random(0), decimals={"x": 2})
    pd.testing.assert_frame_equal(found, again)


def test_samples_and_marginals_have_the_pooled_shares() -> None:
    """Also if the networks say otherwise; with a given column they are asked as they are."""
    result, pooled = ngm_result(), np.array([0.3, 0.4, 0.3])
    arrays = result.arrays
    arrays["centre"][1:3] = 2 * pooled[1:] - 1
    arrays["output.bias"] += arrays["linear.weight"] @ arrays["centre"]  # the same networks
    run = FinishedNgmRun.of(parse_job(ngm_job()), result)
    found = run.sample(3000, sweeps=20, random=replayable_random(0))
    shares = [(found["g"] == level).mean() for level in LEVELS]
    np.testing.assert_allclose(shares, pooled, atol=0.05)  # the networks' are .5, .3, .2
    for given, expected in (({}, pooled), ({"x": 0.8}, shares_given(0.8))):
        answer = run.query(given, ["g"], effort=FEW, random=replayable_random(0))
        told = [level["probability"] for level in answer["columns"][0]["levels"]]
        np.testing.assert_allclose(told, expected, atol=0.05)


@pytest.mark.parametrize("wrong", [{"n": 0}, {"n": 1, "sweeps": 0}])
def test_no_sample_and_no_sweep_are_refused(run: FinishedNgmRun, wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        run.sample(**wrong)


def test_the_pseudo_likelihood_needs_complete_records(run: FinishedNgmRun) -> None:
    table = pd.DataFrame({"g": ["2", None], "y": [1.0, 2.0], "x": [0, 1]})
    assert len(run.log_pseudo_likelihood(table[:1])) == 1
    with pytest.raises(DataError):
        run.log_pseudo_likelihood(table)


def test_the_graph_has_votes(run: FinishedNgmRun) -> None:
    edges = list(run.graph.edges(data="votes"))
    assert edges == [("x", "g", 2), ("g", "y", 1)] and list(run.graph) == ["x", "g", "y"]


@pytest.mark.parametrize(
    ("method", "advice"),
    [
        ({"name": "moments"}, "fedngm"),
        ({"name": "fedngm", "network": "paper"}, "masked"),
        ({"name": "fedngr", "refit": False}, "refit = true"),
        ({"name": "fedngr"}, "refit = true"),  # of a version without a refit
    ],
)
def test_runs_without_networks_that_estimate_are_refused(
    method: dict[str, Any], advice: str
) -> None:
    with pytest.raises(UsageError) as caught:
        FinishedNgmRun.of(parse_job(ngm_job() | {"method": method}), ngm_result())
    assert caught.value.where == "the run" and advice in caught.value.advice


def test_a_result_without_an_array_is_refused() -> None:
    result = ngm_result()
    del result.arrays["output.bias"]
    with pytest.raises(UsageError) as caught:
        FinishedNgmRun.of(parse_job(ngm_job()), result)
    assert caught.value.where == "the model"


def test_of_a_run_of_fedngr_the_refitted_networks_answer(run: FinishedNgmRun) -> None:
    result = ngm_result()
    arrays = {f"{REFITTED}{name}": array for name, array in result.arrays.items()}
    shrunk = {"layer_1.weight": result.arrays["linear.weight"] / 2, "log_sd": np.zeros(2)}
    job = parse_job(ngm_job() | {"method": {"name": "fedngr"}})
    other = FinishedNgmRun.of(job, Result(result.summary, arrays | shrunk))
    assert other.query({"g": "2"}, ["x"]) == run.query({"g": "2"}, ["x"])


# --- intervals ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def of_records() -> FinishedNgmRun:
    result = ngm_result()
    result.summary["records"] = 400
    return FinishedNgmRun.of(parse_job(ngm_job()), result)


def test_intervals_are_of_sampling_and_not_of_monte_carlo(of_records: FinishedNgmRun) -> None:
    """The mean of x given a level is that of its records: 20 % of 400, with sd 1."""
    answer = of_records.query({"g": "2"}, ["x"], random=replayable_random(0))
    (row,) = answer["columns"]
    low, high = row["mean_interval"]
    assert row["exact"] and row["mean_error"] == 0
    assert (low + high) / 2 == pytest.approx(row["mean"])
    # a prior of precision 1, and .96 / root 200 for the replicates, 4 times
    assert (high - low) / 2 == pytest.approx(1.984 / np.sqrt(80), rel=0.3)
    assert answer["interval"] == {"level": 0.95, "unavailable": None}
    drawn = of_records.query({"x": 0.8}, ["g", "y"], effort=FEW, random=replayable_random(0))
    levels, (low, high) = drawn["columns"][0]["levels"], drawn["columns"][1]["mean_interval"]
    for level in levels:
        assert 0 < level["interval"][0] < level["probability"] < level["interval"][1] < 1
    assert low < drawn["columns"][1]["mean"] < high


def test_persons_with_one_record_each_are_independent() -> None:
    result = ngm_result()
    result.summary.update(records=400, persons=400)
    run = FinishedNgmRun.of(parse_job(ngm_job() | {"privacy": {"person": "patient"}}), result)
    assert run.query({"g": "2"}, ["x"])["interval"]["unavailable"] is None


@pytest.mark.parametrize(
    ("hidden", "linear", "records"),
    [(1e8, 1e8, 400), (1e8, 1e-6, 80), (1e-6, 1e8, 80)],
)
def test_the_priors_of_the_job_count_in_an_interval(
    hidden: float, linear: float, records: int
) -> None:
    """Strong ones leave the intercept alone: all records tell of it, not only those of the level.

    The hidden units give the level, of 80 of 400 records, a slope of its own, as the linear part.
    """
    result = ngm_result()
    result.summary["records"] = 400
    result.arrays["linear.weight"][:] = result.arrays["output.bias"][:] = 0  # all shares are 1/3
    result.arrays["output.bias"][1:3] = np.log(np.array([0.3, 0.2]) / 0.5)
    weight = np.zeros((3, 2, 4))
    weight[0, 0, 1], weight[0, 1, 2] = 0.7, 0.7  # of x, from the two levels
    more = {"hidden_1.weight": weight, "hidden_1.bias": np.zeros((3, 2))}
    arrays = result.arrays | more | {"output.weight": np.zeros((4, 2))}
    method = {"name": "fedngm", "hidden": [2], "penalty": hidden, "linear_penalty": linear}
    job = parse_job(ngm_job() | {"method": method})
    run = FinishedNgmRun.of(job, Result(result.summary, arrays))
    (row,) = run.query({"g": "2"}, ["x"], random=replayable_random(0))["columns"]
    low, high = row["mean_interval"]
    # .96 / root 200 for the replicates, 4 times
    assert (high - low) / 2 == pytest.approx(1.984 / np.sqrt(records), rel=0.27)


def test_without_anything_given_a_share_has_nearly_its_binomial_error(
    of_records: FinishedNgmRun,
) -> None:
    (row,) = of_records.query({}, ["g"], effort=FEW, random=replayable_random(0))["columns"]
    for level, share in zip(row["levels"], SHARES, strict=True):
        low, high = level["interval"]
        error = 1.984 * np.sqrt(share * (1 - share) / 400)
        assert error * 0.7 < (high - low) / 2 < 1.8 * error


def test_a_level_that_hardly_any_record_has_gives_no_interval_for_its_column() -> None:
    """20 % of 20 records are fewer than five. The other columns keep their intervals."""
    result = ngm_result()
    result.summary["records"] = 20
    few = FinishedNgmRun.of(parse_job(ngm_job()), result)
    answer = few.query({"x": 0.8}, ["g", "y"], effort=FEW, random=replayable_random(0))
    assert answer["interval"]["unavailable"] is None
    assert not any("interval" in level for level in answer["columns"][0]["levels"])
    assert "mean_interval" in answer["columns"][1]


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"method": {"name": "fedngm", "hidden": [], "learn_from": "samples"}, "records": 400},
        {"method": {"name": "fedngm", "hidden": [], "algorithm": "fedavg"}, "records": 400},
        {
            "method": {"name": "fedngm", "hidden": [], "edges": "all", "standardise": False},
            "privacy": {"placement": "round", "epsilon": 8, "delta": 1e-5, "adjacency": "replace"},
            "records": 400,
        },
        {"privacy": {"person": "patient"}, "records": 400, "persons": 399},
    ],
)
def test_where_an_error_is_not_known_there_is_no_interval(changed: dict[str, Any]) -> None:
    result, changed = ngm_result(), dict(changed)
    for count in {"records", "persons"} & changed.keys():
        result.summary[count] = changed.pop(count)
    answer = FinishedNgmRun.of(parse_job(ngm_job() | changed), result).query({"g": "2"}, ["x"])
    assert answer["interval"]["unavailable"] and "mean_interval" not in answer["columns"][0]


@pytest.mark.parametrize("name", ["fedngm", "fedngr"])
def test_a_query_says_that_training_ended_before_its_optimum(name: str) -> None:
    result, key = ngm_result(), "status" if name == "fedngm" else "refit_status"
    arrays = {f"{REFITTED}{name}": array for name, array in result.arrays.items()}
    job = parse_job(ngm_job() | {"method": {"name": name}})
    for status, notes in (("converged", 1), ("out of rounds", 2), ("parameter limit reached", 2)):
        ended = Result(result.summary | {key: status}, {**result.arrays, **arrays})
        answer = FinishedNgmRun.of(job, ended).query({"g": "2"}, ["x"])
        assert len(answer["run"]["notes"]) == notes
        assert (status in answer["run"]["notes"][0]) == (notes == 2)
    said = Result(result.summary | {"converged": False, key: "out of rounds"}, ended.arrays)
    answer = FinishedNgmRun.of(job, said).query({"g": "2"}, ["x"])
    assert answer["run"] == {"converged": False, "notes": ["Loss is high."]}


def test_a_folder_is_read(tmp_path: Path, run: FinishedNgmRun) -> None:
    read = FinishedNgmRun.read(RunFolder.open_finished(ngm_folder(tmp_path / "r")))
    assert read.query({"g": "2"}, ["x"]) == run.query({"g": "2"}, ["x"])


def test_a_folder_without_edges_is_malformed(tmp_path: Path) -> None:
    folder = ngm_folder(tmp_path / "r")
    (folder / "result.json").write_text('{"notes": []}')
    log_files(folder)
    with pytest.raises(EvidenceError):
        FinishedNgmRun.read(RunFolder.open_finished(folder))
